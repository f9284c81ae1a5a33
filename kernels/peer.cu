// All-reduce over GPUs with access to each other's memory: one launch on each GPU, no library, no wait on the
// host.
//
// Every GPU copies its elements to a buffer of its own, signals the others, and reads all buffers. Each adds
// in rank order, so all get the same bits. A block handles the same elements on every GPU, so it waits only
// for the block of the same index there, by words that count calls and are never reset. Calls alternate
// between two buffers, so that one barrier is enough: before a GPU writes a buffer again, the others'
// previous launch, which read it, has ended.
//
// All blocks of a launch must run at the same time, so the launch is cooperative. Waits end when the host
// requests a stop or the time is up. The block then records which GPU is missing and returns, as does every
// later launch, whose result would be useless.

const int MOST_PEERS = 8;
const u64 GIVEN_UP = ~0ull;    // stored in place of a block's count of calls
const u32 STOPPED = 0xff;      // stored in place of the missing rank

// One GPU's table of all GPUs. Its Rust counterpart is in crates/cuda/src/all_reduce/peer.rs.
struct Peers {
    float* laid[MOST_PEERS];       // on each GPU: two buffers of `room` elements
    u64* arrived[MOST_PEERS];      // on each GPU: [blocks][MOST_PEERS], the calls whose elements a rank's block has written
    u64* calls;                    // of this GPU's own blocks
    u64* words;                    // in host memory: stop (not 0), then step << 8 | rank + 1 of the missing GPU
    u64 room;                      // a multiple of 4
    int rank, ranks;
};

static_assert(sizeof(Peers) == 160, "the host's twin has this size");

// Stores `value` so that any GPU that reads it also sees everything this block wrote before its last
// __syncthreads.
__device__ __forceinline__ void release_to_all(u64* at, u64 value) {
#ifdef CUSIM
    __atomic_store_n(at, value, __ATOMIC_RELEASE);
#else
    asm volatile("st.release.sys.global.u64 [%0], %1;" : : "l"(at), "l"(value) : "memory");
#endif
}

__device__ __forceinline__ u64 acquire_of_any(const u64* at) {
    u64 value;
#ifdef CUSIM
    value = __atomic_load_n(at, __ATOMIC_ACQUIRE);
#else
    asm volatile("ld.acquire.sys.global.u64 %0, [%1];" : "=l"(value) : "l"(at) : "memory");
#endif
    return value;
}

__device__ __forceinline__ u64 nanoseconds() {
    u64 now;
#ifdef CUSIM
    now = cusim_nanoseconds();
#else
    asm volatile("mov.u64 %0, %%globaltimer;" : "=l"(now));
#endif
    return now;
}

// Waits until `word >= call`. Returns false on timeout, or when the host requests a stop, which sets
// `stopped`.
__device__ __forceinline__ bool came(const u64* word, u64 call, u64 limit_ns, const u64* stop, bool& stopped) {
    const u32 TURNS_PER_LOOK = 64;   // reading host memory takes as long as many turns
    u64 begun = 0;
    for (u32 turn = 1; acquire_of_any(word) < call; turn++) {
        relax();
        if (turn % TURNS_PER_LOOK != 0) continue;
        u64 now = nanoseconds();
        if (begun == 0) begun = now;
        stopped = acquire_of_any(stop) != 0;
        if (stopped || now - begun > limit_ns) return false;
    }
    return true;
}

// Four of n elements, 0 past the end; `whole`: x is aligned to four.
__device__ __forceinline__ float4 quad_of(const float* x, u64 i, u64 n, bool whole) {
    if (whole && 4 * i + 4 <= n) return ((const float4*)x)[i];
    float own[4];
    for (int k = 0; k < 4; k++) own[k] = 4 * i + k < n ? x[4 * i + k] : 0.0f;
    return make_float4(own[0], own[1], own[2], own[3]);
}

// numbers = their sum over all GPUs in rank order. All GPUs have equal counts of numbers, blocks and threads.
// A thread owns every threads-th quad, aligned or not. Waits at most `limit_ns` for another GPU; `run` holds
// the step, for the error.
extern "C" __global__ void __launch_bounds__(256) peer_sum(float* numbers, u64 n, const Peers* table, const Run* run,
                                                          u64 limit_ns) {
    __shared__ bool lost;
    const Peers& peers = *table;
    Launch s;
    int rank = peers.rank, ranks = peers.ranks;
    u64 call = peers.calls[blockIdx.x];
    if (call == GIVEN_UP) return;
    call += 1;
    u64 quads = (n + 3) / 4, place = (call & 1) * peers.room;
    bool whole = ((u64)numbers & 15) == 0;
    float4* own = (float4*)(peers.laid[rank] + place);
    for (u64 i = s.thread; i < quads; i += s.threads) own[i] = quad_of(numbers, i, n, whole);
    if (threadIdx.x == 0) lost = false;
    __syncthreads();   // this block's elements are written
    int other = threadIdx.x;
    if (other < ranks) {
        release_to_all(peers.arrived[other] + blockIdx.x * MOST_PEERS + rank, call);
        bool stopped = false;
        if (!came(peers.arrived[rank] + blockIdx.x * MOST_PEERS + other, call, limit_ns, peers.words, stopped)) {
            lost = true;
            u64 step = run ? run->step + 1 : 0;
            // A missing GPU takes precedence over the stop that it causes.
            if (!stopped || acquire_of_any(peers.words + 1) == 0)
                release_to_all(peers.words + 1, step << 8 | (stopped ? STOPPED : other + 1));
        }
    }
    __syncthreads();   // all other blocks' elements are written
    if (lost) {
        if (threadIdx.x == 0) peers.calls[blockIdx.x] = GIVEN_UP;
        return;
    }
    const float4* from[MOST_PEERS];
#pragma unroll
    for (int r = 0; r < MOST_PEERS; r++) from[r] = (const float4*)(r < ranks ? peers.laid[r] + place : 0);
    for (u64 i = s.thread; i < quads; i += s.threads) {
        float4 part[MOST_PEERS];   // load all before adding: each load crosses a link
#pragma unroll
        for (int r = 0; r < MOST_PEERS; r++)
            if (r < ranks) part[r] = from[r][i];
        float4 sum = part[0];
#pragma unroll
        for (int r = 1; r < MOST_PEERS; r++)
            if (r < ranks) sum.x += part[r].x, sum.y += part[r].y, sum.z += part[r].z, sum.w += part[r].w;
        if (whole && 4 * i + 4 <= n) {
            ((float4*)numbers)[i] = sum;
            continue;
        }
        if (4 * i < n) numbers[4 * i] = sum.x;
        if (4 * i + 1 < n) numbers[4 * i + 1] = sum.y;
        if (4 * i + 2 < n) numbers[4 * i + 2] = sum.z;
        if (4 * i + 3 < n) numbers[4 * i + 3] = sum.w;
    }
    if (threadIdx.x == 0) peers.calls[blockIdx.x] = call;
}
