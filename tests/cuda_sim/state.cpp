// The simulated driver's state: settings, devices, memory, and streams that do their work at once or not at
// all.

#include "state.h"

#include <atomic>
#include <fcntl.h>
#include <unistd.h>

#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>

namespace cusim {

std::vector<Kernel>& kernels() {
    static std::vector<Kernel> all;
    return all;
}

std::mutex everything;
thread_local Device* current = nullptr;
thread_local int captures_of_thread = 0;

// ---------------------------------------------------------------------------------------------------------- settings

long setting(const char* name, long otherwise) {
    const char* text = getenv(name);
    return text && *text ? atol(text) : otherwise;
}

int device_count() {
    static int count = (int)setting("RUNNER_SIM_DEVICES", 1);
    return count;
}

static std::atomic<int> most_multiprocessors{0};

int multiprocessors() {
    static int count = (int)setting("RUNNER_SIM_MULTIPROCESSORS", 4);
    int set = most_multiprocessors;
    return set ? set : count;
}

namespace {

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

}   // namespace

bool fails(const char* kind) {
    static std::vector<Failure> all = failures();
    static std::mutex lock;
    std::lock_guard<std::mutex> guard(lock);
    bool hit = false;
    for (Failure& f : all)
        if (f.kind == kind) hit |= --f.number == 0;
    return hit;
}

// ------------------------------------------------------------------------------------------------- devices and memory

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
Stream* stream_of(void* handle) {
    if ((uintptr_t)handle > 2) return (Stream*)handle;
    return current ? &current->standard : nullptr;
}


namespace {

// The allocation that contains this whole range of bytes.
const Allocation* holding(const void* at, size_t bytes) {
    auto next = allocations().upper_bound((uintptr_t)at);
    if (next == allocations().begin()) return nullptr;
    auto found = std::prev(next);
    bool inside = (uintptr_t)at + bytes <= found->first + found->second.bytes;
    return inside ? &found->second : nullptr;
}

}   // namespace

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


std::vector<Stream*> streams_of(Device* device) {
    std::vector<Stream*> all{&device->standard};
    std::lock_guard<std::mutex> guard(everything);
    all.insert(all.end(), device->streams.begin(), device->streams.end());
    return all;
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

void note(const char* text) { log(current, text); }

void count(const char* call) {
    static const char* path = getenv("RUNNER_SIM_COUNTS");
    static int file = path && *path ? open(path, O_WRONLY | O_CREAT | O_APPEND | O_CLOEXEC, 0666) : -1;
    if (file < 0) return;
    std::string text = std::string(call) + "\n";
    ssize_t written = write(file, text.data(), text.size());
    (void)written;
}

// ------------------------------------------------------------------------------------------------------------ stalls

namespace {

// The causes of hanging streams; guarded by `everything`.
std::set<const void*>& causes() {
    static auto* all = new std::set<const void*>;
    return *all;
}

}   // namespace

bool stalled(const void* cause) {
    if (!cause) return false;
    std::lock_guard<std::mutex> guard(everything);
    return causes().count(cause) > 0;
}

static void end(const std::string& why) {
    fprintf(stderr, "cusim: %s\n", why.c_str());
    abort();
}

void refuse_to_hang(const void* cause, const char* call) {
    if (stalled(cause)) end(std::string(call) + " would wait for ever");
}

void stay() {
    for (;;) pause();
}

void stall(void* handle, const void* cause) {
    Stream* stream = stream_of(handle);
    log(stream ? stream->device : nullptr, "stall");
    std::lock_guard<std::mutex> guard(everything);
    causes().insert(cause);
    if (stream) stream->cause = cause;
}

void release(const void* cause) {
    std::lock_guard<std::mutex> guard(everything);
    causes().erase(cause);
}

// ----------------------------------------------------------------------------------------------------------- streams

void dawdle(const std::string& text) {
    static const std::vector<std::pair<std::string, long>> all = [] {
        std::vector<std::pair<std::string, long>> found;
        const char* setting = getenv("RUNNER_SIM_SLOW");
        std::string rest = setting ? setting : "";
        while (!rest.empty()) {
            size_t comma = std::min(rest.find(','), rest.size()), colon = rest.find(':');
            if (colon < comma) found.push_back({rest.substr(0, colon), atol(rest.c_str() + colon + 1)});
            rest.erase(0, comma + 1);
        }
        return found;
    }();
    for (const auto& [start, us] : all)
        if (text.compare(0, start.size(), start) == 0) usleep((useconds_t)us);
}

int enqueue(void* handle, const std::string& text, std::function<int(Stream*)> work) {
    Stream* stream = stream_of(handle);
    if (!stream) return INVALID_CONTEXT;
    if (stream->device->lost) return LAUNCH_FAILED;
    bool sums = text.empty() || text.compare(0, 10, "all_reduce") == 0 || text.compare(0, 9, "broadcast") == 0;
    if (stream->only_sums && !sums) {
        stream->only_sums = false;
        deliver(stream, ~0ul, true);
        stream->view.clear();
    }
    if (stream->capture) {
        stream->capture->nodes.push_back({text, std::move(work), stream});
        stream->captured = stream->capture->nodes.size();
        return SUCCESS;
    }
    if (stalled(stream->cause)) return SUCCESS; // queued behind work that never completes
    if (!text.empty()) log(stream->device, stream->last = text);
    stream->works++;
    stream->asked = 0;
    dawdle(text);
    return work(stream);
}

static void deliver_those(Stream* stream, std::function<bool(const Delivery&)> is_due) {
    std::lock_guard<std::mutex> guard(stream->lock);
    size_t kept = 0;
    for (Delivery& d : stream->pending) {
        if (!is_due(d)) std::swap(stream->pending[kept++], d);
        else if (d.kind != Delivery::UPLOAD) memcpy(d.to, d.bytes.data(), d.bytes.size());
        else if (memcmp(d.to, d.bytes.data(), d.bytes.size())) end(line("memory was changed while it was copied to a device: %zu bytes", d.bytes.size()));
    }
    stream->pending.resize(kept);
}

void deliver(Stream* stream, unsigned long ticket, bool only_sums) {
    deliver_those(stream, [=](const Delivery& d) { return d.ticket <= ticket && (d.kind == Delivery::SUM || !only_sums); });
}

void deliver_there(Stream* stream, const void* at, size_t bytes) {
    auto start = (uintptr_t)at;
    deliver_those(stream, [=](const Delivery& d) {
        return (uintptr_t)d.to < start + bytes && (uintptr_t)d.to + d.bytes.size() > start;
    });
}

namespace {

// The bytes at `at` in a stream's view; null if they are not there.
unsigned char* viewed(Stream* stream, const void* at, size_t bytes) {
    auto next = stream->view.upper_bound((uintptr_t)at);
    if (next == stream->view.begin()) return nullptr;
    auto& [start, copy] = *std::prev(next);
    return (uintptr_t)at + bytes <= start + copy.size() ? copy.data() + ((uintptr_t)at - start) : nullptr;
}

}   // namespace

void follow(Stream* stream, Stream* earlier, unsigned long ticket) {
    if (stalled(earlier->cause)) stream->cause = earlier->cause;
    deliver(earlier, ticket, true);
    if (!stream->only_sums) return;
    std::lock_guard<std::mutex> guard(everything);
    for (const auto& [at, allocation] : allocations()) {
        if (allocation.device != stream->device->ordinal) continue;
        stream->view[at].assign((const unsigned char*)at, (const unsigned char*)at + allocation.bytes);
    }
    for (const Delivery& own : stream->pending)   // its own earlier sums
        if (void* at = viewed(stream, own.to, own.bytes.size())) memcpy(at, own.bytes.data(), own.bytes.size());
}

const void* as_early(void* handle, const void* at, size_t bytes) {
    Stream* stream = stream_of(handle);
    if (!stream || !usable_by(stream->device, at, bytes)) return nullptr;
    if (!stream->only_sums) return at;
    if (const void* found = viewed(stream, at, bytes)) return found;
    stream->unseen.assign(bytes, 0xff);
    return stream->unseen.data();
}

void as_late(void* handle, void* to, const void* from, size_t bytes) {
    Stream* stream = stream_of(handle);
    if (!stream->only_sums) {
        memcpy(to, from, bytes);
        return;
    }
    std::lock_guard<std::mutex> guard(stream->lock);
    if (void* own = viewed(stream, to, bytes)) memcpy(own, from, bytes);
    const unsigned char* result = (const unsigned char*)from;
    stream->pending.push_back({++stream->tickets, to, {result, result + bytes}, Delivery::SUM});
    memset(to, 0xff, bytes);
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

int in_stream(void* stream, const char* text, std::function<int()> work) {
    return enqueue(stream, text, [work](Stream*) { return work(); });
}

bool usable(void* handle, const void* at, size_t bytes) {
    Stream* stream = stream_of(handle);
    return stream && usable_by(stream->device, at, bytes);
}

}   // namespace cusim

// The multiprocessors of this process's devices.
extern "C" __attribute__((visibility("default"))) void cusim_multiprocessors(int count) {
    cusim::most_multiprocessors = count;
}
