// A folder that lives as long as the test, and the files tests put there.
#pragma once

#include <filesystem>
#include <fstream>
#include <string>
#include <string_view>

#include "tests/support/temp_folder.h"

namespace amk::testing {

class TempDir {
 public:
  const std::filesystem::path& path() const { return folder_.path; }
  std::filesystem::path operator/(std::string_view name) const { return path() / name; }
  std::filesystem::path write(const std::filesystem::path& name, std::string_view bytes) const {
    const auto file = path() / name;
    std::filesystem::create_directories(file.parent_path());
    std::ofstream(file, std::ios::binary) << bytes;
    return file;
  }

 private:
  test::TempFolder folder_;
};

// u64 little-endian length, header, data.
inline std::string safetensors_bytes(std::string_view header, std::string_view data) {
  std::string out;
  for (int i = 0; i < 8; ++i) out += static_cast<char>(static_cast<std::uint64_t>(header.size()) >> (8 * i));
  return out.append(header).append(data);
}

}  // namespace amk::testing
