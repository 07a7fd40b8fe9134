// What a test needs of the machine. Without it the case is skipped by doctest, which counts it apart from passes; the reason is printed, and
// ./check repeats it: TEST_CASE("…" * needs_nvrtc()).
#pragma once

#include <doctest/doctest.h>

#include <cstdio>
#include <string>

#include "kernels/evaluator/nvrtc.h"

namespace amk::test {

inline doctest::skip skip_unless(bool there, const std::string& what) {
  if (!there) std::fprintf(stderr, "skipped: %s\n", what.c_str());
  return doctest::skip(!there);
}

inline doctest::skip needs_nvrtc() {
  const auto nvrtc = Nvrtc::open();
  return skip_unless(nvrtc.has_value(), nvrtc ? "" : nvrtc.error().message);
}

}  // namespace amk::test
