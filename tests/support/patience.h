// Limits of tests end what hangs; they assert no speed. Under ThreadSanitizer everything takes five to fifteen times as long, several suites at once.
#pragma once

namespace amk::testing {

#if defined(__SANITIZE_THREAD__)
inline constexpr int kPatience = 20;
#else
inline constexpr int kPatience = 1;
#endif

}  // namespace amk::testing
