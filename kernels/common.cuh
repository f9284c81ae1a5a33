// What all kernels share: the records they read, and the scopes they run in.
//
// An op is written once, as a `__device__` function over a scope: the set of threads that share its work.
// Three engines use the same function. A stand-alone kernel runs one op over a whole launch (`Launch`).
// `interpret` runs whole programs in one block, with the arena in shared memory (`Solo`). `interpret_grid`
// runs them in all blocks of a cooperative launch (`Team`). An op contains no barriers; where a sum needs all
// threads, the scope's `sum` synchronizes them. "A thread owns every threads-th element" means a strided
// loop: elements thread, thread + threads, ...
//
// No CUDA header is included, so that a machine without a toolkit can compile this at run time, and so that a
// C++ compiler can build it for the CPU (tests/cuda_sim, which defines CUSIM). The host joins all files of
// this folder into one source text, in the order of kernels/sources.rs. Records, kinds and constants are in
// abi.cuh, which crates/engine/src/op/record.rs generates. What a record's fields and places mean is
// documented in the op's Rust file.
//
// Every kernel is correct for any one-dimensional grid whose block size is a multiple of 32; products need
// multiples of 256, and stand-alone kernels that sum columns (Strips) exactly BLOCK_THREADS.
//
// Sizes in a record are ints. The host makes sure that none of them, and no product of two that form a
// matrix, exceeds 2147000000 (op::MOST_COUNTED), so that a loop with the stride of a whole launch ends before
// 2^31. Indices that may be larger, such as those into the data or a tensor, have 64 bits.

// ------------------------------------------------------------------------------------------------------------ warps

const unsigned ALL_LANES = 0xffffffffu;

__device__ __forceinline__ unsigned lane_of(unsigned thread) { return thread & 31u; }

// Adds in a fixed order; every lane gets the total.
template <class T>
__device__ __forceinline__ T warp_sum(T own) {
    for (int d = 16; d > 0; d >>= 1) own += __shfl_xor_sync(ALL_LANES, own, d);
    return own;
}

// The same for several numbers, whose shuffles overlap.
template <int N>
__device__ __forceinline__ void warp_sums(double (&own)[N]) {
#pragma unroll
    for (int d = 16; d > 0; d >>= 1)
#pragma unroll
        for (int n = 0; n < N; n++) own[n] += __shfl_xor_sync(ALL_LANES, own[n], d);
}

// The same within each group of `lanes` lanes (a power of two).
template <class T>
__device__ __forceinline__ T group_sum(T own, int lanes) {
    for (int d = lanes >> 1; d > 0; d >>= 1) own += __shfl_xor_sync(ALL_LANES, own, d);
    return own;
}

// The log2 of how many lanes should share an item: limited by the threads to spare and by the item's work.
__device__ __forceinline__ int share(u64 items, unsigned threads, int work) {
    int shift = 0;
    while (shift < 5 && items << (shift + 1) <= threads && 4 << shift <= work) shift++;
    return shift;
}

// The sums over all threads of a block, of several numbers at a time; the results are valid in the first warp.
template <int N>
__device__ __forceinline__ void block_sums(double (&own)[N]) {
    __shared__ double of_warp[N][32];
    warp_sums(own);
    __syncthreads();   // the previous sums have been read
#pragma unroll
    for (int n = 0; n < N; n++)
        if (lane_of(threadIdx.x) == 0) of_warp[n][threadIdx.x / 32] = own[n];
    __syncthreads();
    if (threadIdx.x >= 32) return;
#pragma unroll
    for (int n = 0; n < N; n++) own[n] = threadIdx.x < blockDim.x / 32 ? of_warp[n][threadIdx.x] : 0.0;
    warp_sums(own);
}

__device__ __forceinline__ double block_sum(double own) {
    double one[1] = {own};
    block_sums(one);
    return one[0];
}

// Whether this block is the last of `blocks` to arrive at the counter, which is then 0 again. What the others
// wrote before they arrived is visible to the last, if it reads it as volatile.
__device__ __forceinline__ bool arrives_last(unsigned* counter, unsigned blocks) {
    __shared__ bool last;
    __threadfence();   // makes this thread's writes visible before the block's arrival
    __syncthreads();
    if (threadIdx.x == 0) {
        last = atomicAdd(counter, 1u) == blocks - 1;
        if (last) *counter = 0;
    }
    __syncthreads();
    __threadfence();
    return last;
}

// Called in each turn of a wait that spins.
__device__ __forceinline__ void relax() {
#ifdef CUSIM
    cusim_pause();
#endif
}

// ----------------------------------------------------------------------------------------------------------- scopes
//
// `thread` of `threads`: consecutive threads of a warp have consecutive numbers, the first a multiple of 32.
// `sum(run, n, term, finish)`: adds term(i) for all i < n in double precision, in an order that depends only
// on n and the launch; then one thread calls finish(total). All threads of the scope must call it.

// All threads of a stand-alone launch. They have no common barrier: the last block to arrive finishes a sum.
struct Launch {
    unsigned thread, threads;

    __device__ Launch() : thread(blockIdx.x * blockDim.x + threadIdx.x), threads(gridDim.x * blockDim.x) {}

    template <class Term, class Finish>
    __device__ void sum(double* partial, u64 n, Term term, Finish finish) const {
        double own = 0.0;
        for (u64 i = thread; i < n; i += threads) own += term(i);
        double total = block_sum(own);
        if (gridDim.x > 1) {
            if (threadIdx.x == 0) partial[blockIdx.x] = total;
            if (!arrives_last((unsigned*)(partial + PARTIALS), gridDim.x)) return;
            own = 0.0;
            for (unsigned b = threadIdx.x; b < gridDim.x; b += blockDim.x) own += ((volatile double*)partial)[b];
            total = block_sum(own);
        }
        if (threadIdx.x == 0) finish(total);
    }
};

// The threads of one block. `turn` rotates the first thread by whole warps, so that small independent ops are
// given to different warps and run at the same time.
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

// Adds to a counter. What this thread knows to be written before is visible to whoever reads the sum by
// `acquired`; both without the fence of a whole multiprocessor.
__device__ __forceinline__ void add_released(unsigned* counter, unsigned n) {
#ifdef CUSIM
    atomicAdd(counter, n);
#elif __CUDA_ARCH__ < 700
    __threadfence();
    atomicAdd(counter, n);
#else
    asm volatile("red.release.gpu.global.add.u32 [%0], %1;" ::"l"(counter), "r"(n) : "memory");
#endif
}

__device__ __forceinline__ unsigned acquired(const unsigned* counter) {
#ifdef CUSIM
    return __atomic_load_n(counter, __ATOMIC_SEQ_CST);
#elif __CUDA_ARCH__ < 700
    unsigned now = *(const volatile unsigned*)counter;
    __threadfence();
    return now;
#else
    unsigned now;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    return now;
#endif
}

// A barrier over all blocks of a cooperative launch, in two halves: work between them must not need what
// other blocks write before it. `barrier`: a word that the host zeroes once. The blocks add up to half of what
// a word counts, so each time all have arrived its upper bit changes, and the rest is 0 again. The bit is read before
// the block is counted, while it cannot change, so that nobody waits for the sum.
__device__ __forceinline__ unsigned arrive(unsigned* barrier) {
    unsigned before = threadIdx.x == 0 ? *(volatile unsigned*)barrier : 0;
    __syncthreads();
    if (threadIdx.x == 0) add_released(barrier, blockIdx.x == 0 ? 0x80000000u - (gridDim.x - 1) : 1u);
    return before;
}

__device__ __forceinline__ void wait_for_all(const unsigned* barrier, unsigned arrived) {
    if (threadIdx.x == 0)
        while (((acquired(barrier) ^ arrived) & 0x80000000u) == 0) relax();
    __syncthreads();
}

__device__ __forceinline__ void meet(unsigned* barrier) { wait_for_all(barrier, arrive(barrier)); }

const int TEAM_SUM = 8192;   // up to this many elements one block is faster than a grid barrier

// All threads of a cooperative launch, numbered from a block on.
struct Team {
    unsigned block, thread, threads;
    unsigned* barrier;

    __device__ Team(unsigned* barrier, unsigned first = 0)
        : block(blockIdx.x >= first ? blockIdx.x - first : blockIdx.x + gridDim.x - first),
          thread(block * blockDim.x + threadIdx.x), threads(gridDim.x * blockDim.x), barrier(barrier) {}

    template <class Term, class Finish>
    __device__ void sum(double* partial, unsigned n, Term term, Finish finish) const {
        bool alone = n <= TEAM_SUM || gridDim.x == 1;
        if (alone && block > 0) return;
        unsigned stride = alone ? blockDim.x : threads;
        double own = 0.0;
        for (unsigned i = thread; i < n; i += stride) own += term(i);
        double total = block_sum(own);
        if (!alone) {
            if (threadIdx.x == 0) partial[block] = total;
            meet(barrier);
            if (block > 0) return;
            own = 0.0;
            for (unsigned b = threadIdx.x; b < gridDim.x; b += blockDim.x) own += ((volatile double*)partial)[b];
            total = block_sum(own);
        }
        if (threadIdx.x == 0) finish(total);
    }
};

// ---------------------------------------------------------------------------------------------------------- numbers

__device__ __forceinline__ bool finite(float x) { return (__float_as_uint(x) & 0x7f800000u) != 0x7f800000u; }

// A square root and a quotient within two units of the last place, in a few instructions.
__device__ __forceinline__ float root(float x) {
#ifdef CUSIM
    return sqrtf(x);
#else
    float y;
    asm("sqrt.approx.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#endif
}

__device__ __forceinline__ float quotient(float x, float y) {
#ifdef CUSIM
    return x / y;
#else
    float z;
    asm("div.approx.f32 %0, %1, %2;" : "=f"(z) : "f"(x), "f"(y));
    return z;
#endif
}

// Rounds to bfloat16: to nearest, ties to even; a NaN stays a NaN.
__device__ __forceinline__ float to_bf16(float x) {
    u32 bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return x;
    bits += 0x7fffu + (bits >> 16 & 1u);
    return __uint_as_float(bits & 0xffff0000u);
}

// The upper half of that: a bfloat16. A NaN becomes a quiet one, whose bits are not all in the lower half.
__device__ __forceinline__ u32 bf16_bits(float x) {
    u32 bits = __float_as_uint(x);
    if ((bits & 0x7fffffffu) > 0x7f800000u) return bits >> 16 | 0x40u;
    return (bits + 0x7fffu + (bits >> 16 & 1u)) >> 16;
}

__device__ __forceinline__ float from_bf16(unsigned short bits) { return __uint_as_float((u32)bits << 16); }

// Rounds to tf32 (10 bits of mantissa) in the same way.
__device__ __forceinline__ float to_tf32(float x) {
    u32 bits = __float_as_uint(x);
    if (x != x) return x;
    bits += 0xfffu + (bits >> 13 & 1u);
    return __uint_as_float(bits & 0xffffe000u);
}

// An operand of a product, rounded to the op's precision.
__device__ __forceinline__ float operand(float x, int flags) {
    if (flags & (FLAG_BF16 | FLAG_TF32)) return flags & FLAG_BF16 ? to_bf16(x) : to_tf32(x);
    return x;
}

__device__ __forceinline__ bool quads(u64 a, u64 b, u64 n) { return ((a | b | n) & 3) == 0; }
