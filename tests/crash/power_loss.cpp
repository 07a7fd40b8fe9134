#include "tests/crash/power_loss.h"

#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <fstream>
#include <iterator>

namespace amk::test {
namespace {

constexpr std::int64_t kSector = 512;

void apply(std::string& content, std::int64_t offset, std::string_view bytes) {
  const auto end = static_cast<std::size_t>(offset) + bytes.size();
  if (content.size() < end) content.resize(end);
  std::copy(bytes.begin(), bytes.end(), content.begin() + offset);
}

}  // namespace

void PowerLoss::arm(std::uint64_t seed, std::uint64_t fail_at, std::filesystem::path image) {
  const std::lock_guard lock(mutex_);
  rng_ = Rng(seed);
  steps_ = 0;
  fail_at_ = fail_at;
  image_ = std::move(image);
  files_.clear();
}

// What was there before the first change that is seen is taken for durable.
PowerLoss::File& PowerLoss::file_at(const std::string& path) {
  const auto [at, fresh] = files_.try_emplace(path);
  if (fresh && std::filesystem::exists(path)) {
    std::ifstream in(path, std::ios::binary);
    at->second.durable.assign(std::istreambuf_iterator<char>(in), {});
    at->second.exists = true;
  }
  return at->second;
}

std::string PowerLoss::after_failure(const File& file) {
  std::string content = file.durable;
  const std::uint64_t mood = rng_.below(4);  // nothing arrived, everything did, or a mixture
  for (const Change& change : file.unsynced) {
    const std::uint64_t fate = mood == 0 ? 0 : mood == 1 ? 1 : rng_.below(3);
    if (fate == 0) continue;
    if (change.truncation) {
      content.resize(static_cast<std::size_t>(change.offset));
    } else if (fate == 1) {
      apply(content, change.offset, change.bytes);
    } else {
      // Torn: each sector on its own.
      for (std::int64_t at = 0; at < static_cast<std::int64_t>(change.bytes.size());) {
        const std::int64_t sector_end = ((change.offset + at) / kSector + 1) * kSector - change.offset;
        const std::int64_t end = std::min(sector_end, static_cast<std::int64_t>(change.bytes.size()));
        if (rng_.below(2) == 0)
          apply(content, change.offset + at, std::string_view(change.bytes).substr(static_cast<std::size_t>(at), static_cast<std::size_t>(end - at)));
        at = end;
      }
    }
  }
  return content;
}

void PowerLoss::step() {
  if (fail_at_ == 0 || ++steps_ != fail_at_) return;
  for (const auto& [path, file] : files_) {
    // A file whose directory entry was never synced may be missing, with all that is in it.
    const bool gone = (!file.exists || file.maybe_deleted) && rng_.below(2) == 0;
    const std::string name = std::filesystem::path(path).filename().string();
    std::ofstream out(image_ / (gone ? name + ".gone" : name), std::ios::binary | std::ios::trunc);
    if (gone) continue;
    const std::string content = after_failure(file);
    out.write(content.data(), static_cast<std::streamsize>(content.size()));
  }
  ::kill(::getpid(), SIGKILL);
  for (;;) ::pause();
}

int PowerLoss::on_write(const std::string& path, StoreFile, std::string_view bytes, std::int64_t offset) {
  const std::lock_guard lock(mutex_);
  File& file = file_at(path);
  file.maybe_deleted = false;
  file.unsynced.push_back({offset, std::string(bytes), false});
  step();
  return 0;
}

int PowerLoss::on_sync(const std::string& path, StoreFile) {
  const std::lock_guard lock(mutex_);
  File& file = file_at(path);
  step();  // the power may go just before
  for (const Change& change : file.unsynced) {
    if (change.truncation)
      file.durable.resize(static_cast<std::size_t>(change.offset));
    else
      apply(file.durable, change.offset, change.bytes);
  }
  file.unsynced.clear();
  file.exists = true;  // SQLite syncs the directory with the first sync of a new journal or log
  step();
  return 0;
}

int PowerLoss::on_truncate(const std::string& path, StoreFile, std::int64_t size) {
  const std::lock_guard lock(mutex_);
  file_at(path).unsynced.push_back({size, {}, true});
  step();
  return 0;
}

int PowerLoss::on_delete(const std::string& path, bool sync_directory) {
  const std::lock_guard lock(mutex_);
  File& file = file_at(path);
  step();
  if (sync_directory)
    file = File{};
  else
    file.maybe_deleted = true;
  return 0;
}

PowerLoss& power_loss() {
  static PowerLoss instance;
  return instance;
}

std::string power_loss_vfs() { return register_vfs_shim("amk-power-loss", power_loss()); }

}  // namespace amk::test
