// For clang-tidy 14 only, over GCC 12's library: that library offers std::source_location only to compilers with a builtin that clang has
// from version 16 on. Never compiled into the program.
#pragma once

#if defined(__clang__) && !__has_builtin(__builtin_source_location)
namespace std {
struct source_location {
  static constexpr source_location current(const char* file = __builtin_FILE(), unsigned line = __builtin_LINE(),
                                           const char* function = __builtin_FUNCTION()) {
    source_location out;
    out.file_ = file;
    out.line_ = line;
    out.function_ = function;
    return out;
  }
  constexpr const char* file_name() const { return file_; }
  constexpr unsigned line() const { return line_; }
  constexpr unsigned column() const { return 0; }
  constexpr const char* function_name() const { return function_; }

 private:
  const char* file_ = "";
  unsigned line_ = 0;
  const char* function_ = "";
};
}  // namespace std
#endif
