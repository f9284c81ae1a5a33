// Matrix products with a fused epilogue: bias and activation, an activation's derivative, or the plain SGD
// update.
//
// All three products of a layer are C[m, n] = A[m, k] B[k, n], where A or B may be stored transposed. Strides
// express that, so nothing is transposed in memory. There are four algorithms, chosen by shape:
//  - `tiled`: a block computes a square tile of C from shared memory, each thread 4x4 (or 2x2) elements in
//    registers, while the next slices of A and B are loaded from global memory. Only in stand-alone kernels.
//  - `slim_rows`: up to 16 columns and a long k: warps own a row of C and each lane a part of k, so A is read
//    once.
//  - `slim_columns`: A transposed and m or n up to 16: threads run along the wide side, warps and blocks share
//    k.
//  - `direct`: everything else, and everything in `interpret` and `interpret_grid`: a thread computes 4x4
//    elements, or one, straight from the operands; if there are few elements, several lanes share the terms
//    of one.
// A thread that sums an element alone uses fused multiply-adds in the order of k.

// ---------------------------------------------------------------------------------------------------------- product

// A product and its epilogue. A[i, p] is at a[i * a_row + p * a_step],
// B[p, j] at b[p * b_step + j * b_column].
struct Product {
    const float *a, *b;
    int m, k, n, flags;
    int a_row, a_step, b_step, b_column;
    // The epilogue, in this order; a null pointer skips its part.
    const float* bias;    // [n], added
    float* pre;           // [m, n], kept before the activation
    const float* saved;   // [m, n], saved by the activation whose derivative is multiplied; if null, the activation is applied
    int activation;
    bool update;          // C -= rate * product, else C = product
    float rate;
    float* c;             // [m, n]
    int row;              // from one row of c, pre and saved to the next

    __device__ float left(int i, int p) const { return operand(a[(u64)i * a_row + (u64)p * a_step], flags); }
    __device__ float right(int p, int j) const { return operand(b[(u64)p * b_step + (u64)j * b_column], flags); }

    __device__ void finish(int i, int j, float z) const {
        u64 at = (u64)i * row + j;
        if (bias) z += bias[j];
        if (pre) pre[at] = z;
        z = saved ? times_derivative(activation, saved[at], z) : activated(activation, z);
        c[at] = update ? fmaf(-rate, z, c[at]) : z;
    }
};

__device__ __forceinline__ float* place(float* arena, u64 at) { return at == NONE ? 0 : arena + at; }

__device__ __forceinline__ float rate_of(const Op& op, const Run& run) {
    return op.flags & FLAG_UPDATE ? run.hyper[run.index].rate : 0.0f;
}

// y = f(x W + b). Reads rows, inputs, outputs, activation, flags. Places: x, weight, bias, pre, y.
__device__ __forceinline__ Product linear_product(const Op& op, float* arena) {
    return {arena + op.at[0], arena + op.at[1], op.rows, op.inputs, op.outputs, op.flags,
            op.inputs, 1, op.outputs, 1,
            place(arena, op.at[2]), place(arena, op.at[3]), 0, op.activation, false, 0.0f, arena + op.at[4], op.outputs};
}

// dx = (dy W^T) f'(saved). Reads as above. Places: dy, weight, dx, saved.
__device__ __forceinline__ Product input_gradient_product(const Op& op, float* arena) {
    float* saved = place(arena, op.at[3]);
    return {arena + op.at[0], arena + op.at[1], op.rows, op.outputs, op.inputs, op.flags,
            op.outputs, 1, 1, op.outputs,
            0, 0, saved, saved ? op.activation : 0, false, 0.0f, arena + op.at[2], op.inputs};
}

// dW = x^T dy, or W -= rate dW. Reads rows, inputs, outputs, flags. Places: x, dy, to.
__device__ __forceinline__ Product weight_gradient_product(const Op& op, float* arena, const Run& run) {
    return {arena + op.at[0], arena + op.at[1], op.inputs, op.rows, op.outputs, op.flags,
            1, op.inputs, op.outputs, 1,
            0, 0, 0, 0, (op.flags & FLAG_UPDATE) != 0, rate_of(op, run), arena + op.at[2], op.outputs};
}

// Finishes R x R elements that a thread holds in registers: (i0 + y * down, j0 + x * across). The loop is not
// unrolled, so that the epilogue is compiled once instead of R x R times. Registers cannot be indexed, so the
// elements are shifted by one in each iteration instead.
template <int R>
__device__ __forceinline__ void finish_all(const Product& c, float (&sum)[R][R], int i0, int down, int j0, int across) {
#pragma unroll 1
    for (int e = 0; e < R * R; e++) {
        int i = i0 + e / R * down, j = j0 + e % R * across;
        if (i < c.m && j < c.n) c.finish(i, j, sum[0][0]);
#pragma unroll
        for (int q = 0; q + 1 < R * R; q++) sum[q / R][q % R] = sum[(q + 1) / R][(q + 1) % R];
    }
}

// ------------------------------------------------------------------------------------------------------------ tiled

const int DEPTH = 16;        // of k per slice
const int TILE_THREADS = 256;

// Loads one slice of an operand into registers: EDGE elements along its side of C, DEPTH along k. `ALONG_K`:
// stored rows run along k. Consecutive threads read consecutive addresses. Elements outside the matrix are
// zeros.
template <int EDGE, bool ALONG_K>
__device__ __forceinline__ void fetch(const float* from, int side, int k, int side0, int k0, int flags,
                                      float (&into)[EDGE / 16]) {
    for (int q = 0; q < EDGE / 16; q++) {
        int p = ALONG_K ? threadIdx.x % DEPTH : threadIdx.x / EDGE + q * (TILE_THREADS / EDGE);
        int e = ALONG_K ? threadIdx.x / DEPTH + q * (TILE_THREADS / DEPTH) : threadIdx.x % EDGE;
        bool inside = side0 + e < side && k0 + p < k;
        u64 at = ALONG_K ? (u64)(side0 + e) * k + k0 + p : (u64)(k0 + p) * side + side0 + e;
        into[q] = inside ? operand(from[at], flags) : 0.0f;
    }
}

template <int EDGE, bool ALONG_K>
__device__ __forceinline__ void store(float (*to)[EDGE + 4], const float (&from)[EDGE / 16]) {
    for (int q = 0; q < EDGE / 16; q++) {
        int p = ALONG_K ? threadIdx.x % DEPTH : threadIdx.x / EDGE + q * (TILE_THREADS / EDGE);
        int e = ALONG_K ? threadIdx.x / DEPTH + q * (TILE_THREADS / DEPTH) : threadIdx.x % EDGE;
        to[p][e] = from[q];
    }
}

// Blocks own every gridDim-th tile of EDGE x EDGE. Thread (y, x) of 16 x 16 owns a square of EDGE/16 elements
// per side that starts at (y, x) * EDGE/16 within the tile. TA: A is stored [k, m]; TB: B is stored [n, k].
template <int EDGE, bool TA, bool TB>
__device__ __forceinline__ void tiled(const Product& c) {
    const int R = EDGE / 16;
    alignas(16) __shared__ float left[DEPTH][EDGE + 4];
    alignas(16) __shared__ float right[DEPTH][EDGE + 4];
    int across = (c.n + EDGE - 1) / EDGE, down = (c.m + EDGE - 1) / EDGE;
    int row = threadIdx.x / 16 * R, column = threadIdx.x % 16 * R;
    for (int tile = blockIdx.x; tile < across * down; tile += gridDim.x) {
        int i0 = tile / across * EDGE, j0 = tile % across * EDGE;
        float sum[R][R] = {}, a[R], b[R];
        fetch<EDGE, !TA>(c.a, c.m, c.k, i0, 0, c.flags, a);
        fetch<EDGE, TB>(c.b, c.n, c.k, j0, 0, c.flags, b);
        for (int k0 = 0; k0 < c.k; k0 += DEPTH) {
            __syncthreads();   // the previous slice has been read
            store<EDGE, !TA>(left, a);
            store<EDGE, TB>(right, b);
            __syncthreads();
            if (k0 + DEPTH < c.k) {
                fetch<EDGE, !TA>(c.a, c.m, c.k, i0, k0 + DEPTH, c.flags, a);
                fetch<EDGE, TB>(c.b, c.n, c.k, j0, k0 + DEPTH, c.flags, b);
            }
#pragma unroll 8
            for (int p = 0; p < DEPTH; p++) {
                float l[R], r[R];
#pragma unroll
                for (int q = 0; q < R; q++) l[q] = left[p][row + q], r[q] = right[p][column + q];
#pragma unroll
                for (int i = 0; i < R; i++)
#pragma unroll
                    for (int j = 0; j < R; j++) sum[i][j] = fmaf(l[i], r[j], sum[i][j]);
            }
        }
        finish_all(c, sum, i0 + row, 1, j0 + column, 1);
    }
}

// Large tiles if there are enough for all blocks, else small ones.
template <bool TA, bool TB>
__device__ __forceinline__ void tiled(const Product& c) {
    u64 large = (u64)((c.m + 63) / 64) * ((c.n + 63) / 64);
    if (large >= gridDim.x) tiled<64, TA, TB>(c);
    else tiled<32, TA, TB>(c);
}

// ------------------------------------------------------------------------------------------------------------- slim

// n <= SLIM. A row of C is owned by as many warps of a block as there are to spare: lane l of warp w of them
// owns k = 32 w + l, and so on with their stride. Shuffles add up the parts of a warp, and the first warp
// those of the others, in order; lane j finishes column j.
__device__ __forceinline__ void slim_rows(const Product& c) {
    __shared__ float sums[8][SLIM];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32, shared = 1;
    while (shared < 8 && 128 * shared <= c.k && (u64)c.m * shared * 2 <= gridDim.x * 8ull) shared *= 2;
    int rows = 8 / shared, part = warp % shared;
    for (int first = blockIdx.x * rows; first < c.m; first += gridDim.x * rows) {
        int i = first + warp / shared;
        float sum[SLIM] = {};
        if (i < c.m) {
#pragma unroll 2
            for (int p = part * 32 + lane; p < c.k; p += 32 * shared) {
                float l = c.left(i, p);
#pragma unroll
                for (int j = 0; j < SLIM; j++)
                    if (j < c.n) sum[j] = fmaf(l, c.right(p, j), sum[j]);
            }
        }
        float own = 0.0f;
#pragma unroll
        for (int j = 0; j < SLIM; j++) {
            if (j >= c.n) break;
            float total = warp_sum(sum[j]);
            if (lane == j) own = total;
        }
        if (shared > 1) {
            __syncthreads();   // the previous rows have been read
            if (lane < SLIM) sums[warp][lane] = own;
            __syncthreads();
            for (int w = 1; w < shared && part == 0 && lane < SLIM; w++) own += sums[warp + w][lane];
        }
        if (i < c.m && part == 0 && lane < c.n) c.finish(i, lane, own);
    }
}

// A transposed, m or n <= SLIM: C is wide^T slim or its transpose, summed over rows of both; see Strips.
__device__ __forceinline__ void slim_columns(const Product& c, const Run& run) {
    bool upright = c.n <= SLIM;   // the wide side is m
    const float *wide = upright ? c.a : c.b, *slim = upright ? c.b : c.a;
    int width = upright ? c.m : c.n, slim_width = upright ? c.n : c.m;
    Strips::sum<SLIM>(
        run, width, c.k, slim_width,
        [&](int x, int p, float (&sum)[SLIM][1]) {
            float w = operand(wide[(u64)p * width + x], c.flags);
#pragma unroll
            for (int y = 0; y < SLIM; y++)
                if (y < slim_width) sum[y][0] = fmaf(w, operand(slim[(u64)p * slim_width + y], c.flags), sum[y][0]);
        },
        [&](int x, int y, float total) { c.finish(upright ? x : y, upright ? y : x, total); });
}

// ----------------------------------------------------------------------------------------------------------- direct

// 4 x 4 elements per thread: rows i, i + m/4, ... and columns j, j + n/4, ... (rounded up), so that
// neighbouring threads read neighbouring addresses. If B is transposed, the lanes of a warp start at
// different k to avoid conflicts on one bank of shared memory.
template <class S>
__device__ __forceinline__ void direct_squares(const Product& c, S s) {
    const int R = 4;
    int down = (c.m + R - 1) / R, across = (c.n + R - 1) / R;
    u64 squares = (u64)down * across;
    for (u64 t = s.thread; t < squares; t += s.threads) {
        int i0 = (int)(t / across), j0 = (int)(t % across);
        float sum[R][R] = {};
        const float *a[R], *b[R];   // past the end: reads the first, is not stored
#pragma unroll
        for (int q = 0; q < R; q++) {
            int i = i0 + q * down, j = j0 + q * across;
            a[q] = c.a + (u64)(i < c.m ? i : 0) * c.a_row;
            b[q] = c.b + (u64)(j < c.n ? j : 0) * c.b_column;
        }
        int p = c.b_column == 1 ? 0 : (int)lane_of(j0) % c.k;
        for (int left = c.k; left > 0; left--) {
            u64 ap = (u64)p * c.a_step, bp = (u64)p * c.b_step;
            float l[R], r[R];
#pragma unroll
            for (int q = 0; q < R; q++) l[q] = operand(a[q][ap], c.flags), r[q] = operand(b[q][bp], c.flags);
#pragma unroll
            for (int i = 0; i < R; i++)
#pragma unroll
                for (int j = 0; j < R; j++) sum[i][j] = fmaf(l[i], r[j], sum[i][j]);
            if (++p == c.k) p = 0;
        }
        finish_all(c, sum, i0, down, j0, across);
    }
}

// `lanes` consecutive lanes share an element, if there are threads to spare and k is long: lane l has k = l,
// l + lanes, ... Whole warps stay in the loop for the shuffles.
template <class S>
__device__ __forceinline__ void direct_shared(const Product& c, S s) {
    u64 elements = (u64)c.m * c.n;
    int shift = share(elements, s.threads, c.k), lanes = 1 << shift, part = s.thread & (lanes - 1);
    for (u64 first = s.thread - lane_of(s.thread); first < elements << shift; first += s.threads) {
        u64 element = (first + lane_of(s.thread)) >> shift;
        bool inside = element < elements;
        int i = (int)(element / c.n), j = (int)(element % c.n);
        float sum = 0.0f;
        if (inside) {
#pragma unroll 4
            for (int p = part; p < c.k; p += lanes) sum = fmaf(c.left(i, p), c.right(p, j), sum);
        }
        if (lanes > 1) sum = group_sum(sum, lanes);
        if (inside && part == 0) c.finish(i, j, sum);
    }
}

// All three products: one function for three kinds, so that an interpreter contains the code only once.
template <class S>
__device__ void product_op(const Op& op, float* arena, const Run& run, S s) {
    Product c = op.kind == OP_LINEAR           ? linear_product(op, arena)
                : op.kind == OP_INPUT_GRADIENT ? input_gradient_product(op, arena)
                                               : weight_gradient_product(op, arena, run);
    if ((u64)c.m * c.n >= 8ull * s.threads) direct_squares(c, s);
    else direct_shared(c, s);
}

// ---------------------------------------------------------------------------------------------------------- kernels

extern "C" __global__ void __launch_bounds__(256, 2) op_weight_gradient(Op op, float* arena, Run* run) {
    Product c = weight_gradient_product(op, arena, *run);
    if (c.n > SLIM && c.m > SLIM) tiled<true, false>(c);
    else slim_columns(c, *run);
}
