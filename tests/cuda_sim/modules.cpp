// The simulated driver's modules and launches.

#include "state.h"

#include <dlfcn.h>
#include <sys/mman.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>

using namespace cusim;

namespace {

int run_kernel(Stream* stream, const char* name, const Bound& bound, const Grid& grid) {
    for (auto [at, inner_addresses] : bound.addresses) {
        if (!at) continue;
        if (!usable_by(stream->device, at, 1)) {
            fprintf(stderr, "cusim: %s: an argument is no address of the device: %p\n", name, at);
            return ILLEGAL_ADDRESS;
        }
        for (int i = 0; i < inner_addresses; i++) {
            const void* inner = ((void* const*)at)[i];
            if (inner && !usable_by(stream->device, inner, 1)) {
                fprintf(stderr, "cusim: %s: address %d of a record is no address of the device: %p\n", name, i, inner);
                return ILLEGAL_ADDRESS;
            }
        }
    }
    if (fails("stuck")) stay();
    if (fails("hang")) return stall(stream, stream), SUCCESS;
    std::string wrong = run_grid(bound.body, grid);
    if (wrong.empty()) return SUCCESS;
    fprintf(stderr, "cusim: %s: %s\n", name, wrong.c_str());
    return LAUNCH_FAILED;
}

// Blocks of a multiprocessor: as many as its shared memory holds, up to two.
int at_once(int threads, size_t shared) {
    bool fits = threads > 0 && threads <= 1024 && shared <= SHARED_BYTES;
    return fits ? 1 + (shared > 0 && 2 * (shared + 1024) <= SHARED_BYTES + 1024) : 0;
}

int launch(void* handle, const Grid& grid, void* stream, void** arguments) {
    const Function* function = (const Function*)handle;
    if (!function || !stream_of(stream)) return INVALID_HANDLE;
    uint64_t threads = 1, blocks = 1;
    for (int d = 0; d < 3; d++) threads *= grid.threads[d], blocks *= grid.blocks[d];
    if (threads == 0 || threads > 1024 || blocks == 0 || blocks > 0x7fffffff) return INVALID_VALUE;
    if (grid.shared_bytes > (unsigned)function->shared_limit) return INVALID_VALUE;
    if (grid.cooperative && blocks > (uint64_t)multiprocessors() * at_once((int)threads, grid.shared_bytes)) return COOPERATIVE_LAUNCH_TOO_LARGE;
    if (fails("launch")) return LAUNCH_FAILED;
    if (fails("lost")) stream_of(stream)->device->lost = true;
    const char* name = function->kernel->name;
    Bound bound = function->kernel->bind(arguments);
    std::string text = line("%s %s blocks %u threads %u shared %u", grid.cooperative ? "launch_cooperative" : "launch",
                            name, (unsigned)blocks, (unsigned)threads, grid.shared_bytes);
    return enqueue(stream, text, [=](Stream* s) { return run_kernel(s, name, bound, grid); });
}

// Loads an image, "BYTES\n" followed by a library of that size, which registers its kernels. The library
// stays loaded.
bool load_library(const char* text, std::vector<Kernel>& own) {
    char* bytes;
    size_t size = strtoul(text, &bytes, 10), before = kernels().size();
    static std::mutex one;
    std::lock_guard<std::mutex> guard(one);
    int file = memfd_create("step", 0);
    bool written = file >= 0 && write(file, bytes + 1, size) == (ssize_t)size;
    std::string path = "/proc/self/fd/" + std::to_string(file);
    if (!written || !dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL)) {
        fprintf(stderr, "cusim: %s\n", dlerror());
        return false;
    }
    own.assign(kernels().begin() + before, kernels().end());
    kernels().resize(before);
    return true;
}

}   // namespace

EXPORT int cuModuleLoadData(Handle* module, const void* image) {
    if (!current) return INVALID_CONTEXT;
    if (current->lost) return LAUNCH_FAILED;
    if (!image || fails("module")) return INVALID_IMAGE;
    count("module");
    std::unique_ptr<Module> made(new Module);
    const char* library = strstr((const char*)image, "\nlibrary ");
    if (library && !load_library(library + 9, made->own)) return INVALID_IMAGE;
    return *module = made.release(), SUCCESS;
}
EXPORT int cuModuleLoadDataEx(Handle* module, const void* image, unsigned, void*, void*) {
    return cuModuleLoadData(module, image);
}
EXPORT int cuModuleUnload(Handle module) { return count("unload"), delete (Module*)module, SUCCESS; }
EXPORT int cuModuleGetFunction(Handle* handle, Handle module, const char* name) {
    count("function");
    auto& functions = ((Module*)module)->functions;
    auto& own = ((Module*)module)->own;
    for (const Kernel& kernel : own.empty() ? kernels() : own) {
        if (strcmp(kernel.name, name)) continue;
        auto& made = functions[name];
        if (!made) made.reset(new Function{&kernel});
        return *handle = made.get(), SUCCESS;
    }
    return NOT_FOUND;
}
EXPORT int cuFuncGetAttribute(int* value, int attribute, Handle) {
    // Threads per block, static shared bytes, constant bytes, local bytes, registers.
    static const int values[] = {1024, 0, 0, 0, 32};
    return *value = attribute >= 0 && attribute < 5 ? values[attribute] : 0, SUCCESS;
}
EXPORT int cuFuncSetAttribute(Handle function, int attribute, int value) {
    if (attribute != 8) return SUCCESS;   // the most dynamic shared memory
    if (value < 0 || value > (int)SHARED_BYTES) return INVALID_VALUE;
    return ((Function*)function)->shared_limit = value, SUCCESS;
}
EXPORT int cuFuncSetCacheConfig(Handle, int) { return SUCCESS; }
EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessor(int* blocks, Handle, int threads, size_t shared) {
    return *blocks = at_once(threads, shared), SUCCESS;
}
EXPORT int cuOccupancyMaxActiveBlocksPerMultiprocessorWithFlags(int* blocks, Handle function, int threads, size_t shared,
                                                                unsigned) {
    return cuOccupancyMaxActiveBlocksPerMultiprocessor(blocks, function, threads, shared);
}
EXPORT int cuLaunchKernel(Handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by, unsigned bz,
                          unsigned shared, Handle stream, void** arguments, void**) {
    return launch(function, Grid{{gx, gy, gz}, {bx, by, bz}, shared, false}, stream, arguments);
}
EXPORT int cuLaunchCooperativeKernel(Handle function, unsigned gx, unsigned gy, unsigned gz, unsigned bx, unsigned by,
                                     unsigned bz, unsigned shared, Handle stream, void** arguments) {
    return launch(function, Grid{{gx, gy, gz}, {bx, by, bz}, shared, true}, stream, arguments);
}
EXPORT int cuLaunchHostFunc(Handle stream, void (*function)(void*), void* argument) {
    return enqueue(stream, "host_function", [=](Stream*) { return function(argument), SUCCESS; });
}
EXPORT int cuProfilerStart() { return SUCCESS; }
EXPORT int cuProfilerStop() { return SUCCESS; }
