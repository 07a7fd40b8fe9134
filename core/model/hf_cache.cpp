#include "core/model/hf_cache.h"

#include <algorithm>
#include <cstdlib>
#include <string>
#include <system_error>
#include <vector>

#include "core/model/shards.h"

namespace amk {
namespace {

namespace fs = std::filesystem;

bool hub_part(std::string_view part) {
  if (part.empty() || part.size() > 96) return false;
  const auto edge = [](char c) { return c == '.' || c == '-'; };
  if (edge(part.front()) || edge(part.back())) return false;
  if (part.find("..") != std::string_view::npos || part.find("--") != std::string_view::npos) return false;
  return std::all_of(part.begin(), part.end(), [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '.' || c == '_' || c == '-';
  });
}

bool commit_hash(std::string_view text) {
  return !text.empty() && text.size() <= 64 &&
         std::all_of(text.begin(), text.end(), [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); });
}

std::string environment(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? std::string() : std::string(value);
}

fs::path expand_home(const std::string& path) {
  return path == "~" || path.rfind("~/", 0) == 0 ? fs::path(environment("HOME")) / path.substr(std::min<std::size_t>(2, path.size()))
                                                 : fs::path(path);
}

}  // namespace

fs::path default_hf_cache() {
  if (const auto hub = environment("HF_HUB_CACHE"); !hub.empty()) return expand_home(hub);
  if (const auto home = environment("HF_HOME"); !home.empty()) return expand_home(home) / "hub";
  if (const auto xdg = environment("XDG_CACHE_HOME"); !xdg.empty()) return expand_home(xdg) / "huggingface" / "hub";
  return fs::path(environment("HOME")) / ".cache" / "huggingface" / "hub";
}

bool is_hub_name(std::string_view name) {
  const auto slash = name.find('/');
  return slash != std::string_view::npos && hub_part(name.substr(0, slash)) && hub_part(name.substr(slash + 1));
}

Result<fs::path> find_snapshot(const fs::path& cache, std::string_view name) {
  if (!is_hub_name(name)) return bad_field("model", std::string(name), "org/name");
  std::string folder = "models--" + std::string(name);
  folder.replace(folder.find('/'), 1, "--");
  const fs::path root = cache / folder;
  std::error_code ec;
  if (!fs::is_directory(root, ec))
    return fail(ErrorKind::NotFound, std::string(name) + " is not in the local HuggingFace cache " + cache.string() + " (nothing is downloaded)",
                {{"field", "model"}, {"value", std::string(name)}, {"cache", cache.string()}});

  auto ref = read_text_file(root / "refs" / "main", 4096);
  if (ref) {
    std::string commit = *ref;
    while (!commit.empty() && (commit.back() == '\n' || commit.back() == '\r' || commit.back() == ' ')) commit.pop_back();
    if (!commit_hash(commit))
      return fail(ErrorKind::Corrupt, (root / "refs" / "main").string() + " does not hold a commit hash",
                  {{"path", (root / "refs" / "main").string()}});
    const fs::path snapshot = root / "snapshots" / commit;
    if (!fs::is_directory(snapshot, ec))
      return fail(ErrorKind::NotFound, snapshot.string() + ", which refs/main names, is not there (incomplete download?)",
                  {{"path", snapshot.string()}});
    return snapshot;
  }
  if (ref.error().kind != ErrorKind::NotFound) return tl::unexpected<Error>(std::move(ref).error());
  std::vector<fs::path> snapshots;
  for (fs::directory_iterator it(root / "snapshots", ec), end; !ec && it != end; it.increment(ec)) snapshots.push_back(it->path());
  if (snapshots.size() == 1) return snapshots.front();
  return fail(ErrorKind::NotFound,
              root.string() + " has no refs/main and " + std::to_string(snapshots.size()) + " snapshots; give the snapshot folder itself",
              {{"path", root.string()}});
}

}  // namespace amk
