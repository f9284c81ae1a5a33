// Zeros.

// Reads n. Place: of. A thread owns every threads-th number.
template <class S>
__device__ __forceinline__ void zero_op(const Op& op, float* arena, const Run&, S s) {
    for (unsigned i = s.thread; i < (unsigned)op.n; i += s.threads) arena[op.at[0] + i] = 0.0f;
}

extern "C" __global__ void op_zero(Op op, float* arena, Run* run) { zero_op(op, arena, *run, Launch()); }
