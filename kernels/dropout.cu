// Dropout as a pure function: no state, no mask in memory.
//
// Whether a unit is kept is a hash of (seed, layer, step, row within the epoch, unit), equal to that of
// crates/engine/src/op/dropout.rs bit for bit. The backward pass recomputes it. Devices that share a batch
// compute it for their own rows and agree with a single device.

__device__ __forceinline__ u32 dropout_key(u64 seed, int layer, u64 step, u64 row) {
    const u64 golden = 0x9E3779B97F4A7C15ull;
    u64 z = seed ^ ((u64)layer + 1) * golden;
    for (int i = 0; i < 2; i++) {
        z = (z ^ (i == 0 ? step : row)) + golden;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
        z ^= z >> 31;
    }
    return (u32)(z >> 32) ^ (u32)z;
}

__device__ __forceinline__ u32 dropout_draw(u32 key, u32 unit) {
    u32 x = key ^ unit * 0x9E3779B9u;
    x = (x ^ (x >> 16)) * 0x7FEB352Du;
    x = (x ^ (x >> 15)) * 0x846CA68Bu;
    return x ^ (x >> 16);
}

// Reads rows, inputs (width), first, layer, f[0] = p. A thread owns every threads-th element.
template <class S>
__device__ __forceinline__ void masked(const Op& op, const float* x, float* y, const Run& run, S s) {
    unsigned width = op.inputs;
    u32 threshold = (u32)((double)op.f[0] * 4294967296.0);
    float kept = 1.0f / (1.0f - op.f[0]);
    for (u64 i = s.thread; i < (u64)op.rows * width; i += s.threads) {
        u32 key = dropout_key(run.seed, op.layer, run.step, run.position + op.first + i / width);
        y[i] = x[i] * (dropout_draw(key, i % width) >= threshold ? kept : 0.0f);
    }
}

// Places: x, y.
template <class S>
__device__ __forceinline__ void dropout_op(const Op& op, float* arena, const Run& run, S s) {
    masked(op, arena + op.at[0], arena + op.at[1], run, s);
}

// Places: dy (in place).
template <class S>
__device__ __forceinline__ void dropout_backward_op(const Op& op, float* arena, const Run& run, S s) {
    masked(op, arena + op.at[0], arena + op.at[0], run, s);
}

extern "C" __global__ void op_dropout(Op op, float* arena, Run* run) { dropout_op(op, arena, *run, Launch()); }
extern "C" __global__ void op_dropout_backward(Op op, float* arena, Run* run) {
    dropout_backward_op(op, arena, *run, Launch());
}
