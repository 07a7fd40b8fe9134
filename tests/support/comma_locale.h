// A locale whose numbers have a comma, for printf and streams alike, while the object lives: what a program may set that one of our libraries runs
// in. Where none is installed one is made (glibc's localedef; its sources are Debian's package "locales"); where that cannot be, there() is false.
#pragma once

#include <clocale>
#include <cstdlib>
#include <locale>
#include <string>

#include "tests/support/temp_folder.h"

namespace amk::test {

class CommaLocale {
 public:
  CommaLocale() {
    for (const char* name : {"de_DE.UTF-8", "de_DE.utf8", "fr_FR.UTF-8"})
      if (set(name)) return;
    const std::string made = (folder_.path / "de_DE.UTF-8").string();
    if (std::system(("localedef -i de_DE -f UTF-8 '" + made + "' >/dev/null 2>&1").c_str()) == -1) return;
    ::setenv("LOCPATH", folder_.path.c_str(), 1);
    (void)set("de_DE.UTF-8");
  }
  ~CommaLocale() {
    std::setlocale(LC_ALL, before_.c_str());
    std::locale::global(cxx_before_);
    ::unsetenv("LOCPATH");
  }
  CommaLocale(const CommaLocale&) = delete;
  CommaLocale& operator=(const CommaLocale&) = delete;
  bool there() const { return there_; }

 private:
  bool set(const char* name) {
    if (std::setlocale(LC_ALL, name) == nullptr) return false;
    std::locale::global(std::locale(name));
    there_ = std::string(std::localeconv()->decimal_point) == ",";
    return there_;
  }
  TempFolder folder_;
  std::string before_ = std::setlocale(LC_ALL, nullptr);
  std::locale cxx_before_;
  bool there_ = false;
};

}  // namespace amk::test
