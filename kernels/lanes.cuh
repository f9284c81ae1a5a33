// Several numbers of a lane at once, some of them as bfloat16 copies, and sums over columns of what lanes have.

// N neighbouring numbers, loaded and stored at once.
template <int N>
struct alignas(4 * N) Lanes {
    float v[N];
};
template <int N>
struct alignas(2 * N) Halves {
    unsigned short v[N];
};

template <int N>
__device__ __forceinline__ Halves<N> to_halves(const Lanes<N>& x) {
    Halves<N> half;
#pragma unroll
    for (int q = 0; q < N; q++) half.v[q] = (unsigned short)bf16_bits(x.v[q]);
    return half;
}

// Loads N elements of each of n rows, from a place or from its bfloat16 copy, if there is one.
template <int N, int ROWS>
__device__ __forceinline__ void load_rows(const float* arena, u64 place, u64 copy, unsigned first, unsigned step, int n,
                                          Lanes<N> (&rows)[ROWS]) {
    if (copy == NONE) {
#pragma unroll
        for (int b = 0; b < ROWS; b++)
            if (b < n) rows[b] = *(const Lanes<N>*)(arena + place + first + b * step);
    } else {
        Halves<N> halves[ROWS];
#pragma unroll
        for (int b = 0; b < ROWS; b++)
            if (b < n) halves[b] = *(const Halves<N>*)((const unsigned short*)(arena + copy) + first + b * step);
#pragma unroll
        for (int b = 0; b < ROWS; b++)
#pragma unroll
            for (int q = 0; q < N; q++)
                if (b < n) rows[b].v[q] = from_bf16(halves[b].v[q]);
    }
}

// Stores N elements of a result at `at`: in its place, unless only the copy is wanted, and rounded in its bfloat16 copy,
// if there is one.
template <int N>
__device__ __forceinline__ void store(float* arena, u64 place, u64 copy, int flags, unsigned at, const Lanes<N>& value) {
    if (!(flags & FLAG_COPY_ONLY)) *(Lanes<N>*)(arena + place + at) = value;
    if (copy == NONE) return;
    *(Halves<N>*)((unsigned short*)(arena + copy) + at) = to_halves(value);
}

// How a stand-alone launch of blocks of 256 threads sums columns over many rows: a block owns strips of 32
// lanes with WIDE columns each; warp w of 8 owns every eighth row. If there are blocks to spare, `parts` blocks
// share the rows of a strip: each writes its sums to the run's scratch memory, and the last to arrive adds them
// in a fixed order. So sums depend only on the launch.
struct Strips {
    static const int FLOATS = PARTIALS * SLIM * 32;   // of scratch memory
    static const int EXCHANGED = 8 * 4 * 64;
    static_assert(BLOCK_THREADS == 8 * 32, "eight warps share the rows of a strip");

    // What the warps of a block exchange: no template, so that a kernel with several tasks has it once.
    __device__ static __forceinline__ float* exchange() {
        __shared__ float sums[EXCHANGED];
        return sums;
    }

    // For all strips of this block: task.begin(column); task.add(column, row, n, sums) for n <= BATCH of this warp's
    // rows, row, row + 8, ..., where `sums` are the thread's own, one for each of `items` <= MOST items and of
    // WIDE columns; then task.finish(column, item, total), once for each column and item. All lanes call `add`,
    // those beyond the last column too. WIDE divides the number of columns.
    template <class Task>
    __device__ static __forceinline__ void sum(const Run& run, int columns, int rows, int items, Task& task) {
        const int WIDE = Task::WIDE, MOST = Task::MOST, BATCH = Task::BATCH, STRIP = 32 * WIDE;
        const int AT_ONCE = MOST < 4 ? MOST : 4;   // items that warps exchange together
        static_assert(8 * AT_ONCE * STRIP <= EXCHANGED, "there is room");
        float* sums = exchange();
        volatile float* scratch = (float*)(run.partial + SCRATCH);
        unsigned* counters = (unsigned*)(scratch + FLOATS);
        int lane = threadIdx.x % 32, warp = threadIdx.x / 32, tile = items * STRIP;
        int strips = (columns + STRIP - 1) / STRIP, most = gridDim.x < PARTIALS ? gridDim.x : PARTIALS;
        if (most > FLOATS / tile) most = FLOATS / tile;
        int parts = most >= 2 * strips && strips > 0 ? most / strips : 1;
        for (int group = blockIdx.x; group < strips * parts; group += gridDim.x) {
            int first = group % strips * STRIP, part = group / strips, column = first + lane * WIDE;
            int begin = (int)((u64)rows * part / parts), end = (int)((u64)rows * (part + 1) / parts);
            float own[MOST][WIDE] = {};
            task.begin(column);
            for (int row = begin + warp; row < end; row += 8 * BATCH) {
                int left = (end - row + 7) / 8;
                task.add(column, row, left < BATCH ? left : BATCH, own);
            }
#pragma unroll
            for (int y0 = 0; y0 < MOST; y0 += AT_ONCE) {
                if (y0 >= items) break;
                __syncthreads();   // what was there has been read
#pragma unroll
                for (int y = 0; y < AT_ONCE && y0 + y < MOST; y++)
#pragma unroll
                    for (int q = 0; q < WIDE; q++) sums[(warp * AT_ONCE + y) * STRIP + lane * WIDE + q] = own[y0 + y][q];
                __syncthreads();
                for (int e = threadIdx.x; e < AT_ONCE * STRIP && y0 * STRIP + e < tile; e += BLOCK_THREADS) {
                    float total = 0.0f;
                    for (int w = 0; w < 8; w++) total += sums[w * AT_ONCE * STRIP + e];
                    if (parts > 1) scratch[(u64)group * tile + y0 * STRIP + e] = total;
                    else if (first + e % STRIP < columns) task.finish(first + e % STRIP, y0 + e / STRIP, total);
                }
            }
            if (parts == 1) continue;
            // With several parts there are no more groups than blocks, so this was the block's only one.
            if (!arrives_last(counters + group % strips, parts)) return;
            // Teams of threads share the parts if there are more threads than sums.
            int teams = tile < (int)BLOCK_THREADS ? BLOCK_THREADS / tile : 1, team = teams > 1 ? threadIdx.x / tile : 0;
            for (int e = threadIdx.x - team * tile; e < tile && team < teams; e += BLOCK_THREADS) {
                float total = 0.0f;
#pragma unroll 4
                for (int p = team; p < parts; p += teams)
                    total += scratch[((u64)p * strips + group % strips) * tile + e];
                if (teams > 1) sums[threadIdx.x] = total;
                else if (first + e % STRIP < columns) task.finish(first + e % STRIP, e / STRIP, total);
            }
            if (teams == 1) continue;
            __syncthreads();
            if (threadIdx.x >= tile) continue;
            float total = 0.0f;
            for (int t = 0; t < teams; t++) total += sums[t * tile + threadIdx.x];
            if (first + threadIdx.x % STRIP < columns) task.finish(first + threadIdx.x % STRIP, threadIdx.x / STRIP, total);
        }
    }

    // A task of one column per lane: one(column, row, sums) adds a row's terms.
    template <int ITEMS, class One, class Finish>
    struct Simple {
        static const int WIDE = 1, MOST = ITEMS, BATCH = 4;
        int columns;
        One one;
        Finish finish;

        __device__ void begin(int) const {}
        __device__ __forceinline__ void add(int column, int row, int n, float (&own)[ITEMS][1]) const {
            if (column >= columns) return;
            if (n == BATCH) {
#pragma unroll
                for (int b = 0; b < BATCH; b++) one(column, row + 8 * b, own);
            } else {
                for (int b = 0; b < n; b++) one(column, row + 8 * b, own);
            }
        }
    };

    template <int MOST, class One, class Finish>
    __device__ static __forceinline__ void sum(const Run& run, int columns, int rows, int items, One one, Finish finish) {
        Simple<MOST, One, Finish> task{columns, one, finish};
        sum(run, columns, rows, items, task);
    }
};
