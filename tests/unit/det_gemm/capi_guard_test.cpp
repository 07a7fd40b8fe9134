// What C callers of the GEMM library are told: errors and exceptions alike become a status and a message.
#include "kernels/det_gemm/capi/guard.h"

#include <doctest/doctest.h>

#include <stdexcept>

using namespace amk;
using namespace amk::det_gemm;

TEST_CASE("nothing that is thrown reaches a C caller") {
  std::string error = "before";
  CHECK(guarded(error, []() -> Status { return {}; }) == AMK_GEMM_OK);
  CHECK(error == "before");
  const auto failing = [&](ErrorKind kind) { return guarded(error, [&]() -> Status { return fail(kind, "told"); }); };
  CHECK(failing(ErrorKind::InvalidArgument) == AMK_GEMM_INVALID_ARGUMENT);
  CHECK(failing(ErrorKind::Unsupported) == AMK_GEMM_UNSUPPORTED);
  CHECK(failing(ErrorKind::NotFound) == AMK_GEMM_UNAVAILABLE);
  CHECK(failing(ErrorKind::Internal) == AMK_GEMM_FAILED);
  CHECK(error == "told");
  CHECK(guarded(error, []() -> Status { throw std::runtime_error("a disk went away"); }) == AMK_GEMM_FAILED);
  CHECK(error == "a disk went away");
  CHECK(guarded(error, []() -> Status { throw std::bad_alloc(); }) == AMK_GEMM_UNAVAILABLE);
  CHECK(error == "no memory");
  CHECK(guarded(error, []() -> Status { throw 7; }) == AMK_GEMM_FAILED);
  CHECK(error == "an exception of no known kind");
}
