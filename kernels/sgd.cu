// torch.optim.SGD.

struct Sgd {
    Hyper h;
    float decay;
    bool nesterov;
    int states;
    static const int MOST = 1;

    __device__ __forceinline__ void operator()(float& w, float g, float& m, float&, float&) const {
        float d = g + decay * w;
        if (states > 0) {
            m = m * h.first + d;
            d = nesterov ? d + h.first * m : m;
        }
        w -= h.rate * d;
    }
};

// Values f: weight_decay.
template <class S>
__device__ __forceinline__ void sgd_op(const Op& op, float* arena, const Run& run, S s) {
    bool nesterov = (op.flags & FLAG_NESTEROV) != 0;
    update(Sgd{run.hyper[run.index], op.f[0], nesterov, op.flags & FLAG_MOMENTUM ? 1 : 0}, op, arena, s);
}

extern "C" __global__ void op_sgd(Op op, float* arena, Run* run) { sgd_op(op, arena, *run, Launch()); }
