// Simulated libnvrtc.so.12: accepts any source without includes, and makes an image that the simulated driver
// can load. The kernels of kernels/*.cu are already part of that driver; a source with its own kernels is
// compiled by g++, and the image contains the library. Another test checks the kernels with the real
// compiler.
//
// RUNNER_SIM_FAIL="miscompile:1" makes the first such library add biases twice, and double the loss of a linear regression;
// "misstep:1" has that regression log twice the loss from the second step of a launch on. A source with `#error` or `#include`
// does not compile. RUNNER_SIM_FAIL="compile:1" makes the first compilation fail.

#include "driver.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdio>
#include <cstring>
#include <fstream>
#include <functional>
#include <iterator>
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

// The folder of the simulated libraries, which also has cusim.h.
std::string own_folder() {
    Dl_info own;
    if (!dladdr((void*)&own_folder, &own) || !own.dli_fname) return ".";
    std::string path = own.dli_fname;
    return path.substr(0, path.rfind('/'));
}

std::string contents(const std::string& path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

// Compiles a source for this processor, once for all tests: later ones find the library in `compiled` beside ours. Returns
// the library; or nothing, with the compiler's output in `log`.
std::string library(std::string source, std::string& log) {
    if (source.find("+= bias[j]") != std::string::npos && cusim::fails("miscompile"))
        for (std::string right : {"+= bias[j]", "return sum[D + 1] *"})
            source.insert(source.find(right) + right.find(' '), " 2 *");
    const std::string logged = "run.slot + first + step] = ";
    if (source.find(logged) != std::string::npos && cusim::fails("misstep"))
        source.insert(source.find(logged) + logged.size(), "(step ? 2 : 1) * ");
    std::string text = "#include \"cusim.h\"\n" + source + "\n";
    const std::string kernel = "extern \"C\" __global__ void ";
    for (size_t i = source.find(kernel); i != std::string::npos; i = source.find(kernel, i + 1)) {
        size_t end = source.find('(', source.find(") ", i)), begin = source.rfind(' ', end) + 1;
        text += "KERNEL(" + source.substr(begin, end - begin) + ");\n";
    }
    std::string libraries = own_folder(), all = libraries + "/compiled";
    mkdir(all.c_str(), 0777);
    std::string kept = all + "/" + std::to_string(std::hash<std::string>()(text)), at = all + "/XXXXXX";
    if (contents(kept + ".cpp") == text) return contents(kept + ".so");
    if (!mkdtemp(&at[0])) return "";
    std::ofstream(at + "/step.cpp") << text;
    std::string command = "g++ @" + libraries + "/flags -shared -I" + libraries + " -o " + at + "/step.so " + at +
                          "/step.cpp -L" + libraries + " -l:libcuda.so.1 >" + at + "/log 2>&1";
    bool fine = system(command.c_str()) == 0;
    std::string made = fine ? contents(at + "/step.so") : "";
    log = contents(at + "/log");
    // The source comes last: where it is, the library is whole.
    if (fine)
        for (std::string end : {".so", ".cpp"}) rename((at + "/step" + end).c_str(), (kept + end).c_str());
    for (const char* name : {"/step.cpp", "/step.so", "/log"}) unlink((at + name).c_str());
    rmdir(at.c_str());
    return made;
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
    bool has_own = program->source.find("__global__ void ") != std::string::npos;
    for (const char* known : {" op_gather(", " interpret(", " interpret_grid(", " peer_sum("})
        has_own = has_own && program->source.find(std::string("__global__ void") + known) == std::string::npos &&
                  program->source.find(std::string(")") + known) == std::string::npos;
    if (has_own) {
        std::string own = library(program->source, program->log);
        if (own.empty()) return COMPILATION;
        program->image += "\nlibrary " + std::to_string(own.size()) + "\n" + own;
    }
    return SUCCESS;
}
EXPORT int nvrtcGetProgramLogSize(Program* program, size_t* size) { return *size = program->log.size() + 1, SUCCESS; }
EXPORT int nvrtcGetProgramLog(Program* program, char* log) { return copy(program->log, log); }
EXPORT int nvrtcGetCUBINSize(Program* program, size_t* size) { return *size = program->image.size() + 1, SUCCESS; }
EXPORT int nvrtcGetCUBIN(Program* program, char* image) { return copy(program->image, image); }
EXPORT int nvrtcGetPTXSize(Program* program, size_t* size) { return *size = program->image.size() + 1, SUCCESS; }
EXPORT int nvrtcGetPTX(Program* program, char* image) { return copy(program->image, image); }
