// What all kernels share: the records they read, and the scopes they run in.
//
// The clever part. An op is written once, as a `__device__` function over a scope: a set of threads that share its work.
// Three engines run the same text. A stand-alone kernel is one op over a whole launch (`Launch`). `interpret` runs whole
// programs in one block whose arena lies in shared memory (`Solo`). `interpret_grid` runs them in all blocks of a cooperative
// launch (`Team`). An op has no barriers of its own; where a sum needs all threads, the scope's `sum` has them.
//
// No CUDA header is included and none is needed, so that a machine without a toolkit can compile this at run time, and
// so that a C++ compiler can run it on the processor (tests/cuda_sim; CUSIM is defined there). The host joins this file
// and all *.cu files of its folder into one source text, in the order of kernels/sources.rs. Records, kinds and constants
// stand in abi.cuh, which crates/engine/src/op/record.rs generates. What a record's fields and places are stands in the op's file there.
//
// Every kernel is right for any grid of one-dimensional blocks of a multiple of 32 threads (products: of 256).
//
// Sizes of a record are ints, and the host lets none of them, and no product of two that is a matrix, be above 2147000000
// (op::MOST_COUNTED): a loop that strides by all threads of a launch then ends before 2^31. Whatever may be larger, such
// as a place in the data or in a tensor, is counted in 64 bits.

// ------------------------------------------------------------------------------------------------------------ warps

const unsigned ALL_LANES = 0xffffffffu;

__device__ __forceinline__ unsigned lane_of(unsigned thread) { return thread & 31u; }

// In a fixed order; the total is in every lane.
template <class T>
__device__ __forceinline__ T warp_sum(T own) {
    for (int d = 16; d > 0; d >>= 1) own += __shfl_xor_sync(ALL_LANES, own, d);
    return own;
}

// Among each group of `lanes` lanes (a power of two).
template <class T>
__device__ __forceinline__ T group_sum(T own, int lanes) {
    for (int d = lanes >> 1; d > 0; d >>= 1) own += __shfl_xor_sync(ALL_LANES, own, d);
    return own;
}

// Lanes that should share an item, as a power of two: as many as there are threads to spare and the item gives work to.
__device__ __forceinline__ int share(u64 items, unsigned threads, int work) {
    int shift = 0;
    while (shift < 5 && items << (shift + 1) <= threads && 4 << shift <= work) shift++;
    return shift;
}

// All threads of a block; the total is right in its first warp.
__device__ __forceinline__ double block_sum(double own) {
    __shared__ double of_warp[32];
    own = warp_sum(own);
    __syncthreads();   // the sum before this one has been read
    if (lane_of(threadIdx.x) == 0) of_warp[threadIdx.x / 32] = own;
    __syncthreads();
    double total = 0.0;
    if (threadIdx.x < 32) total = warp_sum(threadIdx.x < blockDim.x / 32 ? of_warp[threadIdx.x] : 0.0);
    return total;
}

// Threads of a spinning wait.
__device__ __forceinline__ void relax() {
#ifdef CUSIM
    cusim_pause();
#endif
}

// ----------------------------------------------------------------------------------------------------------- scopes
//
// `thread` of `threads`: consecutive threads of a warp have consecutive numbers, beginning at a multiple of 32.
// `sum(run, n, term, finish)`: adds term(i) of all i below n in double precision, in an order that depends on nothing
// but n and the launch; then one thread calls finish(total). Called by all threads of the scope.

// All threads of a stand-alone launch. They have no barrier: the last block to arrive finishes a sum.
struct Launch {
    unsigned thread, threads;

    __device__ Launch() : thread(blockIdx.x * blockDim.x + threadIdx.x), threads(gridDim.x * blockDim.x) {}

    template <class Term, class Finish>
    __device__ void sum(double* partial, u64 n, Term term, Finish finish) const {
        double own = 0.0;
        for (u64 i = thread; i < n; i += threads) own += term(i);
        double total = block_sum(own);
        if (gridDim.x > 1) {
            __shared__ bool last;
            unsigned* arrived = (unsigned*)(partial + PARTIALS);
            if (threadIdx.x == 0) {
                partial[blockIdx.x] = total;
                __threadfence();   // the partial sum is seen before the arrival
                last = atomicAdd(arrived, 1u) == gridDim.x - 1;
            }
            __syncthreads();
            if (!last) return;
            __threadfence();
            own = 0.0;
            for (unsigned b = threadIdx.x; b < gridDim.x; b += blockDim.x) own += ((volatile double*)partial)[b];
            total = block_sum(own);
            if (threadIdx.x == 0) *arrived = 0;
        }
        if (threadIdx.x == 0) finish(total);
    }
};

// The threads of one block. `turn` moves the first thread on by warps, so that small ops that need not wait for each
// other fall to different warps and run at once.
struct Solo {
    unsigned thread, threads;

    __device__ Solo() : thread(threadIdx.x), threads(blockDim.x) {}
    __device__ __forceinline__ Solo(unsigned thread, unsigned threads) : thread(thread), threads(threads) {}
    __device__ void turn() { thread = thread >= 32 ? thread - 32 : thread + threads - 32; }

    template <class Term, class Finish>
    __device__ void sum(double*, unsigned n, Term term, Finish finish) const {
        if (n <= 512) {   // one warp is faster than two barriers of a block
            if (thread >= 32) return;
            double own = 0.0;
            for (unsigned i = thread; i < n; i += 32) own += term(i);
            own = warp_sum(own);
            if (thread == 0) finish(own);
            return;
        }
        double own = 0.0;
        for (unsigned i = thread; i < n; i += threads) own += term(i);
        own = block_sum(own);
        if (threadIdx.x == 0) finish(own);
    }
};

// A barrier of all blocks of a cooperative launch. `barrier`: arrivals, generation; zeroed once by the host.
__device__ __forceinline__ void meet(unsigned* barrier) {
    __syncthreads();
    if (threadIdx.x == 0) {
        volatile unsigned* generation = barrier + 1;
        unsigned seen = *generation;
        __threadfence();   // the block's writes are seen before its arrival
        if (atomicAdd(barrier, 1u) == gridDim.x - 1) {
            *(volatile unsigned*)barrier = 0;
            __threadfence();
            *generation = seen + 1;
        } else {
            while (*generation == seen) relax();
        }
        __threadfence();   // and drops what this multiprocessor's first-level cache holds of the others' memory
    }
    __syncthreads();
}

const int TEAM_SUM = 8192;   // up to this many elements one block is faster than a barrier of all

// All threads of a cooperative launch.
struct Team {
    unsigned thread, threads;
    unsigned* barrier;

    __device__ Team(unsigned* barrier)
        : thread(blockIdx.x * blockDim.x + threadIdx.x), threads(gridDim.x * blockDim.x), barrier(barrier) {}

    template <class Term, class Finish>
    __device__ void sum(double* partial, unsigned n, Term term, Finish finish) const {
        bool alone = n <= TEAM_SUM || gridDim.x == 1;
        if (alone && blockIdx.x > 0) return;
        unsigned stride = alone ? blockDim.x : threads;
        double own = 0.0;
        for (unsigned i = thread; i < n; i += stride) own += term(i);
        double total = block_sum(own);
        if (!alone) {
            if (threadIdx.x == 0) partial[blockIdx.x] = total;
            meet(barrier);
            if (blockIdx.x > 0) return;
            own = 0.0;
            for (unsigned b = threadIdx.x; b < gridDim.x; b += blockDim.x) own += ((volatile double*)partial)[b];
            total = block_sum(own);
        }
        if (threadIdx.x == 0) finish(total);
    }
};

// ---------------------------------------------------------------------------------------------------------- numbers

__device__ __forceinline__ bool finite(float x) { return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u; }

// To bfloat16 and back: round to nearest, ties to even; a NaN stays one.
__device__ __forceinline__ float to_bf16(float x) {
    u32 bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return x;
    bits += 0x7fffu + (bits >> 16 & 1u);
    return __uint_as_float(bits & 0xffff0000u);
}

// To tf32 (10 bits of mantissa) and back, likewise.
__device__ __forceinline__ float to_tf32(float x) {
    u32 bits = __float_as_uint(x);
    if ((bits & 0x7f800000u) == 0x7f800000u) return x;
    bits += 0xfffu + (bits >> 13 & 1u);
    return __uint_as_float(bits & 0xffffe000u);
}

// An operand of a product, as the op's precision has it.
__device__ __forceinline__ float operand(float x, int flags) {
    if (flags & (FLAG_BF16 | FLAG_TF32)) return flags & FLAG_BF16 ? to_bf16(x) : to_tf32(x);
    return x;
}

__device__ __forceinline__ bool quads(u64 a, u64 b, u64 n) { return ((a | b | n) & 3) == 0; }
