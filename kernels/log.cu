// The results of a step for the host: a row of the log, running sums, the flag for a loss that is not finite.
// Also the counters from which the next step knows its position.
//
// All of it stays on the device until the host asks. One warp does each of these, since there are only a few
// values.

__device__ __forceinline__ void raise_unless_finite(float loss, const Run& run) {
    if (!finite(loss) && *run.non_finite == 0) *run.non_finite = run.step + 1;
}

// Reads n. Place: cells, the loss first. Thread i owns cell i.
template <class S>
__device__ __forceinline__ void log_append_op(const Op& op, float* arena, const Run& run, S s) {
    const float* cells = arena + op.at[0];
    for (unsigned i = s.thread; i < (unsigned)op.n; i += s.threads) {
        float cell = cells[i];   // read once: the store might change it
        run.log[(u64)run.slot * op.n + i] = cell;
        if (i == 0) raise_unless_finite(cell, run);
    }
}

// Reads n (at most 16), rows (the weight), flags. Place: cells. Thread i of the first warp owns sum i. With FLAG_WEIGHTED the
// loss counts by the sum of the rows' weights. The epoch's sums stop growing once the flag is raised; the sums of the
// validation ignore it.
template <class S>
__device__ __forceinline__ void accumulate_op(const Op& op, float* arena, const Run& run, S s) {
    if (s.thread >= 32) return;
    const float* cells = arena + op.at[0];
    bool validation = op.flags & FLAG_VALIDATION;
    double* sums = run.sums + (validation ? SUMS : 0);
    bool taken = validation || *run.non_finite == 0;
    __syncwarp();   // all have read the flag
    double weight = op.rows;
    if (s.thread == 0 && (op.flags & FLAG_WEIGHTED)) {
        float scale = run.hyper[run.index].loss_scale;
        weight = scale > 0.0f ? weight / scale : 0.0;
    }
    if (taken && s.thread < (unsigned)op.n) sums[s.thread] += (double)cells[s.thread] * weight;
    if (!validation && s.thread == 0) raise_unless_finite(cells[0], run);
}

// Raises the flag if the loss is not finite. Place: cell. Only the first thread works.
template <class S>
__device__ __forceinline__ void watch_op(const Op& op, float* arena, const Run& run, S s) {
    if (s.thread == 0) raise_unless_finite(arena[op.at[0]], run);
}

// `all`: the rows of an epoch.
__device__ __forceinline__ void next_step(Run& run, int rows, int own_rows, u64 all) {
    run.step += 1;
    run.index += 1;
    run.slot += 1;
    run.offset += own_rows;
    run.position += rows;
    if (run.position < all) return;
    run.position = 0;   // the next epoch begins
    if (run.order) run.order += all;
}
__device__ __forceinline__ void next_step(Run& run, int rows, int own_rows) { next_step(run, rows, own_rows, run.rows); }

// The one warp of a launch ends the step after its work, if it is the last.
__device__ __forceinline__ void end_step(const Op& op, Run* run) {
    __syncwarp();   // the counters have been read
    if (blockIdx.x == 0 && threadIdx.x == 0 && (op.flags & FLAG_ENDS_STEP)) next_step(*run, op.total_rows, op.inputs);
}

extern "C" __global__ void op_log_append(Op op, float* arena, Run* run) {
    log_append_op(op, arena, *run, Launch());
    end_step(op, run);
}
extern "C" __global__ void op_accumulate(Op op, float* arena, Run* run) {
    accumulate_op(op, arena, *run, Launch());
    end_step(op, run);
}
extern "C" __global__ void op_watch(Op op, float* arena, Run* run) {
    watch_op(op, arena, *run, Launch());
    end_step(op, run);
}

// Ends a step if every op is a launch of its own and the last one does not. Only the first thread works.
extern "C" __global__ void advance(Run* run, int rows, int own_rows) {
    if (blockIdx.x == 0 && threadIdx.x == 0) next_step(*run, rows, own_rows);
}
