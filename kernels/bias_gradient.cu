// Gradients of biases: column sums of dy, with the plain SGD update if it is fused in.
//
// Rows are divided so that a warp reads whole cache lines, and so that a column is always summed in the same
// order. In the stand-alone kernel blocks own strips of columns, or share the rows of one (Strips); in `interpret`
// and `interpret_grid` several lanes share a column if there are few columns.

// Stores the gradient of bias j, or updates the bias: b -= rate db.
struct Learn {
    float* to;
    bool update;
    float rate;

    __device__ void operator()(int j, float d) const { to[j] = update ? fmaf(-rate, d, to[j]) : d; }
};

__device__ __forceinline__ Learn bias_gradient_out(const Op& op, float* arena, const Run& run) {
    return {arena + op.at[1], (op.flags & FLAG_UPDATE) != 0, rate_of(op, run)};
}

// Reads rows, outputs, flags. Places: dy, to. `lanes` consecutive lanes own a column together.
template <class S>
__device__ __forceinline__ void bias_gradient_op(const Op& op, float* arena, const Run& run, S s) {
    const float* dy = arena + op.at[0];
    Learn out = bias_gradient_out(op, arena, run);
    int columns = op.outputs, shift = share(columns, s.threads, op.rows), lanes = 1 << shift;
    int part = s.thread & (lanes - 1);
    for (u64 first = s.thread - lane_of(s.thread); first < (u64)columns << shift; first += s.threads) {
        int j = (int)((first + lane_of(s.thread)) >> shift);
        float sum = 0.0f;
        if (j < columns) {
#pragma unroll 4
            for (int i = part; i < op.rows; i += lanes) sum += dy[(u64)i * columns + j];
        }
        if (lanes > 1) sum = group_sum(sum, lanes);
        if (j < columns && part == 0) out(j, sum);
    }
}

// See Strips.
extern "C" __global__ void __launch_bounds__(256) op_bias_gradient(Op op, float* arena, Run* run) {
    const float* dy = arena + op.at[0];
    Learn out = bias_gradient_out(op, arena, *run);
    int columns = op.outputs;
    Strips::sum<1>(
        *run, columns, op.rows, 1,
        [=](int j, int i, float (&sum)[1][1]) { sum[0][0] += dy[(u64)i * columns + j]; },
        [=](int j, int, float total) { out(j, total); });
}
