// Launches one planted kernel in a process of its own, for builds with AddressSanitizer. Usage: launch KERNEL

#include "driver.h"

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <vector>

extern "C" {
int cuInit(unsigned);
int cuDevicePrimaryCtxRetain(void**, int);
int cuCtxSetCurrent(void*);
int cuMemAlloc_v2(uint64_t*, size_t);
int cuMemcpyHtoD_v2(uint64_t, const void*, size_t);
int cuModuleLoadData(void**, const void*);
int cuModuleGetFunction(void**, void*, const char*);
int cuLaunchKernel(void*, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, unsigned, void*, void**, void**);
}

int main(int count, char** arguments) {
    if (count != 2) return 2;
    void *context, *module, *function;
    uint64_t x, out;
    int n = 256;
    std::vector<float> ones(n, 1.0f);
    int status = cuInit(0);
    status |= cuDevicePrimaryCtxRetain(&context, 0) | cuCtxSetCurrent(context);
    status |= cuMemAlloc_v2(&x, n * sizeof(float)) | cuMemAlloc_v2(&out, sizeof(float));
    status |= cuMemcpyHtoD_v2(x, ones.data(), n * sizeof(float)) | cuModuleLoadData(&module, "image");
    status |= cuModuleGetFunction(&function, module, arguments[1]);
    void* values[] = {&x, &out, &n};
    if (!status) status = cuLaunchKernel(function, 1, 1, 1, n, 1, 1, 0, nullptr, values, nullptr);
    if (status) fprintf(stderr, "status %d\n", status);
    return status != 0;
}
