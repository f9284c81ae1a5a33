// A layer as a launch of its own. Few outputs of many rows are one pass over the input, at the speed of memory.

// y = f(g(x) W + b) of a layer with at most SLIM_OUTPUTS outputs, where g is RELU if the preceding layer has left it to its
// readers. A block owns 32 rows, which its warps share by CHUNK inputs each. The tensor cores take the quads of x as they
// are loaded: the terms of a sum may be in any order, if those of the weight are in the same. Places: ..., the copy of x to
// read, the copy of g(x) to write. Inputs are whole quads.
const int CHUNK = 16, SLIM_OUTPUTS = 12;

// What a lane has of a chunk: a quad of each of the rows g, g + 8, g + 16, g + 24 of the block's, and the weights of the
// same inputs for outputs g and g + 8, where g = lane / 4.
struct SlimChunk {
    Lanes<4> x[4];   // of copies, the bits of a quad in the first half
    float w[2][4];

    __device__ __forceinline__ void fetch(const Product& c, const unsigned short* halves, int first, int k0) {
        int g = threadIdx.x % 32 / 4, k = k0 + threadIdx.x % 4 * 4;
#pragma unroll
        for (int t = 0; t < 4; t++) {
            int i = first + g + 8 * t;
            bool inside = i < c.m && k < c.k;
            x[t] = {};
            if (inside && halves) *(Lanes<2>*)&x[t] = *(const Lanes<2>*)(halves + (u64)i * c.k + k);
            if (inside && !halves) x[t] = *(const Lanes<4>*)(c.a + (u64)i * c.k + k);
        }
#pragma unroll
        for (int n = 0; n < 2; n++)
#pragma unroll
            for (int e = 0; e < 4; e++)
                w[n][e] = k < c.k && g + 8 * n < c.n ? c.b[(u64)(k + e) * c.n + g + 8 * n] : 0.0f;
    }

    // g(x), of a copy or not, which may be copied; rounded in bfloat16.
    __device__ __forceinline__ void prepare(const Product& c, bool from_halves, unsigned short* copy, int first, int k0) {
        int g = threadIdx.x % 32 / 4, k = k0 + threadIdx.x % 4 * 4;
        bool applies = c.flags & FLAG_RELU_INPUT, rounds = c.flags & FLAG_BF16;
#pragma unroll
        for (int t = 0; t < 4; t++) {
            if (from_halves) x[t] = wide(__float_as_uint(x[t].v[0]), __float_as_uint(x[t].v[1]));
#pragma unroll
            for (int e = 0; e < 4; e++)
                if (applies) x[t].v[e] = activated(RELU, x[t].v[e]);
            if (from_halves || !rounds) continue;
            Halves<4> rounded = to_halves(x[t]);
            int i = first + g + 8 * t;
            if (copy && i < c.m && k < c.k) *(Halves<4>*)(copy + (u64)i * c.k + k) = rounded;
#pragma unroll
            for (int e = 0; e < 4; e++) x[t].v[e] = from_bf16(rounded.v[e]);
        }
    }

    // Four numbers of their bfloat16 bits.
    static __device__ __forceinline__ Lanes<4> wide(u32 low, u32 high) {
        return {__uint_as_float(low << 16), __uint_as_float(low & 0xffff0000u), __uint_as_float(high << 16),
                __uint_as_float(high & 0xffff0000u)};
    }

    // Adds the chunk's terms. In f32 by three products of split operands.
    template <int PRECISION>
    __device__ __forceinline__ void multiply(float (&sum)[2][2][4]) const {
        const bool EXACT = PRECISION == 0;
#pragma unroll
        for (int s = 0; s < 4; s += 2) {
            Fragment<2, EXACT> right[2];
#pragma unroll
            for (int n = 0; n < 2; n++)
#pragma unroll
                for (int e = 0; e < 2; e++) right[n].set(e, operand(w[n][s + e], PRECISION & FLAG_BF16));
#pragma unroll
            for (int m = 0; m < 2; m++) {
                Fragment<4, EXACT> left;
#pragma unroll
                for (int e = 0; e < 4; e++) left.set(e, x[2 * m + e % 2].v[s + e / 2]);
#pragma unroll
                for (int n = 0; n < 2; n++) {
                    if (EXACT) mma(sum[m][n], left.low, right[n].high), mma(sum[m][n], left.high, right[n].low);
                    mma(sum[m][n], left.high, right[n].high);
                }
            }
        }
    }
};

__device__ __forceinline__ void slim_linear(const Op& op, float* arena) {
    __shared__ float sums[8][32][SLIM];
    Product c = linear_product(op, arena);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    const unsigned short* halves = (const unsigned short*)place(arena, op.at[5]);
    unsigned short* copy = (unsigned short*)place(arena, op.at[6]);
    for (int first = blockIdx.x * 32; first < c.m; first += gridDim.x * 32) {
        float sum[2][2][4] = {};
        SlimChunk next;
        next.fetch(c, halves, first, warp * CHUNK);
        for (int k0 = warp * CHUNK; k0 < c.k; k0 += 8 * CHUNK) {
            SlimChunk now = next;
            next.fetch(c, halves, first, k0 + 8 * CHUNK);
            now.prepare(c, halves != 0, copy, first, k0);
            if (c.flags & FLAG_TF32) now.multiply<FLAG_TF32>(sum);
            else if (c.flags & FLAG_BF16) now.multiply<FLAG_BF16>(sum);
            else now.multiply<0>(sum);
        }
#pragma unroll
        for (int m = 0; m < 2; m++)
#pragma unroll
            for (int n = 0; n < 2; n++)
#pragma unroll
                for (int e = 0; e < 4; e++)
                    sums[warp][16 * m + lane / 4 + e / 2 * 8][8 * n + lane % 4 * 2 + e % 2] = sum[m][n][e];
        __syncthreads();
        for (int e = threadIdx.x; e < 32 * c.n; e += BLOCK_THREADS) {
            int i = e / c.n, j = e % c.n;
            float total = 0.0f;
            for (int of = 0; of < 8; of++) total += sums[of][i][j];
            if (first + i < c.m) c.finish(first + i, j, total);
        }
        __syncthreads();
    }
}

extern "C" __global__ void __launch_bounds__(256, 2) op_linear(Op op, float* arena, Run*) {
    if (op.outputs > SLIM) return tiled<false, false>(linear_product(op, arena));
    // As op::product::is_slim says.
    bool is_slim = op.outputs <= SLIM_OUTPUTS && op.rows >= SLIM_ROWS && op.rows / 2 >= op.inputs;
    if (is_slim && op.inputs >= 64 && op.inputs % 4 == 0) {
        slim_linear(op, arena);
    } else if (op.inputs >= 64) {
        slim_rows(linear_product(op, arena));
    } else {
        direct_shared(linear_product(op, arena), Launch());
    }
}
