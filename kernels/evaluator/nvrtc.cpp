#include "kernels/evaluator/nvrtc.h"

#include <algorithm>
#include <cstdlib>
#include <memory>

#include "kernels/evaluator/shared_library.h"

namespace amk {

// nvrtc.h's C interface (unchanged since CUDA 11.2).
struct Nvrtc::Api {
  using Program = void*;
  const char* (*error_string)(int code) = nullptr;
  int (*version)(int* major, int* minor) = nullptr;
  int (*arch_count)(int* count) = nullptr;
  int (*archs)(int* list) = nullptr;
  int (*create)(Program*, const char* source, const char* name, int headers, const char* const* texts, const char* const* names) = nullptr;
  int (*destroy)(Program*) = nullptr;
  int (*compile)(Program, int options, const char* const* text) = nullptr;
  int (*cubin_size)(Program, std::size_t*) = nullptr;
  int (*cubin)(Program, char*) = nullptr;
  int (*log_size)(Program, std::size_t*) = nullptr;
  int (*log)(Program, char*) = nullptr;
  SharedLibrary library;

  Status check(int code, const char* call) const {
    if (code == 0) return {};
    return fail(ErrorKind::Internal, std::string(call) + ": " + error_string(code) + " (" + std::to_string(code) + ")",
                {{"call", call}, {"code", code}});
  }
};

struct NvrtcLoader {
  static Result<Nvrtc> open() {
    AMK_TRY(library, SharedLibrary::open("NVRTC, the CUDA run-time compiler,", {"libnvrtc.so.13", "libnvrtc.so.12"}, cuda_library_folders()));
    auto api = std::make_unique<Nvrtc::Api>();
    AMK_CHECK(library.load(api->error_string, "nvrtcGetErrorString"));
    AMK_CHECK(library.load(api->version, "nvrtcVersion"));
    AMK_CHECK(library.load(api->arch_count, "nvrtcGetNumSupportedArchs"));
    AMK_CHECK(library.load(api->archs, "nvrtcGetSupportedArchs"));
    AMK_CHECK(library.load(api->create, "nvrtcCreateProgram"));
    AMK_CHECK(library.load(api->destroy, "nvrtcDestroyProgram"));
    AMK_CHECK(library.load(api->compile, "nvrtcCompileProgram"));
    AMK_CHECK(library.load(api->cubin_size, "nvrtcGetCUBINSize"));
    AMK_CHECK(library.load(api->cubin, "nvrtcGetCUBIN"));
    AMK_CHECK(library.load(api->log_size, "nvrtcGetProgramLogSize"));
    AMK_CHECK(library.load(api->log, "nvrtcGetProgramLog"));
    Nvrtc nvrtc;
    AMK_CHECK(api->check(api->version(&nvrtc.major_, &nvrtc.minor_), "nvrtcVersion"));
    int count = 0;
    AMK_CHECK(api->check(api->arch_count(&count), "nvrtcGetNumSupportedArchs"));
    nvrtc.architectures_.resize(static_cast<std::size_t>(std::max(count, 0)));
    AMK_CHECK(api->check(api->archs(nvrtc.architectures_.data()), "nvrtcGetSupportedArchs"));
    nvrtc.library_ = library.name();
    api->library = std::move(library);
    nvrtc.api_ = api.release();  // lives as long as the process, like the library
    return nvrtc;
  }
};

Result<const Nvrtc*> Nvrtc::open() {
  static const Result<Nvrtc> opened = NvrtcLoader::open();
  if (!opened) return tl::unexpected<Error>(opened.error());
  return &*opened;
}

bool Nvrtc::supports(const std::string& architecture) const {
  if (architecture.rfind("sm_", 0) != 0) return false;
  const int number = std::atoi(architecture.c_str() + 3);  // a trailing letter marks a specialised form of the same number
  return std::find(architectures_.begin(), architectures_.end(), number) != architectures_.end();
}

Result<CompiledKernel> Nvrtc::compile(const CompileRequest& request) const {
  if (!supports(request.architecture)) {
    std::string known;
    for (const int arch : architectures_) known += (known.empty() ? "sm_" : ", sm_") + std::to_string(arch);
    return fail(ErrorKind::Unavailable, "NVRTC " + version() + " cannot compile for " + request.architecture + "; it knows " + known,
                {{"field", "architecture"}, {"value", request.architecture}, {"accepted", known}});
  }
  std::vector<const char*> names, texts, options;
  for (const auto& [name, text] : request.headers) {
    names.push_back(name.c_str());
    texts.push_back(text.c_str());
  }
  const std::string arch_option = "-arch=" + request.architecture;
  options.push_back(arch_option.c_str());
  for (const std::string& option : request.options) options.push_back(option.c_str());

  Api::Program program = nullptr;
  AMK_CHECK(
      api_->check(api_->create(&program, request.source.c_str(), request.name.c_str(), static_cast<int>(names.size()), texts.data(), names.data()),
                  "nvrtcCreateProgram"));
  const auto destroy = [this](Api::Program* p) { api_->destroy(p); };
  const std::unique_ptr<Api::Program, decltype(destroy)> owner(&program, destroy);

  const int code = api_->compile(program, static_cast<int>(options.size()), options.data());
  CompiledKernel result;
  std::size_t log_bytes = 0;
  AMK_CHECK(api_->check(api_->log_size(program, &log_bytes), "nvrtcGetProgramLogSize"));
  result.log.resize(log_bytes);
  if (log_bytes > 0) AMK_CHECK(api_->check(api_->log(program, result.log.data()), "nvrtcGetProgramLog"));
  while (!result.log.empty() && (result.log.back() == '\0' || result.log.back() == '\n')) result.log.pop_back();
  if (code != 0) {
    return fail(ErrorKind::InvalidArgument, request.name + " does not compile for " + request.architecture + ": " + api_->error_string(code),
                {{"call", "nvrtcCompileProgram"}, {"code", code}, {"log", result.log}, {"architecture", request.architecture}});
  }
  std::size_t cubin_bytes = 0;
  AMK_CHECK(api_->check(api_->cubin_size(program, &cubin_bytes), "nvrtcGetCUBINSize"));
  if (cubin_bytes == 0) return fail(ErrorKind::Internal, "NVRTC made no machine code for " + request.architecture);
  result.cubin.resize(cubin_bytes);
  AMK_CHECK(api_->check(api_->cubin(program, reinterpret_cast<char*>(result.cubin.data())), "nvrtcGetCUBIN"));
  return result;
}

}  // namespace amk
