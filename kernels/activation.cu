// Elementwise functions and their derivatives.
//
// The derivative is computed from what the forward pass kept: the input for GELU, the output for all others
// (program::Activation). RELU comes first: it is the most common one and needs only a comparison.

__device__ __forceinline__ float curved(int activation, float x) {
    switch (activation) {
        case GELU: return 0.5f * x * (1.0f + erff(x * 0.70710678118654752f));
        case TANH: return tanhf(x);
        default: return 1.0f / (1.0f + expf(-x));
    }
}

__device__ __forceinline__ float curved_derivative(int activation, float saved) {
    switch (activation) {
        case GELU:
            return 0.5f * (1.0f + erff(saved * 0.70710678118654752f)) +
                   saved * expf(-0.5f * saved * saved) * 0.39894228040143268f;
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

// Elements of a result, with its bfloat16 copy at `copy`, if that is not null.
struct WithCopy {
    float* y;
    unsigned short* copy;

    __device__ WithCopy(float* arena, u64 at, u64 copy_at)
        : y(arena + at), copy(copy_at == NONE ? 0 : (unsigned short*)(arena + copy_at)) {}
    __device__ void quad(unsigned i, float4 value) const {
        ((float4*)y)[i] = value;
        if (copy) ((uint2*)copy)[i] = bf16_quad(value);
    }
    __device__ void one(unsigned i, float value) const {
        y[i] = value;
        if (copy) copy[i] = (unsigned short)bf16_bits(value);
    }
};

// Reads activation, n. Places: x, y, a copy of y. A thread owns every threads-th quad if the places are
// aligned, then every threads-th remaining element.
template <class S>
__device__ __forceinline__ void activate_op(const Op& op, float* arena, const Run&, S s) {
    const float* x = arena + op.at[0];
    WithCopy y(arena, op.at[1], op.at[2]);
    int f = op.activation;
    unsigned n = op.n, done = quads(op.at[0], op.at[1], 0) ? n / 4 * 4 : 0;
    for (unsigned i = s.thread; i < done / 4; i += s.threads) {
        float4 a = ((const float4*)x)[i];
        y.quad(i, make_float4(activated(f, a.x), activated(f, a.y), activated(f, a.z), activated(f, a.w)));
    }
    for (unsigned i = done + s.thread; i < n; i += s.threads) y.one(i, activated(f, x[i]));
}

// Reads activation, n. Places: saved, dy (in place), a copy of dy. Threads own elements as above.
template <class S>
__device__ __forceinline__ void activate_backward_op(const Op& op, float* arena, const Run&, S s) {
    const float* saved = arena + op.at[0];
    float* dy = arena + op.at[1];
    WithCopy dx(arena, op.at[1], op.at[2]);
    int f = op.activation;
    unsigned n = op.n, done = quads(op.at[0], op.at[1], 0) ? n / 4 * 4 : 0;
    for (unsigned i = s.thread; i < done / 4; i += s.threads) {
        float4 a = ((const float4*)saved)[i], d = ((float4*)dy)[i];
        dx.quad(i, make_float4(times_derivative(f, a.x, d.x), times_derivative(f, a.y, d.y),
                               times_derivative(f, a.z, d.z), times_derivative(f, a.w, d.w)));
    }
    for (unsigned i = done + s.thread; i < n; i += s.threads) dx.one(i, times_derivative(f, saved[i], dy[i]));
}

extern "C" __global__ void op_activate(Op op, float* arena, Run* run) { activate_op(op, arena, *run, Launch()); }
extern "C" __global__ void op_activate_backward(Op op, float* arena, Run* run) {
    activate_backward_op(op, arena, *run, Launch());
}
