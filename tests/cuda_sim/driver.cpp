// Simulated libcuda.so.1: the driver calls that the CUDA backend uses, on host memory, with kernels run by
// cusim.cpp.
//
// Work is done at once, in the order in which it is enqueued; the real driver may choose that order too. What
// the host must not see yet stays hidden: an asynchronous copy into pinned memory first fills its target with
// 0xFF, and delivers the data only when the host waits for the stream or for a later event. Device memory is
// NaN when allocated.
//
// A stream with nothing but sums of NCCL does them both as early and as late as its events allow: a sum reads memory as it was
// when the stream last followed another one (NaN if it never did), and its result stays NaN until another stream follows the
// sum. So a missing event, or a use of the memory meanwhile, shows in the numbers.
//
// Launches and copies with an address outside the allocations of reachable devices fail with CUDA_ERROR_ILLEGAL_ADDRESS.
//
// A stream may also hang (`stall` in driver.h). Work enqueued in it is then not done, its events do not
// complete, and a call that would wait for it ends the process, since it would never return.
//
// A query of an event or stream counts as a wait, and is logged as one, if its answer is the first from which
// the host knows that a stream has finished all of its work. Queries about older work only keep the queue
// short.
//
// Environment:
//   RUNNER_SIM_DEVICES   number of devices (1)
//   RUNNER_SIM_MEMORY    bytes per device (1 GiB)
//   RUNNER_SIM_FAIL      calls that fail, by kind and number: "alloc:3,launch:5". Kinds: alloc, pinned,
// launch,
//                        replay (of a graph), copy, synchronize, module, graph, peer, matmul, plan, nccl,
//                        compile. Also `stall`: every rank's all-reduce of that number hangs; `hang`: the
// kernel
//                        of that number never ends; `stuck`: the call that launches it never returns;
//                        `lost`: that launch fails, and every call after it until nobody has the context
//   RUNNER_SIM_LOG       a file to which every call that moves, runs or waits appends a line: device, call,
// details
//   RUNNER_SIM_FOLLOWS   1: that log also tells when a stream waits for another one, and for which work of it
//   RUNNER_SIM_COUNTS    a file to which every call that takes something from the driver, or returns it, appends its name
//   RUNNER_SIM_ORDER     forward, reverse or shuffled: the order of threads and blocks
//   RUNNER_SIM_SLOW      microseconds that work takes longer whose line in the log begins so: "h2d 4000:5000,all_reduce:900"
//   RUNNER_SIM_CLOCK     microseconds that pass from event to event, in place of the time that really passes; or `processor`:
//                        the time that this process has computed for, which other processes do not lengthen
//   RUNNER_SIM_PEER      0: no device can reach another's memory; 0-2: those two cannot
//   RUNNER_SIM_LATE      an event has not happened when it is first asked, so many times
//   RUNNER_SIM_FIRST     added to the last number of each UUID, so that the devices of two processes are not the same
//   RUNNER_SIM_MIG       1: the first device is a part of one that was cut (its UUID begins with `MIG-`)

#include "state.h"

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace cusim;

extern "C" void cusim_order_of_all(int);

namespace {

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
    {CAPTURE_UNJOINED, "CUDA_ERROR_STREAM_CAPTURE_UNJOINED", "the capturing stream has unjoined work"},
    {CAPTURE_ISOLATION, "CUDA_ERROR_STREAM_CAPTURE_ISOLATION", "dependency created on uncaptured work in another stream"},
};

std::atomic<bool> initialized{false};

bool reaches(int device, int peer) {
    const char* text = getenv("RUNNER_SIM_PEER");
    int a = -1, b = -1;
    if (text && sscanf(text, "%d-%d", &a, &b) == 2)
        return device != peer && std::minmax(a, b) != std::minmax(device, peer);
    return device != peer && setting("RUNNER_SIM_PEER", 1) != 0;
}

}   // namespace

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
EXPORT int cuDeviceGetName(char* name, int len, int device) {
    bool part = device == 0 && setting("RUNNER_SIM_MIG", 0) != 0;
    return snprintf(name, len, "%s", part ? "Simulated GPU MIG 1g.10gb" : "Simulated GPU"), SUCCESS;
}
EXPORT int cuDeviceGetUuid_v2(unsigned char* uuid, int device) {
    memset(uuid, 0, 16);
    memcpy(uuid, "cusim", 5);
    if (device == 0) uuid[14] = (unsigned char)setting("RUNNER_SIM_MIG", 0);
    uuid[15] = (unsigned char)(device + setting("RUNNER_SIM_FIRST", 0));
    return SUCCESS;
}
EXPORT int cuDeviceGetUuid(unsigned char* uuid, int device) { return cuDeviceGetUuid_v2(uuid, device); }
EXPORT int cuDeviceTotalMem_v2(size_t* bytes, int device) { return *bytes = devices()[device]->capacity, SUCCESS; }
EXPORT int cuDeviceGetPCIBusId(char* id, int len, int device) {
    return snprintf(id, len, "0000:%02X:00.0", device + 1), SUCCESS;
}
EXPORT int cuDeviceGetAttribute(int* value, int attribute, int device) {
    count("attribute");
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
        case 16: *value = multiprocessors(); break;
        case 31: *value = 1; break;                // concurrent kernels
        case 33: *value = device + 1; break;       // PCI bus
        case 36: *value = 2619000; break;          // memory clock, kHz
        case 37: *value = 5120; break;             // bus width, bits
        case 38: *value = 2 << 20; break;          // second-level cache
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
    count("context");
    std::lock_guard<std::mutex> guard(everything);
    devices()[device]->retained++;
    return *context = devices()[device], SUCCESS;
}
EXPORT int cuDevicePrimaryCtxRelease_v2(int device) {
    if (device < 0 || device >= device_count()) return INVALID_DEVICE;
    count("release");
    std::lock_guard<std::mutex> guard(everything);
    if (--devices()[device]->retained == 0) devices()[device]->lost = false;
    return SUCCESS;
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
    for (Stream* stream : streams_of(current)) {
        refuse_to_hang(stream->cause, "cuCtxSynchronize");
        deliver(stream, ~0ul);
    }
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
