// Runs a grid of CUDA threads on the processor: one fiber per thread, one block at a time.
//
// A block's scheduler runs every ready fiber until it waits, in one of three orders (forward, reverse,
// shuffled). It releases a barrier when all threads wait at it, and a warp operation when all live lanes of
// its mask have arrived. A thread that exits while others wait at a barrier, and a wait that can never end,
// are reported as errors. So a race between two barriers shows up as different numbers in different orders.
//
// Blocks of a plain launch run one after another on the caller's thread, in the same three orders. Blocks of
// a cooperative launch each get an OS thread, since they wait for each other. CUDA threads that wait for
// another device yield (`pause`), so that the OS threads that play the devices can wait for each other too.
//
// Fibers are switched by a few lines of x86-64 assembly; with AddressSanitizer, or on other processors, by
// ucontext.

#include "cusim.h"
#include "launch.h"

#include <sys/mman.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <cstdlib>
#include <numeric>
#include <string>
#include <thread>
#include <vector>
#include <sched.h>

#if !defined(__x86_64__) || defined(__SANITIZE_ADDRESS__)
#define BY_UCONTEXT 1
#include <ucontext.h>
#endif
#if defined(__SANITIZE_ADDRESS__)
#include <sanitizer/common_interface_defs.h>
#endif

thread_local unsigned char __attribute__((aligned(128))) dyn_smem[cusim::SHARED_BYTES + cusim::CANARY_BYTES];

namespace cusim {

thread_local Place here;

namespace {

#if defined(__SANITIZE_ADDRESS__)
const size_t STACK_BYTES = 512 << 10;
#else
// No power of two: otherwise all stacks would share a few lines of the cache.
const size_t STACK_BYTES = (64 << 10) + 17 * 64;
#endif

std::atomic<int> order_of_all{0};
thread_local int order = -1; // for launches of this thread; -1: use the order of all threads

struct Fiber {
#if defined(BY_UCONTEXT)
    ucontext_t context;
    void* fake_stack;
#else
    void* stack_pointer;
#endif
    Index thread;
    unsigned number;
    Wait wait;
    unsigned mask;
    int source;
    uint64_t value, result;
};

// State that the fibers of one OS thread share with their scheduler.
struct Stage {
    std::vector<Fiber> fibers;
    Fiber* current = nullptr;
    const std::function<void()>* body = nullptr;
    char* stacks = nullptr;
    size_t stack_count = 0;
    std::atomic<bool>* failed = nullptr;   // of the launch
#if defined(BY_UCONTEXT)
    ucontext_t scheduler;
    const void* scheduler_bottom = nullptr;
    size_t scheduler_size = 0;
#else
    void* scheduler = nullptr;
#endif
    ~Stage() {
        if (stacks) munmap(stacks, stack_count * STACK_BYTES);
    }
    void room_for(size_t count) {
        if (count > stack_count) {
            if (stacks) munmap(stacks, stack_count * STACK_BYTES);
            stacks = (char*)mmap(nullptr, count * STACK_BYTES, PROT_READ | PROT_WRITE,
                                 MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
            if (stacks == MAP_FAILED) {
                perror("cusim: stacks");
                abort();
            }
            stack_count = count;
        }
        fibers.resize(count);
    }
};
thread_local Stage own_stage;
thread_local Stage* stage = nullptr;   // while a block runs: no check at each access whether it is constructed

// ------------------------------------------------------------------------------------------------------- switching

#if defined(BY_UCONTEXT)

#if defined(__SANITIZE_ADDRESS__)
void leaving(void** fake, const void* bottom, size_t size) { __sanitizer_start_switch_fiber(fake, bottom, size); }
void arrived(void* fake, const void** bottom, size_t* size) { __sanitizer_finish_switch_fiber(fake, bottom, size); }
#else
void leaving(void**, const void*, size_t) {}
void arrived(void*, const void**, size_t*) {}
#endif

void give_way() {
    Fiber* own = stage->current;
    bool done = own->wait == Wait::done;
    leaving(done ? nullptr : &own->fake_stack, stage->scheduler_bottom, stage->scheduler_size);
    swapcontext(&own->context, &stage->scheduler);
    arrived(own->fake_stack, &stage->scheduler_bottom, &stage->scheduler_size);
}

void resume(Fiber& f) {
    void* fake = nullptr;
    leaving(&fake, f.context.uc_stack.ss_sp, STACK_BYTES);
    swapcontext(&stage->scheduler, &f.context);
    arrived(fake, nullptr, nullptr);
}

void entry() {
    arrived(nullptr, &stage->scheduler_bottom, &stage->scheduler_size);
    (*stage->body)();
    stage->current->wait = Wait::done;
    give_way();
}

void prepare(Fiber& f, char* stack) {
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = stack;
    f.context.uc_stack.ss_size = STACK_BYTES;
    f.context.uc_link = nullptr;
    f.fake_stack = nullptr;
    makecontext(&f.context, entry, 0);
}

#else

// Saves the callee-saved registers on the stack that is left, and restores them from the stack that is
// entered.
extern "C" void cusim_switch(void** from, void* to);
asm(R"(
    .text
    .hidden cusim_switch
    .globl cusim_switch
cusim_switch:
    push %rbp
    push %rbx
    push %r12
    push %r13
    push %r14
    push %r15
    mov %rsp, (%rdi)
    mov %rsi, %rsp
    pop %r15
    pop %r14
    pop %r13
    pop %r12
    pop %rbx
    pop %rbp
    ret
)");

void give_way() { cusim_switch(&stage->current->stack_pointer, stage->scheduler); }

void resume(Fiber& f) { cusim_switch(&stage->scheduler, f.stack_pointer); }

void entry() {
    (*stage->body)();
    stage->current->wait = Wait::done;
    give_way();
}

void prepare(Fiber& f, char* stack) {
    void** top = (void**)(stack + STACK_BYTES);
    *--top = nullptr;                                // where a caller's return address would lie: alignment
    *--top = (void*)entry;
    for (int saved = 0; saved < 6; saved++) *--top = nullptr;
    f.stack_pointer = top;
}

#endif

// ------------------------------------------------------------------------------------------------------ scheduling

void shuffle(std::vector<unsigned>& all) {
    static std::atomic<unsigned> seed{1};
    unsigned random = seed.fetch_add(0x9E3779B9u);
    for (size_t i = all.size(); i-- > 1;) {
        random = random * 1664525u + 1013904223u;
        std::swap(all[i], all[(random >> 8) % (i + 1)]);
    }
}

int order_now() { return order < 0 ? order_of_all.load() : order; }

std::vector<unsigned> in_order(unsigned count) {
    std::vector<unsigned> all(count);
    std::iota(all.begin(), all.end(), 0u);
    if (order_now() == 1) std::reverse(all.begin(), all.end());
    if (order_now() == 2) shuffle(all);
    return all;
}

// Releases the warp operation at which the fibers of one warp wait, if all of its live lanes have arrived. Returns how many
// it releases.
unsigned release_warp(size_t first) {
    size_t lanes = std::min<size_t>(32, stage->fibers.size() - first);
    Fiber* warp = &stage->fibers[first];
    for (size_t i = 0; i < lanes; i++) {
        if (warp[i].wait != Wait::warp) continue;
        unsigned mask = warp[i].mask;
        bool complete = true;
        for (size_t j = 0; j < lanes; j++) {
            bool here = warp[j].wait == Wait::done || (warp[j].wait == Wait::warp && warp[j].mask == mask);
            complete &= here || !(mask >> j & 1);
        }
        if (!complete) return 0;
        for (size_t j = 0; j < lanes; j++)
            if (mask >> j & 1) warp[j].result = (size_t)warp[j].source < lanes ? warp[warp[j].source].value : warp[j].value;
        unsigned released = 0;
        for (size_t j = 0; j < lanes; j++)
            if ((mask >> j & 1) && warp[j].wait == Wait::warp) {
                warp[j].wait = Wait::none;
                released++;
            }
        return released;
    }
    return 0;
}

// Runs one block to its end. Returns an error message, or an empty string.
std::string run_block(Index block, Index block_dim, Index grid_dim, unsigned shared_bytes) {
    unsigned threads = block_dim.x * block_dim.y * block_dim.z;
    stage->room_for(threads);
    memset(dyn_smem, 0xff, shared_bytes);
    memset(dyn_smem + shared_bytes, 0xa5, CANARY_BYTES);
    for (unsigned i = 0; i < threads; i++) {
        Fiber& f = stage->fibers[i];
        f.number = i;
        f.thread = {i % block_dim.x, i / block_dim.x % block_dim.y, i / (block_dim.x * block_dim.y)};
        f.wait = Wait::none;
        prepare(f, stage->stacks + i * STACK_BYTES);
    }
    std::string name = "block " + std::to_string(block.x) + ": ";
    std::vector<unsigned> turns = in_order(threads);
    Fiber* fibers = stage->fibers.data();
    unsigned done = 0, waiting = 0, at_warp = 0;   // waiting: at a barrier
    while (done < threads) {
        bool moved = false;
        for (unsigned i : turns) {
            Fiber& f = fibers[i];
            if (f.wait == Wait::pause) f.wait = Wait::none;
            if (f.wait != Wait::none) continue;
            moved = true;
            stage->current = &f;
            here = {f.thread, block, block_dim, grid_dim, f.number};
            resume(f);
            done += f.wait == Wait::done;
            waiting += f.wait == Wait::barrier;
            at_warp += f.wait == Wait::warp;
        }
        if (order_now() == 2) shuffle(turns);
        for (unsigned first = 0; at_warp && first < threads; first += 32) {
            unsigned released = release_warp(first);
            moved |= released > 0;
            at_warp -= released;
        }
        if (stage->failed && *stage->failed) return "";
        if (waiting && done)
            return name + std::to_string(done) + " threads left the kernel while " + std::to_string(waiting) +
                   " wait at __syncthreads";
        if (waiting && waiting == threads) {
            for (Fiber& f : stage->fibers) f.wait = Wait::none;
            waiting = 0;
            moved = true;
        }
        if (!moved)
            return name + "deadlock: " + std::to_string(waiting) + " threads at __syncthreads, " +
                   std::to_string(at_warp) + " at a warp operation, " + std::to_string(done) + " finished";
    }
    for (unsigned i = 0; i < CANARY_BYTES; i++)
        if (dyn_smem[shared_bytes + i] != 0xa5)
            return name + "wrote beyond its " + std::to_string(shared_bytes) + " bytes of dynamic shared memory";
    return "";
}

}   // namespace

void barrier() {
    stage->current->wait = Wait::barrier;
    give_way();
}

void pause() {
    sched_yield();
    stage->current->wait = Wait::pause;
    give_way();
}

uint64_t exchange(unsigned mask, uint64_t value, int source) {
    Fiber* own = stage->current;
    own->mask = mask;
    own->value = value;
    own->source = source;
    own->wait = Wait::warp;
    give_way();
    return own->result;
}

std::string run_grid(const std::function<void()>& body, const Grid& grid) {
    Index g{grid.blocks[0], grid.blocks[1], grid.blocks[2]}, b{grid.threads[0], grid.threads[1], grid.threads[2]};
    unsigned blocks = g.x * g.y * g.z;
    auto place = [&](unsigned i) { return Index{i % g.x, i / g.x % g.y, i / (g.x * g.y)}; };
    if (!grid.cooperative || blocks == 1) {
        stage = &own_stage;
        stage->body = &body;
        stage->failed = nullptr;
        for (unsigned i : in_order(blocks)) {
            std::string wrong = run_block(place(i), b, g, grid.shared_bytes);
            if (!wrong.empty()) return wrong;
        }
        return "";
    }
    std::atomic<bool> failed{false};
    std::vector<std::string> wrong(blocks);
    std::vector<std::thread> threads;
    for (unsigned i : in_order(blocks))
        threads.emplace_back([&, i, callers = order] {
            order = callers;
            stage = &own_stage;
            stage->body = &body;
            stage->failed = &failed;
            wrong[i] = run_block(place(i), b, g, grid.shared_bytes);
            if (!wrong[i].empty()) failed = true;
        });
    for (std::thread& thread : threads) thread.join();
    for (const std::string& text : wrong)
        if (!text.empty()) return text;
    return "";
}

}   // namespace cusim

// The order for launches of this OS thread. 0: forward, 1: reverse, 2: shuffled anew for every launch.
extern "C" __attribute__((visibility("default"))) void cusim_order(int order) { cusim::order = order; }

// The order for all threads that have not chosen one.
extern "C" __attribute__((visibility("default"))) void cusim_order_of_all(int order) { cusim::order_of_all = order; }
