// Simulated libnvidia-ml.so.1: the GPUs of the simulated driver in reverse order, since NVML's order is
// independent of CUDA's. GPUs 0 and 1 are connected by four NVLinks, all others through the host.
// RUNNER_SIM_MIG=1 splits the simulated driver's first GPU into two MIG instances, of which that driver lists
// the first. An instance reports its name, UUID, memory and compute capability, and nothing else.

#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#define EXPORT extern "C" __attribute__((visibility("default")))

namespace {

enum Status { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7 };

long setting(const char* name, long otherwise) {
    const char* text = getenv(name);
    return text && *text ? atol(text) : otherwise;
}

long count() { return setting("RUNNER_SIM_DEVICES", 1); }

bool is_cut(long ordinal) { return ordinal == 0 && setting("RUNNER_SIM_MIG", 0) != 0; }

// A handle is the device's number in the simulated driver plus one; for MIG instances 1000 or 2000 is added.
void* handle_of(long ordinal) { return (void*)(ordinal + 1); }
long ordinal_of(void* handle) { return (long)handle % 1000 - 1; }
long part_of(void* handle) { return (long)handle / 1000; }
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

void uuid(char* to, size_t len, void* handle) {
    long part = part_of(handle);
    snprintf(to, len, "%s-63757369-6d00-0000-0000-00000000%02lx%02lx", part > 0 ? "MIG" : "GPU", part, ordinal_of(handle));
}

// As `count` in state.h.
void counted(const char* call) {
    static const char* path = getenv("RUNNER_SIM_COUNTS");
    FILE* file = path && *path ? fopen(path, "ae") : nullptr;
    if (!file) return;
    fprintf(file, "%s\n", call);
    fclose(file);
}

bool linked(void* a, void* b) { return ordinal_of(a) + ordinal_of(b) == 1; }

}   // namespace

EXPORT int nvmlInit_v2() { return counted("nvml_init"), SUCCESS; }
EXPORT int nvmlShutdown() { return SUCCESS; }
EXPORT int nvmlSystemGetDriverVersion(char* version, unsigned len) { return snprintf(version, len, "580.65.06"), SUCCESS; }
EXPORT int nvmlSystemGetCudaDriverVersion_v2(int* version) { return *version = 13000, SUCCESS; }
EXPORT int nvmlDeviceGetCount_v2(unsigned* devices) { return *devices = (unsigned)count(), SUCCESS; }
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned index, void** handle) {
    if (index >= (unsigned)count()) return INVALID_ARGUMENT;
    return *handle = handle_of(count() - 1 - index), SUCCESS;
}
EXPORT int nvmlDeviceGetHandleByUUID(const char* text, void** handle) {
    for (long i = 0; i < count(); i++)
        for (long part = 0; part <= (is_cut(i) ? 2 : 0); part++) {
            char own[80];
            void* found = (void*)((long)handle_of(i) + 1000 * part);
            uuid(own, sizeof own, found);
            if (!strcmp(own, text)) return *handle = found, SUCCESS;
        }
    return NOT_FOUND;
}
EXPORT int nvmlDeviceGetUUID(void* handle, char* to, unsigned len) { return uuid(to, len, handle), SUCCESS; }
EXPORT int nvmlDeviceGetName(void* handle, char* name, unsigned len) {
    return snprintf(name, len, "%s", part_of(handle) > 0 ? "Simulated GPU MIG 1g.10gb" : "Simulated GPU"), SUCCESS;
}
EXPORT int nvmlDeviceGetPciInfo_v3(void* handle, Pci* to) {
    return part_of(handle) > 0 ? NOT_SUPPORTED : pci(to, ordinal_of(handle));
}
EXPORT int nvmlDeviceGetCudaComputeCapability(void*, int* major, int* minor) { return *major = 9, *minor = 0, SUCCESS; }
EXPORT int nvmlDeviceGetMemoryInfo_v2(void*, Memory* memory) {
    memory->total = (unsigned long long)setting("RUNNER_SIM_MEMORY", 1l << 30);
    memory->used = 4 << 20;
    memory->free = memory->total - memory->used;
    return SUCCESS;
}
EXPORT int nvmlDeviceGetUtilizationRates(void* handle, Utilization* to) {
    if (part_of(handle) > 0) return NOT_SUPPORTED;
    return *to = {(unsigned)index_of(handle) * 10, 3}, SUCCESS;
}
EXPORT int nvmlDeviceGetTemperature(void* handle, int, unsigned* c) {
    if (part_of(handle) > 0) return NOT_SUPPORTED;
    return *c = 30 + (unsigned)ordinal_of(handle), SUCCESS;
}
EXPORT int nvmlDeviceGetPowerUsage(void* handle, unsigned* mw) {
    counted("power");
    if (part_of(handle) > 0) return NOT_SUPPORTED;
    return *mw = 68400, SUCCESS;
}
EXPORT int nvmlDeviceGetEnforcedPowerLimit(void* handle, unsigned* mw) {
    if (part_of(handle) > 0) return NOT_SUPPORTED;
    return *mw = 700000, SUCCESS;
}
EXPORT int nvmlDeviceGetTotalEnergyConsumption(void* handle, unsigned long long* mj) {
    if (part_of(handle) > 0) return NOT_SUPPORTED;
    static std::atomic<unsigned long long> asked{0}; // the energy counter rises by a joule with each query
    return *mj = 1234500 + 1000 * asked++, SUCCESS;
}
EXPORT int nvmlDeviceGetClockInfo(void* handle, int which, unsigned* mhz) {
    if (part_of(handle) > 0) return NOT_SUPPORTED;
    return *mhz = which == 2 ? 2619 : 1980, SUCCESS;
}
EXPORT int nvmlDeviceGetMaxClockInfo(void* handle, int which, unsigned* mhz) {
    if (part_of(handle) > 0) return NOT_SUPPORTED;
    return *mhz = which == 2 ? 2619 : 1980, SUCCESS;
}
EXPORT int nvmlDeviceGetPowerManagementDefaultLimit(void* handle, unsigned* mw) {
    return part_of(handle) > 0 ? NOT_SUPPORTED : (*mw = 700000, SUCCESS);
}
EXPORT int nvmlDeviceGetEccMode(void* handle, unsigned* now, unsigned* pending) {
    return part_of(handle) > 0 ? NOT_SUPPORTED : (*now = *pending = 1, SUCCESS);
}
static int link(void* handle, unsigned value, unsigned* to) {
    return part_of(handle) > 0 ? NOT_SUPPORTED : (*to = value, SUCCESS);
}
EXPORT int nvmlDeviceGetCurrPcieLinkGeneration(void* handle, unsigned* to) { return link(handle, 4, to); }
EXPORT int nvmlDeviceGetCurrPcieLinkWidth(void* handle, unsigned* to) { return link(handle, 16, to); }
EXPORT int nvmlDeviceGetMaxPcieLinkGeneration(void* handle, unsigned* to) { return link(handle, 5, to); }
EXPORT int nvmlDeviceGetMaxPcieLinkWidth(void* handle, unsigned* to) { return link(handle, 16, to); }
EXPORT int nvmlDeviceGetPerformanceState(void* handle, int* state) {
    if (part_of(handle) > 0) return NOT_SUPPORTED;
    return *state = 0, SUCCESS;
}
EXPORT int nvmlDeviceGetCurrentClocksThrottleReasons(void* handle, unsigned long long* bits) {
    if (part_of(handle) > 0) return NOT_SUPPORTED;
    return *bits = (unsigned long long)setting("RUNNER_SIM_THROTTLE", 1), SUCCESS;
}
// Two processes on every whole GPU; the second does not report its memory.
struct Process {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};
EXPORT int nvmlDeviceGetComputeRunningProcesses_v3(void* handle, unsigned* many, Process* to) {
    if (part_of(handle) > 0) return NOT_SUPPORTED;
    if (*many < 2) return *many = 2, INSUFFICIENT_SIZE;
    to[0] = {4200u + (unsigned)index_of(handle), 512ull << 20, ~0u, ~0u};
    to[1] = {77, ~0ull, ~0u, ~0u};
    return *many = 2, SUCCESS;
}
EXPORT int nvmlSystemGetProcessName(unsigned pid, char* name, unsigned len) {
    return pid == 77 ? NOT_FOUND : (snprintf(name, len, "python3"), SUCCESS);
}
EXPORT int nvmlDeviceGetPersistenceMode(void*, unsigned* mode) { return *mode = 1, SUCCESS; }
EXPORT int nvmlDeviceGetComputeMode(void*, unsigned* mode) { return *mode = 0, SUCCESS; }
EXPORT int nvmlDeviceGetMigMode(void* handle, unsigned* now, unsigned* later) {
    if (part_of(handle) > 0 || setting("RUNNER_SIM_MIG", 0) == 0) return NOT_SUPPORTED;
    return *now = *later = is_cut(ordinal_of(handle)), SUCCESS;
}
EXPORT int nvmlDeviceGetMaxMigDeviceCount(void* handle, unsigned* most) {
    return *most = is_cut(ordinal_of(handle)) ? 7 : 0, SUCCESS;
}
// The count of instances includes empty slots.
EXPORT int nvmlDeviceGetMigDeviceHandleByIndex(void* handle, unsigned index, void** part) {
    if (!is_cut(ordinal_of(handle)) || index >= 2) return NOT_FOUND;
    return *part = (void*)((long)handle + 1000 * (index + 1)), SUCCESS;
}
EXPORT int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(void* part, void** whole) {
    if (part_of(part) <= 0) return NOT_FOUND;
    return *whole = handle_of(0), SUCCESS;
}
EXPORT int nvmlDeviceIsMigDeviceHandle(void* handle, unsigned* is) { return *is = part_of(handle) > 0, SUCCESS; }
EXPORT int nvmlDeviceGetTopologyCommonAncestor(void*, void*, int* level) { return *level = 30, SUCCESS; }   // a host bridge
EXPORT int nvmlDeviceGetP2PStatus(void* a, void* b, int, int* status) { return *status = linked(a, b) ? 0 : 3, SUCCESS; }
EXPORT int nvmlDeviceGetNvLinkState(void* handle, unsigned link, unsigned* up) {
    return *up = ordinal_of(handle) < 2 && count() > 1 && link < 4, SUCCESS;
}
EXPORT int nvmlDeviceGetNvLinkRemotePciInfo_v2(void* handle, unsigned, Pci* to) { return pci(to, 1 - ordinal_of(handle)); }
