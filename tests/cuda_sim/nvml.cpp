// A stand-in for libnvidia-ml.so.1: as many GPUs as the stand-in driver has, told in the opposite order, since the monitor
// knows nothing of the order in which CUDA lists them. GPUs 0 and 1 are joined by four NVLinks, all others by the host.

#include <cstdio>
#include <cstdlib>
#include <cstring>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

enum Status { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6 };

long setting(const char* name, long otherwise) {
    const char* text = getenv(name);
    return text && *text ? atol(text) : otherwise;
}

long count() { return setting("RUNNER_SIM_DEVICES", 1); }

// A handle is one more than the number of the stand-in driver.
void* handle_of(long ordinal) { return (void*)(ordinal + 1); }
long ordinal_of(void* handle) { return (long)handle - 1; }
long index_of(void* handle) { return count() - 1 - ordinal_of(handle); }

struct Pci {
    char legacy[16];
    unsigned domain, bus, device, device_id, subsystem_id;
    char id[32];
};
struct Memory {
    unsigned version;
    unsigned long long total, reserved, free, used;
};
struct Utilization {
    unsigned gpu, memory;
};

int pci(Pci* to, long ordinal) {
    *to = {};
    to->bus = (unsigned)ordinal + 1;
    snprintf(to->legacy, sizeof to->legacy, "0000:%02lX:00.0", ordinal + 1);
    snprintf(to->id, sizeof to->id, "00000000:%02lX:00.0", ordinal + 1);
    return SUCCESS;
}

void uuid(char* to, size_t len, long ordinal) {
    snprintf(to, len, "GPU-63757369-6d00-0000-0000-0000000000%02lx", ordinal);
}

bool linked(void* a, void* b) { return ordinal_of(a) + ordinal_of(b) == 1; }

}   // namespace

EXPORT int nvmlInit_v2() { return SUCCESS; }
EXPORT int nvmlShutdown() { return SUCCESS; }
EXPORT int nvmlSystemGetDriverVersion(char* version, unsigned len) { return snprintf(version, len, "580.65.06"), SUCCESS; }
EXPORT int nvmlSystemGetCudaDriverVersion_v2(int* version) { return *version = 13000, SUCCESS; }
EXPORT int nvmlDeviceGetCount_v2(unsigned* devices) { return *devices = (unsigned)count(), SUCCESS; }
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
    if (index >= (unsigned)count()) return INVALID_ARGUMENT;
    return *handle = handle_of(count() - 1 - index), SUCCESS;
}
EXPORT int nvmlDeviceGetHandleByUUID(const char* text, void** handle) {
    for (long i = 0; i < count(); i++) {
        char own[80];
        uuid(own, sizeof own, i);
        if (!strcmp(own, text)) return *handle = handle_of(i), SUCCESS;
    }
    return NOT_FOUND;
}
EXPORT int nvmlDeviceGetUUID(void* handle, char* to, unsigned len) { return uuid(to, len, ordinal_of(handle)), SUCCESS; }
EXPORT int nvmlDeviceGetName(void*, char* name, unsigned len) { return snprintf(name, len, "Simulated GPU"), SUCCESS; }
EXPORT int nvmlDeviceGetPciInfo_v3(void* handle, Pci* to) { return pci(to, ordinal_of(handle)); }
EXPORT int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) { return *major = 9, *minor = 0, SUCCESS; }
EXPORT int nvmlDeviceGetMemoryInfo_v2(void*, Memory* memory) {
    memory->total = (unsigned long long)setting("RUNNER_SIM_MEMORY", 1l << 30);
    memory->used = 4 << 20;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}
EXPORT int nvmlDeviceGetUtilizationRates(void* handle, Utilization* to) {
    return *to = {(unsigned)index_of(handle) * 10, 3}, SUCCESS;
}
EXPORT int nvmlDeviceGetTemperature(void* handle, int, unsigned* c) { return *c = 30 + (unsigned)ordinal_of(handle), SUCCESS; }
EXPORT int nvmlDeviceGetPowerUsage(void*, unsigned* mw) { return *mw = 68400, SUCCESS; }
EXPORT int nvmlDeviceGetEnforcedPowerLimit(void*, unsigned* mw) { return *mw = 700000, SUCCESS; }
EXPORT int nvmlDeviceGetTotalEnergyConsumption(void*, unsigned long long* mj) { return *mj = 1234500, SUCCESS; }
EXPORT int nvmlDeviceGetClockInfo(void*, int which, unsigned* mhz) { return *mhz = which == 2 ? 2619 : 1980, SUCCESS; }
EXPORT int nvmlDeviceGetPerformanceState(void*, int* state) { return *state = 0, SUCCESS; }
EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(void*, unsigned long long* bits) { return *bits = 1, SUCCESS; }
EXPORT int nvmlDeviceGetPersistenceMode(void*, unsigned* mode) { return *mode = 1, SUCCESS; }
EXPORT int nvmlDeviceGetComputeMode(void*, unsigned* mode) { return *mode = 0, SUCCESS; }
EXPORT int nvmlDeviceGetMigMode(void*, unsigned*, unsigned*) { return NOT_SUPPORTED; }
EXPORT int nvmlDeviceGetTopologyCommonAncestor(void*, void*, int* level) { return *level = 30, SUCCESS; }   // a host bridge
EXPORT int nvmlDeviceGetP2PStatus(void* a, void* b, int, int* status) { return *status = linked(a, b) ? 0 : 3, SUCCESS; }
EXPORT int nvmlDeviceGetNvLinkState(void* handle, unsigned link, unsigned* up) {
    return *up = ordinal_of(handle) < 2 && count() > 1 && link < 4, SUCCESS;
}
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* handle, unsigned, Pci* to) { return pci(to, 1 - ordinal_of(handle)); }
