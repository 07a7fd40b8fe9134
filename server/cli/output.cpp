#include "server/cli/output.h"

#include <unistd.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cmath>
#include <cstdio>
#include <vector>

#include "core/base/json.h"
#include "core/base/number_text.h"
#include "core/base/text.h"

namespace amk::cli {
namespace {

// Width on a terminal: code points, good enough for the text we print.
std::size_t width(const std::string& text) {
  return static_cast<std::size_t>(std::count_if(text.begin(), text.end(), [](unsigned char c) { return (c & 0xC0) != 0x80; }));
}

std::string scalar(const Json& v) {
  if (v.is_string()) return one_line(v.get_ref<const std::string&>());
  if (v.is_null()) return "-";
  if (v.is_number_float()) return with_digits(v.get<double>(), 6);
  return one_line(v.dump(-1, ' ', false, Json::error_handler_t::replace));
}

bool is_table(const Json& v) {
  return v.is_array() && !v.empty() && std::all_of(v.begin(), v.end(), [](const Json& row) { return row.is_object(); });
}

// What people look for comes first; the rest as it comes, and ids, which are long, last.
int rank(const std::string& column) {
  static constexpr std::array<std::string_view, 10> kFirst = {"campaign",   "experiment",      "seq",   "state", "outcome", "reason",
                                                              "latency_us", "pct_of_roofline", "model", "gpu"};
  static constexpr std::array<std::string_view, 2> kLast = {"schedule_id", "verdict_id"};
  const auto first = std::find(kFirst.begin(), kFirst.end(), column);
  if (first != kFirst.end()) return static_cast<int>(first - kFirst.begin());
  const auto last = std::find(kLast.begin(), kLast.end(), column);
  return static_cast<int>(kFirst.size()) + (last != kLast.end() ? 1 + static_cast<int>(last - kLast.begin()) : 0);
}

std::string table(const Json& rows, const std::string& indent) {
  std::vector<std::string> columns;
  for (const Json& row : rows)
    for (const auto& [key, value] : row.items())
      if (std::find(columns.begin(), columns.end(), key) == columns.end()) columns.push_back(key);
  std::stable_sort(columns.begin(), columns.end(), [](const std::string& a, const std::string& b) { return rank(a) < rank(b); });
  // What all rows have alike is said once: it would make lines of them that no terminal holds.
  std::string alike;
  if (rows.size() > 1) {
    std::erase_if(columns, [&](const std::string& column) {
      const bool same =
          std::all_of(rows.begin(), rows.end(), [&](const Json& row) { return row.contains(column) && row[column] == rows[0][column]; });
      if (same) alike += (alike.empty() ? "" : ", ") + column + " " + scalar(rows[0][column]);
      return same;
    });
  }
  std::vector<std::vector<std::string>> cells = {columns};
  for (const Json& row : rows) {
    std::vector<std::string> line;
    for (const std::string& column : columns) line.push_back(row.contains(column) ? scalar(row[column]) : "");
    cells.push_back(std::move(line));
  }
  std::vector<std::size_t> widths(columns.size(), 0);
  for (const auto& line : cells)
    for (std::size_t c = 0; c < line.size(); ++c) widths[c] = std::max(widths[c], width(line[c]));
  std::string out = alike.empty() ? "" : indent + "in all: " + alike + "\n";
  if (columns.empty()) return out;
  for (const auto& line : cells) {
    std::string text = indent;
    for (std::size_t c = 0; c < line.size(); ++c) {
      text += line[c];
      if (c + 1 < line.size()) text.append(widths[c] - width(line[c]) + 2, ' ');
    }
    out += text + "\n";
  }
  return out;
}

void render_object(const Json& object, const std::string& indent, std::string& out) {
  std::size_t longest = 0;
  for (const auto& [key, value] : object.items())
    if (!value.is_structured()) longest = std::max(longest, width(key));
  for (const auto& [key, value] : object.items()) {
    if (value.is_string() && value.get_ref<const std::string&>().find('\n') != std::string::npos) {
      out += indent + key + ":\n" + shown_lines(value.get_ref<const std::string&>()) + "\n";
    } else if (!value.is_structured()) {
      out += indent + key + std::string(longest - width(key) + 2, ' ') + scalar(value) + "\n";
    } else if (value.empty()) {
      out += indent + key + ": none\n";
    } else if (is_table(value)) {
      out += indent + key + ":\n" + table(value, indent + "  ");
    } else if (value.is_object()) {
      out += indent + key + ":\n";
      render_object(value, indent + "  ", out);
    } else {
      out += indent + key + ": ";
      for (std::size_t i = 0; i < value.size(); ++i) out += (i ? ", " : "") + scalar(value[i]);
      out += "\n";
    }
  }
}

}  // namespace

std::string render(const Json& document) {
  std::string out;
  if (document.is_object())
    render_object(document, "", out);
  else
    out = scalar(document) + "\n";
  return out;
}

bool print_document(int fd, const Json& document, bool pretty) {
  std::string text = pretty ? render(document) : document.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  std::size_t sent = 0;
  while (sent < text.size()) {
    const ssize_t n = ::write(fd, text.data() + sent, text.size() - sent);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) return false;
    sent += static_cast<std::size_t>(n);
  }
  return true;
}

ProgressBar::ProgressBar() : active_(::isatty(STDERR_FILENO) == 1) {}

ProgressBar::~ProgressBar() {
  if (drawn_) std::fputs("\r\033[K", stderr);
}

void ProgressBar::show(double done, double total, std::string_view message) {
  if (!active_) return;
  const auto now = std::chrono::steady_clock::now();
  if (drawn_ && now - last_ < std::chrono::milliseconds(100)) return;
  last_ = now;
  drawn_ = true;
  std::string bar;
  if (total > 0) {
    constexpr int kWidth = 24;
    const int filled = static_cast<int>(std::clamp(done / total, 0.0, 1.0) * kWidth);
    bar = "[" + std::string(static_cast<std::size_t>(filled), '#') + std::string(static_cast<std::size_t>(kWidth - filled), '.') + "] ";
  }
  std::fprintf(stderr, "\r\033[K%s%s", bar.c_str(), one_line(cut_text(message, 100)).c_str());
  std::fflush(stderr);
}

}  // namespace amk::cli
