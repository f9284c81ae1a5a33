// Kernels with planted bugs, and one without: they test the tests.

// Sums 256 numbers in shared memory by a tree.
extern "C" __global__ void planted_nothing(const float* x, float* out) {
    __shared__ float sums[256];
    sums[threadIdx.x] = x[threadIdx.x];
    for (unsigned half = 128; half > 0; half /= 2) {
        __syncthreads();
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    }
    if (threadIdx.x == 0) *out = sums[0];
}

// The same without the barriers.
extern "C" __global__ void planted_missing_barrier(const float* x, float* out) {
    __shared__ float sums[256];
    sums[threadIdx.x] = x[threadIdx.x];
    for (unsigned half = 128; half > 0; half /= 2)
        if (threadIdx.x < half) sums[threadIdx.x] += sums[threadIdx.x + half];
    if (threadIdx.x == 0) *out = sums[0];
}

// Half of the threads leave before a barrier.
extern "C" __global__ void planted_skipped_barrier(const float* x, float* out) {
    if (threadIdx.x >= 128) return;
    __syncthreads();
    if (threadIdx.x == 0) *out = x[0];
}

// Reads one number past the end of n.
extern "C" __global__ void planted_read_beyond(const float* x, float* out, int n) {
    if (threadIdx.x == 0) *out = x[n];
}

// Writes one number past the block's dynamic shared memory of n numbers.
extern "C" __global__ void planted_write_beyond_shared(float* out, int n) {
    extern __shared__ __align__(16) unsigned char dyn_smem[];
    if (threadIdx.x == 0) {
        ((float*)dyn_smem)[n] = 1.0f;
        *out = ((float*)dyn_smem)[n];
    }
}

// Counts n ones, more than fit into 32 bits, with threads whose stride is so long that each adds only a few.
extern "C" __global__ void planted_count(u64 n, u32 stride, double* partial, double* out) {
    Launch s;
    s.threads = stride;
    s.sum(partial, n, [](u64) { return 1.0; }, [=](double total) { *out = total; });
}

// Whether the block's dynamic shared memory is aligned for reading four numbers at once.
extern "C" __global__ void planted_alignment(u64* out) {
    extern __shared__ __align__(16) unsigned char dyn_smem[];
    if (threadIdx.x == 0) *out = (u64)dyn_smem % 16;
}

// Sums the numbers of all blocks, which are 32 threads each: the last to arrive adds up the sums of blocks.
extern "C" __global__ void planted_nothing_between_blocks(const float* x, float* out, float* sums, unsigned* counter) {
    float sum = warp_sum(x[blockIdx.x * 32 + threadIdx.x]);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
    if (!arrives_last(counter, gridDim.x) || threadIdx.x > 0) return;
    sum = 0.0f;
    for (unsigned b = 0; b < gridDim.x; b++) sum += sums[b];
    *out = sum;
}

// The same, but the first block does not wait for the others.
extern "C" __global__ void planted_early_sum(const float* x, float* out, float* sums, unsigned* counter) {
    float sum = warp_sum(x[blockIdx.x * 32 + threadIdx.x]);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
    if (blockIdx.x > 0 || threadIdx.x > 0) return;
    sum = 0.0f;
    for (unsigned b = 0; b < gridDim.x; b++) sum += sums[b];
    *out = sum;
}
