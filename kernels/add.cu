// Sums of two tensors, or of a tensor's rows and one row.

// Reads n, inputs: the length of b, which is added to every row of that length. Places: a, b, y. A thread
// owns every threads-th number.
template <class S>
__device__ __forceinline__ void add_op(const Op& op, float* arena, const Run&, S s) {
    const float *a = arena + op.at[0], *b = arena + op.at[1];
    float* y = arena + op.at[2];
    unsigned n = op.n, width = op.inputs;
    for (unsigned i = s.thread; i < n; i += s.threads) y[i] = a[i] + b[width == n ? i : i % width];
}

extern "C" __global__ void op_add(Op op, float* arena, Run* run) { add_op(op, arena, *run, Launch()); }
