// A sum over GPUs that reach each other's memory: one launch on each of them, no library, and no wait of the host.
//
// The clever part. Every GPU lays its numbers down in memory of its own, tells the others, and reads what all have laid
// down; everyone adds in the order of ranks, so that all hold the same bits. A block deals with the same numbers on every
// GPU, so it meets only the block of its own number there: by words that count calls and are never reset. What is laid
// down goes to two places in turn, so that one meeting is enough: who writes a place again has met the others since they
// read it. Their launch before this one had to end first, and it was then that they read.
//
// All blocks of a launch must run at the same time, so it is a cooperative one. A GPU that does not come is not waited
// for for ever: the host may say stop, and the clock does. Then a block writes down who is missing and leaves, and so
// does every launch after it, since what it would sum is of no use any more.

const int MOST_PEERS = 8;
const u64 GIVEN_UP = ~0ull;    // instead of a block's count of calls
const u32 STOPPED = 0xff;      // instead of who is missing

// What a GPU knows of all of them. The host's twin is src/device/cuda/all_reduce/peer.rs.
struct Peers {
    float* laid[MOST_PEERS];       // on each GPU: two places of `room` numbers
    u64* arrived[MOST_PEERS];      // on each GPU: [blocks][MOST_PEERS], the calls that a rank's block has laid down
    u64* calls;                    // of this GPU's own blocks
    u64* words;                    // in the host's memory: stop (not 0), then step << 8 | rank + 1 of who did not come
    u64 room;                      // a multiple of 4
    int rank, ranks;
};

static_assert(sizeof(Peers) == 160, "the host's twin has this size");

// Whoever sees the value sees all that this block wrote before the block met last, on any GPU.
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

// Waits till a word counts so far; else what is to be told: nobody said stop, and the time is over, or somebody did.
__device__ __forceinline__ bool came(const u64* word, u64 call, u64 limit_ns, const u64* stop, bool& stopped) {
    const u32 TURNS_PER_LOOK = 64;   // a look at the host's memory takes as long as many turns
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

// Four of n numbers, 0 beyond them; `whole`: x is aligned to all four.
__device__ __forceinline__ float4 quad_of(const float* x, u64 i, u64 n, bool whole) {
    if (whole && 4 * i + 4 <= n) return ((const float4*)x)[i];
    float own[4];
    for (int k = 0; k < 4; k++) own[k] = 4 * i + k < n ? x[4 * i + k] : 0.0f;
    return make_float4(own[0], own[1], own[2], own[3]);
}

// numbers = their sum over all GPUs, in the order of ranks. Every GPU has as many of them, and as many blocks and threads.
// A thread owns every threads-th quad, whatever its alignment. Another GPU is waited for no longer than `limit_ns`; `run`
// tells the step, for the one who reads of that.
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
    __syncthreads();   // all of this block is laid down
    int other = threadIdx.x;
    if (other < ranks) {
        release_to_all(peers.arrived[other] + blockIdx.x * MOST_PEERS + rank, call);
        bool stopped = false;
        if (!came(peers.arrived[rank] + blockIdx.x * MOST_PEERS + other, call, limit_ns, peers.words, stopped)) {
            lost = true;
            u64 step = run ? run->step + 1 : 0;
            // Who found somebody missing is not overruled by who was told to stop for it.
            if (!stopped || acquire_of_any(peers.words + 1) == 0)
                release_to_all(peers.words + 1, step << 8 | (stopped ? STOPPED : other + 1));
        }
    }
    __syncthreads();   // all others have laid down theirs
    if (lost) {
        if (threadIdx.x == 0) peers.calls[blockIdx.x] = GIVEN_UP;
        return;
    }
    const float4* from[MOST_PEERS];
#pragma unroll
    for (int r = 0; r < MOST_PEERS; r++) from[r] = (const float4*)(r < ranks ? peers.laid[r] + place : 0);
    for (u64 i = s.thread; i < quads; i += s.threads) {
        float4 part[MOST_PEERS];   // fetched all at once: each takes a way through a link
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
