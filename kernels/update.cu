// The optimizer's step: one launch over the flat buffers of all parameters, four elements at a time.
//
// The rules follow PyTorch's order of operations (torch.optim). Each is a type with `states`, the number of
// state values per parameter (at most `MOST`), and a call operator that updates one parameter, given weight,
// gradient and states. What changes from step to step is read from the run's table, so that a captured graph
// needs no change.

// Reads n, flags, f. Places: values, gradients, state (the first value of all parameters, then the second,
// and so on). A thread owns every threads-th quad, then every threads-th of the remaining elements.
template <class Rule, class S>
__device__ __forceinline__ void update(const Rule& rule, const Op& op, float* arena, S s) {
    unsigned n = op.n;
    float *w = arena + op.at[0], *states[3] = {};
    const float* g = arena + op.at[1];
    for (int k = 0; k < Rule::MOST; k++) states[k] = k < rule.states ? arena + op.at[2] + (u64)k * n : 0;
    unsigned done = 0;
    if (quads(op.at[0], op.at[1], rule.states > 0 ? op.at[2] : 0) && (rule.states < 2 || n % 4 == 0)) {
        done = n / 4 * 4;
        for (unsigned i = s.thread; i < n / 4; i += s.threads) {
            float4 a = ((float4*)w)[i], b = ((const float4*)g)[i], c[3] = {};
            for (int k = 0; k < Rule::MOST; k++)
                if (states[k]) c[k] = ((float4*)states[k])[i];
            rule(a.x, b.x, c[0].x, c[1].x, c[2].x);
            rule(a.y, b.y, c[0].y, c[1].y, c[2].y);
            rule(a.z, b.z, c[0].z, c[1].z, c[2].z);
            rule(a.w, b.w, c[0].w, c[1].w, c[2].w);
            ((float4*)w)[i] = a;
            for (int k = 0; k < Rule::MOST; k++)
                if (states[k]) ((float4*)states[k])[i] = c[k];
        }
    }
    for (unsigned i = done + s.thread; i < n; i += s.threads) {
        float c[3] = {};
        for (int k = 0; k < Rule::MOST; k++)
            if (states[k]) c[k] = states[k][i];
        rule(w[i], g[i], c[0], c[1], c[2]);
        for (int k = 0; k < Rule::MOST; k++)
            if (states[k]) states[k][i] = c[k];
    }
}
