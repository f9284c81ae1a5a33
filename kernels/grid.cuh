// Building blocks of a compiled step over a grid, for jobs that are too large for one block
// (crates/engine/src/program/step_source/grid.rs).
//
// The arena stays in global memory, which the L2 cache holds. A stage ends with a barrier over the grid; within a
// stage a block needs only what it wrote itself. Most ops run by rows: each block has the same rows in all of
// them. Large products run in tiles: a block fetches slices of both operands into shared memory, two slices
// ahead, while each thread sums TM x 4 elements over its share of k. Which element is summed in which order
// depends on the source alone.

const int SLICES = 3;   // in shared memory

// One operand's part of a slice: EDGE rows of its side of C, DEPTH terms of k. It is kept as it is stored, so that
// it is copied and read four elements at a time: rows along k, with a gap that spreads them over the banks, or
// terms along the side.
template <int K, int SIZE, int EDGE, int TILE, int DEPTH, Side SIDE, bool QUADS>
struct Slab {
    static const int STRIDE = SIDE == ALONG_K ? DEPTH + 4 : EDGE;
    static const int FLOATS = SIDE == ALONG_K ? EDGE * STRIDE : DEPTH * STRIDE;
    static const int LINE = SIDE == ALONG_K ? DEPTH : EDGE, LINES = SIDE == ALONG_K ? EDGE : DEPTH;
    static const int LANES = EDGE / TILE;   // threads along the side

    // Fetches the terms from k0 on of the rows from side0 on; zeros lie beyond the matrix.
    static __device__ __forceinline__ void fetch(float* to, const float* from, int k0, int side0, Solo s) {
        const int N = QUADS ? 4 : 1, PIECES = LINE / N;
#pragma unroll 1
        for (int i = s.thread; i < LINES * PIECES; i += s.threads) {
            int line = i / PIECES, along = i % PIECES * N;
            int p = k0 + (SIDE == ALONG_K ? along : line), side = side0 + (SIDE == ALONG_K ? line : along);
            float* at = to + line * STRIDE + along;
            if (p < K && side < SIZE) {
                copy_ahead<N>(at, from + (SIDE == ALONG_K ? side * K + p : p * SIZE + side));
            } else {
#pragma unroll
                for (int q = 0; q < N; q++) at[q] = 0.0f;
            }
        }
    }

    // Row q of the TILE rows of a thread, of those in a tile.
    static __device__ __forceinline__ int row(int lane, int q) {
        return SIDE == ALONG_K ? lane + q * LANES : q / 4 * 4 * LANES + lane * 4 + q % 4;
    }

    // Four terms of row q, of those stored along k.
    static __device__ __forceinline__ void terms(float (&to)[4], const float* from, int k0, int lane, int q) {
        load<4, true>(to, from + row(lane, q) * STRIDE + k0);
    }

    // One term of a thread's rows, of those stored along the side.
    static __device__ __forceinline__ void rows(float (&to)[TILE], const float* from, int p, int lane) {
#pragma unroll
        for (int q = 0; q < TILE; q += 4) load<4, true>((float (&)[4])to[q], from + p * STRIDE + row(lane, q));
    }
};

// Adds four terms of k to a thread's sums, few operands at a time: the sums take most of the registers.
template <class Left, class Right, int TM, Side A, Side B>
__device__ __forceinline__ void add_terms(float (&sum)[TM][4], const float* left, const float* right, int k0, int ti, int tj) {
    float b[4][4];
#pragma unroll
    for (int q = 0; q < 4; q++) {
        if (B == ALONG_SIDE) {
            Right::rows(b[q], right, k0 + q, tj);
        } else {
            float terms[4];
            Right::terms(terms, right, k0, tj, q);
#pragma unroll
            for (int p = 0; p < 4; p++) b[p][q] = terms[p];
        }
    }
    if (A == ALONG_K) {
#pragma unroll
        for (int i = 0; i < TM; i++) {
            float a[4];
            Left::terms(a, left, k0, ti, i);
#pragma unroll
            for (int p = 0; p < 4; p++)
#pragma unroll
                for (int j = 0; j < 4; j++) sum[i][j] = fmaf(a[p], b[p][j], sum[i][j]);
        }
    } else {
#pragma unroll
        for (int p = 0; p < 4; p++) {
            float a[TM];
            Left::rows(a, left, k0 + p, ti);
#pragma unroll
            for (int i = 0; i < TM; i++)
#pragma unroll
                for (int j = 0; j < 4; j++) sum[i][j] = fmaf(a[i], b[p][j], sum[i][j]);
        }
    }
}

// C[M, N] = A B in tiles of BM x BN, of which each of BLOCKS blocks takes every BLOCKS-th; calls
// finish(i, j, sum) once per element. `shared` has room for SLICES slices, and for THREADS * TM * 4 sums.
template <int THREADS, int BLOCKS, int M, int N, int K, int BM, int BN, int TM, int DEPTH, Side A, Side B, bool QUADS_A,
          bool QUADS_B, class Finish>
__device__ __forceinline__ void grid_product(const float* a, const float* b, float* shared, Finish finish) {
    using Left = Slab<K, M, BM, TM, DEPTH, A, QUADS_A>;
    using Right = Slab<K, N, BN, 4, DEPTH, B, QUADS_B>;
    const int SLICE = Left::FLOATS + Right::FLOATS, COUNT = (K + DEPTH - 1) / DEPTH, ACROSS = (N + BN - 1) / BN;
    const int TILES = (M + BM - 1) / BM * ACROSS, SHARES = THREADS / (Left::LANES * Right::LANES), EACH = DEPTH / SHARES;
    static_assert(EACH % 4 == 0, "a thread reads four terms at a time");
    Solo s(threadIdx.x, THREADS);
    int share = threadIdx.x / (Left::LANES * Right::LANES);
    int ti = threadIdx.x / Right::LANES % Left::LANES, tj = threadIdx.x % Right::LANES;
    for (int tile = blockIdx.x; tile < TILES; tile += BLOCKS) {
        int i0 = tile / ACROSS * BM, j0 = tile % ACROSS * BN;
        auto fetch = [&](int slice) {
            float* to = shared + slice % SLICES * SLICE;
            if (slice < COUNT) {
                Left::fetch(to, a, slice * DEPTH, i0, s);
                Right::fetch(to + Left::FLOATS, b, slice * DEPTH, j0, s);
            }
            end_group();
        };
        float sum[TM][4] = {};
        __syncthreads();   // the previous tile's sums have been read
        fetch(0), fetch(1);
        for (int slice = 0; slice < COUNT; slice++) {
            copied_but<SLICES - 2>();
            __syncthreads();   // this slice is there for all, and the one before has been read
            fetch(slice + SLICES - 1);
            const float* at = shared + slice % SLICES * SLICE;
#pragma unroll 2
            for (int p = share * EACH; p < (share + 1) * EACH; p += 4)
                add_terms<Left, Right, TM, A, B>(sum, at, at + Left::FLOATS, p, ti, tj);
        }
        __syncthreads();   // the slices have been read: the shares of the sums take their place
#pragma unroll
        for (int i = 0; i < TM; i++)
#pragma unroll
            for (int j = 0; j < 4; j++)
                shared[share * (BM * BN) + Left::row(ti, i) * BN + Right::row(tj, j)] = sum[i][j];
        __syncthreads();
#pragma unroll 2
        for (int e = threadIdx.x; e < BM * BN; e += THREADS) {
            int i = i0 + e / BN, j = j0 + e % BN;
            float total = 0.0f;
#pragma unroll
            for (int g = 0; g < SHARES; g++) total += shared[g * (BM * BN) + e];
            if (i < M && j < N) finish(i, j, total);
        }
    }
}

// Asks for the rows of a batch to be brought into the L2 cache; changes no result.
__device__ __forceinline__ void expect_rows(const Op& op, const Run& run, int rows, Solo s) {
    const unsigned LINE = 32, lines = op.inputs / LINE + 1;   // a row's begin may lie within a line
    for (unsigned i = s.thread; i < op.rows * lines; i += s.threads) {
        const float* row = run.data[0] + batch_row(op, run, rows, i / lines) * op.inputs;
        unsigned along = i % lines * LINE;
        const float* at = row + (along < (unsigned)op.inputs ? along : op.inputs - 1);
#ifdef CUSIM
        (void)at;
#else
        asm volatile("prefetch.global.L2 [%0];" ::"l"(at));
#endif
    }
}

// -------------------------------------------------------------------------------------------------------- the steps
//
// The host generates P: sizes; `step`, the pieces of a step with barriers between and behind them; `batch`, one of two
// places of a batch; `gather`, which
// fetches a batch into the buffers at x and y; `expect`, which prepares for that; `begin` and
// `end`, which bring what stays in shared memory and take it back. If a step is OPEN, each block goes from it to the
// next one's first stage, and waits behind that for all to have ended it. X and Y have two buffers each, for the current
// batch and the next one, which is fetched while blocks wait for each other.

// Where a batch lies: offsets from the arena's base, and which of two buffers it is.
struct Batch {
    u64 x, y;
    int place;
};

template <class P>
__device__ __forceinline__ void grid_steps(float* own, Run* run, unsigned* barrier, float* ahead, int steps) {
    extern __shared__ __align__(16) unsigned char dyn_smem[];
    __shared__ Run runs[2];   // of this step and of the next: in registers they would crowd out sums
    __shared__ int rows[2];   // of their batches
    __shared__ Hyper hypers[2];
    float* shared = (float*)dyn_smem;
    const Hyper* table = run->hyper ? run->hyper + run->index : 0;
    if (threadIdx.x == 0) {
        runs[0] = *run;
        runs[0].hyper = hypers, runs[0].index = 0;
        rows[0] = rows_at<P>(runs[0]);
        if (table) hypers[0] = table[0];
    }
    __syncthreads();
    auto batch = [&](int place) { return P::batch(own, shared, ahead, place); };
    auto expect = [&](const Run& run, int count, int place) {   // the batch after a run's, which has `count` rows
        Run then = run;
        next_step(then, count, count);
        P::expect(shared, then, rows_at<P>(then), place);
    };
    if (steps > 0) {
        P::begin(own, shared, ahead, runs[0], rows[0]);
        copied();
        __syncthreads();
        P::gather(own, shared, runs[0], rows[0], batch(0));
        if (steps > 1) expect(runs[0], rows[0], 1);
    }
    copied();
    meet(barrier);   // all have read the counters, and the first batch is there
    unsigned arrived = P::OPEN ? arrive(barrier) : 0;
    for (int step = 0; step < steps; step++) {
        int now = step & 1;
        Run& after = runs[now ^ 1];
        if (threadIdx.x == 0) {
            after = runs[now];
            next_step(after, rows[now], rows[now]);
            rows[now ^ 1] = rows_at<P>(after);
            after.hyper = hypers + (now ^ 1), after.index = 0;
            if (table && step + 1 < steps) hypers[now ^ 1] = table[step + 1];
        }
        P::step(own, shared, runs[now], rows[now], barrier, arrived, ahead, batch(now), [&] {
            if (step + 1 < steps) P::gather(own, shared, after, rows[now ^ 1], batch(now ^ 1));
            if (step + 2 < steps) expect(after, rows[now ^ 1], now);
        });
    }
    if (steps > 0) P::end(own, shared);
    if (blockIdx.x == 0 && threadIdx.x == 0) {
        const Run& at = runs[steps & 1];
        run->step = at.step, run->order = at.order, run->position = at.position, run->offset = at.offset;
        run->index += steps, run->slot = at.slot;
    }
}
