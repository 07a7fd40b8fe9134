#include "core/model/safetensors.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "core/base/hash.h"
#include "core/base/parse_json.h"

namespace amk {
namespace {

struct ElementSize {
  std::string_view dtype;
  int bytes;
};
constexpr std::array kElementSizes = {ElementSize{"BOOL", 1},    ElementSize{"U8", 1},  ElementSize{"I8", 1},  ElementSize{"F8_E5M2", 1},
                                      ElementSize{"F8_E4M3", 1}, ElementSize{"I16", 2}, ElementSize{"U16", 2}, ElementSize{"F16", 2},
                                      ElementSize{"BF16", 2},    ElementSize{"I32", 4}, ElementSize{"U32", 4}, ElementSize{"F32", 4},
                                      ElementSize{"F64", 8},     ElementSize{"I64", 8}, ElementSize{"U64", 8}};

class HeaderReader {
 public:
  HeaderReader(const std::filesystem::path& path, std::span<const std::byte> data) : path_(path.string()), data_(data) {}

  Result<std::map<std::string, StoredTensor, std::less<>>> read(const Json& header) {
    if (!header.is_object()) return corrupt("the header is not a JSON object");
    std::map<std::string, StoredTensor, std::less<>> tensors;
    std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
    for (const auto& [name, entry] : header.items()) {
      if (name == "__metadata__") continue;  // free text of the writer
      auto tensor = read_tensor(name, entry, ranges);
      if (!tensor) return tl::unexpected<Error>(std::move(tensor).error());
      tensors.emplace(name, std::move(*tensor));
    }
    std::sort(ranges.begin(), ranges.end());
    std::uint64_t end = 0;
    for (const auto& [first, last] : ranges) {
      if (first < end) return corrupt("tensors overlap at data byte " + std::to_string(first));
      if (first > end) return corrupt("data bytes " + std::to_string(end) + " to " + std::to_string(first) + " belong to no tensor");
      end = last;
    }
    if (end != data_.size()) return corrupt("the tensors end at data byte " + std::to_string(end) + ", the file at " + std::to_string(data_.size()));
    return tensors;
  }

 private:
  tl::unexpected<Error> corrupt(const std::string& why, const std::string& tensor = {}) const {
    Json data = {{"path", path_}};
    if (!tensor.empty()) data["tensor"] = tensor;
    return fail(ErrorKind::Corrupt, path_ + ": " + (tensor.empty() ? "" : "tensor \"" + tensor.substr(0, 200) + "\": ") + why, std::move(data));
  }

  Result<StoredTensor> read_tensor(const std::string& name, const Json& entry, std::vector<std::pair<std::uint64_t, std::uint64_t>>& ranges) const {
    if (!entry.is_object()) return corrupt("its entry is not an object", name);
    StoredTensor t;
    const auto dtype = entry.find("dtype");
    if (dtype == entry.end() || !dtype->is_string()) return corrupt("dtype is missing or not a string", name);
    t.dtype = dtype->get<std::string>();
    const auto* size = std::find_if(kElementSizes.begin(), kElementSizes.end(), [&](const ElementSize& e) { return e.dtype == t.dtype; });
    if (size == kElementSizes.end()) return corrupt("dtype \"" + t.dtype.substr(0, 40) + "\" is not one of the format", name);

    const auto shape = entry.find("shape");
    if (shape == entry.end() || !shape->is_array() || shape->size() > 8)
      return corrupt("shape is missing or not an array of at most 8 integers", name);
    std::int64_t bytes = size->bytes;
    for (const Json& d : *shape) {
      if (!d.is_number_unsigned()) return corrupt("shape holds " + d.dump().substr(0, 40) + ", not a non-negative integer", name);
      const auto n = d.get<std::uint64_t>();
      std::int64_t product = 0;
      if (n > INT64_MAX || __builtin_mul_overflow(bytes, static_cast<std::int64_t>(n), &product)) return corrupt("its shape overflows 64 bits", name);
      bytes = product;
      t.shape.push_back(static_cast<std::int64_t>(n));
    }

    const auto offsets = entry.find("data_offsets");
    if (offsets == entry.end() || !offsets->is_array() || offsets->size() != 2 || !(*offsets)[0].is_number_unsigned() ||
        !(*offsets)[1].is_number_unsigned())
      return corrupt("data_offsets is missing or not two non-negative integers", name);
    const auto begin = (*offsets)[0].get<std::uint64_t>();
    const auto end = (*offsets)[1].get<std::uint64_t>();
    if (begin > end || end > data_.size())
      return corrupt("data_offsets [" + std::to_string(begin) + ", " + std::to_string(end) + "] leave the file's " + std::to_string(data_.size()) +
                         " data bytes (truncated download?)",
                     name);
    if (end - begin != static_cast<std::uint64_t>(bytes))
      return corrupt("data_offsets span " + std::to_string(end - begin) + " bytes, dtype and shape need " + std::to_string(bytes), name);
    t.data = data_.data() + begin;
    t.bytes = bytes;
    ranges.emplace_back(begin, end);
    return t;
  }

  std::string path_;
  std::span<const std::byte> data_;
};

}  // namespace

std::optional<DType> dtype_from_safetensors(std::string_view name) {
  if (name == "F32") return DType::F32;
  if (name == "F16") return DType::F16;
  if (name == "BF16") return DType::BF16;
  return std::nullopt;
}

Result<SafetensorsFile> SafetensorsFile::open(const std::filesystem::path& path) {
  SafetensorsFile file;
  FileIdentity id;
  AMK_TRY(map, MemoryMap::open_file(path, &id));
  const std::span<const std::byte> all = map.bytes();
  const auto corrupt = [&](const std::string& why) { return fail(ErrorKind::Corrupt, path.string() + ": " + why, {{"path", path.string()}}); };

  std::uint64_t length = 0;
  if (all.size() < sizeof length) return corrupt("is " + std::to_string(all.size()) + " bytes, too short for a safetensors file");
  for (std::size_t i = 0; i < sizeof length; ++i) length |= std::to_integer<std::uint64_t>(all[i]) << (8 * i);
  if (length > kMaxSafetensorsHeader)
    return corrupt("the header length is " + std::to_string(length) + "; accepted: at most " + std::to_string(kMaxSafetensorsHeader));
  if (length > all.size() - sizeof length)
    return corrupt("the header length is " + std::to_string(length) + ", but only " + std::to_string(all.size() - sizeof length) + " bytes follow");
  const std::string_view text(reinterpret_cast<const char*>(all.data()) + sizeof length, length);
  if (text.empty() || text.front() != '{') return corrupt("the header does not start with '{'");
  auto header = parse_json(text, path.string(), {.max_bytes = kMaxSafetensorsHeader, .max_depth = 8});
  if (!header) {
    header.error().kind = ErrorKind::Corrupt;
    return tl::unexpected<Error>(std::move(header).error());
  }
  AMK_TRY(tensors, HeaderReader(path, all.subspan(sizeof length + length)).read(*header));

  const std::string stat = std::to_string(id.device) + ":" + std::to_string(id.inode) + ":" + std::to_string(id.size) + ":" +
                           std::to_string(id.modified_ns) + ":" + std::to_string(id.changed_ns) + ":";
  file.content_key_ = stat + hash128_hex(text);
  file.path_ = path;
  file.map_ = std::move(map);  // the views point into the mapping, which does not move
  file.tensors_ = std::move(tensors);
  return file;
}

const StoredTensor* SafetensorsFile::find(std::string_view name) const {
  const auto it = tensors_.find(name);
  return it == tensors_.end() ? nullptr : &it->second;
}

}  // namespace amk
