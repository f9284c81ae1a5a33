// Products of the compiled steps (step.cuh, stationary.cuh): tiles in registers, of threads or of tensor cores.

// Loads N consecutive elements with as few instructions as their alignment allows.
template <int N, bool ALIGNED>
__device__ __forceinline__ void load(float (&to)[N], const float* from) {
    if (ALIGNED && N % 4 == 0) {
#pragma unroll
        for (int q = 0; q < N / 4; q++) {
            float4 v = ((const float4*)from)[q];
            to[4 * q] = v.x, to[4 * q + 1] = v.y, to[4 * q + 2] = v.z, to[4 * q + 3] = v.w;
        }
    } else if (ALIGNED && N % 2 == 0) {
#pragma unroll
        for (int q = 0; q < N / 2; q++) {
            float2 v = ((const float2*)from)[q];
            to[2 * q] = v.x, to[2 * q + 1] = v.y;
        }
    } else {
#pragma unroll
        for (int q = 0; q < N; q++) to[q] = from[q];
    }
}

// Adds up COUNT sums, each of which is spread over LANES lanes that lie APART from each other. Each exchange
// halves the number of sums that a lane holds. Returns the index of the first element that belongs to this
// lane at the end. If there are fewer elements than lanes, several lanes get the same element.
template <int COUNT, int LANES, int APART, int N>
__device__ __forceinline__ int share_out(float (&own)[N]) {
    if constexpr (LANES == 1) {
        return 0;
    } else {
        const int DISTANCE = APART * (LANES / 2), HALF = COUNT / 2;
        bool upper = threadIdx.x & DISTANCE;
        if constexpr (COUNT == 1) own[0] += __shfl_xor_sync(ALL_LANES, own[0], DISTANCE);
#pragma unroll
        for (int q = 0; q < HALF; q++) {
            float given = upper ? own[q] : own[q + HALF], kept = upper ? own[q + HALF] : own[q];
            own[q] = kept + __shfl_xor_sync(ALL_LANES, given, DISTANCE);
        }
        return (upper ? HALF : 0) + share_out<(COUNT > 1 ? HALF : 1), LANES / 2, APART>(own);
    }
}

// How an operand is stored: contiguous along k, contiguous along its side of C, or all ones (not stored).
enum Side { ALONG_K, ALONG_SIDE, ONES };

// Loads DEPTH steps of k for TILE rows of a side of C (of SIZE rows), starting at (k0, side0). Stored lines begin LINE
// elements apart. Past the side's end it reads the last row again; nothing computed from that is stored.
template <int SIZE, int LINE, int DEPTH, int TILE, Side SIDE>
__device__ __forceinline__ void operands(float (&to)[DEPTH][TILE], const float* from, int k0, int side0, int flags) {
    if (SIDE == ALONG_SIDE) {
#pragma unroll
        for (int p = 0; p < DEPTH; p++) {
            if (SIZE % TILE == 0) {
                load<TILE, true>(to[p], from + (k0 + p) * LINE + side0);
            } else {
#pragma unroll
                for (int q = 0; q < TILE; q++)
                    to[p][q] = from[(k0 + p) * LINE + (side0 + q < SIZE ? side0 + q : SIZE - 1)];
            }
        }
    } else {
#pragma unroll
        for (int q = 0; q < TILE; q++) {
            float row[DEPTH];
            int side = SIZE % TILE == 0 || side0 + q < SIZE ? side0 + q : SIZE - 1;
            if (SIDE == ALONG_K) load<DEPTH, true>(row, from + side * LINE + k0);
#pragma unroll
            for (int p = 0; p < DEPTH; p++) to[p][q] = SIDE == ONES ? 1.0f : row[p];
        }
    }
#pragma unroll
    for (int p = 0; p < DEPTH; p++)
#pragma unroll
        for (int q = 0; q < TILE; q++) to[p][q] = operand(to[p][q], flags);
}

// C[M, N] = A B, with A [M, K] and B [K, N]; calls finish(i, j, sum) once per element. A thread owns tiles of
// TM x TN and every LANES-th group of DEPTH terms. The LANES lanes of a tile lie 32 / LANES apart, so that
// neighbours read neighbouring elements. If B is contiguous along k, neighbours start at different groups, to
// avoid conflicts on one bank of shared memory.
template <int M, int N, int K, int LINE_A, int LINE_B, int TM, int TN, int LANES, int DEPTH, Side A, Side B, class S, class Finish>
__device__ __forceinline__ void product_tiles(const float* a, const float* b, int flags, S s, Finish finish) {
    const int DOWN = (M + TM - 1) / TM, ACROSS = (N + TN - 1) / TN, BESIDE = 32 / LANES;
    const int GROUPS = K / DEPTH, TURNS = (GROUPS + LANES - 1) / LANES;
    const bool TURNED = B == ALONG_K && GROUPS % LANES == 0;
    int lane = lane_of(s.thread), part = lane / BESIDE;
    for (unsigned warp = s.thread / 32; warp * BESIDE < DOWN * ACROSS; warp += s.threads / 32) {
        int tile = warp * BESIDE + lane % BESIDE;
        bool inside = tile < DOWN * ACROSS;
        int i0 = inside ? tile / ACROSS * TM : 0, j0 = inside ? tile % ACROSS * TN : 0;
        float sum[TM * TN] = {};
#pragma unroll 8
        for (int turn = 0; turn < TURNS; turn++) {
            int group = part + LANES * (TURNED ? (turn + j0 / TN) % TURNS : turn);
            if (GROUPS % LANES != 0 && group >= GROUPS) break;
            float left[DEPTH][TM], right[DEPTH][TN];
            operands<M, LINE_A, DEPTH, TM, A>(left, a, group * DEPTH, i0, flags);
            operands<N, LINE_B, DEPTH, TN, B>(right, b, group * DEPTH, j0, flags);
#pragma unroll
            for (int p = 0; p < DEPTH; p++)
#pragma unroll
                for (int i = 0; i < TM; i++)
#pragma unroll
                    for (int j = 0; j < TN; j++) sum[i * TN + j] = fmaf(left[p][i], right[p][j], sum[i * TN + j]);
        }
        int first = share_out<TM * TN, LANES, BESIDE>(sum);
        const int MINE = TM * TN / LANES > 0 ? TM * TN / LANES : 1, ALIKE = LANES / (TM * TN) > 0 ? LANES / (TM * TN) : 1;
        if (!inside || part % ALIKE != 0) continue;
#pragma unroll
        for (int q = 0; q < MINE; q++) {
            int i = i0 + (first + q) / TN, j = j0 + (first + q) % TN;
            if ((M % TM == 0 || i < M) && (N % TN == 0 || j < N)) finish(i, j, sum[q], 0);
        }
    }
}

// ---------------------------------------------------------------------------------------------------- tensor cores

// C += A B, 16 x 8 by 8. With g = lane / 4 and t = lane % 4 a lane holds of A (g, t), (g + 8, t), (g, t + 4),
// (g + 8, t + 4), of B (t, g), (t + 4, g), of C (g, 2 t), (g, 2 t + 1), (g + 8, 2 t), (g + 8, 2 t + 1). GPUs before sm_80
// have no such instruction: there only layers with few outputs come here (linear.cu).
__device__ __forceinline__ void mma(float (&c)[4], const u32 (&a)[4], const u32 (&b)[2]) {
#if !defined(CUSIM) && __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
#else
    int g = lane_of(threadIdx.x) / 4, t = lane_of(threadIdx.x) % 4;
#pragma unroll 1
    for (int k = 0; k < 8; k++) {
        float x[2], y[2];
#pragma unroll
        for (int h = 0; h < 2; h++) {
            u32 l = k < 4 ? a[h] : a[h + 2], r = k < 4 ? b[0] : b[1];
            x[h] = __uint_as_float(__shfl_sync(ALL_LANES, l, g * 4 + k % 4) & 0xffffe000u);
            y[h] = __uint_as_float(__shfl_sync(ALL_LANES, r, (2 * t + h) * 4 + k % 4) & 0xffffe000u);
        }
#pragma unroll
        for (int i = 0; i < 4; i++) c[i] = fmaf(x[i / 2], y[i % 2], c[i]);
    }
#endif
}

// A lane's part of an operand. The tensor cores ignore the last 13 bits.
template <int COUNT, bool F32>
struct Fragment {
    u32 high[COUNT], low[COUNT];

    __device__ __forceinline__ void set(int i, float x) {
        u32 bits = __float_as_uint(x);
        high[i] = F32 ? (bits + 0x1000u) & 0xffffe000u : x != x ? bits : bits + 0xfffu + (bits >> 13 & 1u);
        low[i] = F32 ? __float_as_uint(x - __uint_as_float(high[i])) : 0;
    }
};

template <int TM, int TN, bool F32>
__device__ __forceinline__ void multiply(float (&sum)[TM][TN][4], const Fragment<4, F32> (&a)[TM], const Fragment<2, F32> (&b)[TN]) {
#pragma unroll
    for (int part = F32 ? 0 : 2; part < 3; part++)
#pragma unroll
        for (int n = 0; n < TN; n++)
#pragma unroll
            for (int m = 0; m < TM; m++) mma(sum[m][n], part == 0 ? a[m].low : a[m].high, part == 1 ? b[n].low : b[n].high);
}

// A lane's two of the eight terms of an instruction, for one row of a side of C; zeros beyond K.
template <int K, int SIZE, int LINE, Side SIDE, bool PAIRS>
struct Terms {
    static const int NEXT = PAIRS ? 1 : 4, STRIDE = SIDE == ALONG_K ? 1 : LINE;
    const float* at;
    int first;

    __device__ __forceinline__ Terms(const float* from, int side, int t) : first(PAIRS ? 2 * t : t) {
        if (side >= SIZE) side = SIZE - 1;   // nothing computed from that is stored
        at = from + first * STRIDE + side * (SIDE == ALONG_K ? LINE : 1);
    }
    __device__ __forceinline__ void read(float (&to)[2], int k) const {
        if (SIDE == ALONG_K && PAIRS && LINE % 2 == 0 && k + 8 <= K) return load<2, true>(to, at + k);
        to[0] = k + 8 <= K || k + first < K ? at[k * STRIDE] : 0.0f;
        to[1] = k + 8 <= K || k + first + NEXT < K ? at[(k + NEXT) * STRIDE] : 0.0f;
    }
};

// The elements of C that a warp makes by tensor cores: 8 WIDE rows of 16, one such tile per round.
template <int M, int N, int WIDE>
struct Tile {
    static const int DOWN = (M + 8 * WIDE - 1) / (8 * WIDE), ACROSS = (N + 15) / 16;
    int round, number, g, t;

    __device__ __forceinline__ Tile(const Solo& s, int round)
        : round(round), number(s.thread / 32 + round * (s.threads / 32)), g(lane_of(s.thread) / 4), t(lane_of(s.thread) % 4) {}
    __device__ __forceinline__ bool exists() const { return number < DOWN * ACROSS; }
    __device__ __forceinline__ int row() const { return number / ACROSS * (8 * WIDE); }
    __device__ __forceinline__ int column() const { return number % ACROSS * 16; }
    // Calls visit(i, j, q, e, slot) for this lane's elements: e of the 8 rows from 8 q on. Slots number them over all rounds.
    template <class Visit>
    __device__ __forceinline__ void each(Visit visit) const {
#pragma unroll
        for (int q = 0; q < WIDE; q++)
#pragma unroll
            for (int e = 0; e < 4; e++) {
                int i = row() + 8 * q + 2 * t + e % 2, j = column() + g + e / 2 * 8;
                if ((M % (8 * WIDE) == 0 || i < M) && (N % 16 == 0 || j < N)) visit(i, j, q, e, (round * WIDE + q) * 4 + e);
            }
    }
};

// The same product by tensor cores. In f32 it adds three products of split operands, whose error is near that of f32:
// tensor cores truncate as they add. The eight terms of an instruction may be any, as long as both operands agree: neighbouring ones (PAIRS) are read together
// where A is contiguous along k. ROUNDS: of a warp, if they are to be unrolled.
template <int M, int N, int K, int LINE_A, int LINE_B, int WIDE, int ROUNDS, int FLAGS, Side A, Side B, class S, class Finish>
__device__ __forceinline__ void product_mma(const float* a, const float* b, S s, Finish finish) {
    const bool PAIRS = A == ALONG_K;
    using Left = Terms<K, M, LINE_A, A, PAIRS>;
    using Right = Terms<K, N, LINE_B, B, PAIRS>;
    const bool EXACT = !(FLAGS & (FLAG_TF32 | FLAG_BF16));
#pragma unroll (ROUNDS > 0 ? ROUNDS : 1)
    for (int round = 0; ROUNDS == 0 || round < ROUNDS; round++) {
        const Tile<M, N, WIDE> tile(s, round);
        if (!tile.exists()) break;
        int g = tile.g, t = tile.t;
        Right right[2] = {Right(b, tile.column() + g, t), Right(b, tile.column() + g + 8, t)};
        float sum[WIDE][4] = {}, rest[WIDE][2][4] = {};
#pragma unroll 8
        for (int k = 0; k < K; k += 8) {
            Fragment<4, EXACT> left;
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float y[2];
                right[r].read(y, k);
#pragma unroll
                for (int e = 0; e < 2; e++) left.set(r + 2 * e, operand(y[e], FLAGS & FLAG_BF16));
            }
#pragma unroll
            for (int q = 0; q < WIDE; q++) {
                Fragment<2, EXACT> own;
                float x[2];
                Left(a, tile.row() + 8 * q + g, t).read(x, k);
#pragma unroll
                for (int e = 0; e < 2; e++) own.set(e, operand(x[e], FLAGS & FLAG_BF16));
                mma(sum[q], left.high, own.high);
                if (EXACT) mma(rest[q][0], left.high, own.low), mma(rest[q][1], left.low, own.high);
            }
        }
        tile.each([&](int i, int j, int q, int e, int slot) {
            finish(i, j, sum[q][e] + (rest[q][0][e] + rest[q][1][e]), slot);
        });
    }
}

// The same by tensor cores if WIDE > 0.
template <int M, int N, int K, int LINE_A, int LINE_B, int TM, int TN, int LANES, int DEPTH, int WIDE, int ROUNDS, int FLAGS, Side A,
          Side B, class S, class Finish>
__device__ __forceinline__ void block_product(const float* a, const float* b, S s, Finish finish) {
    if constexpr (WIDE > 0) product_mma<M, N, K, LINE_A, LINE_B, WIDE, ROUNDS, FLAGS, A, B>(a, b, s, finish);
    else product_tiles<M, N, K, LINE_A, LINE_B, TM, TN, LANES, DEPTH, A, B>(a, b, FLAGS, s, finish);
}
