// What a verb prints. Not thread-safe.
#pragma once

#include <chrono>
#include <string>
#include <string_view>

#include "core/base/error.h"
#include "core/base/json_fwd.h"

namespace amk::cli {

// Writes the document and a line break, whole, to the descriptor. False when the reader is gone.
bool print_document(int fd, const Json& document, bool pretty);

// For people: objects as aligned "key  value" lines, arrays of objects as tables; nothing is left out, nested detail is indented, and what all rows
// of a table have alike is said once above it.
std::string render(const Json& document);

// A bar on stderr, only when stderr is a terminal; redrawn at most ten times a second, erased by the destructor.
class ProgressBar {
 public:
  ProgressBar();
  ~ProgressBar();
  void show(double done, double total, std::string_view message);

 private:
  bool active_ = false, drawn_ = false;
  std::chrono::steady_clock::time_point last_{};
};

}  // namespace amk::cli
