// Simulated libcublasLt.so.12: matrix products as plain loops, executed in the order of the simulated
// driver's streams.
//
// Supports transposes, leading dimensions, row and column order, f32 and bfloat16 matrices, the compute
// types' rounding of operands, alpha and beta, and the epilogues DEFAULT, RELU, BIAS, RELU_BIAS, GELU,
// GELU_BIAS, BGRADA, BGRADB. Everything else is NOT_SUPPORTED, as it may be on a device. Sums are in f32, in
// the order of k. RELU turns NaN into 0, as the real library does (forums.developer.nvidia.com/t/329783).
//
// RUNNER_SIM_FAIL="plan:1" makes the first search for an algorithm find none; "matmul:2" makes the second
// product fail. RUNNER_SIM_ALGORITHMS=4 offers four algorithms: the first takes three times as long as the
// others; the second sums in the opposite order, so its results have other bits; the third is refused when it
// is called; the fourth gives the bits of the first. RUNNER_SIM_REFUSED=13 refuses the first and the third at
// their calls. RUNNER_SIM_BF16=0 refuses bfloat16 matrices, RUNNER_SIM_BF16=call only when they are multiplied.

#include "driver.h"

#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

namespace {

enum Status { SUCCESS = 0, INVALID_VALUE = 7, EXECUTION_FAILED = 13, NOT_SUPPORTED = 15 };
enum Type { R_32F = 0, R_16BF = 14 };
enum Compute { COMPUTE_32F = 68, COMPUTE_32F_PEDANTIC = 69, COMPUTE_32F_FAST_16BF = 75, COMPUTE_32F_FAST_TF32 = 77 };
enum Epilogue { DEFAULT = 1, RELU = 2, BIAS = 4, RELU_BIAS = 6, GELU = 32, GELU_BIAS = 36, BGRADA = 256, BGRADB = 512 };

struct Layout {
    int type;
    uint64_t rows, columns;
    int64_t lead;
    int order = 0; // 0: column-major, 1: row-major
    int batches = 1;

    size_t at(uint64_t row, uint64_t column) const { return order == 0 ? column * lead + row : row * lead + column; }
    size_t bytes() const {
        size_t numbers = rows == 0 || columns == 0 ? 0 : at(rows - 1, columns - 1) + 1;
        return numbers * (type == R_32F ? 4 : 2);
    }
};

struct Description {
    int compute, scale_type;
    int pointer_mode = 0, transpose_a = 0, transpose_b = 0;
    uint32_t epilogue = DEFAULT;
    void* bias = nullptr;
    int bias_type = -1;   // the output's
};

struct Preference {
    size_t workspace = 0;
};

struct HeuristicResult {
    uint64_t algorithm[8];
    size_t workspace;
    int state;
    float waves;
    int reserved[4];
};

float rounded(float x, int kept_bits) {
    uint32_t bits, dropped = 23 - kept_bits;
    memcpy(&bits, &x, 4);
    if ((bits & 0x7f800000u) != 0x7f800000u) {
        bits += (1u << (dropped - 1)) - 1 + (bits >> dropped & 1);
        bits &= ~((1u << dropped) - 1);
        memcpy(&x, &bits, 4);
    }
    return x;
}

float load(const void* from, int type, size_t i) {
    if (type == R_32F) return ((const float*)from)[i];
    uint32_t bits = (uint32_t)((const uint16_t*)from)[i] << 16;
    float x;
    memcpy(&x, &bits, 4);
    return x;
}

void store(void* to, int type, size_t i, float x) {
    if (type == R_32F) {
        ((float*)to)[i] = x;
        return;
    }
    x = rounded(x, 7);
    uint32_t bits;
    memcpy(&bits, &x, 4);
    ((uint16_t*)to)[i] = (uint16_t)(bits >> 16);
}

float operand(float x, int compute) {
    if (compute == COMPUTE_32F_FAST_TF32) return rounded(x, 10);
    if (compute == COMPUTE_32F_FAST_16BF) return rounded(x, 7);
    return x;
}

bool known_type(int type) { return type == R_32F || type == R_16BF; }

Status supported(const Description& d, const Layout& a, const Layout& b, const Layout& c, const Layout& out) {
    bool compute = d.compute == COMPUTE_32F || d.compute == COMPUTE_32F_PEDANTIC || d.compute == COMPUTE_32F_FAST_16BF ||
                   d.compute == COMPUTE_32F_FAST_TF32;
    const char* bf16 = getenv("RUNNER_SIM_BF16");
    if (bf16 && bf16[0] == '0' && a.type == R_16BF) return NOT_SUPPORTED;
    bool types = known_type(a.type) && a.type == b.type && known_type(out.type) && c.type == out.type;
    bool epilogue = d.epilogue == DEFAULT || d.epilogue == RELU || d.epilogue == BIAS || d.epilogue == RELU_BIAS ||
                    d.epilogue == GELU || d.epilogue == GELU_BIAS || d.epilogue == BGRADA || d.epilogue == BGRADB;
    bool plain = d.scale_type == R_32F && d.pointer_mode == 0 && a.batches == 1 && b.batches == 1 && out.batches == 1;
    if (!compute || !types || !epilogue || !plain) return NOT_SUPPORTED;
    for (const Layout* l : {&a, &b, &c, &out})
        if (l->lead < (int64_t)(l->order == 0 ? l->rows : l->columns)) return INVALID_VALUE;
    uint64_t m = d.transpose_a ? a.columns : a.rows, k = d.transpose_a ? a.rows : a.columns;
    uint64_t k_of_b = d.transpose_b ? b.columns : b.rows, n = d.transpose_b ? b.rows : b.columns;
    if (k != k_of_b || out.rows != m || out.columns != n || c.rows != m || c.columns != n) return INVALID_VALUE;
    return SUCCESS;
}

float finished(uint32_t epilogue, float x) {
    if (epilogue == RELU || epilogue == RELU_BIAS) return x > 0 ? x : 0;
    if (epilogue == GELU || epilogue == GELU_BIAS)   // the library's GELU is the one by tanh
        return 0.5f * x * (1 + tanhf(0.7978845608f * (x + 0.044715f * x * x * x)));
    return x;
}

int algorithms() {
    const char* text = getenv("RUNNER_SIM_ALGORITHMS");
    return text ? atoi(text) : 1;
}

// sums [m, n] = left [m, k] right [k, n], each sum in the order of k or against it.
__attribute__((optimize("O3"))) void multiply(const float* left, const float* right, float* sums, uint64_t m, uint64_t n,
                                              uint64_t k, bool backwards) {
    for (uint64_t i = 0; i < m; i++) {
        float* row = sums + i * n;
        for (uint64_t j = 0; j < n; j++) row[j] = 0;
        for (uint64_t step = 0; step < k; step++) {
            uint64_t p = backwards ? k - 1 - step : step;
            float factor = left[i * k + p];
            for (uint64_t j = 0; j < n; j++) row[j] += factor * right[p * n + j];
        }
    }
}

struct Product {
    Description d;
    uint64_t algorithm;
    Layout la, lb, lc, lo;
    float alpha, beta;
    const void *a, *b, *c;
    void *out, *stream;

    float left(uint64_t i, uint64_t p) const { return load(a, la.type, d.transpose_a ? la.at(p, i) : la.at(i, p)); }
    float right(uint64_t p, uint64_t j) const { return load(b, lb.type, d.transpose_b ? lb.at(j, p) : lb.at(p, j)); }

    int run() const {
        uint64_t m = lo.rows, n = lo.columns, k = d.transpose_a ? la.rows : la.columns;
        int bias_type = d.bias_type < 0 ? lo.type : d.bias_type;
        bool biased = d.epilogue == BIAS || d.epilogue == RELU_BIAS || d.epilogue == GELU_BIAS;
        uint64_t gradient = d.epilogue == BGRADA ? m : d.epilogue == BGRADB ? n : 0;
        size_t bias_bytes = (biased ? m : gradient) * (bias_type == R_32F ? 4 : 2);
        bool reachable = cusim::usable(stream, a, la.bytes()) && cusim::usable(stream, b, lb.bytes()) &&
                         cusim::usable(stream, out, lo.bytes()) && (beta == 0 || cusim::usable(stream, c, lc.bytes())) &&
                         (bias_bytes == 0 || cusim::usable(stream, d.bias, bias_bytes));
        if (!reachable) return 700;
        std::vector<float> result(m * n), rows(m * k), columns(k * n);
        for (uint64_t i = 0; i < m; i++)
            for (uint64_t p = 0; p < k; p++) rows[i * k + p] = operand(left(i, p), d.compute);
        for (uint64_t p = 0; p < k; p++)
            for (uint64_t j = 0; j < n; j++) columns[p * n + j] = operand(right(p, j), d.compute);
        int times = algorithms() > 1 && algorithm == 1 ? 3 : 1;
        while (times-- > 0) multiply(rows.data(), columns.data(), result.data(), m, n, k, algorithm == 2);
        for (uint64_t i = 0; i < m; i++)
            for (uint64_t j = 0; j < n; j++) {
                float x = alpha * result[i * n + j];
                if (beta != 0) x += beta * load(c, lc.type, lc.at(i, j));
                if (biased) x += load(d.bias, bias_type, i);
                result[i * n + j] = finished(d.epilogue, x);
            }
        for (uint64_t e = 0; e < gradient; e++) {
            float sum = 0;
            for (uint64_t p = 0; p < k; p++) sum += d.epilogue == BGRADA ? left(e, p) : right(p, e);
            store(d.bias, bias_type, e, sum);
        }
        for (uint64_t i = 0; i < m; i++)
            for (uint64_t j = 0; j < n; j++) store(out, lo.type, lo.at(i, j), result[i * n + j]);
        return 0;
    }
};

template <class T>
Status take(T& field, const void* from, size_t bytes) {
    if (bytes != sizeof field) return INVALID_VALUE;
    memcpy(&field, from, bytes);
    return SUCCESS;
}

}   // namespace

EXPORT size_t cublasLtGetVersion() { return 130000; }
EXPORT int cublasLtGetProperty(int which, int* value) { return *value = which == 0 ? 13 : 0, SUCCESS; }
EXPORT int cublasLtCreate(void** handle) { return *handle = new int(0), SUCCESS; }
EXPORT int cublasLtDestroy(void* handle) { return delete (int*)handle, SUCCESS; }

EXPORT int cublasLtMatrixLayoutCreate(Layout** layout, int type, uint64_t rows, uint64_t columns, int64_t lead) {
    return *layout = new Layout{type, rows, columns, lead}, SUCCESS;
}
EXPORT int cublasLtMatrixLayoutDestroy(Layout* layout) { return delete layout, SUCCESS; }
EXPORT int cublasLtMatrixLayoutSetAttribute(Layout* layout, int attribute, const void* from, size_t bytes) {
    switch (attribute) {
        case 0: return take(layout->type, from, bytes);
        case 1: return take(layout->order, from, bytes);
        case 2: return take(layout->rows, from, bytes);
        case 3: return take(layout->columns, from, bytes);
        case 4: return take(layout->lead, from, bytes);
        case 5: return take(layout->batches, from, bytes);
        default: return NOT_SUPPORTED;
    }
}

EXPORT int cublasLtMatmulDescCreate(Description** description, int compute, int scale_type) {
    return *description = new Description{compute, scale_type}, SUCCESS;
}
EXPORT int cublasLtMatmulDescDestroy(Description* description) { return delete description, SUCCESS; }
EXPORT int cublasLtMatmulDescSetAttribute(Description* d, int attribute, const void* from, size_t bytes) {
    switch (attribute) {
        case 0: return take(d->compute, from, bytes);
        case 1: return take(d->scale_type, from, bytes);
        case 2: return take(d->pointer_mode, from, bytes);
        case 3: return take(d->transpose_a, from, bytes);
        case 4: return take(d->transpose_b, from, bytes);
        case 7: return take(d->epilogue, from, bytes);
        case 8: return take(d->bias, from, bytes);
        case 26: return take(d->bias_type, from, bytes);
        default: return NOT_SUPPORTED;
    }
}

EXPORT int cublasLtMatmulPreferenceCreate(Preference** preference) { return *preference = new Preference, SUCCESS; }
EXPORT int cublasLtMatmulPreferenceDestroy(Preference* preference) { return delete preference, SUCCESS; }
EXPORT int cublasLtMatmulPreferenceSetAttribute(Preference* preference, int attribute, const void* from, size_t bytes) {
    return attribute == 1 ? take(preference->workspace, from, bytes) : SUCCESS;
}

// Their numbers, from 1.
EXPORT int cublasLtMatmulAlgoGetHeuristic(void*, const Description* d, const Layout* a, const Layout* b, const Layout* c,
                                          const Layout* out, const Preference*, int asked, HeuristicResult* results,
                                          int* count) {
    *count = 0;
    if (cusim::fails("plan")) return NOT_SUPPORTED;
    if (Status status = supported(*d, *a, *b, *c, *out)) return status;
    for (int i = 0; i < asked && i < algorithms(); i++, ++*count) {
        results[i] = {};
        results[i].algorithm[0] = i + 1;
        results[i].waves = 1.0f;
    }
    return SUCCESS;
}

EXPORT int cublasLtMatmul(void*, const Description* d, const float* alpha, const void* a, const Layout* la, const void* b,
                          const Layout* lb, const float* beta, const void* c, const Layout* lc, void* out,
                          const Layout* lo, const uint64_t* algorithm, void* workspace, size_t workspace_bytes,
                          void* stream) {
    if (Status status = supported(*d, *la, *lb, *lc, *lo)) return status;
    uint64_t number = algorithm ? algorithm[0] : 1;
    if (number < 1 || number > (uint64_t)algorithms()) return INVALID_VALUE;
    const char* refused = getenv("RUNNER_SIM_REFUSED");
    if (strchr(refused ? refused : "3", '0' + (int)number)) return NOT_SUPPORTED;
    const char* bf16 = getenv("RUNNER_SIM_BF16");
    if (bf16 && bf16[0] == 'c' && la->type == R_16BF) return NOT_SUPPORTED;
    if (workspace_bytes > 0 && !cusim::usable(stream, workspace, workspace_bytes)) return INVALID_VALUE;
    if (cusim::fails("matmul")) return EXECUTION_FAILED;
    Product product{*d, number, *la, *lb, *lc, *lo, *alpha, *beta, a, b, c, out, stream};
    char text[128];
    unsigned long k = d->transpose_a ? la->rows : la->columns;
    snprintf(text, sizeof text, "matmul %lu %lu %lu epilogue %u compute %d", (unsigned long)lo->rows,
             (unsigned long)lo->columns, k, d->epilogue, d->compute);
    std::string what = text;
    if (la->type == R_16BF) what += " bf16";
    if (algorithms() > 1) what += " algorithm " + std::to_string(number);
    return cusim::in_stream(stream, what.c_str(), [product] { return product.run(); }) ? EXECUTION_FAILED : SUCCESS;
}
