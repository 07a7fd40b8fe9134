// The small parts: words and ids, file systems, journal choice, failpoints, jobs, secrets.
#include <doctest/doctest.h>

#include <set>

#include "core/base/random_hex.h"
#include "orchestrator/store/failpoint.h"
#include "orchestrator/store/filesystem.h"
#include "orchestrator/store/job_records.h"
#include "orchestrator/store/journal_choice.h"
#include "orchestrator/store/store.h"
#include "orchestrator/store/types.h"
#include "tests/support/store_in.h"
#include "tests/support/temp_folder.h"

using namespace amk;

TEST_CASE("ids have one text each") {
  CHECK(to_string(CampaignId{12}) == "c12");
  CHECK(*campaign_id_from("c12") == CampaignId{12});
  CHECK(*experiment_id_from("e9223372036854775807") == ExperimentId{9223372036854775807});
  for (const char* wrong : {"", "c", "12", "e12", "c0", "c012", "c-1", "c1 ", " c1", "c1x", "c9223372036854775808", "C1"}) {
    CAPTURE(wrong);
    REQUIRE_FALSE(campaign_id_from(wrong));
    CHECK(campaign_id_from(wrong).error().kind == ErrorKind::InvalidArgument);
  }
}

TEST_CASE("outcome words go both ways") {
  for (int i = 0; i < kOutcomes; ++i) CHECK(*outcome_from(to_string(static_cast<Outcome>(i))) == static_cast<Outcome>(i));
  CHECK_FALSE(outcome_from("Kept"));
  CHECK_FALSE(outcome_from(""));
}

TEST_CASE("network file systems are known by their numbers, remote FUSE by its type") {
  // linux/magic.h: NFS_SUPER_MAGIC, SMB2, CIFS, V9FS, CEPH; EXT4, XFS, TMPFS.
  for (const std::uint64_t magic : {0x6969u, 0xFE534D42u, 0xFF534D42u, 0x01021997u, 0x00C36400u})
    CHECK(classify_filesystem(magic, "").kind == FilesystemKind::Network);
  for (const std::uint64_t magic : {0xEF53u, 0x58465342u, 0x01021994u, 0x12345678u})
    CHECK(classify_filesystem(magic, "").kind == FilesystemKind::Local);
  CHECK(classify_filesystem(0x65735546, "fuse.sshfs").kind == FilesystemKind::Network);
  CHECK(classify_filesystem(0x65735546, "fuse.mergerfs").kind == FilesystemKind::Unknown);
  CHECK(classify_filesystem(0x65735546, "virtiofs").kind == FilesystemKind::Unknown);
  CHECK(filesystem_of("/tmp")->kind == FilesystemKind::Local);
  CHECK(filesystem_of("/nowhere/at/all").error().kind == ErrorKind::Io);
}

TEST_CASE("journal: a log where one connection surely has the file, a rollback journal where in doubt") {
  for (const int version : {3'040'001, 3'051'002, 3'051'003}) {
    CHECK(choose_journal(version, FilesystemKind::Local, JournalMode::Auto).write_ahead_log);
    CHECK_FALSE(choose_journal(version, FilesystemKind::Unknown, JournalMode::Auto).write_ahead_log);
    CHECK_FALSE(choose_journal(version, FilesystemKind::Unknown, JournalMode::Wal).write_ahead_log);
    CHECK_FALSE(choose_journal(version, FilesystemKind::Local, JournalMode::Rollback).write_ahead_log);
  }
  CHECK(choose_journal(3'040'001, FilesystemKind::Local, JournalMode::Auto).why.find("race") != std::string::npos);
}

TEST_CASE("failpoints: inert, at the n-th time, from then on; wrong specs are refused") {
  CHECK_FALSE(failpoint::armed());
  CHECK(failpoint::hit(Failpoint::WriteBegin) == FailAction::None);
  REQUIRE(failpoint::arm("write.begin=error@2,write.commit=enospc@2+"));
  CHECK(failpoint::hit(Failpoint::WriteBegin) == FailAction::None);
  CHECK(failpoint::hit(Failpoint::WriteBegin) == FailAction::Error);
  CHECK(failpoint::hit(Failpoint::WriteBegin) == FailAction::None);
  CHECK(failpoint::hit(Failpoint::WriteCommit) == FailAction::None);
  CHECK(failpoint::hit(Failpoint::WriteCommit) == FailAction::DiskFull);
  CHECK(failpoint::hit(Failpoint::WriteCommit) == FailAction::DiskFull);
  CHECK(failpoint::hits(Failpoint::WriteCommit) == 3);
  CHECK(failpoint::hit(Failpoint::WriteBody) == FailAction::None);
  failpoint::disarm();
  CHECK(failpoint::hit(Failpoint::WriteCommit) == FailAction::None);
  for (const char* wrong : {"nowhere=kill", "write.begin", "write.begin=explode", "write.begin=kill@0", "write.begin=kill@x", "=kill"}) {
    CAPTURE(wrong);
    CHECK_FALSE(failpoint::arm(wrong));
  }
  CHECK_FALSE(failpoint::armed());
  std::set<std::string_view> names;
  for (int i = 0; i < kFailpoints; ++i) names.insert(to_string(static_cast<Failpoint>(i)));
  CHECK(names.size() == static_cast<std::size_t>(kFailpoints));
  CHECK_FALSE(names.contains(""));
}

TEST_CASE("jobs: one record an id, one job a request key, a final record stays") {
  test::TempFolder folder;
  auto store = std::move(*test::store_in(folder.path));
  auto jobs = std::make_unique<JobRecords>(*store);
  REQUIRE(jobs->put({"j1", "amk_loop", "key", false, {{"budget", 8}}, 0}));
  REQUIRE(jobs->put({"j1", "amk_loop", "key", false, {{"budget", 8}, {"done", 3}}, 0}));
  CHECK(jobs->put({"j2", "amk_loop", "key", false, {}, 0}).error().kind == ErrorKind::Conflict);
  REQUIRE(jobs->put({"j2", "amk_autoresearch", "key", false, {}, 0}));
  CHECK_FALSE(jobs->put({"", "amk_loop", "", false, {}, 0}));
  store.reset();
  store = std::move(*test::store_in(folder.path));
  jobs = std::make_unique<JobRecords>(*store);
  const auto loaded = *jobs->load();
  REQUIRE(loaded.size() == 2);
  CHECK(loaded[0].document["done"] == 3);
  CHECK_FALSE(loaded[0].final);
  CHECK(loaded[0].incarnation < store->incarnation());  // its daemon is gone
  REQUIRE(jobs->put({"j1", "amk_loop", "key", true, {{"result", 1}}, 0}));
  CHECK(jobs->put({"j1", "amk_loop", "key", true, {{"result", 1}}, 0}));  // a retry
  CHECK(jobs->put({"j1", "amk_loop", "key", true, {{"result", 2}}, 0}).error().data["reason"] == "job-final");
  CHECK(jobs->get("j1")->document["result"] == 1);
  REQUIRE(jobs->forget("j1"));
  REQUIRE(jobs->forget("j1"));
  CHECK(jobs->get("j1").error().kind == ErrorKind::NotFound);
}

TEST_CASE("secrets differ") {
  std::set<std::string> seen;
  for (int i = 0; i < 100; ++i) seen.insert(*random_hex(16));
  CHECK(seen.size() == 100);
  CHECK(seen.begin()->size() == 32);
}
