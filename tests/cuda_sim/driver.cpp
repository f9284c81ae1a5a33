// A stand-in for libcuda.so.1: the driver calls of the CUDA backend, on memory of the host, kernels run by cusim.cpp.
//
// Work is done at once, in the order in which it is put into streams, which is an order that the real driver may choose,
// too. What the host may not yet see, it does not see: an asynchronous copy into pinned memory first fills its target with
// 0xFF and delivers only when the host waits for the stream or for an event after it. Device memory is NaN when allocated.
// Launches and copies with addresses that no allocation of a reachable device holds are CUDA_ERROR_ILLEGAL_ADDRESS.
//
// Environment:
//   RUNNER_SIM_DEVICES   number of devices (1)
//   RUNNER_SIM_MEMORY    bytes per device (1 GiB)
//   RUNNER_SIM_FAIL      calls that fail, by kind and number: "alloc:3,launch:5"; kinds: alloc, pinned, launch, copy,
//                        synchronize, module, graph, peer, matmul, nccl, compile
//   RUNNER_SIM_LOG       a file to which every call that moves, runs or waits appends a line: device, call, details
//   RUNNER_SIM_ORDER     forward, reverse or shuffled: the order of threads and blocks
//   RUNNER_SIM_PEER      0: no device can reach another's memory; 0-2: those two cannot

#include "driver.h"
#include "launch.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

extern "C" void cusim_order_of_all(int);

namespace cusim {

std::vector<Kernel>& kernels() {
    static std::vector<Kernel> all;
    return all;
}

namespace {

enum Result {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
    INVALID_IMAGE = 200, INVALID_CONTEXT = 201, PEER_ACCESS_UNSUPPORTED = 217, INVALID_HANDLE = 400, NOT_FOUND = 500,
    NOT_READY = 600, ILLEGAL_ADDRESS = 700, PEER_ACCESS_ALREADY_ENABLED = 704, PEER_ACCESS_NOT_ENABLED = 705,
    LAUNCH_FAILED = 719, COOPERATIVE_LAUNCH_TOO_LARGE = 720, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901,
    CAPTURE_ISOLATION = 905
};

struct Named {
    int code;
    const char *name, *text;
};
const Named RESULTS[] = {
    {SUCCESS, "CUDA_SUCCESS", "no error"},
    {INVALID_VALUE, "CUDA_ERROR_INVALID_VALUE", "invalid argument"},
    {OUT_OF_MEMORY, "CUDA_ERROR_OUT_OF_MEMORY", "out of memory"},
    {NOT_INITIALIZED, "CUDA_ERROR_NOT_INITIALIZED", "initialization error"},
    {NO_DEVICE, "CUDA_ERROR_NO_DEVICE", "no CUDA-capable device is detected"},
    {INVALID_DEVICE, "CUDA_ERROR_INVALID_DEVICE", "invalid device ordinal"},
    {INVALID_IMAGE, "CUDA_ERROR_INVALID_IMAGE", "device kernel image is invalid"},
    {INVALID_CONTEXT, "CUDA_ERROR_INVALID_CONTEXT", "invalid device context"},
    {PEER_ACCESS_UNSUPPORTED, "CUDA_ERROR_PEER_ACCESS_UNSUPPORTED", "peer access is not supported between these two devices"},
    {INVALID_HANDLE, "CUDA_ERROR_INVALID_HANDLE", "invalid resource handle"},
    {NOT_FOUND, "CUDA_ERROR_NOT_FOUND", "named symbol not found"},
    {NOT_READY, "CUDA_ERROR_NOT_READY", "device not ready"},
    {ILLEGAL_ADDRESS, "CUDA_ERROR_ILLEGAL_ADDRESS", "an illegal memory access was encountered"},
    {PEER_ACCESS_ALREADY_ENABLED, "CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED", "peer access is already enabled"},
    {PEER_ACCESS_NOT_ENABLED, "CUDA_ERROR_PEER_ACCESS_NOT_ENABLED", "peer access has not been enabled"},
    {LAUNCH_FAILED, "CUDA_ERROR_LAUNCH_FAILED", "unspecified launch failure"},
    {COOPERATIVE_LAUNCH_TOO_LARGE, "CUDA_ERROR_COOPERATIVE_LAUNCH_TOO_LARGE", "too many blocks in cooperative launch"},
    {CAPTURE_UNSUPPORTED, "CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED", "operation not permitted when stream is capturing"},
    {CAPTURE_INVALIDATED, "CUDA_ERROR_STREAM_CAPTURE_INVALIDATED", "operation failed due to a previous error during capture"},
    {CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in another stream"},
};

const int MULTIPROCESSORS = 4;
const unsigned SHARED_BY_DEFAULT = 48 << 10;

// ---------------------------------------------------------------------------------------------------------- settings

long setting(const char* name, long otherwise) {
    const char* text = getenv(name);
    return text && *text ? atol(text) : otherwise;
}

bool reaches(int device, int peer) {
    const char* text = getenv("RUNNER_SIM_PEER");
    int a = -1, b = -1;
    if (text && sscanf(text, "%d-%d", &a, &b) == 2)
        return device != peer && std::minmax(a, b) != std::minmax(device, peer);
    return device != peer && setting("RUNNER_SIM_PEER", 1) != 0;
}

int device_count() {
    static int count = (int)setting("RUNNER_SIM_DEVICES", 1);
    return count;
}

struct Failure {
    std::string kind;
    long number;
};
std::vector<Failure> failures() {
    std::vector<Failure> all;
    const char* text = getenv("RUNNER_SIM_FAIL");
    std::string list = text ? text : "";
    for (size_t at = 0; at < list.size();) {
        size_t end = std::min(list.find(',', at), list.size()), colon = list.find(':', at);
        if (colon < end) all.push_back({list.substr(at, colon - at), atol(list.c_str() + colon + 1)});
        at = end + 1;
    }
    return all;
}

// ----------------------------------------------------------------------------------------------------------- objects

struct Stream;

struct Graph {
    struct Node {
        std::string log;
        std::function<int(Stream*)> work;
    };
    std::vector<Node> nodes;
    std::vector<Stream*> members;   // streams in this capture, the first of which began it
    bool invalid = false;
};

// A copy into pinned memory that the host has not waited for.
struct Delivery {
    unsigned long ticket;
    void* to;
    std::vector<unsigned char> bytes;
};

struct Device;
struct Stream {
    Device* device;
    Graph* capture = nullptr;
    bool captures_alone = false;
    unsigned long tickets = 0;
    std::vector<Delivery> pending;
    std::mutex lock;
};

struct Device {
    int ordinal;
    size_t capacity, used = 0;
    int retained = 0;
    std::set<int> peers;   // whose memory this device may use
    Stream standard{this};
    std::set<Stream*> streams;
};

struct Event {
    double ms = -1;
    Stream* stream = nullptr;
    unsigned long ticket = 0;
    Graph* capture = nullptr;
};

struct Function {
    const Kernel* kernel;
    int shared_limit = SHARED_BY_DEFAULT;
};

struct Module {
    std::map<std::string, std::unique_ptr<Function>> functions;
};

struct Allocation {
    size_t bytes;
    int device;   // -1: pinned memory of the host
};

std::mutex everything;   // guards the maps below and the devices
std::map<uintptr_t, Allocation>& allocations() {
    static auto* all = new std::map<uintptr_t, Allocation>;
    return *all;
}
std::vector<Device*>& devices() {
    static std::vector<Device*>* all = [] {
        auto* made = new std::vector<Device*>;
        for (int i = 0; i < device_count(); i++)
            made->push_back(new Device{i, (size_t)setting("RUNNER_SIM_MEMORY", 1l << 30)});
        return made;
    }();
    return *all;
}

thread_local Device* current = nullptr;
thread_local int captures_of_thread = 0;
std::atomic<bool> initialized{false};

Stream* stream_of(void* handle) {
    if ((uintptr_t)handle > 2) return (Stream*)handle;
    return current ? &current->standard : nullptr;
}

// The allocation that holds all of a run of bytes.
const Allocation* holding(const void* at, size_t bytes) {
    auto next = allocations().upper_bound((uintptr_t)at);
    if (next == allocations().begin()) return nullptr;
    auto found = std::prev(next);
    bool inside = (uintptr_t)at + bytes <= found->first + found->second.bytes;
    return inside ? &found->second : nullptr;
}

bool usable_by(const Device* device, const void* at, size_t bytes) {
    std::lock_guard<std::mutex> guard(everything);
    const Allocation* found = holding(at, bytes);
    if (!found || !device) return false;
    return found->device < 0 || found->device == device->ordinal || device->peers.count(found->device);
}

bool pinned(const void* at, size_t bytes) {
    std::lock_guard<std::mutex> guard(everything);
    const Allocation* found = holding(at, bytes);
    return found && found->device < 0;
}

bool on_device(const void* at, size_t bytes, const Device* device) {
    std::lock_guard<std::mutex> guard(everything);
    const Allocation* found = holding(at, bytes);
    return found && device && found->device == device->ordinal;
}

// --------------------------------------------------------------------------------------------------------------- log

std::string line(const char* format, ...) {
    char text[512];
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(text, sizeof text, format, arguments);
    va_end(arguments);
    return text;
}

void log(const Device* device, const std::string& text) {
    const char* path = getenv("RUNNER_SIM_LOG");
    if (!path || !*path) return;
    int file = open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666);
    if (file < 0) return;
    std::string whole = line("%d ", device ? device->ordinal : -1) + text + "\n";
    ssize_t written = write(file, whole.data(), whole.size());
    (void)written;
    close(file);
}

// ------------------------------------------------------------------------------------------------------------ streams

int enqueue(void* handle, const std::string& text, std::function<int(Stream*)> work) {
    Stream* stream = stream_of(handle);
    if (!stream) return INVALID_CONTEXT;
    if (stream->capture) {
        stream->capture->nodes.push_back({text, std::move(work)});
        return SUCCESS;
    }
    if (!text.empty()) log(stream->device, text);
    return work(stream);
}

// The host sees what the stream copied up to a ticket.
void deliver(Stream* stream, unsigned long ticket) {
    std::lock_guard<std::mutex> guard(stream->lock);
    size_t kept = 0;
    for (Delivery& d : stream->pending) {
        if (d.ticket <= ticket) memcpy(d.to, d.bytes.data(), d.bytes.size());
        else std::swap(stream->pending[kept++], d);
    }
    stream->pending.resize(kept);
}

int synchronize(Device* device, const char* what, Stream* stream, unsigned long ticket) {
    if (captures_of_thread > 0 || (stream && stream->capture)) {
        if (stream && stream->capture) stream->capture->invalid = true;
        return CAPTURE_UNSUPPORTED;
    }
    log(device, std::string("synchronize ") + what);
    if (stream) deliver(stream, ticket);
    return fails("synchronize") ? LAUNCH_FAILED : SUCCESS;
}

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
    std::string wrong = run_grid(bound.body, grid);
    if (wrong.empty()) return SUCCESS;
    fprintf(stderr, "cusim: %s: %s\n", name, wrong.c_str());
    return LAUNCH_FAILED;
}

int launch(void* handle, const Grid& grid, void* stream, void** arguments) {
    const Function* function = (const Function*)handle;
    if (!function || !stream_of(stream)) return INVALID_HANDLE;
    uint64_t threads = 1, blocks = 1;
    for (int d = 0; d < 3; d++) threads *= grid.threads[d], blocks *= grid.blocks[d];
    if (threads == 0 || threads > 1024 || blocks == 0 || blocks > 0x7fffffff) return INVALID_VALUE;
    if (grid.shared_bytes > (unsigned)function->shared_limit) return INVALID_VALUE;
    if (grid.cooperative && blocks > MULTIPROCESSORS) return COOPERATIVE_LAUNCH_TOO_LARGE;
    if (fails("launch")) return LAUNCH_FAILED;
    const char* name = function->kernel->name;
    Bound bound = function->kernel->bind(arguments);
    std::string text = line("%s %s blocks %u threads %u shared %u", grid.cooperative ? "launch_cooperative" : "launch",
                            name, (unsigned)blocks, (unsigned)threads, grid.shared_bytes);
    return enqueue(stream, text, [=](Stream* s) { return run_kernel(s, name, bound, grid); });
}

// Device memory to the host: at once into pageable memory, which is a wait; into pinned memory when the host waits.
int device_to_host(void* to, const void* from, size_t bytes, void* stream) {
    if (fails("copy")) return ILLEGAL_ADDRESS;
    bool later = pinned(to, bytes);
    std::string text = line("d2h %zu %s", bytes, later ? "pinned" : "pageable");
    return enqueue(stream, text, [=](Stream* s) {
        if (!usable_by(s->device, from, bytes)) return ILLEGAL_ADDRESS;
        if (!later) return memcpy(to, from, bytes), SUCCESS;
        std::lock_guard<std::mutex> guard(s->lock);
        const unsigned char* bytes_from = (const unsigned char*)from;
        s->pending.push_back({++s->tickets, to, {bytes_from, bytes_from + bytes}});
        memset(to, 0xff, bytes);
        return SUCCESS;
    });
}

int host_to_device(void* to, const void* from, size_t bytes, void* stream) {
    if (fails("copy")) return ILLEGAL_ADDRESS;
    std::string text = line("h2d %zu %s", bytes, pinned(from, bytes) ? "pinned" : "pageable");
    return enqueue(stream, text, [=](Stream* s) {
        if (!usable_by(s->device, to, bytes)) return ILLEGAL_ADDRESS;
        return memcpy(to, from, bytes), SUCCESS;
    });
}

int device_to_device(void* to, const void* from, size_t bytes, void* stream) {
    if (fails("copy")) return ILLEGAL_ADDRESS;
    return enqueue(stream, line("d2d %zu", bytes), [=](Stream* s) {
        if (!usable_by(s->device, to, bytes) || !usable_by(s->device, from, bytes)) return ILLEGAL_ADDRESS;
        return memmove(to, from, bytes), SUCCESS;
    });
}

double now_ms() {
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int elapsed(float* ms, const Event* from, const Event* to) {
    if (!from || !to || from->ms < 0 || to->ms < 0) return INVALID_HANDLE;
    *ms = (float)(to->ms - from->ms);
    return SUCCESS;
}

}   // namespace

int in_stream(void* stream, const char* text, std::function<int()> work) {
    return enqueue(stream, text, [work](Stream*) { return work(); });
}

bool usable(void* handle, const void* at, size_t bytes) {
    Stream* stream = stream_of(handle);
    return stream && usable_by(stream->device, at, bytes);
}

bool fails(const char* kind) {
    static std::vector<Failure> all = failures();
    static std::mutex lock;
    std::lock_guard<std::mutex> guard(lock);
    bool hit = false;
    for (Failure& f : all)
        if (f.kind == kind) hit |= --f.number == 0;
    return hit;
}

}   // namespace cusim

using namespace cusim;
typedef void* Handle;
typedef uint64_t Address64;   // CUdeviceptr

// ---------------------------------------------------------------------------------------------- errors and the driver

EXPORT int cuInit(unsigned) {
    if (device_count() == 0) return NO_DEVICE;
    const char* order = getenv("RUNNER_SIM_ORDER");
    if (order) cusim_order_of_all(!strcmp(order, "reverse") ? 1 : !strcmp(order, "shuffled") ? 2 : 0);
    initialized = true;
    return SUCCESS;
}
EXPORT int cuDriverGetVersion(int* version) { return *version = 13000, SUCCESS; }
EXPORT int cuGetErrorName(int code, const char** name) {
    for (const Named& r : RESULTS)
        if (r.code == code) return *name = r.name, SUCCESS;
    return *name = nullptr, INVALID_VALUE;
}
EXPORT int cuGetErrorString(int code, const char** text) {
    for (const Named& r : RESULTS)
        if (r.code == code) return *text = r.text, SUCCESS;
    return *text = nullptr, INVALID_VALUE;
}

// ------------------------------------------------------------------------------------------------------------ devices

EXPORT int cuDeviceGetCount(int* count) {
    if (!initialized) return NOT_INITIALIZED;
    return *count = device_count(), SUCCESS;
}
EXPORT int cuDeviceGet(int* device, int ordinal) {
    if (!initialized) return NOT_INITIALIZED;
    if (ordinal < 0 || ordinal >= device_count()) return INVALID_DEVICE;
    return *device = ordinal, SUCCESS;
}
EXPORT int cuDeviceGetName(char* name, int len, int) { return snprintf(name, len, "Simulated GPU"), SUCCESS; }
EXPORT int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
    memset(uuid, 0, 16);
    memcpy(uuid, "cusim", 5);
    uuid[15] = (unsigned char)device;
    return SUCCESS;
}
EXPORT int cuDeviceGetUuid(unsigned char* uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }
EXPORT int cuDeviceTotalMem_v2(size_t* bytes, int device) { return *bytes = devices()[device]->capacity, SUCCESS; }
EXPORT int cuDeviceGetPCIBusId(char* id, int len, int device) {
    return snprintf(id, len, "0000:%02X:00.0", device + 1), SUCCESS;
}
EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
    switch (attribute) {
        case 1: *value = 1024; break;              // threads per block
        case 2: case 3: *value = 1024; break;      // block x, y
        case 4: *value = 64; break;                // block z
        case 5: *value = 0x7fffffff; break;        // grid x
        case 6: case 7: *value = 65535; break;     // grid y, z
        case 8: *value = SHARED_BY_DEFAULT; break; // shared memory per block
        case 9: *value = 65536; break;             // constant memory
        case 10: *value = 32; break;               // warp
        case 12: *value = 65536; break;            // registers per block
        case 13: *value = 1980000; break;          // clock, kHz
        case 16: *value = MULTIPROCESSORS; break;
        case 31: *value = 1; break;                // concurrent kernels
        case 33: *value = device + 1; break;       // PCI bus
        case 36: *value = 2619000; break;          // memory clock, kHz
        case 37: *value = 5120; break;             // bus width, bits
        case 38: *value = 50 << 20; break;         // second-level cache
        case 39: *value = 2048; break;             // threads per multiprocessor
        case 40: *value = 3; break;                // copy engines
        case 41: *value = 1; break;                // unified addressing
        case 75: *value = 9; break;                // compute capability
        case 76: *value = 0; break;
        case 81: *value = 233472; break;           // shared memory per multiprocessor
        case 82: *value = 65536; break;            // registers per multiprocessor
        case 95: *value = 1; break;                // cooperative launch
        case 97: *value = (int)SHARED_BYTES; break;// shared memory per block, on request
        default: *value = 0;                       // memory pools (115) among them
    }
    return SUCCESS;
}
EXPORT int cuDeviceCanAccessPeer(int* can, int device, int peer) {
    return *can = reaches(device, peer), SUCCESS;
}

// ----------------------------------------------------------------------------------------------------------- contexts

EXPORT int cuDevicePrimaryCtxRetain(Handle* context, int device) {
    if (device < 0 || device >= device_count()) return INVALID_DEVICE;
    std::lock_guard<std::mutex> guard(everything);
    devices()[device]->retained++;
    return *context = devices()[device], SUCCESS;
}
EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
    if (device < 0 || device >= device_count()) return INVALID_DEVICE;
    std::lock_guard<std::mutex> guard(everything);
    return --devices()[device]->retained, SUCCESS;
}
EXPORT int cuDevicePrimaryCtxSetFlags_v2(int, unsigned) { return SUCCESS; }
EXPORT int cuCtxGetCurrent(Handle* context) { return *context = current, SUCCESS; }
EXPORT int cuCtxSetCurrent(Handle context) { return current = (Device*)context, SUCCESS; }
EXPORT int cuCtxPushCurrent_v2(Handle context) { return current = (Device*)context, SUCCESS; }
EXPORT int cuCtxPopCurrent_v2(Handle* context) {
    *context = current;
    return current = nullptr, SUCCESS;
}
EXPORT int cuCtxGetDevice(int* device) {
    if (!current) return INVALID_CONTEXT;
    return *device = current->ordinal, SUCCESS;
}
EXPORT int cuCtxSetFlags(unsigned) { return SUCCESS; }
EXPORT int cuCtxGetStreamPriorityRange(int* least, int* greatest) { return *least = 0, *greatest = -5, SUCCESS; }
EXPORT int cuCtxSynchronize() {
    if (!current) return INVALID_CONTEXT;
    int result = synchronize(current, "context", nullptr, 0);
    if (result == CAPTURE_UNSUPPORTED) return result;
    std::vector<Stream*> all{&current->standard};
    {
        std::lock_guard<std::mutex> guard(everything);
        all.insert(all.end(), current->streams.begin(), current->streams.end());
    }
    for (Stream* stream : all) deliver(stream, ~0ul);
    return result;
}
EXPORT int cuCtxEnablePeerAccess(Handle peer, unsigned) {
    if (!current || !peer) return INVALID_CONTEXT;
    int other = ((Device*)peer)->ordinal;
    if (!reaches(current->ordinal, other) || fails("peer")) return PEER_ACCESS_UNSUPPORTED;
    std::lock_guard<std::mutex> guard(everything);
    return current->peers.insert(other).second ? SUCCESS : PEER_ACCESS_ALREADY_ENABLED;
}
EXPORT int cuCtxDisablePeerAccess(Handle peer) {
    if (!current || !peer) return INVALID_CONTEXT;
    std::lock_guard<std::mutex> guard(everything);
    return current->peers.erase(((Device*)peer)->ordinal) ? SUCCESS : PEER_ACCESS_NOT_ENABLED;
}

// ------------------------------------------------------------------------------------------------------------- memory

EXPORT int cuMemAlloc_v2(Address64* address, size_t bytes) {
    if (!current) return INVALID_CONTEXT;
    if (captures_of_thread > 0) return CAPTURE_UNSUPPORTED;
    if (bytes == 0) return INVALID_VALUE;
    log(current, line("alloc %zu", bytes));
    if (fails("alloc")) return OUT_OF_MEMORY;
    std::lock_guard<std::mutex> guard(everything);
    if (bytes > current->capacity - current->used) return OUT_OF_MEMORY;
    void* memory = nullptr;
    if (posix_memalign(&memory, 256, bytes)) return OUT_OF_MEMORY;
    memset(memory, 0xff, bytes);   // NaN
    current->used += bytes;
    allocations()[(uintptr_t)memory] = {bytes, current->ordinal};
    return *address = (Address64)memory, SUCCESS;
}
EXPORT int cuMemFree_v2(Address64 address) {
    if (captures_of_thread > 0) return CAPTURE_UNSUPPORTED;
    std::lock_guard<std::mutex> guard(everything);
    auto found = allocations().find(address);
    if (found == allocations().end() || found->second.device < 0) return INVALID_VALUE;
    Device* device = devices()[found->second.device];
    log(device, line("free %zu", found->second.bytes));
    device->used -= found->second.bytes;
    allocations().erase(found);
    return free((void*)address), SUCCESS;
}
EXPORT int cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
    if (!current) return INVALID_CONTEXT;
    std::lock_guard<std::mutex> guard(everything);
    return *free_bytes = current->capacity - current->used, *total = current->capacity, SUCCESS;
}
EXPORT int cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
    if (captures_of_thread > 0) return CAPTURE_UNSUPPORTED;
    if (bytes == 0) return INVALID_VALUE;
    if (fails("pinned") || posix_memalign(memory, 4096, bytes)) return OUT_OF_MEMORY;
    memset(*memory, 0xff, bytes);
    std::lock_guard<std::mutex> guard(everything);
    allocations()[(uintptr_t)*memory] = {bytes, -1};
    return SUCCESS;
}
EXPORT int cuMemFreeHost(void* memory) {
    std::lock_guard<std::mutex> guard(everything);
    auto found = allocations().find((uintptr_t)memory);
    if (found == allocations().end() || found->second.device >= 0) return INVALID_VALUE;
    allocations().erase(found);
    return free(memory), SUCCESS;
}

EXPORT int cuMemcpyHtoDAsync_v2(Address64 to, const void* from, size_t bytes, Handle stream) {
    return host_to_device((void*)to, from, bytes, stream);
}
EXPORT int cuMemcpyHtoD_v2(Address64 to, const void* from, size_t bytes) {
    return host_to_device((void*)to, from, bytes, nullptr);
}
EXPORT int cuMemcpyDtoHAsync_v2(void* to, Address64 from, size_t bytes, Handle stream) {
    return device_to_host(to, (void*)from, bytes, stream);
}
EXPORT int cuMemcpyDtoH_v2(void* to, Address64 from, size_t bytes) {
    int result = device_to_host(to, (void*)from, bytes, nullptr);
    if (result == SUCCESS) deliver(&current->standard, ~0ul);
    return result;
}
EXPORT int cuMemcpyDtoDAsync_v2(Address64 to, Address64 from, size_t bytes, Handle stream) {
    return device_to_device((void*)to, (void*)from, bytes, stream);
}
EXPORT int cuMemcpyDtoD_v2(Address64 to, Address64 from, size_t bytes) {
    return device_to_device((void*)to, (void*)from, bytes, nullptr);
}
// The driver copies between devices whether they reach each other or not.
EXPORT int cuMemcpyPeerAsync(Address64 to, Handle to_context, Address64 from, Handle from_context, size_t bytes,
                             Handle stream) {
    if (fails("copy")) return ILLEGAL_ADDRESS;
    return enqueue(stream, line("peer %zu", bytes), [=](Stream*) {
        bool there = on_device((void*)to, bytes, (Device*)to_context) && on_device((void*)from, bytes, (Device*)from_context);
        if (!there) return ILLEGAL_ADDRESS;
        return memmove((void*)to, (void*)from, bytes), SUCCESS;
    });
}
EXPORT int cuMemsetD8Async(Address64 to, unsigned char value, size_t bytes, Handle stream) {
    return enqueue(stream, line("memset %zu", bytes), [=](Stream* s) {
        if (!usable_by(s->device, (void*)to, bytes)) return ILLEGAL_ADDRESS;
        return memset((void*)to, value, bytes), SUCCESS;
    });
}
EXPORT int cuMemsetD8_v2(Address64 to, unsigned char value, size_t bytes) {
    return cuMemsetD8Async(to, value, bytes, nullptr);
}
EXPORT int cuMemsetD32Async(Address64 to, unsigned value, size_t count, Handle stream) {
    return enqueue(stream, line("memset %zu", 4 * count), [=](Stream* s) {
        if (!usable_by(s->device, (void*)to, 4 * count)) return ILLEGAL_ADDRESS;
        for (size_t i = 0; i < count; i++) ((unsigned*)to)[i] = value;
        return SUCCESS;
    });
}

// -------------------------------------------------------------------------------------------------- streams and events

EXPORT int cuStreamCreate(Handle* handle, unsigned) {
    if (!current) return INVALID_CONTEXT;
    Stream* stream = new Stream{current};
    std::lock_guard<std::mutex> guard(everything);
    current->streams.insert(stream);
    return *handle = stream, SUCCESS;
}
EXPORT int cuStreamCreateWithPriority(Handle* handle, unsigned flags, int) { return cuStreamCreate(handle, flags); }
EXPORT int cuStreamDestroy_v2(Handle handle) {
    Stream* stream = (Stream*)handle;
    deliver(stream, ~0ul);
    std::lock_guard<std::mutex> guard(everything);
    stream->device->streams.erase(stream);
    return delete stream, SUCCESS;
}
EXPORT int cuStreamSynchronize(Handle handle) {
    Stream* stream = stream_of(handle);
    if (!stream) return INVALID_CONTEXT;
    return synchronize(stream->device, "stream", stream, ~0ul);
}
EXPORT int cuStreamQuery(Handle handle) {
    Stream* stream = stream_of(handle);
    if (!stream) return INVALID_CONTEXT;
    return deliver(stream, ~0ul), SUCCESS;
}
EXPORT int cuStreamWaitEvent(Handle handle, Handle event_handle, unsigned) {
    Stream* stream = stream_of(handle);
    Event* event = (Event*)event_handle;
    if (!stream || !event) return INVALID_HANDLE;
    if (event->capture && !stream->capture) {   // the stream joins the capture
        stream->capture = event->capture;
        event->capture->members.push_back(stream);
    }
    if (stream->capture && event->capture != stream->capture) return CAPTURE_ISOLATION;
    return SUCCESS;   // all earlier work is done
}

EXPORT int cuEventCreate(Handle* event, unsigned) { return *event = new Event, SUCCESS; }
EXPORT int cuEventDestroy_v2(Handle event) { return delete (Event*)event, SUCCESS; }
EXPORT int cuEventRecord(Handle handle, Handle stream_handle) {
    Stream* stream = stream_of(stream_handle);
    Event* event = (Event*)handle;
    if (!stream || !event) return INVALID_HANDLE;
    event->capture = stream->capture;
    if (stream->capture) return SUCCESS;
    std::lock_guard<std::mutex> guard(stream->lock);
    event->ms = now_ms();
    event->stream = stream;
    event->ticket = stream->tickets;
    return SUCCESS;
}
EXPORT int cuEventSynchronize(Handle handle) {
    Event* event = (Event*)handle;
    return synchronize(event->stream ? event->stream->device : current, "event", event->stream, event->ticket);
}
EXPORT int cuEventQuery(Handle handle) {
    Event* event = (Event*)handle;
    if (event->stream) deliver(event->stream, event->ticket);
    return SUCCESS;
}
EXPORT int cuEventElapsedTime(float* ms, Handle from, Handle to) { return elapsed(ms, (Event*)from, (Event*)to); }
EXPORT int cuEventElapsedTime_v2(float* ms, Handle from, Handle to) { return elapsed(ms, (Event*)from, (Event*)to); }

// -------------------------------------------------------------------------------------------------------------- graphs

EXPORT int cuStreamBeginCapture_v2(Handle handle, int mode) {
    if ((uintptr_t)handle <= 2) return CAPTURE_UNSUPPORTED;   // never the default stream
    Stream* stream = (Stream*)handle;
    if (stream->capture) return CAPTURE_UNSUPPORTED;
    stream->capture = new Graph;
    stream->capture->members.push_back(stream);
    stream->captures_alone = mode != 2;   // not "relaxed": this thread may not wait or allocate meanwhile
    captures_of_thread += stream->captures_alone;
    return SUCCESS;
}
EXPORT int cuStreamIsCapturing(Handle handle, int* status) {
    Stream* stream = stream_of(handle);
    return *status = !stream || !stream->capture ? 0 : stream->capture->invalid ? 2 : 1, SUCCESS;
}
EXPORT int cuStreamEndCapture(Handle handle, Handle* graph) {
    Stream* stream = (Stream*)handle;
    *graph = nullptr;
    Graph* captured = stream->capture;
    if (!captured || captured->members[0] != stream) return INVALID_VALUE;
    captures_of_thread -= stream->captures_alone;
    for (Stream* member : captured->members) member->capture = nullptr;
    if (captured->invalid) return delete captured, CAPTURE_INVALIDATED;
    return *graph = captured, SUCCESS;
}
EXPORT int cuGraphGetNodes(Handle graph, Handle*, size_t* count) { return *count = ((Graph*)graph)->nodes.size(), SUCCESS; }
EXPORT int cuGraphInstantiateWithFlags(Handle* exec, Handle graph, unsigned long long) {
    if (fails("graph")) return OUT_OF_MEMORY;
    return *exec = new Graph(*(Graph*)graph), SUCCESS;
}
EXPORT int cuGraphUpload(Handle, Handle) { return SUCCESS; }
EXPORT int cuGraphLaunch(Handle exec, Handle handle) {
    Stream* stream = stream_of(handle);
    if (!stream) return INVALID_CONTEXT;
    log(stream->device, line("graph %zu nodes", ((Graph*)exec)->nodes.size()));
    if (fails("launch")) return LAUNCH_FAILED;
    for (Graph::Node& node : ((Graph*)exec)->nodes)
        if (int result = node.work(stream)) return result;
    return SUCCESS;
}
EXPORT int cuGraphExecDestroy(Handle exec) { return delete (Graph*)exec, SUCCESS; }
EXPORT int cuGraphDestroy(Handle graph) { return delete (Graph*)graph, SUCCESS; }

// ------------------------------------------------------------------------------------------------- modules and launches

EXPORT int cuModuleLoadData(Handle* module, const void* image) {
    if (!current) return INVALID_CONTEXT;
    if (!image || fails("module")) return INVALID_IMAGE;
    return *module = new Module, SUCCESS;
}
EXPORT int cuModuleLoadDataEx(Handle* module, const void* image, unsigned, void*, void*) {
    return cuModuleLoadData(module, image);
}
EXPORT int cuModuleUnload(Handle module) { return delete (Module*)module, SUCCESS; }
EXPORT int cuModuleGetFunction(Handle* handle, Handle module, const char* name) {
    auto& functions = ((Module*)module)->functions;
    for (const Kernel& kernel : kernels()) {
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
    return *blocks = threads > 0 && threads <= 1024 && shared <= SHARED_BYTES, SUCCESS;
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
