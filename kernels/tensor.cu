// Operations on whole tensors, outside of programs: fill, copies, random numbers, and a digest to compare
// devices' memory.

// A thread owns every threads-th element.
extern "C" __global__ void tensor_fill(float* x, u64 n, float value) {
    Launch s;
    for (u64 i = s.thread; i < n; i += s.threads) x[i] = value;
}

// A thread owns every threads-th element.
extern "C" __global__ void tensor_copy(const float* x, float* y, u64 n) {
    Launch s;
    for (u64 i = s.thread; i < n; i += s.threads) y[i] = x[i];
}

// A bfloat16 copy, which a library's products read. A thread owns every threads-th quad if both are aligned for
// that, then every threads-th remaining element.
extern "C" __global__ void copy_bf16(const float* x, unsigned short* y, u64 n) {
    Launch s;
    u64 done = quads((u64)x >> 2, (u64)y >> 1, 0) ? n / 4 * 4 : 0;
    for (u64 i = s.thread; i < done / 4; i += s.threads) ((Halves<4>*)y)[i] = to_halves(((const Lanes<4>*)x)[i]);
    for (u64 i = done + s.thread; i < n; i += s.threads) y[i] = (unsigned short)bf16_bits(x[i]);
}

// SplitMix64's finalizer over an element's bits and index, as in device::digest: equal memory has equal
// digests, and permuted elements have (almost surely) different ones.
__device__ __forceinline__ u64 mixed(u32 bits, u64 place) {
    u64 z = bits ^ ((place + 1) * 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
}

// out += the wrapping sum of all hashes: integers, so the order of atomics does not matter. A thread owns
// every threads-th element.
extern "C" __global__ void digest(const float* x, u64 n, u64* out) {
    Launch s;
    u64 own = 0;
    for (u64 i = s.thread; i < n; i += s.threads) own += mixed(__float_as_uint(x[i]), i);
    own = warp_sum(own);
    if (lane_of(threadIdx.x) == 0 && own != 0) atomicAdd(out, own);
}

// Random numbers of at least 2^-4 and below 1, of both signs: f32, or pairs of bfloat16. A thread owns every
// threads-th word.
extern "C" __global__ void noise(u32* to, u64 words, u64 seed, int half) {
    Launch s;
    for (u64 i = s.thread; i < words; i += s.threads) {
        u32 bits = (u32)(mixed(0, seed + i) >> 32);
        u32 sign_and_mantissa = half ? 0x807f807fu : 0x807fffffu, exponent = half ? 0x3d803d80u : 0x3d800000u;
        u32 scale = half ? 0x01800180u : 0x01800000u;   // adds 0 to 3 to the exponent
        to[i] = (bits & sign_and_mantissa) | (exponent + (bits >> 1 & scale));
    }
}
