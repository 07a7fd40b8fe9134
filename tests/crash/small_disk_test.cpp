// A real file system that runs full, out of inodes, or is read-only: a tmpfs of the test's own, where the machine lets it mount one.
#include <doctest/doctest.h>
#include <sched.h>
#include <sys/mount.h>

#include <cstdio>
#include <fstream>
#include <string>

#include "orchestrator/campaign/campaign.h"
#include "orchestrator/results/results.h"
#include "tests/crash/child.h"
#include "tests/crash/stores.h"
#include "tests/support/temp_folder.h"
#include "tests/support/verdicts.h"

using namespace amk;
using namespace amk::test;

namespace {

constexpr int kNoMount = 77;
constexpr int kResults = 600;
constexpr std::int64_t kReserveBytes = 256 << 10;

// Runs `body` in a child that has its own tmpfs mounted at `folder`. 0: it went well; kNoMount: this user may not mount; else the line that failed.
int on_tmpfs(const std::filesystem::path& folder, const char* options, const std::function<int()>& body) {
  int code = -1;
  const auto report = folder.parent_path() / (folder.filename().string() + ".code");
  (void)run_child([&] {
    int result = kNoMount;
    if (::unshare(CLONE_NEWNS) == 0 && ::mount(nullptr, "/", nullptr, MS_REC | MS_PRIVATE, nullptr) == 0 &&
        ::mount("tmpfs", folder.c_str(), "tmpfs", 0, options) == 0)
      result = body();
    std::ofstream(report) << result;
    return 0;
  });
  std::ifstream(report) >> code;
  std::filesystem::remove(report);
  return code;
}

#define EXPECT(condition) \
  if (!(condition)) return __LINE__

std::string reason(const Error& error) { return error.data.value("reason", std::string()); }

Verdict verdict(int n) { return verdict_of({{"n", n}, {"text", std::string(2000, 'x')}}, 100); }

BeginRequest request(int n) {
  BeginRequest r;
  r.config = verdict(n).config;
  r.schedule_id = verdict(n).schedule_id;
  return r;
}

void fill_up(const std::filesystem::path& folder) {
  std::FILE* ballast = std::fopen((folder / "ballast").c_str(), "ab");
  const std::string block(4096, 'b');
  while (std::fwrite(block.data(), 1, block.size(), ballast) == block.size() && std::fflush(ballast) == 0) {
  }
  std::fclose(ballast);
}

// Every result that was finished on the full disk is there once there is space again.
int full_disk(const std::filesystem::path& folder) {
  auto store = Store::open(options_for(folder, nullptr, kReserveBytes));
  EXPECT(store);
  auto service = CampaignService::create(**store);
  EXPECT(service);
  const auto campaign = (*service)->open({"toy", "h100", "cpu", "bf16-b1"}, {0, -1, {}, {}});
  EXPECT(campaign);
  std::vector<Ticket> tickets;
  for (int n = 0; n < kResults; ++n) {
    const auto ticket = (*service)->begin(campaign->id, request(n));
    EXPECT(ticket);
    tickets.push_back(*ticket);
  }
  fill_up(folder);
  int waiting = 0, written = 0;
  for (int n = 0; n < kResults; ++n) {
    const auto done = (*service)->finish(tickets[static_cast<std::size_t>(n)], verdict(n));
    if (done) {
      ++written;
    } else {
      EXPECT(done.error().kind == ErrorKind::Unavailable);
      EXPECT(reason(done.error()) == "disk-full");
      EXPECT(done.error().data.value("kept", false));
      ++waiting;
    }
    if ((*store)->disk_full()) fill_up(folder);  // somebody else takes what the reserve gave back
  }
  EXPECT(waiting > 0);
  EXPECT((*store)->disk_full());
  EXPECT((*store)->health().kept_writes == waiting);
  const auto refused = (*service)->begin(campaign->id, request(999));
  EXPECT(!refused);
  EXPECT(reason(refused.error()) == "disk-full");
  const auto readable = (*service)->status(campaign->id);  // reading goes on
  EXPECT(readable);
  EXPECT((*readable)["experiments"]["ended"] == written);

  std::filesystem::remove(folder / "ballast");
  EXPECT((*service)->set_policy(campaign->id, campaign->policy));  // any write brings the waiting ones along
  EXPECT((*store)->health().kept_writes == 0);
  EXPECT(!(*store)->disk_full());
  EXPECT((*service)->begin(campaign->id, request(999)));
  EXPECT((*service)->check(campaign->id));
  service->reset();
  store->reset();
  store = Store::open(options_for(folder, nullptr, kReserveBytes));
  EXPECT(store);
  service = CampaignService::create(**store);
  EXPECT(service);
  const auto status = (*service)->status(campaign->id);
  EXPECT(status);
  EXPECT((*status)["experiments"]["ended"] == kResults + 1);  // with the one that was begun last and lost by the restart
  EXPECT((*status)["counts"]["lost"] == 1);
  return 0;
}

// A disk that is full when the store is opened: results can be read.
int open_on_full_disk(const std::filesystem::path& folder) {
  {
    auto store = Store::open(options_for(folder, nullptr, kReserveBytes));
    EXPECT(store);
    auto service = CampaignService::create(**store);
    EXPECT((*service)->open({"toy", "h100", "cpu", "bf16-b1"}));
  }
  std::filesystem::remove(folder / "reserve.bin");
  fill_up(folder);
  auto store = Store::open(options_for(folder, nullptr, kReserveBytes));
  if (!store) {
    EXPECT(reason(store.error()) == "disk-full");
    return 0;
  }
  EXPECT((*store)->disk_full());
  auto service = CampaignService::create(**store);
  EXPECT(service);
  EXPECT((*service)->status(CampaignId{1}));
  return 0;
}

int no_inodes(const std::filesystem::path& folder) {
  for (int n = 0;; ++n)
    if (!std::ofstream(folder / std::to_string(n))) break;
  const auto store = Store::open(options_for(folder, nullptr, kReserveBytes));
  EXPECT(!store);
  EXPECT(reason(store.error()) == "disk-full");
  return 0;
}

int read_only(const std::filesystem::path& folder) {
  { EXPECT(Store::open(options_for(folder, nullptr, kReserveBytes))); }
  EXPECT(::mount("tmpfs", folder.c_str(), "tmpfs", MS_REMOUNT | MS_RDONLY, nullptr) == 0);
  const auto store = Store::open(options_for(folder, nullptr, kReserveBytes));
  EXPECT(!store);
  EXPECT(store.error().kind == ErrorKind::Unavailable);
  EXPECT(reason(store.error()) == "read-only");
  return 0;
}

void run(const char* mount_options, int (*body)(const std::filesystem::path&)) {
  TempFolder folder;
  const int code = on_tmpfs(folder.path, mount_options, [&] { return body(folder.path); });
  if (code == kNoMount) {
    MESSAGE("skipped: this user may not mount a tmpfs");
    return;
  }
  CHECK_MESSAGE(code == 0, "the expectation on line " << code);
}

}  // namespace

TEST_CASE("a disk that runs full: no finished result is lost") { run("size=12m", full_disk); }
TEST_CASE("opening on a full disk") { run("size=3m", open_on_full_disk); }
TEST_CASE("no inodes left") { run("size=6m,nr_inodes=10", no_inodes); }
TEST_CASE("a read-only workspace") { run("size=6m", read_only); }
