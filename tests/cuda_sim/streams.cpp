// The simulated driver's streams, events and graphs.

#include "state.h"

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdlib>
#include <cstring>
#include <ctime>

using namespace cusim;

namespace {

double now_ms() {
    static std::atomic<long> ticks{0};
    const char* clock = getenv("RUNNER_SIM_CLOCK");
    if (clock && !strcmp(clock, "processor")) {
        timespec time;
        clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &time);
        return 1e3 * time.tv_sec + 1e-6 * time.tv_nsec;
    }
    if (clock && *clock) return 1e-3 * atol(clock) * ++ticks;
    return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

int elapsed(float* ms, const Event* from, const Event* to) {
    if (!from || !to || from->ms < 0 || to->ms < 0) return INVALID_HANDLE;
    *ms = (float)(to->ms - from->ms);
    return SUCCESS;
}

}   // namespace

EXPORT int cuStreamCreate(Handle* handle, unsigned) {
    if (!current) return INVALID_CONTEXT;
    if (current->lost) return LAUNCH_FAILED;
    count("stream");
    Stream* stream = new Stream{current};
    std::lock_guard<std::mutex> guard(everything);
    current->streams.insert(stream);
    return *handle = stream, SUCCESS;
}
EXPORT int cuStreamCreateWithPriority(Handle* handle, unsigned flags, int) { return cuStreamCreate(handle, flags); }
EXPORT int cuStreamDestroy_v2(Handle handle) {
    Stream* stream = (Stream*)handle;
    count("destroy_stream");
    deliver(stream, ~0ul);
    std::lock_guard<std::mutex> guard(everything);
    stream->device->streams.erase(stream);
    return SUCCESS;   // it stays, since events may still name it
}
EXPORT int cuStreamSynchronize(Handle handle) {
    Stream* stream = stream_of(handle);
    if (!stream) return INVALID_CONTEXT;
    refuse_to_hang(stream->cause, "cuStreamSynchronize");
    stream->passed = stream->marks;
    return synchronize(stream->device, "stream", stream, ~0ul);
}
EXPORT int cuStreamQuery(Handle handle) {
    Stream* stream = stream_of(handle);
    if (!stream) return INVALID_CONTEXT;
    if (captures_of_thread > 0 || stream->capture) return synchronize(stream->device, "stream", stream, 0);
    if (stream->device->lost) return LAUNCH_FAILED;
    bool known = stream->seen == stream->works;
    if (stalled(stream->cause) || (!known && stream->asked++ < setting("RUNNER_SIM_LATE", 0))) return NOT_READY;
    stream->passed = stream->marks;
    stream->seen = stream->works;
    deliver(stream, ~0ul);
    return known ? SUCCESS : synchronize(stream->device, "stream", stream, ~0ul);
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
    if (stream->capture) {
        Stream* earlier = event->captured_from;
        if (stream == stream->capture->members[0]) earlier->joined = std::max(earlier->joined, event->captured);
        auto ticket = event->replayed;
        auto work = [=](Stream* own) { return follow(own, earlier, *ticket), SUCCESS; };
        return stream->capture->nodes.push_back({"", work, stream}), SUCCESS;
    }
    if (stalled(event->cause)) stream->cause = event->cause;
    if (event->stream) {
        if (setting("RUNNER_SIM_FOLLOWS", 0)) log(stream->device, "follow " + event->last);
        follow(stream, event->stream, event->ticket);
    }
    return SUCCESS;   // all earlier work is done
}

EXPORT int cuEventCreate(Handle* event, unsigned) { return count("event"), *event = new Event, SUCCESS; }
EXPORT int cuEventDestroy_v2(Handle event) { return count("destroy_event"), delete (Event*)event, SUCCESS; }
EXPORT int cuEventRecord(Handle handle, Handle stream_handle) {
    Stream* stream = stream_of(stream_handle);
    Event* event = (Event*)handle;
    if (!stream || !event) return INVALID_HANDLE;
    event->capture = stream->capture;
    if (stream->capture) {
        auto ticket = std::make_shared<unsigned long>(0);
        event->captured_from = stream, event->captured = stream->captured, event->replayed = ticket;
        auto work = [=](Stream* own) { return *ticket = own->tickets, SUCCESS; };
        return stream->capture->nodes.push_back({"", work, stream}), SUCCESS;
    }
    std::lock_guard<std::mutex> guard(stream->lock);
    event->ms = now_ms();
    event->cause = stream->cause;
    event->asked = 0;
    event->stream = stream;
    event->last = stream->last;
    event->ticket = stream->tickets;
    event->works = stream->works;
    event->mark = ++stream->marks;
    return SUCCESS;
}
EXPORT int cuEventSynchronize(Handle handle) {
    Event* event = (Event*)handle;
    refuse_to_hang(event->cause, "cuEventSynchronize");
    if (event->stream) event->stream->passed = std::max(event->stream->passed, event->mark);
    return synchronize(event->stream ? event->stream->device : current, "event", event->stream, event->ticket);
}
EXPORT int cuEventQuery(Handle handle) {
    Event* event = (Event*)handle;
    Stream* stream = event->stream;
    if (captures_of_thread > 0) return CAPTURE_UNSUPPORTED;
    if (!stream) return SUCCESS;
    if (stream->device->lost) return LAUNCH_FAILED;
    bool passed = event->mark <= stream->passed;
    if (stalled(event->cause) || (!passed && event->asked++ < setting("RUNNER_SIM_LATE", 0))) return NOT_READY;
    bool last = event->mark == stream->marks && event->works == stream->works;
    stream->passed = std::max(stream->passed, event->mark);
    stream->seen = std::max(stream->seen, event->works);
    deliver(stream, event->ticket);
    return passed || !last ? SUCCESS : synchronize(stream->device, "event", stream, event->ticket);
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
    bool unjoined = false;
    for (Stream* member : captured->members) {
        unjoined |= member != stream && member->captured > member->joined;
        member->capture = nullptr, member->captured = member->joined = 0;
    }
    if (captured->invalid) return delete captured, CAPTURE_INVALIDATED;
    if (unjoined) return delete captured, CAPTURE_UNJOINED;
    if (captured->members.size() > 1) {
        std::string all = "capture";
        for (const Graph::Node& node : captured->nodes)
            if (!node.log.empty()) all += "; " + node.log;
        log(stream->device, all);
    }
    return *graph = captured, SUCCESS;
}
EXPORT int cuGraphGetNodes(Handle graph, Handle*, size_t* count) { return *count = ((Graph*)graph)->nodes.size(), SUCCESS; }
EXPORT int cuGraphInstantiateWithFlags(Handle* exec, Handle graph, unsigned long long) {
    if (fails("graph")) return OUT_OF_MEMORY;
    count("graph");
    return *exec = new Graph(*(Graph*)graph), SUCCESS;
}
EXPORT int cuGraphUpload(Handle, Handle) { return SUCCESS; }
EXPORT int cuGraphLaunch(Handle exec, Handle handle) {
    Stream* stream = stream_of(handle);
    if (!stream) return INVALID_CONTEXT;
    std::string text = line("graph %zu nodes", ((Graph*)exec)->nodes.size());
    log(stream->device, text);
    stream->works++;
    dawdle(text);
    if (fails("replay")) return LAUNCH_FAILED;
    Graph* graph = (Graph*)exec;
    for (Graph::Node& node : graph->nodes) {
        Stream* own = node.stream == graph->members[0] ? stream : node.stream;
        if (stalled(own->cause)) continue;
        if (int result = node.work(own)) return result;
    }
    return SUCCESS;
}
EXPORT int cuGraphExecDestroy(Handle exec) { return delete (Graph*)exec, SUCCESS; }
EXPORT int cuGraphDestroy(Handle graph) { return delete (Graph*)graph, SUCCESS; }
