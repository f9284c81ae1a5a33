// A stand-in for libnccl.so.2: collectives between the stand-in driver's devices, within one process or among several.
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
// Where RUNNER_SIM_JOB names a folder, the ranks are processes, which meet in files there. A stream whose sum another rank
// does not come to, since it is killed, stopped, or late by RUNNER_SIM_NCCL_PATIENCE_MS (3000), stands still from then on; as
// with real NCCL no other rank is named. With RUNNER_SIM_NCCL_DEATHS=1 a rank that was killed is an error at once, as it is
// for a network. To finalize is a collective, too.
//
// RUNNER_SIM_FAIL="stall:3" has the third sum of each rank stand still, with its stream, till the rank aborts.
// RUNNER_SIM_NCCL_VERSION is the version that it tells (22706).

#include "driver.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

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

// The sum, in the order of ranks.
template <class T>
std::vector<T> total_of(const std::vector<Part>& parts) {
    std::vector<T> total(parts[0].count);
    for (const Part& part : parts)
        for (size_t i = 0; i < part.count; i++) total[i] += ((const T*)part.from)[i];
    if (parts[0].reduction == AVERAGE)
        for (T& x : total) x /= (T)parts.size();
    return total;
}

// The ranks that work together.
struct Clique {
    const int size;
    std::atomic<bool> aborted{false};

    explicit Clique(int size) : size(size) {}
    virtual ~Clique() = default;
    // Waits until all ranks have joined, if it is to.
    virtual int join(bool waits) = 0;
    // Returns the round to wait for.
    virtual unsigned long arrive(int rank, const Part& part) = 0;
    virtual int wait(unsigned long own, int rank, const Part& part) = 0;
    virtual int finalize() { return SUCCESS; }
    virtual void abort() { aborted = true; }
    // What a rank is told that asks.
    virtual int error() { return aborted ? REMOTE_ERROR : SUCCESS; }
};

// Ranks that are threads of this process, or one of its threads.
struct Threads : Clique {
    std::mutex lock;
    std::condition_variable changed;
    int joined = 0, arrived = 0;
    unsigned long round = 0;
    int result = SUCCESS; // of the previous round
    std::vector<Part> parts;

    explicit Threads(int size) : Clique(size), parts(size) {}

    template <class T>
    void reduce() {
        std::vector<T> total = total_of<T>(parts);
        for (const Part& part : parts) cusim::as_late(part.stream, part.to, total.data(), part.bytes());
    }

    int work() {
        for (const Part& part : parts) {
            if (!part.same(parts[0])) return INVALID_USAGE;
            bool sends = part.root < 0 || &part == &parts[part.root];
            if (sends && !part.from) return INVALID_ARGUMENT;
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

    unsigned long arrive(int rank, const Part& part) override {
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

    int wait(unsigned long own, int, const Part&) override {
        std::unique_lock<std::mutex> guard(lock);
        const char* seconds = getenv("RUNNER_SIM_NCCL_SECONDS");
        auto limit = std::chrono::seconds(seconds ? atol(seconds) : 20);
        bool met = changed.wait_for(guard, limit, [&] { return round != own || aborted.load(); });
        if (round == own && aborted) return REMOTE_ERROR;
        return met ? result : SYSTEM_ERROR;
    }

    int join(bool waits) override {
        std::unique_lock<std::mutex> guard(lock);
        joined++;
        changed.notify_all();
        auto met = [&] { return joined >= size || aborted.load(); };
        bool all = !waits || changed.wait_for(guard, std::chrono::seconds(20), met);
        return aborted ? REMOTE_ERROR : all ? SUCCESS : SYSTEM_ERROR;
    }

    void abort() override {
        std::lock_guard<std::mutex> guard(lock);
        aborted = true;
        changed.notify_all();
    }
};

// Ranks that are processes of this machine, of which each has one.
struct Processes : Clique {
    static constexpr int MOST = 16;

    // In a file that all map; where it begins, all is zero. Every other round has a part of its own: a rank enters its next
    // one while others still read this one.
    struct Board {
        std::atomic<int> joined, finalized;
        struct {
            std::atomic<int> pid;
            std::atomic<unsigned long> arrived;
            struct {
                size_t count;
                int type, reduction, root;
            } part[2];
        } of[MOST];
    };

    std::string path;
    int own;
    Board* board;
    unsigned long rounds = 0;
    std::atomic<int> broken{SUCCESS};

    Processes(const std::string& path, int size, int own) : Clique(size), path(path), own(own) {
        int file = open(path.c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
        if (file < 0 || size > MOST || ftruncate(file, sizeof(Board))) ::abort();
        board = (Board*)mmap(nullptr, sizeof(Board), PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
        close(file);
        if (board == MAP_FAILED) ::abort();
        board->of[own].pid = getpid();
    }
    ~Processes() override { munmap(board, sizeof(Board)); }

    // Every other round has files of its own, too.
    std::string numbers(int rank, unsigned long round) const {
        return path + "." + std::to_string(rank) + "." + std::to_string(round % 2);
    }

    // `T` for one that is stopped, `X` for one that is gone.
    static char state(int pid) {
        char text[512] = "";
        FILE* file = fopen(("/proc/" + std::to_string(pid) + "/stat").c_str(), "r");
        if (!file) return 'X';
        size_t n = fread(text, 1, sizeof text - 1, file);
        fclose(file);
        const char* name = n ? strrchr(text, ')') : nullptr;
        return !name || name[2] == 'Z' ? 'X' : name[2];
    }

    template <class Done>
    int until(Done done) {
        for (int turns = 0; !done(); turns++) {
            if (aborted) return REMOTE_ERROR;
            if (turns > 400000) return SYSTEM_ERROR;   // 20 s
            usleep(50);
        }
        return SUCCESS;
    }

    int join(bool waits) override {
        board->joined++;
        return waits ? until([&] { return board->joined >= size; }) : (int)SUCCESS;
    }
    int finalize() override {
        board->finalized++;
        return until([&] { return board->finalized >= size; });
    }
    void abort() override {
        aborted = true;
        cusim::release(this);
    }
    int error() override { return broken ? broken.load() : Clique::error(); }

    unsigned long arrive(int rank, const Part& part) override {
        unsigned long round = rounds++;
        int file = open(numbers(rank, round).c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
        bool is_written = part.from && write(file, part.from, part.bytes()) == (ssize_t)part.bytes();
        close(file);
        auto& own = board->of[rank].part[round % 2];
        own.count = is_written ? part.count : 0;
        own.type = part.type, own.reduction = part.reduction, own.root = part.root;
        board->of[rank].arrived = round + 1;
        return round;
    }

    int wait(unsigned long round, int rank, const Part& part) override {
        long patience_ms = setting("RUNNER_SIM_NCCL_PATIENCE_MS", 3000);
        for (long turns = 0, missing = 0; missing < size; turns++) {
            for (missing = 0; missing < size && board->of[missing].arrived > round; missing++) {}
            if (missing == size) break;
            if (aborted) return REMOTE_ERROR;
            char is = turns % 20 == 19 ? state(board->of[missing].pid) : 'R';
            if (is == 'X' && setting("RUNNER_SIM_NCCL_DEATHS", 0)) broken = REMOTE_ERROR;
            if (is == 'X' || is == 'T' || turns * 50 > patience_ms * 1000) return cusim::stall(part.stream, this), SUCCESS;
            usleep(50);
        }
        return part.type == FLOAT64 ? sum<double>(round, rank, part) : sum<float>(round, rank, part);
    }

    template <class T>
    int sum(unsigned long round, int rank, const Part& part) {
        std::vector<std::vector<T>> all(size, std::vector<T>(part.count));
        std::vector<Part> parts(size, part);
        for (int other = 0; other < size; other++) {
            auto& its = board->of[other].part[round % 2];
            parts[other].count = its.count, parts[other].type = its.type, parts[other].root = its.root;
            parts[other].reduction = its.reduction, parts[other].from = all[other].data();
            if (!parts[other].same(part)) return INVALID_USAGE;
            int file = open(numbers(other, round).c_str(), O_RDONLY | O_CLOEXEC);
            ssize_t n = read(file, all[other].data(), part.bytes());
            close(file);
            if (n != (ssize_t)part.bytes()) return SYSTEM_ERROR;
        }
        if (!cusim::usable(part.stream, part.to, part.bytes())) return INVALID_ARGUMENT;
        std::vector<T> total = part.root < 0 ? total_of<T>(parts) : all[part.root];
        cusim::as_late(part.stream, part.to, total.data(), part.bytes());
        return SUCCESS;
    }

    static long setting(const char* name, long otherwise) {
        const char* text = getenv(name);
        return text && *text ? atol(text) : otherwise;
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
            Part own = part;
            own.from = cusim::as_early(part.stream, part.from, part.bytes());
            return *round = clique->arrive(rank, own), 0;
        });
    }
    for (size_t i = 0; i < all.size(); i++) {
        auto clique = all[i].communicator->clique;
        auto round = rounds[i];
        auto outcome = std::make_shared<int>(SUCCESS);
        int rank = all[i].communicator->rank;
        Part part = all[i].part;
        cusim::in_stream(part.stream, "", [=] { return (*outcome = clique->wait(*round, rank, part)) ? 719 : 0; });
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
    const char* job = getenv("RUNNER_SIM_JOB");
    if (job && *job) {
        cusim::note("nccl id");
        snprintf(id->bytes, sizeof id->bytes, "%s/clique-%d-%u", job, (int)getpid(), next++);
    } else {
        snprintf(id->bytes, sizeof id->bytes, "clique %u", next++);
    }
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
    if (id.bytes[0] == '/') {
        clique = std::make_shared<Processes>(id.bytes, ranks, rank);
    } else {
        std::lock_guard<std::mutex> guard(cliques_lock);
        auto& known = cliques()[std::string(id.bytes, sizeof id.bytes)];
        if (!known) known = std::make_shared<Threads>(ranks);
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
    auto clique = communicator->clique;
    return communicator->blocking ? clique->finalize() : communicator->begin([=] { return clique->finalize(); });
}
EXPORT int ncclCommDestroy(Communicator* communicator) {
    if (!communicator->blocking && (!communicator->finalized || communicator->state == IN_PROGRESS)) {
        fprintf(stderr, "cusim: ncclCommDestroy of a communicator that was not finalized\n");
        abort();
    }
    cusim::note("nccl destroy");
    return delete communicator, SUCCESS;
}
EXPORT int ncclCommAbort(Communicator* communicator) {
    cusim::note("nccl abort");
    communicator->clique->abort();
    cusim::release(communicator->sums_left.get());
    return delete communicator, SUCCESS;
}
EXPORT int ncclCommGetAsyncError(Communicator* communicator, int* error) {
    int error_of_all = communicator->clique->error();
    return *error = error_of_all ? error_of_all : (int)communicator->state, SUCCESS;
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
