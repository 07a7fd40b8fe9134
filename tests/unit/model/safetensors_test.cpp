// The reader against damaged and hostile files: each is refused with the path and the reason, none crashes.
#include <doctest/doctest.h>
#include <sys/stat.h>

#include <cstring>

#include "core/base/random.h"
#include "core/model/safetensors.h"
#include "temp_dir.h"

using namespace amk;
using namespace amk::testing;

namespace {

std::string header_refusal(const TempDir& dir, const std::string& bytes) {
  const auto file = SafetensorsFile::open(dir.write("f.safetensors", bytes));
  REQUIRE_FALSE(file);
  CHECK(file.error().kind == ErrorKind::Corrupt);
  CHECK(file.error().message.find("f.safetensors") != std::string::npos);
  return file.error().message;
}

bool tells(const std::string& message, const char* what) { return message.find(what) != std::string::npos; }

}  // namespace

TEST_CASE("a well-formed file gives its tensors, wherever they lie") {
  const TempDir dir;
  // An odd header length: the data is unaligned for its dtype.
  std::string header =
      R"({"__metadata__":{"format":"pt"},"b":{"dtype":"I32","shape":[],"data_offsets":[8,12]},"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},"e":{"dtype":"F16","shape":[0,5],"data_offsets":[12,12]}})";
  if (header.size() % 2 == 0) header += ' ';
  std::string data(12, '\0');
  const float values[2] = {1.5f, -2.0f};
  std::memcpy(data.data(), values, 8);
  data[8] = 7;
  const auto file = SafetensorsFile::open(dir.write("ok.safetensors", safetensors_bytes(header, data)));
  REQUIRE_MESSAGE(file, (file ? "" : file.error().message));
  CHECK(file->tensors().size() == 3);
  const StoredTensor* a = file->find("a");
  REQUIRE(a != nullptr);
  CHECK(a->shape == std::vector<std::int64_t>{1, 2});
  float second;
  std::memcpy(&second, a->data + 4, 4);
  CHECK(second == -2.0f);
  CHECK(std::to_integer<int>(*file->find("b")->data) == 7);
  CHECK(file->find("e")->bytes == 0);
  CHECK(file->find("c") == nullptr);
  CHECK(file->find("__metadata__") == nullptr);
}

TEST_CASE("headers that lie about their size are refused") {
  const TempDir dir;
  CHECK(tells(header_refusal(dir, ""), "too short"));
  CHECK(tells(header_refusal(dir, "1234567"), "too short"));
  CHECK(tells(header_refusal(dir, std::string(8, '\0')), "does not start with '{'"));
  CHECK(tells(header_refusal(dir, std::string(8, '\xff') + "{}"), "header length is 18446744073709551615"));
  CHECK(tells(header_refusal(dir, std::string("\x03\0\0\0\0\0\0\0", 8) + "{}"), "only 2 bytes follow"));
  std::string huge = "00000000{}";
  const std::uint64_t length = kMaxSafetensorsHeader + 1;
  std::memcpy(huge.data(), &length, 8);
  CHECK(tells(header_refusal(dir, huge), "accepted: at most"));
  CHECK(tells(header_refusal(dir, safetensors_bytes("{\"a\":", "")), "not valid JSON"));
  CHECK(tells(header_refusal(dir, safetensors_bytes("{\"a\":" + std::string(1000, '[') + "}", "")), "nested deeper"));
  CHECK(tells(header_refusal(dir, safetensors_bytes("{\"\xff\":1}", "")), "not valid JSON"));
  CHECK(tells(header_refusal(dir, safetensors_bytes(" {}", "")), "does not start with '{'"));
}

TEST_CASE("entries that contradict themselves, each other or the file are refused") {
  const TempDir dir;
  const auto one = [&](const std::string& entry, std::size_t bytes) {
    return header_refusal(dir, safetensors_bytes("{\"a\":" + entry + "}", std::string(bytes, 'x')));
  };
  CHECK(tells(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})", 7), "truncated"));
  CHECK(tells(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8]})", 9), "the tensors end at data byte 8, the file at 9"));
  CHECK(tells(one(R"({"dtype":"F32","shape":[3],"data_offsets":[0,8]})", 8), "dtype and shape need 12"));
  CHECK(tells(one(R"({"dtype":"F32","shape":[2],"data_offsets":[8,0]})", 8), "data_offsets [8, 0]"));
  CHECK(tells(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,18446744073709551615]})", 8), "leave the file's 8"));
  CHECK(tells(one(R"({"dtype":"F32","shape":[2],"data_offsets":[-8,0]})", 8), "data_offsets is missing or not"));
  CHECK(tells(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0,8.0]})", 8), "data_offsets is missing or not"));
  CHECK(tells(one(R"({"dtype":"F32","shape":[2],"data_offsets":[0]})", 8), "data_offsets is missing or not"));
  CHECK(tells(one(R"({"dtype":"F32","shape":[4294967296,4294967296,2],"data_offsets":[0,8]})", 8), "overflows"));
  CHECK(tells(one(R"({"dtype":"F32","shape":[18446744073709551615],"data_offsets":[0,8]})", 8), "overflows"));
  CHECK(tells(one(R"({"dtype":"F32","shape":[-2],"data_offsets":[0,8]})", 8), "not a non-negative integer"));
  CHECK(tells(one(R"({"dtype":"F32","shape":[1,1,1,1,1,1,1,1,2],"data_offsets":[0,8]})", 8), "shape is missing or not"));
  CHECK(tells(one(R"({"dtype":"F32","shape":2,"data_offsets":[0,8]})", 8), "shape is missing or not"));
  CHECK(tells(one(R"({"dtype":"Q4","shape":[2],"data_offsets":[0,8]})", 8), "dtype \"Q4\""));
  CHECK(tells(one(R"({"shape":[2],"data_offsets":[0,8]})", 8), "dtype is missing"));
  CHECK(tells(one("[]", 8), "not an object"));
  const auto two = [&](const char* first, const char* second, std::size_t bytes) {
    return header_refusal(dir, safetensors_bytes(R"({"a":{"dtype":"U8","shape":[4],"data_offsets":)" + std::string(first) +
                                                     R"(},"b":{"dtype":"U8","shape":[4],"data_offsets":)" + second + "}}",
                                                 std::string(bytes, 'x')));
  };
  CHECK(tells(two("[0,4]", "[3,7]", 7), "overlap at data byte 3"));
  CHECK(tells(two("[0,4]", "[0,4]", 4), "overlap at data byte 0"));
  CHECK(tells(two("[0,4]", "[5,9]", 9), "data bytes 4 to 5 belong to no tensor"));
  CHECK(tells(two("[1,5]", "[5,9]", 9), "data bytes 0 to 1 belong to no tensor"));
  const std::string entry = R"({"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
  CHECK(tells(header_refusal(dir, safetensors_bytes("{\"a\":" + entry + ",\"a\":" + entry + "}", "xxxx")), "duplicate key"));
}

TEST_CASE("paths that are no plain file are refused without waiting") {
  const TempDir dir;
  CHECK(SafetensorsFile::open(dir / "absent").error().kind == ErrorKind::NotFound);
  CHECK(SafetensorsFile::open(dir.path()).error().kind == ErrorKind::InvalidArgument);
  REQUIRE(::mkfifo((dir / "fifo").c_str(), 0600) == 0);
  CHECK(SafetensorsFile::open(dir / "fifo").error().kind == ErrorKind::InvalidArgument);
  std::filesystem::create_symlink("loop", dir / "loop");
  CHECK(SafetensorsFile::open(dir / "loop").error().message.find("symbolic links") != std::string::npos);
}

TEST_CASE("a file that changed has another content key") {
  const TempDir dir;
  const std::string header = R"({"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]}})";
  const auto path = dir.write("f.safetensors", safetensors_bytes(header, "abcd"));
  const auto first = SafetensorsFile::open(path);
  const auto again = SafetensorsFile::open(path);
  REQUIRE(first);
  REQUIRE(again);
  CHECK(first->content_key() == again->content_key());
  const auto times = std::filesystem::last_write_time(path);
  dir.write("f.safetensors", safetensors_bytes(header, "abce"));
  std::filesystem::last_write_time(path, times);  // as a careful forger would: ctime still moves
  const auto changed = SafetensorsFile::open(path);
  REQUIRE(changed);
  CHECK(first->content_key() != changed->content_key());
}

TEST_CASE("any single damaged header byte is refused or still consistent") {
  const TempDir dir;
  const std::string good = safetensors_bytes(
      R"({"a":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},"b":{"dtype":"BF16","shape":[4],"data_offsets":[24,32]}})", std::string(32, 'x'));
  Rng rng(7);
  int opened = 0;
  for (int i = 0; i < 3000; ++i) {
    std::string bytes = good;
    const int edits = 1 + static_cast<int>(rng.below(3));
    for (int e = 0; e < edits; ++e) bytes[rng.below(bytes.size())] = static_cast<char>(rng.below(256));
    if (rng.below(4) == 0) bytes.resize(rng.below(bytes.size()));
    const auto file = SafetensorsFile::open(dir.write("f.safetensors", bytes));
    if (!file) continue;
    ++opened;
    std::int64_t covered = 0;
    for (const auto& [name, t] : file->tensors()) {
      covered += t.bytes;
      for (std::int64_t b = 0; b < t.bytes; ++b) covered += std::to_integer<int>(t.data[b]) & 0;  // touches every byte: a bad range would fault
    }
    CHECK(covered == 32);
  }
  CHECK(opened > 0);  // edits inside the data or a name leave the file valid
}
