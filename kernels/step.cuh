// Building blocks of a compiled step, which crates/engine/src/program/step_source.rs generates for one trial.
//
// Interpreters read sizes from records. Here a size is a template parameter or a field of a constant record,
// so that loops are unrolled, divisions disappear and tiles stay in registers. One block keeps the trial in
// shared memory. The pieces between two barriers do not touch each other's elements, and each starts at its
// own warp (`piece`).

// The block's threads, numbered from a piece's first warp on.
__device__ __forceinline__ Solo piece(unsigned first, unsigned threads) {
    return Solo(threadIdx.x >= first ? threadIdx.x - first : threadIdx.x + threads - first, threads);
}

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

// c += a b, with 16 x 8 elements and 8 terms, whose operands are cut to tf32 (11 bits). Lane 4 g + t has of c (g, 2 t),
// (g, 2 t + 1), (g + 8, 2 t), (g + 8, 2 t + 1); of a (g, t), (g + 8, t), (g, t + 4), (g + 8, t + 4); of b (t, g), (t + 4, g).
__device__ __forceinline__ void mma(float (&c)[4], const float (&a)[4], const float (&b)[2]) {
#ifdef CUSIM
    cusim_mma(c, a, b);
#elif __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"
        : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
        : "r"(__float_as_uint(a[0])), "r"(__float_as_uint(a[1])), "r"(__float_as_uint(a[2])), "r"(__float_as_uint(a[3])),
          "r"(__float_as_uint(b[0])), "r"(__float_as_uint(b[1])));
#endif
}

// Splits x into a tf32 number and a rest. `UP` is half of the last place of tf32 if the number is rounded, or 0 if it is
// cut. Two cut operands would have rests of one sign, and their product, which is left out, would not average out.
template <u32 UP>
__device__ __forceinline__ void split(float x, float& high, float& low) {
    high = __uint_as_float((__float_as_uint(x) + UP) & 0xffffe000u);
    low = x - high;
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

// The same product by tensor cores. In f32 it adds three products of split operands, whose error is that of f32. The
// eight terms of an instruction may be any, as long as both operands agree: neighbouring ones (PAIRS) are read together
// where A is contiguous along k. ROUNDS: of a warp, if they are to be unrolled.
template <int M, int N, int K, int LINE_A, int LINE_B, int WIDE, int ROUNDS, Side A, Side B, class S, class Finish>
__device__ __forceinline__ void product_mma(const float* a, const float* b, int flags, S s, Finish finish) {
    const bool PAIRS = A == ALONG_K;
    using Left = Terms<K, M, LINE_A, A, PAIRS>;
    using Right = Terms<K, N, LINE_B, B, PAIRS>;
    bool exact = !(flags & (FLAG_TF32 | FLAG_BF16));
#pragma unroll (ROUNDS > 0 ? ROUNDS : 1)
    for (int round = 0; ROUNDS == 0 || round < ROUNDS; round++) {
        const Tile<M, N, WIDE> tile(s, round);
        if (!tile.exists()) break;
        int g = tile.g, t = tile.t;
        Right right[2] = {Right(b, tile.column() + g, t), Right(b, tile.column() + g + 8, t)};
        float sum[WIDE][4] = {}, rest[WIDE][2][4] = {};
#pragma unroll 8
        for (int k = 0; k < K; k += 8) {
            float high[4], low[4];
#pragma unroll
            for (int r = 0; r < 2; r++) {
                float y[2];
                right[r].read(y, k);
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    if (exact) split<0>(y[e], high[r + 2 * e], low[r + 2 * e]);
                    else high[r + 2 * e] = operand(y[e], flags);
                }
            }
#pragma unroll
            for (int q = 0; q < WIDE; q++) {
                float x[2], upper[2], lower[2];
                Left(a, tile.row() + 8 * q + g, t).read(x, k);
#pragma unroll
                for (int e = 0; e < 2; e++) {
                    if (exact) split<0x1000>(x[e], upper[e], lower[e]);
                    else upper[e] = operand(x[e], flags);
                }
                mma(sum[q], high, upper);
                if (exact) mma(rest[q][0], high, lower), mma(rest[q][1], low, upper);
            }
        }
        tile.each([&](int i, int j, int q, int e, int slot) {
            finish(i, j, sum[q][e] + (rest[q][0][e] + rest[q][1][e]), slot);
        });
    }
}

// The same by tensor cores if it is faster (WIDE > 0) and the GPU can do it.
template <int M, int N, int K, int LINE_A, int LINE_B, int TM, int TN, int LANES, int DEPTH, int WIDE, int ROUNDS, Side A, Side B, class S,
          class Finish>
__device__ __forceinline__ void block_product(const float* a, const float* b, int flags, S s, Finish finish) {
#if defined(CUSIM) || __CUDA_ARCH__ >= 800
    const bool TENSOR = WIDE > 0;
#else
    const bool TENSOR = false;
#endif
    if constexpr (TENSOR) product_mma<M, N, K, LINE_A, LINE_B, WIDE, ROUNDS, A, B>(a, b, flags, s, finish);
    else product_tiles<M, N, K, LINE_A, LINE_B, TM, TN, LANES, DEPTH, A, B>(a, b, flags, s, finish);
}

// Updates one parameter as soon as its gradient is known. `n`: the distance from one of its state numbers to
// the next.
template <class Rule>
__device__ __forceinline__ void learn(const Rule& rule, float* w, float* state, unsigned n, float gradient) {
    float of[3] = {};
#pragma unroll
    for (int k = 0; k < Rule::MOST; k++)
        if (k < rule.states) of[k] = state[k * n];
    rule(*w, gradient, of[0], of[1], of[2]);
#pragma unroll
    for (int k = 0; k < Rule::MOST; k++)
        if (k < rule.states) state[k * n] = of[k];
}

// Parameters that lanes keep in registers from step to step, each with its state: those of the tiles of their gradient
// [M, N]. Values are in shared memory too, where products read them.
template <int M, int N, int WIDE, int ROUNDS, int STATES>
struct Kept {
    float of[ROUNDS * WIDE * 4][1 + STATES];

    // Calls visit(slot, index of the parameter).
    template <class Visit>
    __device__ __forceinline__ void each(const Solo& s, Visit visit) const {
#pragma unroll
        for (int round = 0; round < ROUNDS; round++) {
            const Tile<M, N, WIDE> tile(s, round);
            if (tile.exists()) tile.each([&](int i, int j, int, int, int slot) { visit(slot, i * N + j); });
        }
    }
    // `n`: the distance from one of a parameter's state values to the next.
    __device__ __forceinline__ void take(const float* w, const float* state, unsigned n, const Solo& s) {
        each(s, [&](int slot, int first) {
            of[slot][0] = w[first];
#pragma unroll
            for (int k = 0; k < STATES; k++) of[slot][1 + k] = state[first + k * n];
        });
    }
    __device__ __forceinline__ void give(float* state, unsigned n, const Solo& s) const {
        each(s, [&](int slot, int first) {
#pragma unroll
            for (int k = 0; k < STATES; k++) state[first + k * n] = of[slot][1 + k];
        });
    }
    template <class Rule>
    __device__ __forceinline__ void learn(const Rule& rule, int slot, float* w, float gradient) {
        float state[3] = {};
#pragma unroll
        for (int k = 0; k < STATES; k++) state[k] = of[slot][1 + k];
        rule(of[slot][0], gradient, state[0], state[1], state[2]);
#pragma unroll
        for (int k = 0; k < STATES; k++) of[slot][1 + k] = state[k];
        *w = of[slot][0];
    }
};

// The loss and its gradient for rows of few outputs: LANES lanes share a row, and each keeps its outputs in registers.
// Reads and writes what `loss_op` does, with CROSS_ENTROPY.
template <int WIDTH, class S>
__device__ __forceinline__ void cross_entropy_op(const Op& op, float* arena, S s) {
    const int LANES = WIDTH > 32 ? 8 : WIDTH > 4 ? 4 : 1, OWN = (WIDTH + LANES - 1) / LANES;
    float *hits = place(arena, op.at[3]), *gradients = place(arena, op.at[4]);
    int part = s.thread % LANES;
    for (unsigned first = s.thread - lane_of(s.thread); first < op.rows * LANES; first += s.threads) {
        unsigned row = (first + lane_of(s.thread)) / LANES;
        bool inside = row < (unsigned)op.rows;
        if (!inside) row = 0;   // takes part in shuffles
        const float* p = arena + op.at[0] + row * WIDTH;
        // An invalid label makes the loss NaN; it must not be used as an index.
        float label = arena[op.at[1] + row], own[OWN], most = __uint_as_float(0xff800000u), total = 0.0f;
        bool known = label >= 0.0f && label < WIDTH;
        int correct = known ? (int)label : 0;
        float of_correct = p[correct];
#pragma unroll
        for (int q = 0; q < OWN; q++) {
            int j = part + q * LANES;
            own[q] = j < WIDTH ? p[j] : __uint_as_float(0xff800000u);
            most = larger(most, own[q]);
        }
#pragma unroll
        for (int d = LANES / 2; d > 0; d /= 2) most = larger(most, __shfl_xor_sync(ALL_LANES, most, d));
        int earlier = 0;   // outputs before the label's that equal it: ties go to the first
#pragma unroll
        for (int q = 0; q < OWN; q++) {
            earlier += part + q * LANES < correct && own[q] == most;
            own[q] = expf(own[q] - most);
            total += own[q];
        }
        total = group_sum(total, LANES);
        if (hits) earlier = group_sum(earlier, LANES);
        if (!inside) continue;
        float scale = 1.0f / op.total_rows, each = quotient(scale, total);
#pragma unroll
        for (int q = 0; q < OWN; q++) {
            int j = part + q * LANES;
            if (gradients && j < WIDTH) gradients[row * WIDTH + j] = own[q] * each - (j == correct ? scale : 0.0f);
        }
        if (part > 0) continue;
        arena[op.at[2] + row] = known ? logf(total) + most - of_correct : __uint_as_float(0x7fc00000u);
        if (hits) hits[row] = known && of_correct == most && earlier == 0 ? 1.0f : 0.0f;
    }
}

// ------------------------------------------------------------------------------------------------------ rows ahead

// Copies N elements to shared memory, asynchronously if the GPU can. They have arrived after `copied` and a
// barrier.
template <int N>
__device__ __forceinline__ void copy_ahead(float* to, const float* from) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    u32 at = (u32)__cvta_generic_to_shared(to);
    if constexpr (N == 4)   // past the L1 cache
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(at), "l"(from) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(at), "l"(from), "n"(4 * N) : "memory");
#else
    float of[N];
    load<N, true>(of, from);
#pragma unroll
    for (int q = 0; q < N; q++) to[q] = of[q];
#endif
}

__device__ __forceinline__ void copied() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
}

// Ends a group of copies; waits until all but the last `LATER` groups have arrived.
__device__ __forceinline__ void end_group() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

template <int LATER>
__device__ __forceinline__ void copied_but() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory");
#endif
}

// Copies ROWS rows of WIDTH elements, N at a time if they are aligned, to rows that begin LINE elements apart; row i of the
// batch is row rows[i] of `from`.
template <int ROWS, int WIDTH, int LINE, int N>
__device__ __forceinline__ void rows_ahead(float* to, const float* from, const u32* rows, Solo s) {
    if (N > 1 && (u64)from % (4 * N)) return rows_ahead<ROWS, WIDTH, LINE, 1>(to, from, rows, s);
    const unsigned PIECES = WIDTH / N;
    auto copy = [&](unsigned i) {
        copy_ahead<N>(to + i / PIECES * LINE + i % PIECES * N, from + (u64)rows[i / PIECES] * WIDTH + i % PIECES * N);
    };
    if (ROWS * PIECES <= s.threads) {
        if (s.thread < ROWS * PIECES) copy(s.thread);
        return;
    }
#pragma unroll 4
    for (unsigned i = s.thread; i < ROWS * PIECES; i += s.threads) copy(i);
}

// Copies a matrix within shared memory.
template <int ROWS, int WIDTH, int TO_LINE, int FROM_LINE>
__device__ __forceinline__ void respace(float* to, const float* from, Solo s) {
#pragma unroll 1
    for (int i = s.thread; i < ROWS * WIDTH; i += s.threads)
        to[i / WIDTH * TO_LINE + i % WIDTH] = from[i / WIDTH * FROM_LINE + i % WIDTH];
}

// -------------------------------------------------------------------------------------------------------- the steps
//
// The host generates P. It has the sizes, and `step`, the pieces of a step with barriers between them. If it
// fetches rows ahead (AHEAD), it also has `numbers`, which gives the row indices of a step, and `fetch`,
// which copies those rows. X and Y then have two buffers each, for the current batch and the next one: a
// step's rows have been on their way since the step before. `space_out` and `close_up` move parameters that a step keeps
// with gaps between their rows, `take` and `give` the state of those that lanes keep in `Registers`. L is the same for the last batch of an epoch, if that is smaller (SHORT).

// Which rows a step takes.
struct Turn {
    const u32* order;
    u64 position, offset;
    bool last;   // the smaller batch at the end of an epoch
};

template <class P>
__device__ __forceinline__ bool is_last(const Turn& turn, u64 rows) {
    return P::SHORT && rows - turn.position < P::BATCH;
}

// The turn behind this one, in the same epoch of `rows` rows or in the next one.
template <class P, class L>
__device__ __forceinline__ Turn behind(Turn turn, u64 rows) {
    turn.position += turn.last ? L::BATCH : P::BATCH;
    turn.offset += turn.last ? L::ROWS : P::ROWS;
    if (turn.position >= rows) turn.order += rows, turn.position = 0;
    turn.last = is_last<P>(turn, rows);
    return turn;
}

// The run's counters at a turn.
__device__ __forceinline__ Run at_turn(Run run, const Turn& turn) {
    run.order = turn.order, run.position = turn.position, run.offset = turn.offset;
    return run;
}

template <class P, class L>
__device__ __forceinline__ void fetch_rows(float* own, const Run& at, const Turn& turn, const u32* rows, int place) {
    if constexpr (P::SHORT)
        if (turn.last) return L::fetch(own, at, rows, place);
    P::fetch(own, at, rows, place);
}

template <class P, class L>
__device__ __forceinline__ void step_of(float* own, const Run& at, const Turn& turn, int now, typename P::Registers& registers) {
    if constexpr (P::SHORT)
        if (turn.last) return L::step(own, at, now, registers);
    P::step(own, at, now, registers);
}

template <class P, class L>
__device__ __forceinline__ void compiled_steps(float* arena, Run* run, int steps) {
    if (blockIdx.x > 0) return;
    extern __shared__ __align__(16) unsigned char dyn_smem[];
    __shared__ double sums[2 * SUMS];
    __shared__ u64 non_finite;
    __shared__ u32 rows[2][P::AHEAD ? P::ROWS : 1];
    const unsigned EACH = (P::ROWS + P::THREADS - 1) / P::THREADS;   // row indices per thread
    float* own = (float*)dyn_smem;
    Run at = *run;
    const Hyper* table = at.hyper ? at.hyper + at.index : 0;
    Hyper hyper = {}, next = {};
    if (table) hyper = table[0];
    double* sums_home = at.sums;
    u64* non_finite_home = at.non_finite;
    u32 index = at.index;
#pragma unroll 4
    for (int i = threadIdx.x; i < P::ELEMENTS; i += P::THREADS) own[i] = arena[i];
#pragma unroll 1
    for (int i = threadIdx.x; i < 2 * SUMS; i += P::THREADS) sums[i] = at.sums[i];
    if (threadIdx.x == 0) non_finite = *at.non_finite;
    at.hyper = &hyper, at.index = 0, at.sums = sums, at.non_finite = &non_finite;
    Turn turn = {at.order, at.position, at.offset, false};
    turn.last = is_last<P>(turn, at.rows);
    Turn after = behind<P, L>(turn, at.rows);
    typename P::Registers registers = {};
    __syncthreads();
    P::take(own, registers);
    P::space_out(own);
    if (P::AHEAD) {
        for (unsigned i = threadIdx.x; i < P::ROWS; i += P::THREADS) {
            if (!turn.last || i < L::ROWS) rows[0][i] = P::number(at, i);
            if (steps > 1 && (!after.last || i < L::ROWS)) rows[1][i] = P::number(at_turn(at, after), i);
        }
        __syncthreads();
        fetch_rows<P, L>(own, at, turn, rows[0], 0);
        copied();
    }
    __syncthreads();
    for (int step = 0; step < steps; step++) {
        int now = step & 1;
        u32 later[EACH];
        Turn then = behind<P, L>(after, at.rows);
        if (table && step + 1 < steps) next = table[step + 1];
        if (P::AHEAD && step + 1 < steps) fetch_rows<P, L>(own, at, after, rows[now ^ 1], now ^ 1);
        if (P::AHEAD && step + 2 < steps) {
            Run at_then = at_turn(at, then);
#pragma unroll
            for (unsigned k = 0; k < EACH; k++) {
                unsigned i = threadIdx.x + k * P::THREADS;
                later[k] = i < (then.last ? L::ROWS : P::ROWS) ? P::number(at_then, i) : 0;
            }
        }
        step_of<P, L>(own, at, turn, now, registers);
        if (P::AHEAD && step + 2 < steps) {   // this step's indices were read in the step before
#pragma unroll
            for (unsigned k = 0; k < EACH; k++)
                if (threadIdx.x + k * P::THREADS < P::ROWS) rows[now][threadIdx.x + k * P::THREADS] = later[k];
        }
        copied();
        at = at_turn(at, after);
        at.step += 1, at.slot += 1;
        turn = after, after = then, hyper = next;   // a table of one row
        __syncthreads();   // the step is complete
    }
    P::give(own, registers);
    P::close_up(own);
    __syncthreads();
#pragma unroll 1
    for (int i = threadIdx.x; i < P::ELEMENTS; i += P::THREADS) arena[i] = own[i];
#pragma unroll 1
    for (int i = threadIdx.x; i < 2 * SUMS; i += P::THREADS) sums_home[i] = sums[i];
    if (threadIdx.x == 0) {
        *non_finite_home = non_finite;
        run->step = at.step, run->order = at.order, run->position = at.position, run->offset = at.offset;
        run->index = index + steps, run->slot = at.slot;
    }
}
