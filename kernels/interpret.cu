// The interpreters: whole programs in one launch.
//
// `interpret` is for programs dominated by launch overhead: one block keeps the whole trial in shared memory
// and runs its program hundreds of times. Four things keep a step short. Records are read into shared memory
// once. There is a barrier only where an op touches what another has written since the last barrier; the host
// decides where (`barrier` of a record). Ops between two barriers start at different warps, so that small
// ones run at the same time. And every thread keeps its own copy of the run's counters, so that none waits
// for them.
//
// `interpret_grid` is for trials that do not fit into one multiprocessor: the same over all blocks of a
// cooperative launch, with the arena in global memory and barriers over the grid.

const int MOST_OPS = 64;      // records in shared memory; longer programs read them from global memory
const int HYPER_AHEAD = 64;   // steps whose hyperparameters are fetched at once

// ------------------------------------------------------------------------------------------------------------- interpret

template <class S>
__device__ __forceinline__ void execute(const Op& op, float* arena, const Run& run, S s) {
    switch (op.kind) { EXECUTE_CASES }
}

// The block's copy of the records.
__device__ __forceinline__ const Op* records(const Op* ops, int count, Op* own) {
    if (count > MOST_OPS) return ops;
    for (unsigned i = threadIdx.x; i < count * sizeof(Op) / 4; i += blockDim.x) ((u32*)own)[i] = ((const u32*)ops)[i];
    __syncthreads();
    return own;
}

// One block, with 4 * arena_floats bytes of dynamic shared memory. How elements are divided among threads is
// up to each op.
extern "C" __global__ void __launch_bounds__(512, 1) interpret(const Op* ops, int count, float* arena, int arena_floats,
                                                       Run* run, int steps, int rows, int own_rows) {
    if (blockIdx.x > 0) return;
    extern __shared__ __align__(16) unsigned char dyn_smem[];   // read four elements at a time
    __shared__ Op own_ops[MOST_OPS];
    __shared__ Hyper hyper[HYPER_AHEAD];
    __shared__ double sums[2 * SUMS];
    __shared__ u64 non_finite;
    float* own = (float*)dyn_smem;
    Run at = *run;
    const Hyper* table = at.hyper ? at.hyper + at.index : 0;
    for (int i = threadIdx.x; i < arena_floats; i += blockDim.x) own[i] = arena[i];
    for (int i = threadIdx.x; i < 2 * SUMS; i += blockDim.x) sums[i] = at.sums[i];
    if (threadIdx.x == 0) non_finite = *at.non_finite;
    at.hyper = hyper, at.sums = sums, at.non_finite = &non_finite;
    ops = records(ops, count, own_ops);
    for (int step = 0; step < steps; step++) {
        if (step % HYPER_AHEAD == 0 && table) {
            int ahead = sizeof(Hyper) / 4 * (steps - step < HYPER_AHEAD ? steps - step : HYPER_AHEAD);
            for (int i = threadIdx.x; i < ahead; i += blockDim.x)
                ((float*)hyper)[i] = ((const float*)(table + step))[i];
        }
        if (step % HYPER_AHEAD == 0) __syncthreads();
        at.index = step % HYPER_AHEAD;
        Solo s;
        for (int j = 0; j < count; j++) {
            if (ops[j].barrier) {
                __syncthreads();
                s = Solo();
            }
            execute(ops[j], own, at, s);
            s.turn();
        }
        next_step(at, rows, own_rows, run->rows);   // not from a register: they are scarce
        __syncthreads();   // the step is complete
    }
    for (int i = threadIdx.x; i < arena_floats; i += blockDim.x) arena[i] = own[i];
    for (int i = threadIdx.x; i < 2 * SUMS; i += blockDim.x) run->sums[i] = sums[i];
    if (threadIdx.x == 0) {
        *run->non_finite = non_finite;
        run->step = at.step, run->order = at.order, run->position = at.position, run->offset = at.offset;
        run->index += steps, run->slot = at.slot;
    }
}

// All blocks of a cooperative launch; `barrier`: a word that the host zeroes once.
extern "C" __global__ void __launch_bounds__(256) interpret_grid(const Op* ops, int count, float* arena, Run* run,
                                                            unsigned* barrier, int steps, int rows, int own_rows) {
    __shared__ Op own_ops[MOST_OPS];
    Run at = *run;
    ops = records(ops, count, own_ops);
    Team s(barrier);
    meet(barrier);   // all have read the counters
    for (int step = 0; step < steps; step++) {
        for (int j = 0; j < count; j++) {
            if (ops[j].barrier) meet(barrier);
            execute(ops[j], arena, at, s);
        }
        next_step(at, rows, own_rows, run->rows);
        meet(barrier);   // the step is complete
    }
    if (s.thread == 0) {
        run->step = at.step, run->order = at.order, run->position = at.position, run->offset = at.offset;
        run->index = at.index, run->slot = at.slot;
    }
}
