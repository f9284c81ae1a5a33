// The simulated driver's memory: allocations, frees and copies.

#include "state.h"

#include <cstdlib>
#include <cstring>

using namespace cusim;

namespace {

// Copies device memory to the host. Into pageable memory it copies at once, which is a wait; into pinned
// memory it delivers when the host waits.
int device_to_host(void* to, const void* from, size_t bytes, void* stream) {
    if (fails("copy")) return ILLEGAL_ADDRESS;
    bool later = pinned(to, bytes);
    std::string text = line("d2h %zu %s", bytes, later ? "pinned" : "pageable");
    if (!later && stream_of(stream)) refuse_to_hang(stream_of(stream)->cause, "a copy into pageable memory");
    return enqueue(stream, text, [=](Stream* s) {
        if (!usable_by(s->device, from, bytes)) return ILLEGAL_ADDRESS;
        if (!later) return memcpy(to, from, bytes), SUCCESS;
        deliver_there(s, to, bytes);   // earlier copies of this stream are done
        std::lock_guard<std::mutex> guard(s->lock);
        const unsigned char* bytes_from = (const unsigned char*)from;
        s->pending.push_back({++s->tickets, to, {bytes_from, bytes_from + bytes}, Delivery::DOWNLOAD});
        memset(to, 0xff, bytes);
        return SUCCESS;
    });
}

// Copies at once. Pinned memory must stay as it is until the host has waited.
int host_to_device(void* to, const void* from, size_t bytes, void* stream) {
    if (fails("copy")) return ILLEGAL_ADDRESS;
    bool staged = !pinned(from, bytes);   // by the driver, which may wait for the stream
    std::string text = line("h2d %zu %s", bytes, staged ? "pageable" : "pinned");
    if (staged && stream_of(stream)) refuse_to_hang(stream_of(stream)->cause, "a copy from pageable memory");
    return enqueue(stream, text, [=](Stream* s) {
        if (!usable_by(s->device, to, bytes)) return ILLEGAL_ADDRESS;
        memcpy(to, from, bytes);
        if (staged) return SUCCESS;
        std::lock_guard<std::mutex> guard(s->lock);
        const unsigned char* bytes_from = (const unsigned char*)from;
        s->pending.push_back({++s->tickets, (void*)from, {bytes_from, bytes_from + bytes}, Delivery::UPLOAD});
        return SUCCESS;
    });
}

int device_to_device(void* to, const void* from, size_t bytes, void* stream) {
    if (fails("copy")) return ILLEGAL_ADDRESS;
    return enqueue(stream, line("d2d %zu", bytes), [=](Stream* s) {
        if (!usable_by(s->device, to, bytes) || !usable_by(s->device, from, bytes)) return ILLEGAL_ADDRESS;
        return memmove(to, from, bytes), SUCCESS;
    });
}

}   // namespace

EXPORT int cuMemAlloc_v2(Address64* address, size_t bytes) {
    if (!current) return INVALID_CONTEXT;
    if (captures_of_thread > 0) return CAPTURE_UNSUPPORTED;
    if (current->lost) return LAUNCH_FAILED;
    if (bytes == 0) return INVALID_VALUE;
    log(current, line("alloc %zu", bytes));
    if (fails("alloc")) return OUT_OF_MEMORY;
    std::lock_guard<std::mutex> guard(everything);
    if (bytes > current->capacity - current->used) return OUT_OF_MEMORY;
    void* memory = nullptr;
    if (posix_memalign(&memory, 256, bytes)) return OUT_OF_MEMORY;
    memset(memory, 0xff, bytes);   // NaN
    count("alloc");
    current->used += bytes;
    allocations()[(uintptr_t)memory] = {bytes, current->ordinal};
    return *address = (Address64)memory, SUCCESS;
}
// Frees only after waiting for all work that may use the memory, as the driver does.
EXPORT int cuMemFree_v2(Address64 address) {
    if (captures_of_thread > 0) return CAPTURE_UNSUPPORTED;
    if (current)
        for (Stream* stream : streams_of(current)) {
            refuse_to_hang(stream->cause, "cuMemFree");
            deliver(stream, ~0ul, true);
        }
    std::lock_guard<std::mutex> guard(everything);
    auto found = allocations().find(address);
    if (found == allocations().end() || found->second.device < 0) return INVALID_VALUE;
    Device* device = devices()[found->second.device];
    log(device, line("free %zu", found->second.bytes));
    count("free");
    device->used -= found->second.bytes;
    allocations().erase(found);
    return free((void*)address), SUCCESS;
}
EXPORT int cuMemGetInfo_v2(size_t* free_bytes, size_t* total) {
    if (!current) return INVALID_CONTEXT;
    count("memory");
    std::lock_guard<std::mutex> guard(everything);
    return *free_bytes = current->capacity - current->used, *total = current->capacity, SUCCESS;
}
EXPORT int cuMemHostAlloc(void** memory, size_t bytes, unsigned) {
    if (captures_of_thread > 0) return CAPTURE_UNSUPPORTED;
    if (bytes == 0) return INVALID_VALUE;
    if (fails("pinned") || posix_memalign(memory, 4096, bytes)) return OUT_OF_MEMORY;
    memset(*memory, 0xff, bytes);
    count("pinned");
    std::lock_guard<std::mutex> guard(everything);
    allocations()[(uintptr_t)*memory] = {bytes, -1};
    return SUCCESS;
}
EXPORT int cuMemFreeHost(void* memory) {
    size_t bytes = 0;
    {
        std::lock_guard<std::mutex> guard(everything);
        auto found = allocations().find((uintptr_t)memory);
        if (found == allocations().end() || found->second.device >= 0) return INVALID_VALUE;
        bytes = found->second.bytes;
    }
    for (Device* device : devices())
        for (Stream* stream : streams_of(device)) deliver_there(stream, memory, bytes);
    std::lock_guard<std::mutex> guard(everything);
    allocations().erase((uintptr_t)memory);
    count("free_pinned");
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
// The driver copies between devices whether or not they can access each other's memory.
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
    if (!stream) {   // by tests, of memory that is given out again
        if (!current || !usable_by(current, (void*)to, bytes)) return ILLEGAL_ADDRESS;
        return memset((void*)to, value, bytes), SUCCESS;
    }
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
