#include "orchestrator/store/group_writer.h"

#include <sqlite3.h>

#include <algorithm>
#include <exception>
#include <utility>

#include "orchestrator/store/failpoint.h"

namespace amk {
namespace {

constexpr std::size_t kLargestGroup = 512;
constexpr int kFoldAtPages = 1000;        // SQLite's own default
constexpr int kFoldHardAtPages = 16'384;  // 64 MiB: readers held the log back; wait for them briefly and start it anew
constexpr auto kRetryEvery = std::chrono::seconds(1);
// How long a group waits for the writers seen lately: about the price of the commit that a latecomer would need for itself.
constexpr auto kLinger = std::chrono::microseconds(200);

int on_commit_to_log(void* pages, sqlite3*, const char*, int count) {
  static_cast<std::atomic<int>*>(pages)->store(count, std::memory_order_relaxed);
  return SQLITE_OK;
}

}  // namespace

GroupWriter::GroupWriter(std::unique_ptr<sql::Connection> connection, std::unique_ptr<Reserve> reserve, Options options)
    : connection_(std::move(connection)), reserve_(std::move(reserve)), options_(options) {
  if (options_.write_ahead_log) sqlite3_wal_hook(connection_->handle(), on_commit_to_log, &log_pages_);
  if (Status taken = reserve_->take(); !taken) {
    remember(taken);
    if (sql::is_disk_full(taken.error())) disk_full_ = true;
  }
  thread_ = std::thread([this] { run(); });
}

GroupWriter::~GroupWriter() {
  {
    const std::lock_guard lock(mutex_);
    stopping_ = true;
  }
  wake_.notify_all();
  thread_.join();
  if (options_.write_ahead_log) sqlite3_wal_hook(connection_->handle(), nullptr, nullptr);
}

Status GroupWriter::submit(std::string_view what, Body body, bool keep) {
  auto write = std::make_shared<Write>();
  write->what = what;
  write->body = std::move(body);
  write->keep = keep;
  bool notify = true;
  {
    const std::lock_guard lock(mutex_);
    if (stopping_) return fail(ErrorKind::Unavailable, std::string(what) + ": the store is closing", {{"reason", "closing"}});
    queue_.push_back(write);
    if (queue_.size() < wanted_) notify = false;
  }
  if (notify) wake_.notify_one();
  write->done.wait(false, std::memory_order_acquire);
  return write->result;
}

GroupWriter::Figures GroupWriter::figures() const {
  const std::lock_guard lock(mutex_);
  return figures_;
}

void GroupWriter::run() {
  for (;;) {
    Group group;
    {
      std::unique_lock lock(mutex_);
      const auto ready = [this] { return !queue_.empty() || stopping_; };
      if (kept_.empty() && !disk_full_)
        wake_.wait(lock, ready);
      else
        wake_.wait_for(lock, kRetryEvery, ready);
      if (queue_.empty() && stopping_) break;
      if (!queue_.empty() && queue_.size() < expected_) {
        wanted_ = expected_;
        wake_.wait_for(lock, kLinger, [this] { return queue_.size() >= wanted_ || stopping_; });
        wanted_ = 1;
      }
      while (!queue_.empty() && group.size() < kLargestGroup) {
        group.push_back(std::move(queue_.front()));
        queue_.pop_front();
      }
    }
    if (!kept_.empty() || disk_full_) recover_space();
    if (!group.empty()) commit(group);
    if (log_pages_.load(std::memory_order_relaxed) >= kFoldAtPages) fold_log();
  }
  if (!kept_.empty()) recover_space();  // the last chance of what waits for space
}

void GroupWriter::commit(Group& group) {
  Status status = attempt_with_reserve(group);
  if (!status && group.size() > 1) {
    // One write may be what fails (too big, a full disk for it alone): each gets its own transaction and its own error.
    for (const auto& write : group) {
      const Status alone = attempt_with_reserve({write});
      if (!alone) write->result = alone;
      remember(alone);
      settle(write);
    }
    return;
  }
  remember(status);
  {
    const std::lock_guard lock(mutex_);
    expected_ = group.size() + queue_.size();  // all who write at the moment: each waits for its answer before it asks again
  }
  for (const auto& write : group) {
    if (!status) write->result = status;
    settle(write);
  }
}

void GroupWriter::settle(const std::shared_ptr<Write>& write) {
  if (!write->result && sql::is_disk_full(write->result.error())) {
    disk_full_ = true;
    Error error = write->result.error();
    if (write->keep && kept_.size() < options_.max_kept_writes) {
      // The caller reads `result`; the copy that stays gets another one.
      auto later = std::make_shared<Write>();
      later->what = write->what;
      later->body = write->body;
      later->keep = true;
      kept_.push_back(std::move(later));
      error.data["kept"] = true;
      error.message =
          write->what + ": the disk is full; the result is kept in memory and will be written when there is space (" + error.message + ")";
    } else {
      error.data["kept"] = false;
      error.message = write->what + ": the disk is full; nothing was recorded (" + error.message + ")";
    }
    write->result = tl::unexpected<Error>(std::move(error));
    const std::lock_guard lock(mutex_);
    figures_.kept_writes = static_cast<std::int64_t>(kept_.size());
  }
  write->done.store(true, std::memory_order_release);
  write->done.notify_all();
}

Status GroupWriter::attempt_with_reserve(const Group& group) {
  Status status = attempt(group);
  if (status || !sql::is_disk_full(status.error())) return status;
  disk_full_ = true;
  return reserve_->give_back() ? attempt(group) : status;
}

Status GroupWriter::attempt(const Group& group) {
  Status status = connection_->run("BEGIN IMMEDIATE").map([](std::int64_t) {});
  if (status) status = failpoint::check(Failpoint::WriteBegin);
  for (std::size_t i = 0; status && i < group.size(); ++i) status = attempt_one(*group[i], group.size() == 1);
  if (status) status = failpoint::check(Failpoint::WriteCommit);
  // A lone write that failed by its own rules has been undone with its transaction.
  if (status && connection_->in_transaction()) status = connection_->run("COMMIT").map([](std::int64_t) {});
  if (!status) {
    if (connection_->in_transaction()) (void)connection_->run("ROLLBACK");
    return status;
  }
  // Durable from here on: whatever goes wrong now must not undo what callers may already count on.
  (void)failpoint::hit(Failpoint::WriteCommitted);
  const std::lock_guard lock(mutex_);
  ++figures_.commits;
  figures_.writes += static_cast<std::int64_t>(group.size());
  return {};
}

// The returned status is the transaction's; the write's own refusal is in write.result.
Status GroupWriter::attempt_one(Write& write, bool alone) {
  if (!alone) AMK_CHECK(connection_->run("SAVEPOINT one"));
  try {
    write.result = write.body(*connection_);
  } catch (const std::exception& e) {
    write.result = fail(ErrorKind::Internal, write.what + ": " + e.what());
  }
  if (write.result) {
    AMK_CHECK(failpoint::check(Failpoint::WriteBody));
  }
  if (!write.result) {
    // The machine failed under it, or SQLite gave up the whole transaction: the group has to be done anew.
    if (sql::is_machine_failure(write.result.error()) || !connection_->in_transaction()) return write.result;
    AMK_CHECK(alone ? connection_->run("ROLLBACK") : connection_->run("ROLLBACK TO one"));
    if (alone) return {};
  }
  if (!alone) AMK_CHECK(connection_->run("RELEASE one"));
  return {};
}

void GroupWriter::recover_space() {
  while (!kept_.empty()) {
    Group group(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(std::min(kept_.size(), kLargestGroup)));
    Status status = attempt(group);
    if (!status && !sql::is_disk_full(status.error()) && group.size() > 1) {
      group.resize(1);  // find the one that fails for another reason
      status = attempt(group);
    }
    if (!status && sql::is_disk_full(status.error())) return;
    if (!status) remember(status);  // it can not be written at all: given up, and said
    kept_.erase(kept_.begin(), kept_.begin() + static_cast<std::ptrdiff_t>(group.size()));
    const std::lock_guard lock(mutex_);
    figures_.kept_writes = static_cast<std::int64_t>(kept_.size());
  }
  if (const Status taken = reserve_->take(); !taken) {
    remember(taken);
    return;
  }
  disk_full_ = false;
  remember({});
}

void GroupWriter::fold_log() {
  const bool hard = log_pages_.load(std::memory_order_relaxed) >= kFoldHardAtPages;
  const int code =
      sqlite3_wal_checkpoint_v2(connection_->handle(), nullptr, hard ? SQLITE_CHECKPOINT_RESTART : SQLITE_CHECKPOINT_PASSIVE, nullptr, nullptr);
  // The log itself is durable; a checkpoint that fails is tried again after the next commit.
  if (code == SQLITE_OK || code == SQLITE_BUSY) {
    log_pages_.store(0, std::memory_order_relaxed);  // the next commit says how long the log is now
    return;
  }
  const Error error = sql::sqlite_error(connection_->handle(), code, "sqlite3_wal_checkpoint_v2", "", {__FILE__, __LINE__});
  if (sql::is_disk_full(error)) disk_full_ = true;
  remember(tl::unexpected<Error>(error));
}

void GroupWriter::remember(const Status& status) {
  const std::lock_guard lock(mutex_);
  figures_.last_error = status ? std::string() : status.error().message;
}

}  // namespace amk
