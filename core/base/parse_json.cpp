#include "core/base/parse_json.h"

#include <cmath>
#include <vector>

namespace amk {
namespace {

// A SAX consumer that builds the value while enforcing depth and key uniqueness; nlohmann's DOM parser
// keeps the last of two equal keys silently, which would let a config hash alike and mean another thing.
class StrictBuilder : public nlohmann::json_sax<Json> {
 public:
  StrictBuilder(int max_depth, std::string& problem) : max_depth_(max_depth), problem_(problem) {}

  bool null() override { return put(nullptr); }
  bool boolean(bool v) override { return put(v); }
  bool number_integer(number_integer_t v) override { return put(v); }
  bool number_unsigned(number_unsigned_t v) override { return put(v); }
  bool number_float(number_float_t v, const string_t& text) override {
    if (!std::isfinite(v)) return refuse("number " + text + " is out of range");
    return put(v);
  }
  bool string(string_t& v) override { return put(std::move(v)); }
  bool binary(binary_t&) override { return refuse("binary values are not JSON"); }
  bool start_object(std::size_t) override { return open(Json::object()); }
  bool start_array(std::size_t) override { return open(Json::array()); }
  bool key(string_t& k) override {
    if (stack_.back()->contains(k)) return refuse("duplicate key \"" + k.substr(0, 100) + "\"");
    key_ = std::move(k);
    return true;
  }
  bool end_object() override { return close(); }
  bool end_array() override { return close(); }
  bool parse_error(std::size_t position, const std::string&, const nlohmann::detail::exception& e) override {
    // Drop the library's "[json.exception.parse_error.101] " prefix: it means nothing to our users.
    std::string text = e.what();
    if (auto at = text.find("] "); at != std::string::npos) text = text.substr(at + 2);
    return refuse("byte " + std::to_string(position) + ": " + text);
  }

  Json take() { return std::move(root_); }

 private:
  bool refuse(std::string why) {
    if (problem_.empty()) problem_ = std::move(why);
    return false;
  }
  Json* place(Json v) {
    if (stack_.empty()) {
      root_ = std::move(v);
      return &root_;
    }
    Json& top = *stack_.back();
    if (top.is_array()) {
      top.push_back(std::move(v));
      return &top.back();
    }
    return &(top[key_] = std::move(v));
  }
  bool put(Json v) {
    place(std::move(v));
    return true;
  }
  bool open(Json v) {
    if (static_cast<int>(stack_.size()) >= max_depth_) return refuse("nested deeper than " + std::to_string(max_depth_));
    stack_.push_back(place(std::move(v)));
    return true;
  }
  bool close() {
    stack_.pop_back();
    return true;
  }

  int max_depth_;
  std::string& problem_;
  Json root_;
  std::vector<Json*> stack_;
  std::string key_;
};

}  // namespace

Result<Json> parse_json(std::string_view text, std::string_view what, const JsonLimits& limits) {
  if (text.size() > limits.max_bytes)
    return fail(ErrorKind::InvalidArgument,
                std::string(what) + ": " + std::to_string(text.size()) + " bytes of JSON; accepted: at most " + std::to_string(limits.max_bytes));
  std::string problem;
  StrictBuilder builder(limits.max_depth, problem);
  const bool ok = Json::sax_parse(text.begin(), text.end(), &builder, nlohmann::detail::input_format_t::json, true, false);
  if (!ok) return fail(ErrorKind::InvalidArgument, std::string(what) + ": not valid JSON: " + (problem.empty() ? "syntax error" : problem));
  return builder.take();
}

std::string canonical_dump(const Json& value) { return value.dump(-1, ' ', false, Json::error_handler_t::replace); }

}  // namespace amk
