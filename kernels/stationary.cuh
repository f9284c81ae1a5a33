// The first layer of a compiled step over a grid whose weight never leaves the blocks' shared memory
// (crates/engine/src/op/stationary.rs).
//
// The weight is cut into parts of SK inputs by SN outputs, a block each. Of the batch such a block needs its SK inputs
// alone: they are copied to shared memory during the step before, and serve both products of the layer. The forward
// product of a part is a partial sum for all rows. It goes to whoever owns a row without a barrier: a place holds EMPTY
// until a sum is there, and again once it has been read. Steps use two sets of places in turn: between the emptying of a
// place and the next sum there, all blocks have ended a step. The gradient of a part is complete, and updates the weight in
// place.
//
// Both products run on the tensor cores, in tf32. For f32 an operand is the sum of two tf32 numbers, and a product
// three of theirs.

// A NaN that no product gives.
const u32 EMPTY = 0xffffffffu;

// Stores N elements that another block looks for.
template <int N>
__device__ __forceinline__ void send(float* to, const float (&of)[N]) {
#if defined(CUSIM) || __CUDA_ARCH__ < 700
#pragma unroll
    for (int q = 0; q < N; q++) ((volatile float*)to)[q] = of[q];
#else
    if constexpr (N == 2) asm volatile("st.relaxed.gpu.global.v2.f32 [%0], {%1, %2};" ::"l"(to), "f"(of[0]), "f"(of[1]) : "memory");
    else asm volatile("st.relaxed.gpu.global.f32 [%0], %1;" ::"l"(to), "f"(of[0]) : "memory");
#endif
}

// Loads them; returns whether all are there.
template <int N>
__device__ __forceinline__ bool look(float (&of)[N], const float* from) {
#if defined(CUSIM) || __CUDA_ARCH__ < 700
#pragma unroll
    for (int q = 0; q < N; q++) of[q] = ((const volatile float*)from)[q];
#else
    if constexpr (N == 2) asm volatile("ld.relaxed.gpu.global.v2.f32 {%0, %1}, [%2];" : "=f"(of[0]), "=f"(of[1]) : "l"(from) : "memory");
    else asm volatile("ld.relaxed.gpu.global.f32 %0, [%1];" : "=f"(of[0]) : "l"(from) : "memory");
#endif
    bool all = true;
#pragma unroll
    for (int q = 0; q < N; q++) all = all && __float_as_uint(of[q]) != EMPTY;
    return all;
}

// Rows of x W, [M, K] by [K, N]. `shared` begins with two buffers for the batch; the weight, the numbers of the batches'
// rows and their TARGETS follow.
template <int THREADS, int M, int K, int N, int TARGETS, int SK, int SN, bool F32>
struct Stationary {
    static const int DOWN = (K + SK - 1) / SK, ACROSS = (N + SN - 1) / SN, WARPS = THREADS / 32;
    // The distances of stored rows spread a warp's loads over all banks.
    static const int XS = SK % 16 == 8 ? SK : SK + 8, WS = SN + 4;
    static const int TM = M > 16 * WARPS ? 2 : 1, ROWS = (M + 16 * TM - 1) / (16 * TM) * (16 * TM);
    // Of the gradient, SPLIT warps share eight rows of the batch at a time.
    static const int SPLIT = SN % 32 == 0 ? 2 : 1, GROUPS = WARPS / SPLIT;
    static const int SUMS = GROUPS * SK * SN, X = ROWS * XS > SUMS ? ROWS * XS : SUMS;

    static __device__ __forceinline__ bool works() { return blockIdx.x < DOWN * ACROSS; }
    static __device__ __forceinline__ int input() { return (int)blockIdx.x / ACROSS * SK; }
    static __device__ __forceinline__ int output() { return (int)blockIdx.x % ACROSS * SN; }
    static __device__ __forceinline__ float* weight(float* shared) { return shared + 2 * X; }
    static __device__ __forceinline__ u32* rows(float* shared, int place) {
        return (u32*)(shared + 2 * X + SK * WS) + place * M;
    }
    static __device__ __forceinline__ float* targets(float* shared, int place) {
        return shared + 2 * X + SK * WS + 2 * M + place * M * TARGETS;
    }

    // Calls each(element, held) for the elements of this block's part of the weight.
    template <class Each>
    static __device__ __forceinline__ void each_weight(float* shared, Each each) {
        for (int e = threadIdx.x; works() && e < SK * SN; e += THREADS) {
            int i = input() + e / SN, j = output() + e % SN;
            each(i < K && j < N ? i * N + j : -1, weight(shared) + e / SN * WS + e % SN);
        }
    }

    // Empties the places of partial sums of two steps. All threads of the grid do it together.
    static __device__ __forceinline__ void empty(float* partial) {
        const float nothing[1] = {__uint_as_float(EMPTY)};
        for (u64 e = blockIdx.x * THREADS + threadIdx.x; e < 2ull * DOWN * M * N; e += gridDim.x * THREADS) send(partial + e, nothing);
    }

    // Fetches the numbers of the rows of a batch of `count`.
    static __device__ __forceinline__ void number(float* shared, const Op& op, const Run& run, int count, int place) {
        u32* to = rows(shared, place);
        for (int i = threadIdx.x; i < M; i += THREADS) {
            if ((op.flags & (FLAG_ORDERED | FLAG_CHUNK)) == FLAG_ORDERED)
                copy_ahead<1>((float*)(to + i), (const float*)(run.order + run.position + (i < count ? i : count - 1)));
            else
                to[i] = (u32)batch_row(op, run, count, i);
        }
    }

    // Fetches this block's inputs of rows whose numbers are known, PIECE at a time; zeros lie beyond them. LANES threads
    // have a row.
    template <int PIECE>
    static __device__ __forceinline__ void fetch(float* shared, const float* from, int place) {
        if (PIECE > 1 && (u64)from % (4 * PIECE)) return fetch<1>(shared, from, place);
        const int PIECES = SK / PIECE, LANES = PIECES > 16 ? 32 : PIECES > 8 ? 16 : PIECES > 4 ? 8 : PIECES > 2 ? 4 : 2;
        int lane = threadIdx.x % LANES;
        const u32* numbers = rows(shared, place);
        for (int i = lane * PIECE; works() && i < SK; i += LANES * PIECE) {
            float* to = shared + place * X + i;
            bool inside = input() + i < K;
            const float* at = from + input() + i;
#pragma unroll 4
            for (int row = threadIdx.x / LANES; row < ROWS; row += THREADS / LANES) {
                if (inside && row < M) {
                    copy_ahead<PIECE>(to + row * XS, at + (u64)numbers[row] * K);
                } else {
#pragma unroll
                    for (int q = 0; q < PIECE; q++) to[row * XS + q] = 0.0f;
                }
            }
        }
    }

    // Fetches the targets of some rows; takes them to `y` when they are there.
    static __device__ __forceinline__ void fetch_targets(float* shared, const float* from, int place, int first, int count) {
        const u32* numbers = rows(shared, place) + first;
        for (int i = threadIdx.x; i < count * TARGETS; i += THREADS)
            copy_ahead<1>(targets(shared, place) + first * TARGETS + i, from + (u64)numbers[i / TARGETS] * TARGETS + i % TARGETS);
    }
    static __device__ __forceinline__ void take_targets(float* shared, float* y, int place, int first, int count) {
        for (int i = threadIdx.x; i < count * TARGETS; i += THREADS)
            y[first * TARGETS + i] = targets(shared, place)[first * TARGETS + i];
    }

    // Writes the partial sums, [DOWN, M, N]. A warp has TM x 16 rows at a time. Terms are taken in the order 0, 2, 4, 6,
    // 1, 3, 5, 7, so that a lane's two of a row are neighbours.
    static __device__ __forceinline__ void forward(float* shared, int place, float* partial) {
        const float *x = shared + place * X, *w = weight(shared);
        int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
        partial += (u64)(blockIdx.x / ACROSS) * M * N;
        for (int row0 = (int)threadIdx.x / 32 * 16 * TM; works() && row0 < ROWS; row0 += WARPS * 16 * TM) {
            float sum[TM][SN / 8][4] = {};
#pragma unroll 2
            for (int k = 2 * t; k < SK; k += 8) {
                Fragment<4, F32> a[TM];
                Fragment<2, F32> b[SN / 8];
#pragma unroll
                for (int m = 0; m < TM; m++)
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        float2 v = *(const float2*)(x + (row0 + m * 16 + h * 8 + g) * XS + k);
                        a[m].set(h, v.x), a[m].set(h + 2, v.y);
                    }
#pragma unroll
                for (int n = 0; n < SN / 8; n++)
#pragma unroll
                    for (int h = 0; h < 2; h++) b[n].set(h, w[(k + h) * WS + n * 8 + g]);
                multiply(sum, a, b);
            }
#pragma unroll
            for (int m = 0; m < TM; m++)
#pragma unroll
                for (int n = 0; n < SN / 8; n++)
#pragma unroll
                    for (int h = 0; h < 2; h++) {
                        int i = row0 + m * 16 + h * 8 + g, j = output() + n * 8 + 2 * t;
                        float two[2] = {sum[m][n][2 * h], sum[m][n][2 * h + 1]}, first[1] = {two[0]}, second[1] = {two[1]};
                        float* to = partial + i * N + j;
                        if (N % 2 == 0 && i < M && j < N) send(to, two);
                        if (N % 2 && i < M && j < N) send(to, first);
                        if (N % 2 && i < M && j + 1 < N) send(to + 1, second);
                    }
        }
    }

    // Calls finish(i, j, w, sum) for the gradient dy^T x of each element w of the block's part. A group of warps has eight
    // rows at a time, of all outputs and inputs; the groups' sums take the place of x.
    template <class Finish>
    static __device__ __forceinline__ void gradient(float* shared, int place, const float* dy, Finish finish) {
        const int DOWN = SN / 16 / SPLIT, ACROSS = SK / 8;
        float* x = shared + place * X;
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32, g = lane / 4, t = lane % 4;
        int group = warp / SPLIT, down = warp % SPLIT * DOWN;
        float sum[DOWN][ACROSS][4] = {}, next[DOWN][4];
        auto fetch = [&](int row0) {
#pragma unroll
            for (int m = 0; m < DOWN; m++)
#pragma unroll
                for (int q = 0; q < 4; q++) {
                    int row = row0 + t + q / 2 * 4, j = output() + (down + m) * 16 + q % 2 * 8 + g;
                    next[m][q] = row < M && j < N ? dy[row * N + j] : 0.0f;
                }
        };
        if (works()) fetch(group * 8);
#pragma unroll 1
        for (int row0 = group * 8; works() && row0 < M; row0 += 8 * GROUPS) {
            Fragment<4, F32> a[DOWN];
            Fragment<2, F32> b[ACROSS];
#pragma unroll
            for (int n = 0; n < ACROSS; n++)
#pragma unroll
                for (int h = 0; h < 2; h++) b[n].set(h, x[(row0 + t + 4 * h) * XS + n * 8 + g]);
#pragma unroll
            for (int m = 0; m < DOWN; m++)
#pragma unroll
                for (int q = 0; q < 4; q++) a[m].set(q, next[m][q]);
            fetch(row0 + 8 * GROUPS);
            multiply(sum, a, b);
        }
        __syncthreads();   // x has been read
        if (works()) {
#pragma unroll
            for (int m = 0; m < DOWN; m++)
#pragma unroll
                for (int n = 0; n < ACROSS; n++)
#pragma unroll
                    for (int q = 0; q < 4; q++)
                        x[group * (SK * SN) + (((down + m) * ACROSS + n) * 4 + q) * 32 + lane] = sum[m][n][q];
        }
        __syncthreads();
#pragma unroll 2
        for (int e = threadIdx.x; works() && e < SK * SN; e += THREADS) {
            int q = e / 32 % 4, n = e / 128 % ACROSS, m = e / (128 * ACROSS);
            int i = n * 8 + 2 * t + q % 2, j = m * 16 + q / 2 * 8 + g;
            float total = 0.0f;
#pragma unroll
            for (int w = 0; w < GROUPS; w++) total += x[w * (SK * SN) + e];
            if (input() + i < K && output() + j < N) finish(input() + i, output() + j, weight(shared)[i * WS + j], total);
        }
    }
};

// Adds up COUNT partial sums of ROWS x N, which lie APART from each other, as soon as they are there.
template <int COUNT, int ROWS, int N, int APART>
__device__ __forceinline__ void add_partials(float* partial, const Product& c, Solo s) {
    const int EACH = N % 2 == 0 ? 2 : 1;
    Product out = c;
    out.bias = 0;   // it is fetched meanwhile
    for (int e = s.thread * EACH; e < ROWS * N; e += s.threads * EACH) {
        float sum[EACH] = {}, of[COUNT][EACH], nothing[EACH], bias[EACH];
#pragma unroll
        for (int q = 0; q < EACH; q++) bias[q] = c.bias ? c.bias[e % N + q] : 0.0f;
        for (bool all = false; !all;) {
            all = true;
#pragma unroll
            for (int p = 0; p < COUNT; p++) all &= look(of[p], partial + p * APART + e);
            if (!all) relax();
        }
#pragma unroll
        for (int q = 0; q < EACH; q++) nothing[q] = __uint_as_float(EMPTY);
#pragma unroll
        for (int p = 0; p < COUNT; p++) {
            send(partial + p * APART + e, nothing);
#pragma unroll
            for (int q = 0; q < EACH; q++) sum[q] += of[p][q];
        }
#pragma unroll
        for (int q = 0; q < EACH; q++) out.finish(e / N, e % N + q, sum[q] + bias[q]);
    }
}

// Fetches what many rows read from the arena.
__device__ __forceinline__ void hold(float* to, const float* from, int n) {
    int quads = ((u64)from | (u64)to) % 16 == 0 ? n / 4 : 0;
    for (int i = threadIdx.x; i < quads; i += blockDim.x) copy_ahead<4>(to + 4 * i, from + 4 * i);
    for (int i = 4 * quads + threadIdx.x; i < n; i += blockDim.x) copy_ahead<1>(to + i, from + i);
}
