// How the simulated driver finds and runs kernels.
#pragma once

#define CUSIM_SHARED __attribute__((visibility("default")))   // with libraries of kernels that are loaded later

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

struct Run;     // kernels/common.cuh
struct Peers;   // kernels/peer.cu

namespace cusim {

const size_t SHARED_BYTES = 232448;   // per block, as on sm_90
const size_t CANARY_BYTES = 256;

struct Grid {
    unsigned blocks[3], threads[3], shared_bytes;
    bool cooperative;
};

// Runs `body` as every thread of a grid. Returns an error message, or an empty string.
std::string run_grid(const std::function<void()>& body, const Grid& grid);

// A launch with a copy of its arguments, and the device addresses among them.
struct Bound {
    std::function<void()> body;
    // Each with the number of addresses at the start of the memory that it points to.
    std::vector<std::pair<const void*, int>> addresses;
};

struct Kernel {
    const char* name;
    Bound (*bind)(void** arguments);
};

CUSIM_SHARED std::vector<Kernel>& kernels();

template <class T>
struct Address {
    static void note(Bound&, const T&) {}
};
template <class T>
struct Address<T*> {
    static void note(Bound& bound, T* const& address) {
        using Pointee = std::remove_cv_t<T>;
        int inner = std::is_same_v<Pointee, Run> ? 10 : std::is_same_v<Pointee, Peers> ? 18 : 0;
        bound.addresses.push_back({(const void*)address, inner});
    }
};

// Derives a kernel's parameter list from its type.
template <auto Function>
struct Binder;
template <class... Parameters, void (*Function)(Parameters...)>
struct Binder<Function> {
    template <size_t... I>
    static Bound unpack(void** arguments, std::index_sequence<I...>) {
        std::tuple<Parameters...> copy(*(Parameters*)arguments[I]...);
        Bound bound;
        (Address<Parameters>::note(bound, std::get<I>(copy)), ...);
        bound.body = [copy] { std::apply(Function, copy); };
        return bound;
    }
    static Bound bind(void** arguments) { return unpack(arguments, std::index_sequence_for<Parameters...>{}); }
};

#define KERNEL(name) static int registered_##name = (cusim::kernels().push_back({#name, &cusim::Binder<name>::bind}), 0)

}   // namespace cusim
