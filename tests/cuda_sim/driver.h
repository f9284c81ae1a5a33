// The simulated driver's internals, for the libraries that work on its streams (cublaslt.cpp, nccl.cpp).
#pragma once

#include <cstddef>
#include <functional>

namespace cusim {

#define EXPORT extern "C" __attribute__((visibility("default")))

// Does work in the order of a stream, or records it if the stream is being captured. `log` is the line for
// RUNNER_SIM_LOG, or "". Returns a CUresult, which the work may set.
__attribute__((visibility("default"))) int in_stream(void* stream, const char* log, std::function<int()> work);

// A line for RUNNER_SIM_LOG.
__attribute__((visibility("default"))) void note(const char* text);

// Whether a run of bytes lies within memory that a stream's device may use.
__attribute__((visibility("default"))) bool usable(void* stream, const void* at, size_t bytes);

// Where a sum in this stream finds the bytes at `at` as early as it may run; null if the device may not use them.
__attribute__((visibility("default"))) const void* as_early(void* stream, const void* at, size_t bytes);
// Writes the result of a sum as late as the stream may do it.
__attribute__((visibility("default"))) void as_late(void* stream, void* to, const void* from, size_t bytes);

// Whether this call is the one that RUNNER_SIM_FAIL names: "alloc:3,launch:5" makes the third allocation
// fail.
__attribute__((visibility("default"))) bool fails(const char* kind);

// Makes a stream hang from here on, until the cause is released.
__attribute__((visibility("default"))) void stall(void* stream, const void* cause);
__attribute__((visibility("default"))) void release(const void* cause);

}   // namespace cusim
