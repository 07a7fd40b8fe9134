// NVRTC needs no GPU. Where it is not installed the error must say so; nothing else can be checked then.
#include "kernels/evaluator/nvrtc.h"

#include <doctest/doctest.h>

#include "kernels/evaluator/cuda_driver.h"
#include "kernels/evaluator/nvml.h"

using namespace amk;

TEST_CASE("nvrtc: compiles, includes given headers, reports registers, refuses what it does not know") {
  const auto nvrtc = Nvrtc::open();
  if (!nvrtc) {
    CHECK(nvrtc.error().kind == ErrorKind::Unavailable);
    CHECK(nvrtc.error().message.find("libnvrtc.so") != std::string::npos);
    return;
  }
  CompileRequest request;
  request.name = "add.cu";
  request.source = "#include \"inc/value.cuh\"\nextern \"C\" __global__ void add(float* x) { x[threadIdx.x] += VALUE + N; }\n";
  request.headers = {{"inc/value.cuh", "#define VALUE 3.0f\n"}};
  request.options = {"-DN=2", "--ptxas-options=-v"};
  request.architecture = "sm_90a";
  const auto built = (*nvrtc)->compile(request);
  REQUIRE_MESSAGE(built, built.error().message);
  REQUIRE(built->cubin.size() > 4);
  CHECK(static_cast<char>(built->cubin[1]) == 'E');  // an ELF file
  CHECK(static_cast<char>(built->cubin[2]) == 'L');
  CHECK(built->log.find("registers") != std::string::npos);

  request.source = "extern \"C\" __global__ void add(float* x) { x[0] = undeclared_name; }\n";
  const auto broken = (*nvrtc)->compile(request);
  REQUIRE_FALSE(broken);
  CHECK(broken.error().kind == ErrorKind::InvalidArgument);
  CHECK(broken.error().data.at("log").get<std::string>().find("undeclared_name") != std::string::npos);

  for (const char* arch : {"sm_1", "compute_90", "", "sm_90; rm"}) {
    request.architecture = arch;
    const auto refused = (*nvrtc)->compile(request);
    REQUIRE_FALSE(refused);
    CHECK((refused.error().kind == ErrorKind::Unavailable || refused.error().kind == ErrorKind::InvalidArgument));
  }
}

TEST_CASE("driver and NVML: present, or an error that says what is missing") {
  const auto driver = cuda::driver();
  if (!driver) {
    CHECK(driver.error().kind != ErrorKind::InvalidArgument);
    CHECK_FALSE(driver.error().message.empty());
  } else {
    CHECK((*driver)->version >= cuda::kMinimumDriverVersion);
  }
  const auto nvml = Nvml::open();
  if (!nvml) CHECK(nvml.error().kind == ErrorKind::Unavailable);
}

TEST_CASE("NVML: throttle reasons as text") {
  CHECK(throttle_text(0) == "none");
  CHECK(throttle_text(kThrottleSoftwarePower | kThrottleHardwareThermal) == "software-power, hardware-thermal");
  CHECK((kThrottleUnfair & kThrottleIdle) == 0);
}
