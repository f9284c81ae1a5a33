// The CUDA device language in C++, for tests: included before kernels/*.cu, which then compile for the
// processor.
//
// A CUDA thread is a fiber; a barrier or a warp operation yields to the block's scheduler (cusim.cpp).
// `__shared__` is thread_local, because a block runs on one OS thread. Only the features that the kernels use
// are here.
#pragma once
#define CUSIM 1

#include "launch.h"

#include <chrono>
#include <cmath>
#include <cstdint>
#include <cstring>

namespace cusim {

struct Index {
    unsigned x, y, z;
};

// Why a fiber yields to its scheduler.
enum class Wait { none, barrier, warp, pause, done };

// The indexes of the running fiber, set by the scheduler.
struct Place {
    Index thread, block, block_dim, grid_dim;
    unsigned number;   // within the block
};
CUSIM_SHARED extern thread_local Place here;

CUSIM_SHARED void barrier();
CUSIM_SHARED void pause();
// Stores `value`, waits until all live lanes of `mask` have done the same, and returns the value of lane
// `source`.
CUSIM_SHARED uint64_t exchange(unsigned mask, uint64_t value, int source);

template <class T>
T shuffled(unsigned mask, T value, int source) {
    static_assert(sizeof(T) <= 8, "a shuffle moves at most eight bytes");
    uint64_t bits = 0;
    memcpy(&bits, &value, sizeof value);
    bits = exchange(mask, bits, source);
    memcpy(&value, &bits, sizeof value);
    return value;
}

}   // namespace cusim

#define threadIdx (cusim::here.thread)
#define blockIdx (cusim::here.block)
#define blockDim (cusim::here.block_dim)
#define gridDim (cusim::here.grid_dim)
#define __global__ __attribute__((visibility("hidden")))
#define __device__
#define __forceinline__ inline
#define __launch_bounds__(...)
#define __shared__ thread_local
#define __align__(bytes) __attribute__((aligned(bytes)))

// Dynamic shared memory of the block on this OS thread.
CUSIM_SHARED extern thread_local unsigned char dyn_smem[];

struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) uint2 {
    unsigned x, y;
};
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }

inline void __syncthreads() { cusim::barrier(); }
inline void __syncwarp(unsigned mask = ~0u) { cusim::exchange(mask, 0, 0); }
inline void __threadfence() { __atomic_thread_fence(__ATOMIC_SEQ_CST); }
inline void cusim_pause() { cusim::pause(); }
inline uint64_t cusim_nanoseconds() {
    return (uint64_t)std::chrono::nanoseconds(std::chrono::steady_clock::now().time_since_epoch()).count();
}

template <class T>
T __shfl_sync(unsigned mask, T value, int lane) {
    return cusim::shuffled(mask, value, lane);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int lanes) {
    return __shfl_sync(mask, value, int(cusim::here.number & 31) ^ lanes);
}

inline float __uint_as_float(unsigned bits) {
    float x;
    memcpy(&x, &bits, 4);
    return x;
}
inline unsigned __float_as_uint(float x) {
    unsigned bits;
    memcpy(&bits, &x, 4);
    return bits;
}

inline unsigned atomicAdd(unsigned* at, unsigned value) { return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST); }
inline unsigned long long atomicAdd(unsigned long long* at, unsigned long long value) {
    return __atomic_fetch_add(at, value, __ATOMIC_SEQ_CST);
}
