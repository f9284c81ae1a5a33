// Elementwise functions and their derivatives.
//
// The derivative is computed from what the forward pass kept: the input for GELU and SILU, the output for all others
// (program::Activation). RELU comes first: it is the most common one and needs only a comparison.

__device__ __forceinline__ float curved(int activation, float x) {
    switch (activation) {
        case GELU: return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
        case SILU: return x / (1.0f + expf(-x));
        case TANH: return tanhf(x);
        default: return 1.0f / (1.0f + expf(-x));
    }
}

__device__ __forceinline__ float curved_derivative(int activation, float saved) {
    switch (activation) {
        case GELU:
            return 0.5f * (1.0f + erff(saved * 0.70710678118654752f)) +
                   saved * expf(-0.5f * saved * saved) * 0.39894228040143268f;
        case SILU: {
            float gate = 1.0f / (1.0f + expf(-saved));
            return gate * (1.0f + saved * (1.0f - gate));
        }
        case TANH: return 1.0f - saved * saved;
        default: return saved * (1.0f - saved);
    }
}

// As in PyTorch, a NaN stays a NaN.
__device__ __forceinline__ float activated(int activation, float x) {
    if (activation == NO_ACTIVATION) return x;
    if (activation == RELU) return x < 0.0f ? 0.0f : x;
    return curved(activation, x);
}

// RELU selects instead of multiplying: an inactive unit has gradient 0 even if d is not finite.
__device__ __forceinline__ float times_derivative(int activation, float saved, float d) {
    if (activation == NO_ACTIVATION) return d;
    if (activation == RELU) return saved > 0.0f ? d : 0.0f;
    return d * curved_derivative(activation, saved);
}

// The activation is known when the code is compiled, or not: without a branch for each element, more loads are under
// way at a time.
const int ANY = -1;

// Reads activation, n. Places: x, y, a copy of y. A thread owns every threads-th quad if the places are
// aligned, then every threads-th remaining element. It loads AHEAD quads before it stores the first.
template <int AHEAD = 1, int F = ANY, class S>
__device__ __forceinline__ void activate_op(const Op& op, float* arena, const Run&, S s) {
    const float* x = arena + op.at[0];
    int f = F == ANY ? op.activation : F;
    unsigned n = op.n, done = quads(op.at[0], op.at[1], 0) ? n / 4 * 4 : 0;
    for (unsigned i = s.thread; i < done / 4; i += AHEAD * s.threads) {
        Lanes<4> a[AHEAD];
#pragma unroll
        for (int q = 0; q < AHEAD; q++)
            if (i + q * s.threads < done / 4) a[q] = ((const Lanes<4>*)x)[i + q * s.threads];
#pragma unroll
        for (int q = 0; q < AHEAD; q++) {
            if (i + q * s.threads >= done / 4) break;
#pragma unroll
            for (int e = 0; e < 4; e++) a[q].v[e] = activated(f, a[q].v[e]);
            store(arena, op.at[1], op.at[2], op.flags, 4 * (i + q * s.threads), a[q]);
        }
    }
    for (unsigned i = done + s.thread; i < n; i += s.threads)
        store(arena, op.at[1], op.at[2], op.flags, i, Lanes<1>{activated(f, x[i])});
}

// Reads activation, n. Places: saved, dy (in place), a copy of dy. Threads own elements as above.
template <class S>
__device__ __forceinline__ void activate_backward_op(const Op& op, float* arena, const Run&, S s) {
    const float *saved = arena + op.at[0], *dy = arena + op.at[1];
    int f = op.activation;
    unsigned n = op.n, done = quads(op.at[0], op.at[1], 0) ? n / 4 * 4 : 0;
    for (unsigned i = s.thread; i < done / 4; i += s.threads) {
        Lanes<4> a = ((const Lanes<4>*)saved)[i], d = ((const Lanes<4>*)dy)[i];
#pragma unroll
        for (int e = 0; e < 4; e++) d.v[e] = times_derivative(f, a.v[e], d.v[e]);
        store(arena, op.at[1], op.at[2], op.flags, 4 * i, d);
    }
    for (unsigned i = done + s.thread; i < n; i += s.threads)
        store(arena, op.at[1], op.at[2], op.flags, i, Lanes<1>{times_derivative(f, saved[i], dy[i])});
}

// The same, with the column sums of the result: the gradient of the preceding layer's bias.
template <int WIDE_, int F>
struct ActivateBackwardSums {
    static const int WIDE = WIDE_, MOST = 1, BATCH = 4;
    const Op& op;
    float* arena;

    __device__ void begin(int) const {}
    __device__ __forceinline__ void add(int column, int row, int n, float (&own)[1][WIDE]) const {
        if (column >= op.outputs) return;
        Lanes<WIDE> a[BATCH], d[BATCH];
        unsigned first = row * (unsigned)op.outputs + column, step = 8 * (unsigned)op.outputs;
        load_rows(arena, op.at[1], NONE, first, step, n, d);
        load_rows(arena, op.at[0], op.at[4], first, step, n, a);
#pragma unroll
        for (int b = 0; b < BATCH; b++) {
            if (b >= n) break;
#pragma unroll
            for (int q = 0; q < WIDE; q++) {
                d[b].v[q] = times_derivative(F == ANY ? op.activation : F, a[b].v[q], d[b].v[q]);
                own[0][q] += d[b].v[q];
            }
            store(arena, op.at[1], op.at[2], op.flags, first + b * step, d[b]);
        }
    }
    __device__ void finish(int j, int, float total) const { arena[op.at[3] + j] = total; }
};

extern "C" __global__ void op_activate(Op op, float* arena, Run* run) {
    if (op.activation == RELU) activate_op<4, RELU>(op, arena, *run, Launch());
    else activate_op(op, arena, *run, Launch());
}

// As above; with column sums it also reads rows and outputs. Places: ..., the sums, the copy of saved.
extern "C" __global__ void __launch_bounds__(256, 2) op_activate_backward(Op op, float* arena, Run* run) {
    if (op.at[3] == NONE) {
        activate_backward_op(op, arena, *run, Launch());
    } else if (op.outputs % 4 == 0 && op.activation == RELU) {
        ActivateBackwardSums<4, RELU> task{op, arena};
        Strips::sum(*run, op.outputs, op.rows, 1, task);
    } else {
        ActivateBackwardSums<1, ANY> task{op, arena};
        Strips::sum(*run, op.outputs, op.rows, 1, task);
    }
}
