// Clipping and the update: one launch over the flat buffers of all parameters, four numbers at a time.
//
// The rules are PyTorch's in its order of operations (torch.optim, torch.nn.utils.clip_grad_norm_). What changes from
// step to step is read from the run's table, so that a captured graph needs no change.

// Reads n, f[0] = max_norm. Places: gradients, norm. A thread owns every threads-th number.
template <class S>
__device__ void clip_op(const Op& op, float* arena, const Run&, S s) {
    float factor = op.f[0] / (arena[op.at[1]] + 1e-6f);
    if (factor >= 1.0f) return;   // below the limit nothing changes; a NaN makes every gradient NaN
    float* g = arena + op.at[0];
    for (unsigned i = s.thread; i < (unsigned)op.n; i += s.threads) g[i] *= factor;
}

// One parameter: weight, gradient, first and second state.
__device__ __forceinline__ void update_one(const Op& op, const Hyper& h, float& w, float g, float& m, float& v) {
    float decay = op.f[0];
    if (op.rule <= SGD_NESTEROV) {
        float d = g + decay * w;
        if (op.rule != SGD) {
            m = m * h.first + d;
            d = op.rule == SGD_NESTEROV ? d + h.first * m : m;
        }
        w -= h.rate * d;
        return;
    }
    float kept = op.rule == ADAMW ? w * h.shrink : w;
    float d = op.rule == ADAMW ? g : g + decay * w;
    m += h.first * (d - m);
    v = v * op.f[1] + op.f[2] * (d * d);
    w = kept - h.rate * (m / (sqrtf(v) * h.correction + op.f[3]));
}

// Reads rule, n, f. Places: values, gradients, state (second moments at state + n).
// A thread owns every threads-th quad, then every threads-th number of what is left.
template <class S>
__device__ void update_op(const Op& op, float* arena, const Run& run, S s) {
    Hyper h = run.hyper[run.index];
    unsigned n = op.n;
    int states = op.rule == SGD ? 0 : op.rule <= SGD_NESTEROV ? 1 : 2;
    float *w = arena + op.at[0], *m = states > 0 ? arena + op.at[2] : 0, *v = states > 1 ? m + n : 0;
    const float* g = arena + op.at[1];
    unsigned done = 0;
    if (quads(op.at[0], op.at[1], states > 0 ? op.at[2] : 0) && (states < 2 || n % 4 == 0)) {
        done = n / 4 * 4;
        for (unsigned i = s.thread; i < n / 4; i += s.threads) {
            float4 zero = make_float4(0.0f, 0.0f, 0.0f, 0.0f);
            float4 a = ((float4*)w)[i], b = ((const float4*)g)[i];
            float4 c = m ? ((float4*)m)[i] : zero, d = v ? ((float4*)v)[i] : zero;
            update_one(op, h, a.x, b.x, c.x, d.x);
            update_one(op, h, a.y, b.y, c.y, d.y);
            update_one(op, h, a.z, b.z, c.z, d.z);
            update_one(op, h, a.w, b.w, c.w, d.w);
            ((float4*)w)[i] = a;
            if (m) ((float4*)m)[i] = c;
            if (v) ((float4*)v)[i] = d;
        }
    }
    for (unsigned i = done + s.thread; i < n; i += s.threads) {
        float a = m ? m[i] : 0.0f, b = v ? v[i] : 0.0f;
        update_one(op, h, w[i], g[i], a, b);
        if (m) m[i] = a;
        if (v) v[i] = b;
    }
}

extern "C" __global__ void op_clip(Op op, float* arena, Run* run) { clip_op(op, arena, *run, Launch()); }
extern "C" __global__ void op_update(Op op, float* arena, Run* run) { update_op(op, arena, *run, Launch()); }
