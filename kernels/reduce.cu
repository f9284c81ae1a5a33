// Reduces a buffer into one cell (norms and means), in double precision and a fixed order.
//
// The order is that of the scope's `sum`: each thread's strided sum, then shuffles within warps, the warps of
// a block, and the blocks in order. No float is added atomically, so equal launches give equal bits.

// Reads n, flags. Places: of, cell. A thread owns every threads-th element.
template <class S>
__device__ __forceinline__ void norm_op(const Op& op, float* arena, const Run& run, S s) {
    const float* of = arena + op.at[0];
    float* cell = arena + op.at[1];
    bool squared = op.flags & FLAG_SQUARED;
    s.sum(run.partial, op.n, [=](u64 i) { return (double)of[i] * of[i]; },
          [=](double total) { *cell = (float)(squared ? total : sqrt(total)); });
}

// Reads n, scale. Places: of, cell. A thread owns every threads-th element.
template <class S>
__device__ __forceinline__ void mean_op(const Op& op, float* arena, const Run& run, S s) {
    const float* of = arena + op.at[0];
    float* cell = arena + op.at[1];
    double scale = op.scale;
    s.sum(run.partial, op.n, [=](u64 i) { return (double)of[i]; },
          [=](double total) { *cell = (float)(total * scale); });
}

extern "C" __global__ void op_norm(Op op, float* arena, Run* run) { norm_op(op, arena, *run, Launch()); }
extern "C" __global__ void op_mean(Op op, float* arena, Run* run) { mean_op(op, arena, *run, Launch()); }
