// Whole programs in one launch: the interpreters.
//
// `interpret`, for what is bound by the cost of a launch: one block keeps all of a trial in shared memory and walks its program
// hundreds of times. Three things keep a step short. Records are read once into shared memory. Threads meet only where an
// op touches what another has written since they met last (`fences`), found at the start by comparing the ops' regions;
// ops between two meetings start at different warps, so that small ones run at once. And every thread keeps the run's
// counters for itself, so that nobody waits for them.
// `interpret_grid`, for what does not fit one multiprocessor: the same over all blocks of a cooperative launch, whose arena
// lies in global memory and whose meetings are a barrier of the grid.

const int MOST_OPS = 64;      // records in shared memory; longer programs read them from global memory
const int HYPER_AHEAD = 64;   // steps whose hyperparameters are fetched at once

// ----------------------------------------------------------------------------------------------------------- fences

// A run of numbers that an op reads or writes.
struct Region {
    u64 begin, end;
    bool writes;
};

// Place i of an op, as a region; false beyond the last. Lengths are as in src/program/op.rs.
__device__ bool region(const Op& op, int i, Region& r) {
    u64 rows = op.rows, x = rows * op.inputs, y = rows * op.outputs, weight = (u64)op.inputs * op.outputs, n = op.n;
    u64 lens[5] = {};
    int places = 0, written = 0;   // how many, and which (bits)
    switch (op.kind) {
        case OP_GATHER: lens[0] = x, lens[1] = y, places = 2, written = 3; break;
        case OP_LINEAR:
            lens[0] = x, lens[1] = weight, lens[2] = op.outputs, lens[3] = lens[4] = y, places = 5, written = 24;
            break;
        case OP_ACTIVATE: lens[0] = lens[1] = n, places = 2, written = 2; break;
        case OP_DROPOUT: lens[0] = lens[1] = x, places = 2, written = 2; break;
        case OP_LOSS:
            lens[0] = lens[4] = x, lens[1] = op.loss == CROSS_ENTROPY ? rows : x, lens[2] = lens[3] = rows;
            places = 5, written = 28;
            break;
        case OP_INPUT_GRADIENT:
            lens[0] = y, lens[1] = weight, lens[2] = lens[3] = x, places = 4, written = 4;
            break;
        case OP_ACTIVATE_BACKWARD: lens[0] = lens[1] = n, places = 2, written = 2; break;
        case OP_DROPOUT_BACKWARD: lens[0] = x, places = 1, written = 1; break;
        case OP_WEIGHT_GRADIENT: lens[0] = x, lens[1] = y, lens[2] = weight, places = 3, written = 4; break;
        case OP_BIAS_GRADIENT: lens[0] = y, lens[1] = op.outputs, places = 2, written = 2; break;
        case OP_NORM: case OP_MEAN: lens[0] = n, lens[1] = 1, places = 2, written = 2; break;
        case OP_CLIP: lens[0] = n, lens[1] = 1, places = 2, written = 1; break;
        case OP_UPDATE:
            lens[0] = lens[1] = n, lens[2] = op.rule == SGD ? 0 : op.rule <= SGD_NESTEROV ? n : 2 * n;
            places = 3, written = 5;
            break;
        case OP_LOG_APPEND: case OP_ACCUMULATE: lens[0] = n, places = 1; break;
        case OP_WATCH: lens[0] = 1, places = 1; break;
        case OP_ZERO: lens[0] = n, places = 1, written = 1; break;
    }
    if (i >= places) return false;
    u64 at = 0, len = 0;
    for (int k = 0; k < 5; k++)   // no index that is known only at run time: arrays stay in registers
        if (k == i) at = op.at[k], len = lens[k];
    r = {at, at == NONE ? at : at + len, (written >> i & 1) != 0};
    return true;
}

// Whether two ops must not run at the same time: one writes what the other touches. Those that share the flag of
// non-finite losses or the scratch of sums over blocks are not told apart from each other.
__device__ bool conflict(const Op& a, const Op& b) {
    bool flags = a.kind >= OP_LOG_APPEND && a.kind <= OP_WATCH && b.kind >= OP_LOG_APPEND && b.kind <= OP_WATCH;
    bool sums = (a.kind == OP_NORM || a.kind == OP_MEAN) && (b.kind == OP_NORM || b.kind == OP_MEAN) &&
                a.n > TEAM_SUM && b.n > TEAM_SUM;
    if (flags || sums) return true;
    Region x, y;
    for (int i = 0; region(a, i, x); i++)
        for (int j = 0; region(b, j, y); j++)
            if ((x.writes || y.writes) && x.begin < y.end && y.begin < x.end) return true;
    return false;
}

// Bit j: threads meet before op j. All threads of a block compute it together; op 0 follows the meeting that ends a step.
__device__ u64 fences(const Op* ops, int count) {
    __shared__ u64 before[MOST_OPS];   // bit i of number j: op i comes first and conflicts with op j
    __shared__ u64 found;
    for (int j = threadIdx.x; j < count; j += blockDim.x) {
        u64 bits = 0;
        for (int i = 0; i < j; i++) bits |= (u64)conflict(ops[i], ops[j]) << i;
        before[j] = bits;
    }
    __syncthreads();
    if (threadIdx.x == 0) {
        u64 bits = 0, since = 0;   // ops since the last meeting
        for (int j = 0; j < count; j++) {
            if (before[j] & since) bits |= 1ull << j, since = 0;
            since |= 1ull << j;
        }
        found = bits;
    }
    __syncthreads();
    return found;
}

// ------------------------------------------------------------------------------------------------------------- interpret

template <class S>
__device__ __forceinline__ void execute(const Op& op, float* arena, const Run& run, S s) {
    switch (op.kind) {
        case OP_GATHER: return gather_op(op, arena, run, s);
        case OP_LINEAR: case OP_INPUT_GRADIENT: case OP_WEIGHT_GRADIENT: return product_op(op, arena, run, s);
        case OP_ACTIVATE: return activate_op(op, arena, run, s);
        case OP_DROPOUT: return dropout_op(op, arena, run, s);
        case OP_LOSS: return loss_op(op, arena, run, s);
        case OP_ACTIVATE_BACKWARD: return activate_backward_op(op, arena, run, s);
        case OP_DROPOUT_BACKWARD: return dropout_backward_op(op, arena, run, s);
        case OP_BIAS_GRADIENT: return bias_gradient_op(op, arena, run, s);
        case OP_NORM: return norm_op(op, arena, run, s);
        case OP_CLIP: return clip_op(op, arena, run, s);
        case OP_UPDATE: return update_op(op, arena, run, s);
        case OP_MEAN: return mean_op(op, arena, run, s);
        case OP_LOG_APPEND: return log_append_op(op, arena, run, s);
        case OP_ACCUMULATE: return accumulate_op(op, arena, run, s);
        case OP_WATCH: return watch_op(op, arena, run, s);
        case OP_ZERO: return zero_op(op, arena, run, s);
    }
}

// The block's copy of the records.
__device__ __forceinline__ const Op* records(const Op* ops, int count, Op* own) {
    if (count > MOST_OPS) return ops;
    for (unsigned i = threadIdx.x; i < count * sizeof(Op) / 4; i += blockDim.x) ((u32*)own)[i] = ((const u32*)ops)[i];
    __syncthreads();
    return own;
}

// One block; dynamic shared memory: 4 bytes for each of arena_floats. Thread ownership is each op's own.
extern "C" __global__ void __launch_bounds__(512, 1) interpret(const Op* ops, int count, float* arena, int arena_floats,
                                                       Run* run, int steps, int rows, int own_rows) {
    if (blockIdx.x > 0) return;
    extern __shared__ __align__(16) unsigned char dyn_smem[];   // four numbers at a time are read
    __shared__ Op own_ops[MOST_OPS];
    __shared__ Hyper hyper[HYPER_AHEAD];
    __shared__ double sums[2 * SUMS];
    __shared__ u64 non_finite;
    float* own = (float*)dyn_smem;
    Run at = *run;
    const Hyper* table = at.hyper ? at.hyper + at.index : 0;
    u32 index = at.index;
    for (int i = threadIdx.x; i < arena_floats; i += blockDim.x) own[i] = arena[i];
    for (int i = threadIdx.x; i < 2 * SUMS; i += blockDim.x) sums[i] = at.sums[i];
    if (threadIdx.x == 0) non_finite = *at.non_finite;
    double* sums_home = at.sums;
    u64* non_finite_home = at.non_finite;
    at.hyper = hyper, at.sums = sums, at.non_finite = &non_finite;
    ops = records(ops, count, own_ops);
    u64 meets = count > MOST_OPS ? ~0ull : fences(ops, count);
    for (int step = 0; step < steps; step++) {
        if (step % HYPER_AHEAD == 0 && table) {
            int ahead = 4 * (steps - step < HYPER_AHEAD ? steps - step : HYPER_AHEAD);
            for (int i = threadIdx.x; i < ahead; i += blockDim.x)
                ((float*)hyper)[i] = ((const float*)(table + step))[i];
        }
        if (step % HYPER_AHEAD == 0) __syncthreads();
        at.index = step % HYPER_AHEAD;
        Solo s;
        for (int j = 0; j < count; j++) {
            if (j > 0 && (meets >> (j & 63) & 1)) {
                __syncthreads();
                s = Solo();
            }
            execute(ops[j], own, at, s);
            s.turn();
        }
        next_step(at, rows, own_rows);
        __syncthreads();   // the step is done
    }
    for (int i = threadIdx.x; i < arena_floats; i += blockDim.x) arena[i] = own[i];
    for (int i = threadIdx.x; i < 2 * SUMS; i += blockDim.x) sums_home[i] = sums[i];
    if (threadIdx.x == 0) {
        *non_finite_home = non_finite;
        run->step = at.step, run->position = at.position, run->offset = at.offset;
        run->index = index + steps, run->slot = at.slot;
    }
}

// All blocks of a cooperative launch; `barrier`: two words, zeroed once by the host.
extern "C" __global__ void __launch_bounds__(256) interpret_grid(const Op* ops, int count, float* arena, Run* run,
                                                            unsigned* barrier, int steps, int rows, int own_rows) {
    __shared__ Op own_ops[MOST_OPS];
    Run at = *run;
    ops = records(ops, count, own_ops);
    u64 meets = count > MOST_OPS ? ~0ull : fences(ops, count);
    Team s(barrier);
    meet(barrier);   // all have read the run
    for (int step = 0; step < steps; step++) {
        for (int j = 0; j < count; j++) {
            if (j > 0 && (meets >> (j & 63) & 1)) meet(barrier);
            execute(ops[j], arena, at, s);
        }
        next_step(at, rows, own_rows);
        meet(barrier);   // the step is done
    }
    if (s.thread == 0) {
        run->step = at.step, run->position = at.position, run->offset = at.offset;
        run->index = at.index, run->slot = at.slot;
    }
}
