// torch.optim.Adam, and AdamW with FLAG_DECOUPLED.

struct Adam {
    Hyper h;
    float decay, beta2, rest, eps;
    bool decoupled;
    static const int states = 2, MOST = 2;

    __device__ __forceinline__ void operator()(float& w, float g, float& m, float& v, float&) const {
        float kept = decoupled ? w * h.decay_factor : w;
        float d = decoupled ? g : g + decay * w;
        m += h.first * (d - m);
        v = v * beta2 + rest * (d * d);
        w = kept - h.rate * quotient(m, root(v) * h.correction + eps);
    }
};

// Values f: weight_decay, beta2, 1 - beta2, eps.
template <class S>
__device__ __forceinline__ void adam_op(const Op& op, float* arena, const Run& run, S s) {
    bool decoupled = (op.flags & FLAG_DECOUPLED) != 0;
    update(Adam{run.hyper[run.index], op.f[0], op.f[1], op.f[2], op.f[3], decoupled}, op, arena, s);
}

extern "C" __global__ void op_adam(Op op, float* arena, Run* run) { adam_op(op, arena, *run, Launch()); }
