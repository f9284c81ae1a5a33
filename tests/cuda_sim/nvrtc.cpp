// A stand-in for libnvrtc.so.12: takes any source that includes nothing, and makes an image that the stand-in driver loads,
// whose kernels are those compiled into it. What the real compiler says of the kernels is another test's question.
//
// A source with `#error` or `#include` does not compile. RUNNER_SIM_FAIL="compile:1" has the first compilation fail.

#include "driver.h"

#include <cstring>
#include <string>

namespace {

enum Result { SUCCESS = 0, INVALID_PROGRAM = 4, INVALID_OPTION = 5, COMPILATION = 6 };

struct Program {
    std::string source, image, log;
};

int copy(const std::string& text, char* to) {
    memcpy(to, text.c_str(), text.size() + 1);
    return SUCCESS;
}

const int ARCHITECTURES[] = {75, 80, 86, 89, 90, 100, 120};

}   // namespace

EXPORT int nvrtcVersion(int* major, int* minor) { return *major = 13, *minor = 0, SUCCESS; }
EXPORT const char* nvrtcGetErrorString(int code) {
    switch (code) {
        case SUCCESS: return "NVRTC_SUCCESS";
        case INVALID_PROGRAM: return "NVRTC_ERROR_INVALID_PROGRAM";
        case INVALID_OPTION: return "NVRTC_ERROR_INVALID_OPTION";
        case COMPILATION: return "NVRTC_ERROR_COMPILATION";
        default: return "NVRTC_ERROR unknown";
    }
}
EXPORT int nvrtcGetNumSupportedArchs(int* count) { return *count = sizeof ARCHITECTURES / sizeof(int), SUCCESS; }
EXPORT int nvrtcGetSupportedArchs(int* all) { return memcpy(all, ARCHITECTURES, sizeof ARCHITECTURES), SUCCESS; }
EXPORT int nvrtcCreateProgram(Program** program, const char* source, const char*, int, const char* const*,
                              const char* const*) {
    return *program = new Program{source, "", ""}, SUCCESS;
}
EXPORT int nvrtcDestroyProgram(Program** program) {
    delete *program;
    return *program = nullptr, SUCCESS;
}
EXPORT int nvrtcCompileProgram(Program* program, int count, const char* const* options) {
    std::string architecture;
    for (int i = 0; i < count; i++)
        if (!strncmp(options[i], "--gpu-architecture=", 19)) architecture = options[i] + 19;
    if (architecture.empty()) return INVALID_OPTION;
    bool includes = program->source.find("\n#include") != std::string::npos;
    bool refused = program->source.find("\n#error") != std::string::npos || cusim::fails("compile");
    if (includes || refused) {
        program->log = includes ? "error: cannot open source file" : "error: #error directive";
        return COMPILATION;
    }
    program->image = "simulated image for " + architecture;
    return SUCCESS;
}
EXPORT int nvrtcGetProgramLogSize(Program* program, size_t* size) { return *size = program->log.size() + 1, SUCCESS; }
EXPORT int nvrtcGetProgramLog(Program* program, char* log) { return copy(program->log, log); }
EXPORT int nvrtcGetCUBINSize(Program* program, size_t* size) { return *size = program->image.size() + 1, SUCCESS; }
EXPORT int nvrtcGetCUBIN(Program* program, char* image) { return copy(program->image, image); }
EXPORT int nvrtcGetPTXSize(Program* program, size_t* size) { return *size = program->image.size() + 1, SUCCESS; }
EXPORT int nvrtcGetPTX(Program* program, char* image) { return copy(program->image, image); }
