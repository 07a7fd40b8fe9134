#include "tests/fuzz/fuzz.h"

#include <fcntl.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <string>

namespace amk::fuzz {
namespace {

struct Folder {
  Folder() {
    std::error_code code;
    const std::filesystem::path memory = "/dev/shm";
    const auto base = ::access(memory.c_str(), W_OK) == 0 ? memory : std::filesystem::temp_directory_path(code);
    std::string pattern = (base / "amk-fuzz-XXXXXX").string();
    if (::mkdtemp(pattern.data()) == nullptr) std::abort();
    path = pattern;
  }
  ~Folder() {
    std::error_code code;
    std::filesystem::remove_all(path, code);
  }
  std::filesystem::path path;
};

void write_reversed(const Json& value, std::string& out) {
  if (value.is_object()) {
    out += '{';
    for (auto at = value.rbegin(); at != value.rend(); ++at) {
      if (out.back() != '{') out += ',';
      out += Json(at.key()).dump(-1, ' ', false, Json::error_handler_t::replace) + ':';
      write_reversed(*at, out);
    }
    out += '}';
  } else if (value.is_array()) {
    out += '[';
    for (const Json& item : value) {
      if (out.back() != '[') out += ',';
      write_reversed(item, out);
    }
    out += ']';
  } else {
    out += value.dump(-1, ' ', false, Json::error_handler_t::replace);
  }
}

}  // namespace

void require(bool holds, std::string_view property) {
  if (holds) return;
  std::fprintf(stderr, "does not hold: %.*s\n", static_cast<int>(property.size()), property.data());
  std::abort();
}

std::pair<std::string_view, std::string_view> split(std::string_view input) {
  const auto nul = input.find('\0');
  if (nul == std::string_view::npos) return {input, {}};
  return {input.substr(0, nul), input.substr(nul + 1)};
}

const std::filesystem::path& scratch() {
  static const Folder folder;
  return folder.path;
}

void write_file(const std::filesystem::path& path, std::string_view bytes) {
  const int fd = ::open(path.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0600);
  require(fd >= 0, "the scratch folder can be written");
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd, bytes.data(), bytes.size());
    require(n > 0, "the scratch folder has space");
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
  ::close(fd);
}

std::string reversed_keys(const Json& value) {
  std::string out;
  write_reversed(value, out);
  return out;
}

}  // namespace amk::fuzz
