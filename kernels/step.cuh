// Building blocks of a compiled step, which crates/engine/src/program/step_source/ generates for one trial.
//
// Interpreters read sizes from records. Here a size is a template parameter or a field of a constant record,
// so that loops are unrolled, divisions disappear and tiles stay in registers. One block keeps the trial in
// shared memory. The pieces between two barriers do not touch each other's elements, and each starts at its
// own warp (`piece`).

// The block's threads, numbered from a piece's first warp on.
__device__ __forceinline__ Solo piece(unsigned first, unsigned threads) {
    return Solo(threadIdx.x >= first ? threadIdx.x - first : threadIdx.x + threads - first, threads);
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

    // Calls visit(slot, i, j).
    template <class Visit>
    __device__ __forceinline__ void each(const Solo& s, Visit visit) const {
#pragma unroll
        for (int round = 0; round < ROUNDS; round++) {
            const Tile<M, N, WIDE> tile(s, round);
            if (tile.exists()) tile.each([&](int i, int j, int, int, int slot) { visit(slot, i, j); });
        }
    }
    // `n`: the distance from one of a parameter's state values to the next.
    __device__ __forceinline__ void take(const float* w, const float* state, unsigned n, const Solo& s) {
        each(s, [&](int slot, int i, int j) {
            of[slot][0] = w[i * N + j];
#pragma unroll
            for (int k = 0; k < STATES; k++) of[slot][1 + k] = state[i * N + j + k * n];
        });
    }
    __device__ __forceinline__ void give(float* state, unsigned n, const Solo& s) const {
        each(s, [&](int slot, int i, int j) {
#pragma unroll
            for (int k = 0; k < STATES; k++) state[i * N + j + k * n] = of[slot][1 + k];
        });
    }
    // Stores the values where products read them; rows begin LINE elements apart.
    template <int LINE>
    __device__ __forceinline__ void show(float* w, const Solo& s) const {
        each(s, [&](int slot, int i, int j) { w[i * LINE + j] = of[slot][0]; });
    }
    template <class Rule>
    __device__ __forceinline__ float learn(const Rule& rule, int slot, float gradient) {
        float state[3] = {};
#pragma unroll
        for (int k = 0; k < STATES; k++) state[k] = of[slot][1 + k];
        rule(of[slot][0], gradient, state[0], state[1], state[2]);
#pragma unroll
        for (int k = 0; k < STATES; k++) of[slot][1 + k] = state[k];
        return of[slot][0];
    }
};

// The loss and its gradient for rows of few outputs: LANES lanes share a row, and each keeps its outputs in registers.
// Reads and writes what `loss_op` does, with CROSS_ENTROPY.
template <int WIDTH, class S>
__device__ __forceinline__ void cross_entropy_op(const Op& op, float* arena, const Run& at, S s) {
    const int LANES = WIDTH > 32 ? 8 : WIDTH > 4 ? 4 : 1, OWN = (WIDTH + LANES - 1) / LANES;
    float *hits = place(arena, op.at[3]), *gradients = place(arena, op.at[4]);
    int part = s.thread % LANES;
    for (unsigned first = s.thread - lane_of(s.thread); first < op.rows * LANES; first += s.threads) {
        unsigned row = (first + lane_of(s.thread)) / LANES;
        bool inside = row < (unsigned)op.rows, counts = op.first + (int)row < op.total_rows;
        if (!inside) row = 0;   // takes part in shuffles
        const float* p = arena + op.at[0] + row * WIDTH;
        // An invalid label makes the loss NaN; it must not be used as an index.
        float weight = 1.0f, label = label_of(op, arena, at, row, weight);
        float own[OWN], most = __uint_as_float(0xff800000u), total = 0.0f;
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
        float scale = counts ? weight * op.f[0] : 0.0f, each = quotient(scale, total);
#pragma unroll
        for (int q = 0; q < OWN; q++) {
            int j = part + q * LANES;
            if (gradients && j < WIDTH) gradients[row * WIDTH + j] = own[q] * each - (j == correct ? scale : 0.0f);
        }
        if (part > 0) continue;
        float loss = known ? (logf(total) + most - of_correct) * weight : __uint_as_float(0x7fc00000u);
        arena[op.at[2] + row] = counts ? loss : 0.0f;
        if (hits) hits[row] = counts && known && of_correct == most && earlier == 0 ? 1.0f : 0.0f;
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
// fetches rows ahead (AHEAD), it also has `number`, which gives the number of a row in the data, and `fetch`,
// which copies rows. X and Y then have two buffers each, for the current batch and the next one: a
// step's rows have been on their way since the step before. `space_out` and `close_up` move parameters that a step keeps
// with gaps between their rows, `take` and `give` the state of those that lanes keep in `Registers`.
//
// The last batch of an epoch may be smaller (SHORT). The same step takes it: the batch's last row stands in for those
// beyond it, and the loss gives them no weight.

// Rows of a run's next batch.
template <class P>
__device__ __forceinline__ int rows_at(const Run& run) {
    return P::SHORT && run.rows - run.position < P::ROWS ? (int)(run.rows - run.position) : P::ROWS;
}

// The row of the data that is row i of a batch of `rows`.
__device__ __forceinline__ u64 batch_row(const Op& op, const Run& run, int rows, int i) {
    i += op.first;
    if (i >= rows) i = rows - 1;
    if (op.flags & FLAG_CHUNK) return run.offset + i;
    return op.flags & FLAG_ORDERED ? run.order[run.position + i] : run.position + i;
}

// Which rows a step takes.
struct Turn {
    const u32* order;
    u64 position, offset;
    int rows;
};

// The run's counters at a turn.
__device__ __forceinline__ Run at_turn(Run run, const Turn& turn) {
    run.order = turn.order, run.position = turn.position, run.offset = turn.offset;
    return run;
}

template <class P>
__device__ __forceinline__ Turn turn_of(const Run& run) {
    return {run.order, run.position, run.offset, rows_at<P>(run)};
}

// The turn behind this one, in the same epoch or in the next one.
template <class P>
__device__ __forceinline__ Turn behind(const Turn& turn, const Run& run) {
    Run then = at_turn(run, turn);
    next_step(then, turn.rows, turn.rows);
    return turn_of<P>(then);
}

template <class P>
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
    Turn turn = turn_of<P>(at), after = behind<P>(turn, at);
    typename P::Registers registers = {};
    __syncthreads();
    P::take(own, registers);
    P::space_out(own);
    if (P::AHEAD) {
        for (unsigned i = threadIdx.x; i < P::ROWS; i += P::THREADS) {
            rows[0][i] = P::number(at, turn.rows, i);
            if (steps > 1) rows[1][i] = P::number(at_turn(at, after), after.rows, i);
        }
        __syncthreads();
        P::fetch(own, at, rows[0], 0);
        copied();
    }
    __syncthreads();
    for (int step = 0; step < steps; step++) {
        int now = step & 1;
        u32 later[EACH];
        Turn then = behind<P>(after, at);
        if (table && step + 1 < steps) next = table[step + 1];
        if (P::AHEAD && step + 1 < steps) P::fetch(own, at, rows[now ^ 1], now ^ 1);
        if (P::AHEAD && step + 2 < steps) {
#pragma unroll
            for (unsigned k = 0; k < EACH; k++) {
                unsigned i = threadIdx.x + k * P::THREADS;
                later[k] = i < P::ROWS ? P::number(at_turn(at, then), then.rows, i) : 0;
            }
        }
        P::step(own, at, turn.rows, now, registers);
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
