// What the simulated driver's files share: its objects, its settings, and the order in which streams do their
// work.
#pragma once

#include "driver.h"
#include "launch.h"

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <vector>

typedef void* Handle;
typedef uint64_t Address64;   // CUdeviceptr

namespace cusim {

enum Result {
    SUCCESS = 0, INVALID_VALUE = 1, OUT_OF_MEMORY = 2, NOT_INITIALIZED = 3, NO_DEVICE = 100, INVALID_DEVICE = 101,
    INVALID_IMAGE = 200, INVALID_CONTEXT = 201, PEER_ACCESS_UNSUPPORTED = 217, INVALID_HANDLE = 400, NOT_FOUND = 500,
    NOT_READY = 600, ILLEGAL_ADDRESS = 700, PEER_ACCESS_ALREADY_ENABLED = 704, PEER_ACCESS_NOT_ENABLED = 705,
    LAUNCH_FAILED = 719, COOPERATIVE_LAUNCH_TOO_LARGE = 720, CAPTURE_UNSUPPORTED = 900, CAPTURE_INVALIDATED = 901,
    CAPTURE_UNJOINED = 904, CAPTURE_ISOLATION = 905
};

const unsigned SHARED_BY_DEFAULT = 48 << 10;

long setting(const char* name, long otherwise);
int device_count();
int multiprocessors();   // RUNNER_SIM_MULTIPROCESSORS, or 4

// ----------------------------------------------------------------------------------------------------------- objects

struct Stream;

struct Graph {
    struct Node {
        std::string log;
        std::function<int(Stream*)> work;
        Stream* stream;   // that it was captured from
    };
    std::vector<Node> nodes;
    std::vector<Stream*> members;   // streams in this capture, the first of which began it
    bool invalid = false;
};

// A copy into pinned memory whose result the host does not see yet, a copy from it that the host does not know to be complete, or
// a sum that other streams do not see.
struct Delivery {
    enum Kind { DOWNLOAD, UPLOAD, SUM };
    unsigned long ticket;
    void* to;                            // of an upload, from where
    std::vector<unsigned char> bytes;
    Kind kind;
};

struct Device;
struct Stream {
    Device* device;
    Graph* capture = nullptr;
    bool captures_alone = false;
    unsigned long tickets = 0;
    unsigned long marks = 0, passed = 0;   // events recorded; of these, those that the host knows to have happened
    unsigned long works = 0, seen = 0;     // things done; of these, those that the host knows to be done
    long asked = 0;                        // times since the last of them whether all are done
    std::vector<Delivery> pending;
    bool only_sums = true;                 // nothing but sums of NCCL so far
    std::map<uintptr_t, std::vector<unsigned char>> view;   // if so, the device's memory when it last followed another stream
    std::vector<unsigned char> unseen;     // NaN, in place of memory that the view does not have
    std::string last;                      // of its work, as logged
    size_t captured = 0, joined = 0;       // in a capture: nodes up to its last one; of these, those that the first member follows
    std::mutex lock;
    const void* cause = nullptr; // why the stream hangs, if it does
};

struct Device {
    int ordinal;
    size_t capacity, used = 0;
    int retained = 0;
    bool lost = false;     // all calls fail until the context is released
    std::set<int> peers;   // whose memory this device may use
    Stream standard{this};
    std::set<Stream*> streams;
};

struct Event {
    double ms = -1;
    Stream* stream = nullptr;
    std::string last;      // the last work in the stream when it was recorded
    unsigned long ticket = 0, mark = 0, works = 0;
    Graph* capture = nullptr;
    Stream* captured_from = nullptr;   // in a capture: its stream, that stream's nodes, and when replayed its ticket
    size_t captured = 0;
    std::shared_ptr<unsigned long> replayed;
    const void* cause = nullptr; // cause of its stream, when it was recorded
    long asked = 0;                // times since then
};

struct Function {
    const Kernel* kernel;
    int shared_limit = SHARED_BY_DEFAULT;
};

struct Module {
    std::vector<Kernel> own; // kernels of a generated source; empty if the module has this library's kernels
    std::map<std::string, std::unique_ptr<Function>> functions;
};

struct Allocation {
    size_t bytes;
    int device;   // -1: pinned memory of the host
};

extern std::mutex everything;   // guards the maps below, the devices and the causes of stalls
std::map<uintptr_t, Allocation>& allocations();
std::vector<Device*>& devices();

extern thread_local Device* current;
extern thread_local int captures_of_thread;

Stream* stream_of(void* handle);
bool usable_by(const Device* device, const void* at, size_t bytes);
bool pinned(const void* at, size_t bytes);
bool on_device(const void* at, size_t bytes, const Device* device);

std::vector<Stream*> streams_of(Device* device);

std::string line(const char* format, ...);
// Appends a line for a call that takes something from the driver or returns it.
void count(const char* call);
void log(const Device* device, const std::string& text);

// Whether work with this cause is currently hanging.
bool stalled(const void* cause);
// For calls that wait for all work. If that would take forever, the program under test should not have made
// the call: prints that and ends the process.
void refuse_to_hang(const void* cause, const char* call);

// Never returns.
void stay();

// Sleeps if RUNNER_SIM_SLOW slows down work whose line in the log is `text`.
void dawdle(const std::string& text);
int enqueue(void* handle, const std::string& text, std::function<int(Stream*)> work);
// Makes the stream's sums up to a ticket visible, and its copies, for the host, unless it is only another stream that looks.
// Memory that the program under test has changed while a copy from it may still be under way ends the process.
void deliver(Stream* stream, unsigned long ticket, bool only_sums = false);
// The same for the stream's copies from and to some pinned memory.
void deliver_there(Stream* stream, const void* at, size_t bytes);
// Makes later work of a stream see what an earlier one had done by a ticket.
void follow(Stream* stream, Stream* earlier, unsigned long ticket);
int synchronize(Device* device, const char* what, Stream* stream, unsigned long ticket);

}   // namespace cusim
