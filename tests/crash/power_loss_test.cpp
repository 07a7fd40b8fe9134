// The power goes at any write, sync, truncation or deletion. AMK_CRASH_KILLS sets how often (default: a short run).
#include <doctest/doctest.h>

#include <algorithm>
#include <cstdlib>

#include "tests/crash/audit.h"
#include "tests/crash/child.h"
#include "tests/crash/load.h"
#include "tests/crash/power_loss.h"
#include "tests/support/temp_folder.h"

using namespace amk;
using namespace amk::test;

TEST_CASE("power loss: unsynced writes are lost, kept or torn; nothing acknowledged is lost") {
  const char* text = std::getenv("AMK_CRASH_KILLS");
  const int wanted = text == nullptr ? 60 : std::max(1, std::atoi(text));
  Rng rng(99);
  AckLog log(1 << 14);
  int losses = 0, rounds = 0, problems = 0;
  std::size_t acknowledged = 0;
  std::uint64_t longest = 400;
  while (losses < wanted && rounds < 10 * wanted && problems == 0) {
    TempFolder folder, image;
    std::vector<AckEntry> acks;
    StoreOptions options;
    options.workspace = folder.path;
    options.reserve_bytes = 0;
    options.readers = 1;
    // Several lives of one workspace: each begins with what the last failure left.
    for (int life = 0; life < 3 && problems == 0; ++life) {
      ++rounds;
      options.journal = rng.below(3) == 0 ? JournalMode::Rollback : JournalMode::Wal;
      const std::uint64_t fail_at = 1 + rng.below(longest), seed = rng.next();
      LoadOptions load;
      load.store = options;
      load.store.vfs = power_loss_vfs();
      load.seed = static_cast<std::uint64_t>(rounds);
      load.operations = 40;
      load.exports = false;
      const ChildEnd end = run_child([&] {
        power_loss().arm(seed, fail_at, image.path);
        return run_load(load, log) ? 0 : 1;
      });
      CAPTURE(rounds);
      CAPTURE(fail_at);
      CHECK(end != ChildEnd::Failed);
      for (const AckEntry& ack : log.taken()) acks.push_back(ack);
      log.clear();
      if (end == ChildEnd::Killed) {
        ++losses;
        // The disk as it may be: files that changed in this life from the image, the others as they were. Shared memory does not survive.
        std::filesystem::remove(folder.path / "store.sqlite-shm");
        for (const auto& entry : std::filesystem::directory_iterator(image.path)) {
          const auto name = entry.path().filename();
          if (name.extension() == ".gone")
            std::filesystem::remove(folder.path / name.stem());
          else
            std::filesystem::rename(entry.path(), folder.path / name);
        }
        for (const auto& entry : std::filesystem::directory_iterator(image.path)) std::filesystem::remove(entry.path());
      }
      for (const std::string& problem : audit(options, acks, false)) {
        FAIL_CHECK(problem);
        ++problems;
      }
    }
    acknowledged += acks.size();
  }
  CHECK(losses >= wanted);
  MESSAGE(losses << " power losses in " << rounds << " rounds, " << acknowledged << " acknowledged records, " << problems << " problems");
}
