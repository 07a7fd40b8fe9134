#include "orchestrator/campaign/config_leaves.h"

#include "core/base/json.h"

namespace amk {
namespace {

constexpr int kDeepest = 64;  // of parse_json

void collect(const std::string& path, const Json& json, std::vector<std::pair<std::string, std::string>>& out) {
  if (!json.is_object()) {
    out.emplace_back(path, json.dump());
    return;
  }
  for (const auto& [key, value] : json.items()) collect(path.empty() ? key : path + "." + key, value, out);
}

class Scanner {
 public:
  Scanner(std::string_view text, const std::function<void(std::string_view, std::string_view)>& visit) : text_(text), visit_(visit) {}

  bool whole() { return value(0) && at_ == text_.size(); }

 private:
  bool take(char c) {
    if (at_ >= text_.size() || text_[at_] != c) return false;
    ++at_;
    return true;
  }
  // Past a string whose opening quote is next. False at its missing end.
  bool string(bool& escapes) {
    if (!take('"')) return false;
    for (; at_ < text_.size(); ++at_) {
      if (text_[at_] == '"') return ++at_, true;
      if (text_[at_] == '\\') {
        escapes = true;
        ++at_;
      }
    }
    return false;
  }
  bool members(int depth) {
    if (take('}')) return true;
    const std::size_t outer = path_.size();
    do {
      const std::size_t begin = at_ + 1;
      bool escapes = false;
      if (!string(escapes) || escapes) return false;
      if (outer > 0) path_ += '.';
      path_ += text_.substr(begin, at_ - 1 - begin);
      if (!take(':') || !value(depth + 1)) return false;
      path_.resize(outer);
    } while (take(','));
    return take('}');
  }
  bool leaf() {
    const std::size_t begin = at_;
    int open = 0;
    while (at_ < text_.size()) {
      const char c = text_[at_];
      if (open == 0 && (c == ',' || c == '}')) break;
      bool escapes = false;
      if (c == '"') {
        if (!string(escapes)) return false;
        continue;
      }
      if (c == '[' || c == '{') ++open;
      if ((c == ']' || c == '}') && --open < 0) return false;
      ++at_;
    }
    if (open != 0 || at_ == begin) return false;
    visit_(path_, text_.substr(begin, at_ - begin));
    return true;
  }
  bool value(int depth) {
    if (depth > kDeepest) return false;
    return take('{') ? members(depth) : leaf();
  }

  const std::string_view text_;
  const std::function<void(std::string_view, std::string_view)>& visit_;
  std::size_t at_ = 0;
  std::string path_;
};

}  // namespace

std::vector<std::pair<std::string, std::string>> config_leaves(const Json& config) {
  std::vector<std::pair<std::string, std::string>> out;
  collect("", config, out);
  return out;
}

bool scan_leaves(std::string_view canonical, const std::function<void(std::string_view, std::string_view)>& visit) {
  return Scanner(canonical, visit).whole();
}

}  // namespace amk
