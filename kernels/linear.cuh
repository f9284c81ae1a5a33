// The steps of a linear regression: one Linear layer with one output, whose parameters and optimizer state fit the registers
// of a lane (crates/engine/src/program/step_source/linear.rs).
//
// LANES lanes of one warp share the rows of a batch, and each of them keeps all parameters, so nothing but shuffles lies
// between two steps: no barrier, and no memory. Four more warps fetch the rows of the next CHUNK steps meanwhile. The bias is
// the weight of a column of ones. Rows beyond a batch are zeros, with a zero for the one, and add nothing to any sum.

const int FEEDERS = 128;   // threads that fetch rows

// Where a step's rows lie: the epoch, counted from the launch's first one, the position in it, and the rows.
struct Stretch {
    u64 epoch, position;
    unsigned rows;
};

// The steps of a launch in their epochs. All of them but the last of an epoch have BATCH rows.
template <int BATCH>
struct Calendar {
    u64 rows, position;
    unsigned before, each;   // steps that are left of the first epoch; of every other one

    __device__ __forceinline__ Calendar(const Run& run) : rows(run.rows), position(run.position) {
        before = count(rows - position), each = count(rows);
    }
    static __device__ __forceinline__ unsigned count(u64 rows) {
        u64 steps = rows > 0 ? (rows - 1) / BATCH + 1 : 1;
        return steps < 0x7fffffffu ? (unsigned)steps : 0x7fffffffu;
    }
    __device__ __forceinline__ Stretch of(unsigned step) const {
        bool first = step < before;
        unsigned later = first ? 0 : step - before, epoch = later / each;
        u64 at = first ? position + (u64)step * BATCH : (u64)(later - epoch * each) * BATCH;
        return {first ? 0ull : epoch + 1ull, at, rows - at < BATCH ? (unsigned)(rows - at) : BATCH};
    }
};

// The host generates P: sizes, places in the arena, and `rule`, the optimizer's.
template <class P>
struct LinearRing {
    static const int OWN = (P::BATCH + P::LANES - 1) / P::LANES, SLOTS = P::LANES * OWN;
    static const int COLUMNS = P::INPUTS + 2;   // inputs, ones, targets
    float rows[2][COLUMNS][P::CHUNK * SLOTS];
    float4 hyper[2][P::CHUNK];   // all but `loss_scale`: rows have no weights
    float2 size[2][P::CHUNK];   // rows, and their inverse
};

// What a lane reads of the ring for a step.
template <class P>
struct LinearRows {
    using Ring = LinearRing<P>;
    float x[Ring::COLUMNS][Ring::OWN];
    Hyper hyper;
    float2 size;

    __device__ __forceinline__ void read(const Ring& ring, int half, int step, int part) {
#pragma unroll
        for (int d = 0; d < Ring::COLUMNS; d++)
            load<Ring::OWN, true>(x[d], &ring.rows[half][d][step * Ring::SLOTS + part * Ring::OWN]);
        float4 own = ring.hyper[half][step];
        hyper = {own.x, own.y, own.z, own.w, 1.0f}, size = ring.size[half][step];
    }
};

// A feeder's work: the rows of the steps from `first` on go to one half of the ring.
template <class P>
__device__ __forceinline__ void feed(LinearRing<P>& ring, int half, int first, int steps, const Run& run, const Calendar<P::BATCH>& calendar,
                                     const Hyper* table, unsigned thread) {
    using Ring = LinearRing<P>;
    const int D = P::INPUTS;
#pragma unroll 4
    for (int slot = thread; slot < P::CHUNK * Ring::SLOTS; slot += FEEDERS) {
        int step = slot / Ring::SLOTS, i = slot % Ring::SLOTS;
        Stretch own = calendar.of(first + step);
        bool inside = first + step < steps && i < own.rows;
        u64 at = own.epoch * run.rows + own.position + i, row = !inside ? 0 : P::ORDERED ? run.order[at] : own.position + i;
        const float* x = run.data[0] + row * D;
#pragma unroll
        for (int d = 0; d < D; d++) ring.rows[half][d][slot] = inside ? x[d] : 0.0f;
        ring.rows[half][D][slot] = inside && P::HAS_BIAS ? 1.0f : 0.0f;
        ring.rows[half][D + 1][slot] = inside ? run.data[1][row] : 0.0f;
    }
    if (thread < P::CHUNK && first + (int)thread < steps) {
        const Hyper& own = table[first + thread];
        ring.hyper[half][thread] = {own.rate, own.first, own.correction, own.decay_factor};
        unsigned rows = calendar.of(first + thread).rows;
        ring.size[half][thread] = {(float)rows, 1.0f / rows};
    }
}

// What the warp that trains keeps: parameters with the bias last, their state, the epoch's sum, the first step with a loss
// that is not finite.
template <class P>
struct LinearState {
    float w[P::INPUTS + 1], of[P::INPUTS + 1][3];
    double sum;
    u64 non_finite;

    // Calls visit(parameter, its place in the arena, the place of its first state value).
    template <class Visit>
    static __device__ __forceinline__ void each(Visit visit) {
#pragma unroll
        for (int d = 0; d < P::INPUTS; d++) visit(d, P::WEIGHT + d, P::WEIGHT_STATE + d);
        if (P::HAS_BIAS) visit(P::INPUTS, P::BIAS, P::BIAS_STATE);
    }
};

// One step; returns the loss.
template <class P>
__device__ __forceinline__ float linear_step(const LinearRows<P>& rows, LinearState<P>& own) {
    using Ring = LinearRing<P>;
    const int D = P::INPUTS;
    float sum[D + 2] = {};
#pragma unroll
    for (int i = 0; i < Ring::OWN; i++) {
        float error = fmaf(own.w[D], rows.x[D][i], -rows.x[D + 1][i]);
#pragma unroll
        for (int d = D - 1; d >= 0; d--) error = fmaf(own.w[d], rows.x[d][i], error);
        Term term = term_of(P::LOSS, error);
#pragma unroll
        for (int d = 0; d <= D; d++) sum[d] = fmaf(term.gradient, rows.x[d][i], sum[d]);
        sum[D + 1] += term.loss;
    }
#pragma unroll
    for (int distance = P::LANES / 2; distance > 0; distance /= 2)
#pragma unroll
        for (int d = 0; d < D + 2; d++) sum[d] += __shfl_xor_sync(ALL_LANES, sum[d], distance);
    auto rule = P::rule(rows.hyper);
#pragma unroll
    for (int d = 0; d < D + P::HAS_BIAS; d++)
        rule(own.w[d], sum[d] * rows.size.y, own.of[d][0], own.of[d][1], own.of[d][2]);
    return sum[D + 1] * rows.size.y;
}

template <class P>
__device__ __forceinline__ void linear_steps(float* arena, Run* home, int steps) {
    if (blockIdx.x > 0) return;
    extern __shared__ __align__(16) unsigned char dyn_smem[];
    LinearRing<P>& ring = *(LinearRing<P>*)dyn_smem;
    const Run run = *home;
    const Calendar<P::BATCH> calendar(run);
    const Hyper* table = run.hyper + run.index;
    if (threadIdx.x >= 32) {
        for (int first = 0, half = 0; first < steps; first += P::CHUNK, half ^= 1) {
            feed<P>(ring, half, first, steps, run, calendar, table, threadIdx.x - 32);
            __syncthreads();   // these rows are there, and the other half has been read; the warp that trains counts alike
        }
        return;
    }
    LinearState<P> own = {};
    const int part = threadIdx.x % P::LANES;
    const int states = P::rule(Hyper{}).states;
    own.each([&](int d, u64 at, u64 state) {
        own.w[d] = arena[at];
#pragma unroll
        for (int k = 0; k < 3; k++)
            if (k < states) own.of[d][k] = arena[state + (u64)k * P::STRIDE];
    });
    own.sum = P::SUMS ? run.sums[0] : 0.0, own.non_finite = *run.non_finite;
    for (int first = 0, half = 0; first < steps; first += P::CHUNK, half ^= 1) {
        __syncthreads();
        LinearRows<P> rows, next;
        rows.read(ring, half, 0, part);
#pragma unroll 4
        for (int step = 0; step < P::CHUNK; step++) {
            if (first + step >= steps) break;
            next.read(ring, half, (step + 1) % P::CHUNK, part);   // under way while this step computes
            float loss = linear_step<P>(rows, own);
            if (P::LOGS && threadIdx.x == 0) run.log[run.slot + first + step] = loss;
            if (P::SUMS && own.non_finite == 0) own.sum += (double)loss * rows.size.x;
            if (!finite(loss) && own.non_finite == 0) own.non_finite = run.step + first + step + 1;
            rows = next;
        }
    }
    if (threadIdx.x > 0) return;
    own.each([&](int d, u64 at, u64 state) {
        arena[at] = own.w[d];
#pragma unroll
        for (int k = 0; k < 3; k++)
            if (k < states) arena[state + (u64)k * P::STRIDE] = own.of[d][k];
    });
    if (P::SUMS) run.sums[0] = own.sum;
    *run.non_finite = own.non_finite;
    Stretch next = calendar.of(steps);
    home->order = run.order + next.epoch * run.rows, home->position = next.position;
    home->offset = run.offset + next.epoch * run.rows + next.position - run.position;
    home->step = run.step + steps, home->index = run.index + steps, home->slot = run.slot + steps;
}
