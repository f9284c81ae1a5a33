// Matrix products with what follows them: bias and activation, an activation's derivative, or the plain SGD update.
//
// All three products of a layer are C[m, n] = A[m, k] B[k, n] where A or B may be stored transposed, told by two template
// flags, so that no transpose is ever made. Four ways, by shape:
//  - `tiled`: a block computes a square tile of C from shared memory, a thread 4x4 (or 2x2) of it in registers, while the
//    next slices of A and B are on their way from global memory. Only in stand-alone kernels.
//  - `slim_rows`: up to 16 columns and a long k: a warp owns a row of C and each lane a part of k, so that A is read once.
//  - `slim_columns`: A transposed and m or n up to 16: threads go along the wide side, warps share k.
//  - `direct`: everything else, and everything in `walk` and `walk_grid`: a thread computes 4x4 elements or one straight
//    from the operands, or several lanes share one element's k where elements are few.
// Where a thread sums an element alone it does so in the order of k by fused multiply-adds.

// --------------------------------------------------------------------------------------------------------- operands

// A[i, k] and B[k, j] by how they are stored: A is [m, k], or [k, m] if TA; B is [k, n], or [n, k] if TB.
template <bool TA, bool TB>
struct Pair {
    const float *a, *b;
    int m, k, n, flags;

    __device__ float left(int i, int p) const {
        return operand(a[TA ? (u64)p * m + i : (u64)i * k + p], flags);
    }
    __device__ float right(int p, int j) const {
        return operand(b[TB ? (u64)j * k + p : (u64)p * n + j], flags);
    }
};

// ------------------------------------------------------------------------------------------------------------ tiled

const int DEPTH = 16;        // of k per slice
const int TILE_THREADS = 256;

// One slice of an operand into registers: EDGE numbers along its side of C, DEPTH along k. `ALONG_K`: k is the stored
// rows' direction. Consecutive threads take consecutive addresses. Outside the matrix there are zeros.
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

// Blocks own every gridDim-th tile of EDGE x EDGE; thread (y, x) of 16 x 16 owns EDGE/16 squared elements from
// (y, x) * EDGE/16 of the tile on.
template <int EDGE, bool TA, bool TB, class Out>
__device__ __forceinline__ void tiled(Pair<TA, TB> c, Out out) {
    const int R = EDGE / 16;
    __shared__ float left[DEPTH][EDGE + 4], right[DEPTH][EDGE + 4];
    int across = (c.n + EDGE - 1) / EDGE, down = (c.m + EDGE - 1) / EDGE;
    int row = threadIdx.x / 16 * R, column = threadIdx.x % 16 * R;
    for (int tile = blockIdx.x; tile < across * down; tile += gridDim.x) {
        int i0 = tile / across * EDGE, j0 = tile % across * EDGE;
        float sum[R][R] = {}, a[R], b[R];
        fetch<EDGE, !TA>(c.a, c.m, c.k, i0, 0, c.flags, a);
        fetch<EDGE, TB>(c.b, c.n, c.k, j0, 0, c.flags, b);
        for (int k0 = 0; k0 < c.k; k0 += DEPTH) {
            __syncthreads();   // the slice before has been read
            store<EDGE, !TA>(left, a);
            store<EDGE, TB>(right, b);
            __syncthreads();
            if (k0 + DEPTH < c.k) {
                fetch<EDGE, !TA>(c.a, c.m, c.k, i0, k0 + DEPTH, c.flags, a);
                fetch<EDGE, TB>(c.b, c.n, c.k, j0, k0 + DEPTH, c.flags, b);
            }
#pragma unroll
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
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll
            for (int j = 0; j < R; j++)
                if (i0 + row + i < c.m && j0 + column + j < c.n) out(i0 + row + i, j0 + column + j, sum[i][j]);
    }
}

// Large tiles where there are enough of them for all blocks, else small ones.
template <bool TA, bool TB, class Out>
__device__ __forceinline__ void tiled(Pair<TA, TB> c, Out out) {
    u64 large = (u64)((c.m + 63) / 64) * ((c.n + 63) / 64);
    if (large >= gridDim.x) tiled<64>(c, out);
    else tiled<32>(c, out);
}

// ------------------------------------------------------------------------------------------------------------- slim

const int SLIM = 16;

// n <= SLIM. A warp owns every warps-th row; lane l owns k = l, l + 32, ...; sums join by shuffles, lane j finishes
// column j.
template <bool TA, bool TB, class Out>
__device__ __forceinline__ void slim_rows(Pair<TA, TB> c, Launch s, Out out) {
    int lane = lane_of(s.thread), warps = s.threads / 32;
    for (int i = s.thread / 32; i < c.m; i += warps) {
        float sum[SLIM] = {};
        for (int p = lane; p < c.k; p += 32) {
            float l = c.left(i, p);
#pragma unroll
            for (int j = 0; j < SLIM; j++)
                if (j < c.n) sum[j] = fmaf(l, c.right(p, j), sum[j]);
        }
        float own = 0.0f;
#pragma unroll
        for (int j = 0; j < SLIM; j++) {
            if (j >= c.n) break;
            float total = warp_sum(sum[j]);
            if (lane == j) own = total;
        }
        if (lane < c.n) out(i, lane, own);
    }
}

// C = sum over k of wide[k, x] slim[k, y], y < slim_width <= SLIM. A block owns strips of 32 x; lane = x, and warp w of 8
// owns k = w, w + 8, ...; the first warps join the eight sums in order.
template <class Out>
__device__ __forceinline__ void slim_columns(const float* wide, int wide_width, const float* slim, int slim_width, int k,
                                             int flags, Out out) {
    __shared__ float sums[8][SLIM][32];
    int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    for (int x0 = blockIdx.x * 32; x0 < wide_width; x0 += gridDim.x * 32) {
        int x = x0 + lane;
        float sum[SLIM] = {};
        for (int p = warp; p < k; p += 8) {
            float w = x < wide_width ? operand(wide[(u64)p * wide_width + x], flags) : 0.0f;
#pragma unroll
            for (int y = 0; y < SLIM; y++)
                if (y < slim_width) sum[y] = fmaf(w, operand(slim[(u64)p * slim_width + y], flags), sum[y]);
        }
        __syncthreads();   // the strip before has been read
#pragma unroll
        for (int y = 0; y < SLIM; y++)
            if (y < slim_width) sums[warp][y][lane] = sum[y];
        __syncthreads();
        for (int y = warp; y < slim_width; y += 8) {
            float total = 0.0f;
            for (int w = 0; w < 8; w++) total += sums[w][y][lane];
            if (x < wide_width) out(x, y, total);
        }
    }
}

// ----------------------------------------------------------------------------------------------------------- direct

// R x R elements per thread: rows i, i + m/R, ... and columns j, j + n/R, ... (rounded up), so that neighbours read
// neighbouring addresses. With B transposed the lanes of a warp begin at different k: they would all hit one bank of
// shared memory else.
template <int R, bool TA, bool TB, class S, class Out>
__device__ __forceinline__ void direct_squares(Pair<TA, TB> c, S s, Out out) {
    int down = (c.m + R - 1) / R, across = (c.n + R - 1) / R;
    for (int t = s.thread; t < down * across; t += s.threads) {
        int i0 = t / across, j0 = t % across;
        float sum[R][R] = {};
        int p = TB ? lane_of(j0) % c.k : 0;
        for (int left = c.k; left > 0; left--) {
            float l[R], r[R];
#pragma unroll
            for (int q = 0; q < R; q++) {
                int i = i0 + q * down, j = j0 + q * across;
                l[q] = i < c.m ? c.left(i, p) : 0.0f;
                r[q] = j < c.n ? c.right(p, j) : 0.0f;
            }
#pragma unroll
            for (int i = 0; i < R; i++)
#pragma unroll
                for (int j = 0; j < R; j++) sum[i][j] = fmaf(l[i], r[j], sum[i][j]);
            if (++p == c.k) p = 0;
        }
#pragma unroll
        for (int i = 0; i < R; i++)
#pragma unroll
            for (int j = 0; j < R; j++)
                if (i0 + i * down < c.m && j0 + j * across < c.n) out(i0 + i * down, j0 + j * across, sum[i][j]);
    }
}

// `lanes` consecutive lanes own an element together: lane l of them k = l, l + lanes, ... Whole warps stay in the loop
// for the shuffles' sake.
template <bool TA, bool TB, class S, class Out>
__device__ __forceinline__ void direct_shared(Pair<TA, TB> c, int lanes, S s, Out out) {
    int elements = c.m * c.n, part = s.thread % lanes;
    for (int first = s.thread - lane_of(s.thread); first < elements * lanes; first += s.threads) {
        int element = (first + (int)lane_of(s.thread)) / lanes;
        bool inside = element < elements;
        int i = element / c.n, j = element % c.n;
        float sum = 0.0f;
        if (inside) {
#pragma unroll 4
            for (int p = part; p < c.k; p += lanes) sum = fmaf(c.left(i, p), c.right(p, j), sum);
        }
        if (lanes > 1) sum = group_sum(sum, lanes);
        if (inside && part == 0) out(i, j, sum);
    }
}

// As many lanes per element as there are threads to spare and k gives work to.
template <bool TA, bool TB, class S, class Out>
__device__ __forceinline__ void direct_shared(Pair<TA, TB> c, S s, Out out) {
    u64 elements = (u64)c.m * c.n;
    int lanes = 1;
    while (lanes < 32 && elements * lanes * 2 <= s.threads && lanes * 4 <= c.k) lanes *= 2;
    direct_shared(c, lanes, s, out);
}

template <bool TA, bool TB, class S, class Out>
__device__ __forceinline__ void direct(Pair<TA, TB> c, S s, Out out) {
    if ((u64)c.m * c.n >= 8ull * s.threads) direct_squares<4>(c, s, out);
    else direct_shared(c, s, out);
}

// ------------------------------------------------------------------------------------------------------ what follows

// y = f(x W + b).
struct Forward {
    const float* bias;
    float *pre, *y;
    int width, activation;

    __device__ void operator()(int i, int j, float z) const {
        u64 at = (u64)i * width + j;
        if (bias) z += bias[j];
        if (pre) pre[at] = z;
        y[at] = activated(activation, z);
    }
};

// dx = (dy W^T) f'(saved).
struct Backward {
    const float* saved;
    float* dx;
    int width, activation;

    __device__ void operator()(int i, int j, float d) const {
        u64 at = (u64)i * width + j;
        dx[at] = saved ? times_derivative(activation, saved[at], d) : d;
    }
};

// The gradient itself, or W -= rate dW.
struct Learn {
    float* to;
    int width;
    bool update;
    float rate;

    __device__ void operator()(int i, int j, float d) const {
        u64 at = (u64)i * width + j;
        to[at] = update ? fmaf(-rate, d, to[at]) : d;
    }
};

__device__ __forceinline__ float* place(float* arena, u64 at) { return at == NONE ? 0 : arena + at; }

__device__ __forceinline__ float rate_of(const Op& op, const Run& run) {
    return op.flags & FLAG_UPDATE ? run.hyper[run.index].rate : 0.0f;
}

// Reads rows, inputs, outputs, activation, flags. Places: x, weight, bias, pre, y.
__device__ __forceinline__ Pair<false, false> linear_pair(const Op& op, float* arena) {
    return {arena + op.at[0], arena + op.at[1], op.rows, op.inputs, op.outputs, op.flags};
}
__device__ __forceinline__ Forward linear_out(const Op& op, float* arena) {
    return {place(arena, op.at[2]), place(arena, op.at[3]), arena + op.at[4], op.outputs, op.activation};
}

// Reads the same. Places: dy, weight, dx, saved.
__device__ __forceinline__ Pair<false, true> input_gradient_pair(const Op& op, float* arena) {
    return {arena + op.at[0], arena + op.at[1], op.rows, op.outputs, op.inputs, op.flags};
}
__device__ __forceinline__ Backward input_gradient_out(const Op& op, float* arena) {
    return {place(arena, op.at[3]), arena + op.at[2], op.inputs, op.activation};
}

// Reads rows, inputs, outputs, flags. Places: x, dy, to.
__device__ __forceinline__ Pair<true, false> weight_gradient_pair(const Op& op, float* arena) {
    return {arena + op.at[0], arena + op.at[1], op.inputs, op.rows, op.outputs, op.flags};
}
__device__ __forceinline__ Learn weight_gradient_out(const Op& op, float* arena, const Run& run) {
    return {arena + op.at[2], op.outputs, (op.flags & FLAG_UPDATE) != 0, rate_of(op, run)};
}

template <class S>
__device__ void linear_op(const Op& op, float* arena, const Run&, S s) {
    direct(linear_pair(op, arena), s, linear_out(op, arena));
}

template <class S>
__device__ void input_gradient_op(const Op& op, float* arena, const Run&, S s) {
    direct(input_gradient_pair(op, arena), s, input_gradient_out(op, arena));
}

template <class S>
__device__ void weight_gradient_op(const Op& op, float* arena, const Run& run, S s) {
    direct(weight_gradient_pair(op, arena), s, weight_gradient_out(op, arena, run));
}

extern "C" __global__ void __launch_bounds__(256) op_linear(Op op, float* arena, Run*) {
    auto c = linear_pair(op, arena);
    auto out = linear_out(op, arena);
    if (c.n > SLIM) tiled(c, out);
    else if (c.k >= 64) slim_rows(c, Launch(), out);
    else direct_shared(c, Launch(), out);
}

extern "C" __global__ void __launch_bounds__(256) op_input_gradient(Op op, float* arena, Run*) {
    auto c = input_gradient_pair(op, arena);
    auto out = input_gradient_out(op, arena);
    if (c.n > SLIM) tiled(c, out);
    else direct_shared(c, Launch(), out);
}

extern "C" __global__ void __launch_bounds__(256) op_weight_gradient(Op op, float* arena, Run* run) {
    auto c = weight_gradient_pair(op, arena);
    auto out = weight_gradient_out(op, arena, *run);
    if (c.n > SLIM && c.m > SLIM) tiled(c, out);
    else if (c.n <= SLIM) slim_columns(c.a, c.m, c.b, c.n, c.k, c.flags, out);
    else slim_columns(c.b, c.n, c.a, c.m, c.k, c.flags, [&](int j, int i, float d) { out(i, j, d); });
}

// C = A B of plain matrices [m, k] and [k, n].
extern "C" __global__ void __launch_bounds__(256) tensor_matmul(const float* a, const float* b, float* c, int m, int k, int n,
                                                         int flags) {
    tiled(Pair<false, false>{a, b, m, k, n, flags}, [=](int i, int j, float v) { c[(u64)i * n + j] = v; });
}
