// A layer as a launch of its own. Few outputs of many rows are one pass over the input, at the speed of memory.

// y = f(g(x) W + b) of a layer with at most SLIM_OUTPUTS outputs, where g is RELU if the preceding layer has left it to its
// readers. A block owns 32 rows, a lane one of them; its warps share the inputs, CHUNK at a time, which go through shared
// memory since a lane reads its row and a load reads along rows. Places: ..., the copy of x to read, the copy of g(x) to
// write. Inputs are whole quads.
const int CHUNK = 16, SLIM_OUTPUTS = 12;

struct SlimLinear {
    float x[8][32][CHUNK + 4];   // rows begin on different banks
    float w[8][CHUNK][SLIM_OUTPUTS];
};

__device__ __forceinline__ void slim_linear(const Op& op, float* arena, SlimLinear& shared) {
    Product c = linear_product(op, arena);
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    float(&xs)[32][CHUNK + 4] = shared.x[warp];
    float(&ws)[CHUNK][SLIM_OUTPUTS] = shared.w[warp];
    float* flat = &ws[0][0];
    int to[SLIM_OUTPUTS / 2];   // where this lane's weights of a chunk go
#pragma unroll
    for (int i = 0; i < SLIM_OUTPUTS / 2; i++) {
        int e = lane + 32 * i;
        to[i] = e < CHUNK * c.n ? e / c.n * SLIM_OUTPUTS + e % c.n : -1;
        flat[e] = 0.0f;
    }
    const unsigned short* halves = (const unsigned short*)place(arena, op.at[5]);
    unsigned short* copy = (unsigned short*)place(arena, op.at[6]);
    int row = lane / 4, quad = lane % 4 * 4;   // of the first of this lane's four quads of a chunk
    for (int first = blockIdx.x * 32; first < c.m; first += gridDim.x * 32) {
        float sum[SLIM_OUTPUTS] = {}, w[SLIM_OUTPUTS / 2];
        Lanes<4> x[4];   // or the bits of halves in the first half
        auto fetch = [&](int k0) {
#pragma unroll
            for (int t = 0; t < 4; t++) {
                int i = first + row + 8 * t;
                u64 at = (u64)i * c.k + k0 + quad;
                x[t] = {};
                if (i >= c.m || k0 + quad >= c.k) continue;
                if (halves) *(Lanes<2>*)&x[t] = *(const Lanes<2>*)(halves + at);
                else x[t] = *(const Lanes<4>*)(c.a + at);
            }
#pragma unroll
            for (int i = 0; i < SLIM_OUTPUTS / 2; i++) {
                int e = lane + 32 * i;
                w[i] = to[i] >= 0 && k0 * c.n + e < c.k * c.n ? c.b[(u64)k0 * c.n + e] : 0.0f;
            }
        };
        if (warp * CHUNK < c.k) fetch(warp * CHUNK);
        for (int k0 = warp * CHUNK; k0 < c.k; k0 += 8 * CHUNK) {
            __syncwarp();   // the previous chunk has been read
#pragma unroll
            for (int t = 0; t < 4; t++) {
                int i = first + row + 8 * t;
                if (halves) {
                    u32 low = __float_as_uint(x[t].v[0]), high = __float_as_uint(x[t].v[1]);
                    x[t] = {__uint_as_float(low << 16), __uint_as_float(low & 0xffff0000u), __uint_as_float(high << 16),
                            __uint_as_float(high & 0xffff0000u)};
                }
                if (op.flags & FLAG_RELU_INPUT)
#pragma unroll
                    for (int e = 0; e < 4; e++) x[t].v[e] = activated(RELU, x[t].v[e]);
                if (copy && i < c.m && k0 + quad < c.k)
                    *(Halves<4>*)(copy + (u64)i * c.k + k0 + quad) = to_halves(x[t]);
                if (!halves)
#pragma unroll
                    for (int e = 0; e < 4; e++) x[t].v[e] = operand(x[t].v[e], op.flags);
                *(Lanes<4>*)&xs[row + 8 * t][quad] = x[t];
            }
#pragma unroll
            for (int i = 0; i < SLIM_OUTPUTS / 2; i++)
                if (to[i] >= 0) flat[to[i]] = operand(w[i], op.flags);
            __syncwarp();
            if (k0 + 8 * CHUNK < c.k) fetch(k0 + 8 * CHUNK);
#pragma unroll
            for (int p = 0; p < CHUNK; p += 4) {
                Lanes<4> own = *(const Lanes<4>*)&xs[lane][p];
#pragma unroll
                for (int e = 0; e < 4; e++)
#pragma unroll
                    for (int j = 0; j < SLIM_OUTPUTS; j += 4) {
                        Lanes<4> of = *(const Lanes<4>*)&ws[p + e][j];
#pragma unroll
                        for (int q = 0; q < 4; q++) sum[j + q] = fmaf(own.v[e], of.v[q], sum[j + q]);
                    }
            }
        }
        __syncwarp();
#pragma unroll
        for (int j = 0; j < SLIM_OUTPUTS; j++) xs[lane][j] = sum[j];
        __syncthreads();
        for (int e = threadIdx.x; e < 32 * c.n; e += BLOCK_THREADS) {
            int i = e / c.n, j = e % c.n;
            float total = 0.0f;
            for (int of = 0; of < 8; of++) total += shared.x[of][i][j];
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
        alignas(16) __shared__ SlimLinear shared;
        slim_linear(op, arena, shared);
    } else if (op.inputs >= 64) {
        slim_rows(linear_product(op, arena));
    } else {
        direct_shared(linear_product(op, arena), Launch());
    }
}
