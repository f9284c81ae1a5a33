// Clipping of gradients: torch.nn.utils.clip_grad_norm_.

// Reads n, f[0] = max_norm. Places: gradients, norm. A thread owns every threads-th number.
template <class S>
__device__ __forceinline__ void clip_op(const Op& op, float* arena, const Run&, S s) {
    float factor = op.f[0] / (arena[op.at[1]] + 1e-6f);
    if (factor >= 1.0f) return;   // below the limit nothing changes; a NaN norm makes all gradients NaN
    float* g = arena + op.at[0];
    for (unsigned i = s.thread; i < (unsigned)op.n; i += s.threads) g[i] *= factor;
}

extern "C" __global__ void op_clip(Op op, float* arena, Run* run) { clip_op(op, arena, *run, Launch()); }
