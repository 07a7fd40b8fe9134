#include "core/model/shards.h"

#include "core/base/parse_json.h"

namespace amk {
namespace {

namespace fs = std::filesystem;

constexpr std::size_t kMaxIndexBytes = 64u << 20;
constexpr std::size_t kMaxShards = 4096;

// The index is part of a download: it must not reach outside its folder.
bool plain_file_name(const std::string& name) {
  return !name.empty() && name.size() <= 255 && name != "." && name != ".." && name.find('/') == std::string::npos &&
         name.find('\\') == std::string::npos && name.find('\0') == std::string::npos;
}

Result<std::map<std::string, std::string>> read_index(const fs::path& path) {
  AMK_TRY(text, read_text_file(path, kMaxIndexBytes));
  AMK_TRY(index, parse_json(text, path.string(), {.max_bytes = kMaxIndexBytes}));
  const auto bad = [&](const std::string& why) { return fail(ErrorKind::Corrupt, path.string() + ": " + why, {{"path", path.string()}}); };
  const auto map = index.is_object() ? index.find("weight_map") : index.end();
  if (!index.is_object() || map == index.end() || !map->is_object()) return bad("weight_map is missing or not an object");
  std::map<std::string, std::string> files;
  for (const auto& [tensor, file] : map->items()) {
    if (!file.is_string() || !plain_file_name(file.get<std::string>()))
      return bad("weight_map[\"" + tensor.substr(0, 200) + "\"] is " + file.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 200) +
                 "; accepted: a file name without folders");
    files.emplace(tensor, file.get<std::string>());
  }
  return files;
}

}  // namespace

Result<std::string> read_text_file(const fs::path& path, std::size_t limit) {
  AMK_TRY(map, MemoryMap::open_file(path));
  if (map.size() > limit)
    return fail(ErrorKind::InvalidArgument,
                path.string() + " is " + std::to_string(map.size()) + " bytes; accepted: at most " + std::to_string(limit),
                {{"path", path.string()}});
  return std::string(reinterpret_cast<const char*>(map.data()), map.size());
}

Result<Shards> Shards::open(const fs::path& directory) {
  Shards shards;
  const fs::path single = directory / "model.safetensors";
  auto file = SafetensorsFile::open(single);
  if (file) {
    shards.files_.push_back(std::make_unique<SafetensorsFile>(std::move(*file)));
    for (const auto& [name, tensor] : shards.files_.back()->tensors()) shards.tensors_[name] = {&tensor, shards.files_.back().get()};
    return shards;
  }
  if (file.error().kind != ErrorKind::NotFound) return tl::unexpected<Error>(std::move(file).error());

  const fs::path index_path = directory / "model.safetensors.index.json";
  auto index = read_index(index_path);
  if (!index && index.error().kind == ErrorKind::NotFound)
    return fail(
        ErrorKind::NotFound,
        directory.string() + " holds neither model.safetensors nor model.safetensors.index.json (other formats are not read: convert to safetensors)",
        {{"path", directory.string()}});
  if (!index) return tl::unexpected<Error>(std::move(index).error());

  std::map<std::string, const SafetensorsFile*> by_name;
  for (const auto& [tensor, file_name] : *index) {
    auto& slot = by_name[file_name];
    if (slot == nullptr) {
      if (by_name.size() > kMaxShards) return fail(ErrorKind::Corrupt, index_path.string() + ": more than " + std::to_string(kMaxShards) + " shards");
      AMK_TRY(shard, SafetensorsFile::open(directory / file_name));
      shards.files_.push_back(std::make_unique<SafetensorsFile>(std::move(shard)));
      slot = shards.files_.back().get();
    }
    const StoredTensor* found = slot->find(tensor);
    if (found == nullptr)
      return fail(ErrorKind::Corrupt,
                  (directory / file_name).string() + ": tensor \"" + tensor.substr(0, 200) + "\" is missing, although the index places it there",
                  {{"path", (directory / file_name).string()}, {"tensor", tensor}});
    shards.tensors_[tensor] = {found, slot};
  }
  return shards;
}

std::string Shards::content_key() const {
  std::string key;
  for (const auto& file : files_) key += file->content_key() + ";";
  return key;
}

}  // namespace amk
