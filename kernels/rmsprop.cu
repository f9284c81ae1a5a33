// torch.optim.RMSprop.

struct Rmsprop {
    Hyper h;
    float decay, alpha, rest, eps;
    bool momentum, centered;
    int states;
    static const int MOST = 3;

    // State: the mean square; then, if used, the momentum and the mean gradient.
    __device__ __forceinline__ void operator()(float& w, float g, float& square, float& a, float& b) const {
        g += decay * w;
        square = square * alpha + rest * (g * g);
        float variance = square;
        if (centered) {
            float mean = momentum ? b : a;
            mean += rest * (g - mean);
            variance -= mean * mean;
            if (momentum) b = mean;
            else a = mean;
        }
        float d = g / (sqrtf(variance) + eps);
        if (momentum) d = a = a * h.first + d;
        w -= h.rate * d;
    }
};

// Values f: weight_decay, alpha, 1 - alpha, eps, whether it is centered.
template <class S>
__device__ __forceinline__ void rmsprop_op(const Op& op, float* arena, const Run& run, S s) {
    bool momentum = (op.flags & FLAG_MOMENTUM) != 0, centered = op.f[4] != 0.0f;
    int states = 1 + momentum + centered;
    update(Rmsprop{run.hyper[run.index], op.f[0], op.f[1], op.f[2], op.f[3], momentum, centered, states}, op, arena, s);
}

extern "C" __global__ void op_rmsprop(Op op, float* arena, Run* run) { rmsprop_op(op, arena, *run, Launch()); }
