// For each row: the loss, whether the prediction is right, and the gradient of the mean loss; in one pass
// over predictions.
//
// A row is shared by a power of two of lanes that communicate only by shuffles: a narrow row takes a thread,
// a wide one a warp, and no block waits. The largest output is subtracted before exponentials are taken, so
// that they do not overflow.

struct Term {
    float loss, gradient;
};

__device__ __forceinline__ Term term_of(int loss, float d) {
    float size = fabsf(d), sign = d > 0.0f ? 1.0f : d < 0.0f ? -1.0f : d;
    if (loss == MSE) return {d * d, 2.0f * d};
    if (loss == L1) return {size, sign};
    return size <= 1.0f ? Term{0.5f * d * d, d} : Term{size - 0.5f, sign};
}

// A NaN wins, so that it reaches the loss.
__device__ __forceinline__ float larger(float a, float b) { return a != a ? a : b != b ? b : a < b ? b : a; }

// By how much the loss of a row with this weight is multiplied.
__device__ __forceinline__ float scaled(const Op& op, const Run& run, float weight) {
    return weight * (op.at[4] == NONE ? 1.0f : run.hyper[run.index].loss_scale);
}

// The class of a row. If rows have weights, also by how much the row's loss is multiplied.
__device__ __forceinline__ float label_of(const Op& op, const float* arena, const Run& run, u64 row, float& weight) {
    const float* target = arena + op.at[1];
    if (!(op.flags & FLAG_WEIGHTED)) return target[row];
    weight = scaled(op, run, target[2 * row + 1]);
    return target[2 * row];
}

// Reads loss, flags, rows, inputs (width), first, total_rows, f[0] (the weight of a term in the mean). Places: prediction,
// target, per_row, hits, gradient. `lanes` consecutive lanes own a row; lane l of them its outputs l, l + lanes, ... Whole
// warps stay in the loop. With FLAG_WEIGHTED a row's weight follows its targets. Rows beyond the batch, which a compiled
// step may have, do not count: their loss and gradient are 0.
// Returns the sums over this thread's rows: of losses and of hits.
struct LossSums {
    double loss, hits;
};
template <class S>
__device__ __forceinline__ LossSums losses(const Op& op, float* arena, const Run& run, S s) {
    LossSums own = {};
    int width = op.inputs, shift = share(0, s.threads, width), lanes = 1 << shift, part = s.thread & (lanes - 1);
    float *hits = place(arena, op.at[3]), *gradients = place(arena, op.at[4]);
    for (u64 first = s.thread - lane_of(s.thread); first < (u64)op.rows << shift; first += s.threads) {
        u64 row = (first + lane_of(s.thread)) >> shift;
        bool inside = row < (u64)op.rows, counts = op.first + (int)row < op.total_rows;
        float scale = counts ? op.f[0] : 0.0f;
        int mine = inside ? width : 0;   // a lane outside has no outputs, but takes part in shuffles
        const float* p = arena + op.at[0] + row * width;
        float* gradient = gradients ? gradients + row * width : 0;
        float loss = 0.0f;
        if (op.loss != CROSS_ENTROPY) {
            bool weighted = op.flags & FLAG_WEIGHTED;
            const float* t = arena + op.at[1] + row * (width + weighted);
            float weight = weighted && inside ? scaled(op, run, t[width]) : 1.0f;
            scale *= weight;
            for (int j = part; j < mine; j += lanes) {
                Term term = term_of(op.loss, p[j] - t[j]);
                loss += term.loss;
                if (gradient) gradient[j] = term.gradient * scale;
            }
            loss = group_sum(loss, lanes) * weight;
        } else {
            // An invalid label makes the loss NaN; it must not be used as an index.
            float weight = 1.0f, label = inside ? label_of(op, arena, run, row, weight) : 0.0f;
            bool known = label >= 0.0f && label < width;
            int correct = known ? (int)label : 0;
            float most = __uint_as_float(0xff800000u), total = 0.0f;
            for (int j = part; j < mine; j += lanes) most = larger(most, p[j]);
            for (int d = lanes >> 1; d > 0; d >>= 1) most = larger(most, __shfl_xor_sync(ALL_LANES, most, d));
            int earlier = 0;   // outputs before the label's that equal it: ties go to the first
            for (int j = part; j < mine; j += lanes) {
                total += expf(p[j] - most);
                earlier += j < correct && p[j] == most;
            }
            total = group_sum(total, lanes);
            earlier = group_sum(earlier, lanes);
            scale *= weight;
            for (int j = part; gradient && j < mine; j += lanes)
                gradient[j] = (expf(p[j] - most) / total - (j == correct ? 1.0f : 0.0f)) * scale;
            if (inside) {
                loss = (logf(total) + most - p[correct]) * weight;
                if (!known) loss = __uint_as_float(0x7fc00000u);
                float hit = counts && known && p[correct] == most && earlier == 0 ? 1.0f : 0.0f;
                if (hits && part == 0) hits[row] = hit, own.hits += hit;
            }
        }
        if (!counts) loss = 0.0f;
        if (inside && part == 0) arena[op.at[2] + row] = loss, own.loss += loss;
    }
    return own;
}

template <class S>
__device__ __forceinline__ void loss_op(const Op& op, float* arena, const Run& run, S s) {
    losses(op, arena, run, s);
}

// Also reads scale. Places: ..., cells for scale times the sum of losses and of hits, in double precision and in an order
// that depends only on the launch.
extern "C" __global__ void op_loss(Op op, float* arena, Run* run) {
    LossSums own = losses(op, arena, *run, Launch());
    if (op.at[5] == NONE && op.at[6] == NONE) return;
    double* partial = run->partial;
    double sums[2] = {own.loss, own.hits};
    block_sums(sums);
    if (threadIdx.x == 0) partial[blockIdx.x] = sums[0], partial[SCRATCH + blockIdx.x] = sums[1];
    if (!arrives_last((unsigned*)(partial + PARTIALS), gridDim.x)) return;
    sums[0] = sums[1] = 0.0;
    for (unsigned b = threadIdx.x; b < gridDim.x; b += blockDim.x)
        for (int item = 0; item < 2; item++) sums[item] += ((volatile double*)partial)[item * SCRATCH + b];
    block_sums(sums);
    for (int item = 0; item < 2; item++)
        if (threadIdx.x == 0 && op.at[5 + item] != NONE) arena[op.at[5 + item]] = (float)(sums[item] * op.scale);
}
