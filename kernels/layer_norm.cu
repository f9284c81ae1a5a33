// LayerNorm over the last dimension, with a weight and a bias.
//
// A row is shared by as many lanes of a warp as it has work for; as in loss.cu, they communicate only by
// shuffles. The backward pass reads the mean and 1 / deviation that the forward pass stored for each row.

// Divides rows among groups of lanes: `lanes` consecutive lanes own a row, lane l of them its elements l, l +
// lanes, ... Whole warps stay in the loop: a lane without a row has no elements but takes part in the
// shuffles.
struct RowLanes {
    int lanes, part, mine;
    u64 row;
    bool inside;

    __device__ RowLanes(u64 first, unsigned thread, int shift, int rows, int width) {
        lanes = 1 << shift, part = thread & (lanes - 1);
        row = (first + lane_of(thread)) >> shift;
        inside = row < (u64)rows, mine = inside ? width : 0;
    }
};

// Reads rows, inputs (width), f[0] = eps. Places: x, weight, bias, y, stats.
template <class S>
__device__ __forceinline__ void layer_norm_op(const Op& op, float* arena, const Run&, S s) {
    int width = op.inputs, shift = share(0, s.threads, width);
    const float *weight = arena + op.at[1], *bias = arena + op.at[2];
    float* stats = place(arena, op.at[4]);
    for (u64 first = s.thread - lane_of(s.thread); first < (u64)op.rows << shift; first += s.threads) {
        RowLanes at(first, s.thread, shift, op.rows, width);
        const float* x = arena + op.at[0] + at.row * width;
        float* y = arena + op.at[3] + at.row * width;
        float sum = 0.0f, squares = 0.0f;
        for (int j = at.part; j < at.mine; j += at.lanes) sum += x[j];
        float mean = group_sum(sum, at.lanes) / width;
        for (int j = at.part; j < at.mine; j += at.lanes) squares += (x[j] - mean) * (x[j] - mean);
        float scale = 1.0f / sqrtf(group_sum(squares, at.lanes) / width + op.f[0]);
        for (int j = at.part; j < at.mine; j += at.lanes) y[j] = (x[j] - mean) * scale * weight[j] + bias[j];
        if (stats && at.inside && at.part == 0) stats[2 * at.row] = mean, stats[2 * at.row + 1] = scale;
    }
}

// Reads rows, inputs (width). Places: dy, x, weight, stats, dx.
template <class S>
__device__ __forceinline__ void layer_norm_backward_op(const Op& op, float* arena, const Run&, S s) {
    int width = op.inputs, shift = share(0, s.threads, width);
    const float* weight = arena + op.at[2];
    for (u64 first = s.thread - lane_of(s.thread); first < (u64)op.rows << shift; first += s.threads) {
        RowLanes at(first, s.thread, shift, op.rows, width);
        const float *dy = arena + op.at[0] + at.row * width, *x = arena + op.at[1] + at.row * width;
        const float* stats = arena + op.at[3] + 2 * at.row;
        float* dx = arena + op.at[4] + at.row * width;
        float mean = at.inside ? stats[0] : 0.0f, scale = at.inside ? stats[1] : 0.0f;
        float sum = 0.0f, products = 0.0f;
        for (int j = at.part; j < at.mine; j += at.lanes) {
            float g = dy[j] * weight[j];
            sum += g;
            products += g * ((x[j] - mean) * scale);
        }
        sum = group_sum(sum, at.lanes) / width;
        products = group_sum(products, at.lanes) / width;
        for (int j = at.part; j < at.mine; j += at.lanes)
            dx[j] = (dy[j] * weight[j] - sum - (x[j] - mean) * scale * products) * scale;
    }
}

// Reads rows, inputs (width), flags. Places: dy, x, stats, weight, bias. `lanes` consecutive lanes own a
// column together.
template <class S>
__device__ __forceinline__ void layer_norm_gradient_op(const Op& op, float* arena, const Run& run, S s) {
    const float *dy = arena + op.at[0], *x = arena + op.at[1], *stats = arena + op.at[2];
    bool update = (op.flags & FLAG_UPDATE) != 0;
    Learn weight{arena + op.at[3], update, rate_of(op, run)}, bias{arena + op.at[4], update, rate_of(op, run)};
    int width = op.inputs, shift = share(width, s.threads, op.rows), lanes = 1 << shift;
    int part = s.thread & (lanes - 1);
    for (u64 first = s.thread - lane_of(s.thread); first < (u64)width << shift; first += s.threads) {
        int j = (int)((first + lane_of(s.thread)) >> shift);
        float of_weight = 0.0f, of_bias = 0.0f;
        for (int i = part; j < width && i < op.rows; i += lanes) {
            u64 at = (u64)i * width + j;
            of_weight += dy[at] * ((x[at] - stats[2 * i]) * stats[2 * i + 1]);
            of_bias += dy[at];
        }
        of_weight = group_sum(of_weight, lanes);
        of_bias = group_sum(of_bias, lanes);
        if (j < width && part == 0) weight(j, of_weight), bias(j, of_bias);
    }
}

extern "C" __global__ void op_layer_norm(Op op, float* arena, Run* run) { layer_norm_op(op, arena, *run, Launch()); }
extern "C" __global__ void op_layer_norm_backward(Op op, float* arena, Run* run) {
    layer_norm_backward_op(op, arena, *run, Launch());
}
// See Strips.
extern "C" __global__ void __launch_bounds__(256) op_layer_norm_gradient(Op op, float* arena, Run* run) {
    const float *dy = arena + op.at[0], *x = arena + op.at[1], *stats = arena + op.at[2];
    Learn weight{arena + op.at[3], (op.flags & FLAG_UPDATE) != 0, rate_of(op, *run)}, bias = weight;
    bias.to = arena + op.at[4];
    int width = op.inputs;
    Strips::sum<2>(
        *run, width, op.rows, 2,
        [=](int j, int i, float (&sum)[2][1]) {
            u64 at = (u64)i * width + j;
            sum[0][0] += dy[at] * ((x[at] - stats[2 * i]) * stats[2 * i + 1]);
            sum[1][0] += dy[at];
        },
        [=](int j, int item, float total) { item == 0 ? weight(j, total) : bias(j, total); });
}
