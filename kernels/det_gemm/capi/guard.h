// Between C callers and C++: errors become a status and a message, and so do exceptions, which a C caller could not catch.
#pragma once

#include <exception>
#include <new>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "kernels/det_gemm/capi/amk_gemm.h"

namespace amk::det_gemm {

inline amk_gemm_status status_of(const Error& error) {
  switch (error.kind) {
    case ErrorKind::InvalidArgument:
      return AMK_GEMM_INVALID_ARGUMENT;
    case ErrorKind::Unsupported:
    case ErrorKind::Rejected:
      return AMK_GEMM_UNSUPPORTED;
    case ErrorKind::Unavailable:
    case ErrorKind::NotFound:
      return AMK_GEMM_UNAVAILABLE;
    default:
      return AMK_GEMM_FAILED;
  }
}

inline amk_gemm_status thrown(std::string& error, amk_gemm_status status, std::string_view what) noexcept {
  try {
    error = what;
  } catch (...) {
    error.clear();  // not even room for the message
  }
  return status;
}

// What `work`, a Status, came to; its message in `error`, which is left alone where all is well.
template <class Work>
amk_gemm_status guarded(std::string& error, const Work& work) noexcept {
  try {
    const Status done = work();
    return done ? AMK_GEMM_OK : thrown(error, status_of(done.error()), done.error().message);
  } catch (const std::bad_alloc&) {
    return thrown(error, AMK_GEMM_UNAVAILABLE, "no memory");
  } catch (const std::exception& e) {
    return thrown(error, AMK_GEMM_FAILED, e.what());
  } catch (...) {
    return thrown(error, AMK_GEMM_FAILED, "an exception of no known kind");
  }
}

}  // namespace amk::det_gemm
