// Simulated libnccl.so.2: collectives between the simulated driver's devices, within one process.
//
// Each rank's part of a collective arrives, then waits. The last rank to arrive does the work, in rank order.
// So each rank needs a thread, or one thread makes the calls of all ranks between ncclGroupStart and
// ncclGroupEnd. Parts of a captured graph wait when the graph is launched. A collective that some rank never
// joins fails after RUNNER_SIM_NCCL_SECONDS (20).
//
// A non-blocking communicator does its part on a thread of its own. The call returns "in progress", no other
// call is accepted until that is done, and work that is enqueued in the stream before then comes before the
// sum. Such a communicator must be finalized before it is destroyed; an abort releases the thread.
//
// RUNNER_SIM_FAIL="stall:3" makes the third sum of each rank hang, with its stream, until the rank aborts.
// RUNNER_SIM_NCCL_VERSION is the version that the library reports (22706).

#include "driver.h"

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

extern "C" int cuCtxGetCurrent(void**);

namespace {

enum Result {
    SUCCESS = 0, SYSTEM_ERROR = 2, INVALID_ARGUMENT = 4, INVALID_USAGE = 5, REMOTE_ERROR = 6, IN_PROGRESS = 7
};
enum Type { FLOAT32 = 7, FLOAT64 = 8 };
enum Reduction { SUM = 0, AVERAGE = 4 };

struct Id {
    char bytes[128];
};

// `ncclConfig_t` as of 2.14; later versions append fields.
struct Config {
    size_t size;
    unsigned magic, version;
    int blocking;
};

// One rank's part of a collective.
struct Part {
    const void* from;
    void* to;
    size_t count;
    int type, reduction, root; // root of a broadcast, otherwise -1
    void* stream;

    size_t bytes() const { return count * (type == FLOAT64 ? 8 : 4); }
    bool same(const Part& o) const {
        return count == o.count && type == o.type && reduction == o.reduction && root == o.root;
    }
};

// The ranks of a communicator.
struct Clique {
    std::mutex lock;
    std::condition_variable changed;
    int size;
    int joined = 0, arrived = 0;
    bool aborted = false;
    unsigned long round = 0;
    int result = SUCCESS; // of the previous round
    std::vector<Part> parts;

    explicit Clique(int size) : size(size), parts(size) {}

    template <class T>
    void reduce() {
        std::vector<T> total(parts[0].count);
        for (const Part& part : parts)
            for (size_t i = 0; i < part.count; i++) total[i] += ((const T*)part.from)[i];
        if (parts[0].reduction == AVERAGE)
            for (T& x : total) x /= (T)size;
        for (const Part& part : parts) memcpy(part.to, total.data(), part.bytes());
    }

    int work() {
        for (const Part& part : parts) {
            if (!part.same(parts[0])) return INVALID_USAGE;
            bool sends = part.root < 0 || &part == &parts[part.root];
            if (sends && !cusim::usable(part.stream, part.from, part.bytes())) return INVALID_ARGUMENT;
            if (!cusim::usable(part.stream, part.to, part.bytes())) return INVALID_ARGUMENT;
        }
        if (parts[0].root >= 0) {
            const Part& root = parts[parts[0].root];
            for (const Part& part : parts) memmove(part.to, root.from, root.bytes());
        } else if (parts[0].type == FLOAT64) {
            reduce<double>();
        } else {
            reduce<float>();
        }
        return SUCCESS;
    }

    // Registers a rank's part. Returns the round to wait for.
    unsigned long arrive(int rank, const Part& part) {
        std::lock_guard<std::mutex> guard(lock);
        parts[rank] = part;
        unsigned long own = round;
        if (++arrived == size) {
            result = work();
            arrived = 0;
            round++;
            changed.notify_all();
        }
        return own;
    }

    int wait(unsigned long own) {
        std::unique_lock<std::mutex> guard(lock);
        const char* seconds = getenv("RUNNER_SIM_NCCL_SECONDS");
        auto limit = std::chrono::seconds(seconds ? atol(seconds) : 20);
        bool met = changed.wait_for(guard, limit, [&] { return round != own || aborted; });
        if (round == own && aborted) return REMOTE_ERROR;
        return met ? result : SYSTEM_ERROR;
    }

    int join(bool waits) {
        std::unique_lock<std::mutex> guard(lock);
        joined++;
        changed.notify_all();
        bool all = !waits || changed.wait_for(guard, std::chrono::seconds(20), [&] { return joined >= size || aborted; });
        return aborted ? REMOTE_ERROR : all ? SUCCESS : SYSTEM_ERROR;
    }
};

struct Communicator {
    std::shared_ptr<Clique> clique;
    int rank;
    bool blocking = true, finalized = false;
    std::atomic<int> state{SUCCESS}; // of the work on the thread
    std::thread thread;
    std::shared_ptr<long> sums_left = std::make_shared<long>(stalls_at()); // sums until one hangs; 0: none

    Communicator(std::shared_ptr<Clique> clique, int rank) : clique(clique), rank(rank) {}
    ~Communicator() {
        if (thread.joinable()) thread.join();
    }

    // Runs work on the communicator's thread, one piece at a time.
    int begin(std::function<int()> work) {
        if (state == IN_PROGRESS) return INVALID_ARGUMENT;
        if (thread.joinable()) thread.join();
        state = IN_PROGRESS;
        thread = std::thread([this, work] { state = work(); });
        return IN_PROGRESS;
    }

    static long stalls_at() {
        const char* list = getenv("RUNNER_SIM_FAIL");
        const char* found = list ? strstr(list, "stall:") : nullptr;
        return found ? atol(found + 6) : 0;
    }
};

struct Pending {
    Communicator* communicator;
    Part part;
    std::string text;
};

thread_local int group_depth = 0;
thread_local bool group_in_progress = false; // a non-blocking communicator is being created within the group
thread_local std::vector<Pending> group;

std::mutex cliques_lock;
std::map<std::string, std::shared_ptr<Clique>>& cliques() {
    static auto* all = new std::map<std::string, std::shared_ptr<Clique>>;
    return *all;
}

// All parts arrive before any waits. Errors of captured parts are returned when their graph is launched.
int perform(const std::vector<Pending>& all) {
    int result = SUCCESS;
    std::vector<std::shared_ptr<unsigned long>> rounds;
    for (const Pending& p : all) {
        auto round = std::make_shared<unsigned long>(0);
        rounds.push_back(round);
        auto clique = p.communicator->clique;
        int rank = p.communicator->rank;
        Part part = p.part;
        auto left = p.communicator->sums_left;
        cusim::in_stream(part.stream, p.text.c_str(), [=] {
            if (*left > 0 && --*left == 0) return cusim::stall(part.stream, left.get()), 0;
            return *round = clique->arrive(rank, part), 0;
        });
    }
    for (size_t i = 0; i < all.size(); i++) {
        auto clique = all[i].communicator->clique;
        auto round = rounds[i];
        auto outcome = std::make_shared<int>(SUCCESS);
        cusim::in_stream(all[i].part.stream, "", [=] { return (*outcome = clique->wait(*round)) ? 719 : 0; });
        if (*outcome) result = *outcome;
    }
    return result;
}

int version_told() {
    const char* text = getenv("RUNNER_SIM_NCCL_VERSION");
    return text && *text ? atoi(text) : 22706;
}

int collective(Communicator* communicator, Part part, const char* name) {
    if (!communicator || (part.type != FLOAT32 && part.type != FLOAT64)) return INVALID_ARGUMENT;
    if (part.root < 0 && part.reduction != SUM && part.reduction != AVERAGE) return INVALID_ARGUMENT;
    if (cusim::fails("nccl")) return SYSTEM_ERROR;
    char text[64];
    snprintf(text, sizeof text, "%s %zu", name, part.bytes());
    Pending pending{communicator, part, text};
    if (group_depth > 0) return communicator->blocking ? (group.push_back(pending), SUCCESS) : INVALID_USAGE;
    if (!communicator->blocking) return communicator->begin([=] { return perform({pending}); });
    return perform({pending});
}

}   // namespace

EXPORT int ncclGetVersion(int* version) { return *version = version_told(), SUCCESS; }
EXPORT const char* ncclGetErrorString(int code) {
    static const char* const texts[] = {"no error", "unhandled cuda error", "unhandled system error", "internal error",
                                        "invalid argument", "invalid usage", "remote process exited or there was a network error"};
    return code >= 0 && code < 7 ? texts[code] : "unknown result code";
}
EXPORT const char* ncclGetLastError(Communicator*) { return ""; }
EXPORT int ncclGetUniqueId(Id* id) {
    static std::mutex lock;
    static unsigned next = 0;
    std::lock_guard<std::mutex> guard(lock);
    memset(id, 0, sizeof *id);
    snprintf(id->bytes, sizeof id->bytes, "clique %u", next++);
    return SUCCESS;
}
EXPORT int ncclCommInitRankConfig(Communicator** communicator, int ranks, Id id, int rank, const Config* config) {
    if (config && (config->size < sizeof(Config) || config->magic != 0xcafebeef || config->version < 21400))
        return INVALID_ARGUMENT;
    if (ranks < 1 || rank < 0 || rank >= ranks) return INVALID_ARGUMENT;
    void* context = nullptr;
    if (cuCtxGetCurrent(&context) || !context) return INVALID_USAGE;
    if (cusim::fails("nccl")) return SYSTEM_ERROR;
    std::shared_ptr<Clique> clique;
    {
        std::lock_guard<std::mutex> guard(cliques_lock);
        auto& known = cliques()[std::string(id.bytes, sizeof id.bytes)];
        if (!known) known = std::make_shared<Clique>(ranks);
        clique = known;
    }
    if (clique->size != ranks) return INVALID_ARGUMENT;
    *communicator = new Communicator(clique, rank);
    (*communicator)->blocking = !config || config->blocking != 0;
    if ((*communicator)->blocking) return clique->join(group_depth == 0);
    group_in_progress |= group_depth > 0;
    return (*communicator)->begin([=] { return clique->join(true); });
}
EXPORT int ncclCommInitRank(Communicator** communicator, int ranks, Id id, int rank) {
    return ncclCommInitRankConfig(communicator, ranks, id, rank, nullptr);
}
EXPORT int ncclCommCount(const Communicator* communicator, int* count) {
    return *count = communicator->clique->size, SUCCESS;
}
EXPORT int ncclCommUserRank(const Communicator* communicator, int* rank) { return *rank = communicator->rank, SUCCESS; }
EXPORT int ncclCommFinalize(Communicator* communicator) {
    if (communicator->state == IN_PROGRESS) return INVALID_USAGE;
    communicator->finalized = true;
    return communicator->blocking ? SUCCESS : communicator->begin([] { return SUCCESS; });
}
EXPORT int ncclCommDestroy(Communicator* communicator) {
    if (!communicator->blocking && (!communicator->finalized || communicator->state == IN_PROGRESS)) {
        fprintf(stderr, "cusim: ncclCommDestroy of a communicator that was not finalized\n");
        abort();
    }
    return delete communicator, SUCCESS;
}
EXPORT int ncclCommAbort(Communicator* communicator) {
    {
        std::lock_guard<std::mutex> guard(communicator->clique->lock);
        communicator->clique->aborted = true;
        communicator->clique->changed.notify_all();
    }
    cusim::release(communicator->sums_left.get());
    return delete communicator, SUCCESS;
}
EXPORT int ncclCommGetAsyncError(Communicator* communicator, int* error) {
    std::lock_guard<std::mutex> guard(communicator->clique->lock);
    return *error = communicator->clique->aborted ? REMOTE_ERROR : (int)communicator->state, SUCCESS;
}
EXPORT int ncclGroupStart() { return group_depth++, SUCCESS; }
EXPORT int ncclGroupEnd() {
    if (group_depth == 0) return INVALID_USAGE;
    if (--group_depth > 0) return SUCCESS;
    std::vector<Pending> all;
    all.swap(group);
    int result = perform(all);
    bool in_progress = group_in_progress;
    group_in_progress = false;
    return result == SUCCESS && in_progress ? IN_PROGRESS : result;
}
EXPORT int ncclAllReduce(const void* from, void* to, size_t count, int type, int reduction, Communicator* communicator,
                         void* stream) {
    return collective(communicator, {from, to, count, type, reduction, -1, stream}, "all_reduce");
}
EXPORT int ncclBroadcast(const void* from, void* to, size_t count, int type, int root, Communicator* communicator,
                         void* stream) {
    if (communicator && (root < 0 || root >= communicator->clique->size)) return INVALID_ARGUMENT;
    return collective(communicator, {from, to, count, type, SUM, root, stream}, "broadcast");
}
