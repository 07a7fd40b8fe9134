// The one thread and connection that write. Writes that arrive while a commit is on its way to the disk share the next one.
// submit() may be called from any thread.
#pragma once

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <deque>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <vector>

#include "core/base/error.h"
#include "orchestrator/store/reserve.h"
#include "orchestrator/store/sqlite.h"

namespace amk {

class GroupWriter {
 public:
  using Body = std::function<Status(sql::Connection&)>;

  struct Options {
    bool write_ahead_log = true;  // then this class decides when the log is folded into the database
    std::size_t max_kept_writes = 10'000;
  };
  struct Figures {
    std::int64_t writes = 0, commits = 0, kept_writes = 0;
    std::string last_error;
  };

  GroupWriter(std::unique_ptr<sql::Connection> connection, std::unique_ptr<Reserve> reserve, Options options);
  ~GroupWriter();  // does what is queued, then closes the connection

  // Returns once the write is durable, or with its error. With `keep`, a write that failed for lack of space stays here and is done later.
  Status submit(std::string_view what, Body body, bool keep);
  Figures figures() const;
  bool disk_full() const { return disk_full_; }
  bool reserve_held() const { return reserve_->held(); }

 private:
  struct Write {
    std::string what;
    Body body;
    bool keep = false;
    Status result{};
    std::atomic<bool> done{false};
  };
  using Group = std::vector<std::shared_ptr<Write>>;

  void run();
  void commit(Group& group);
  Status attempt(const Group& group);
  Status attempt_with_reserve(const Group& group);
  Status attempt_one(Write& write, bool alone);
  void settle(const std::shared_ptr<Write>& write);
  void recover_space();
  void fold_log();
  void remember(const Status& status);

  std::unique_ptr<sql::Connection> connection_;
  std::unique_ptr<Reserve> reserve_;
  const Options options_;

  mutable std::mutex mutex_;
  std::condition_variable wake_;
  std::deque<std::shared_ptr<Write>> queue_;
  bool stopping_ = false;
  std::size_t expected_ = 1;  // writers seen at the last commit
  std::size_t wanted_ = 1;    // queued writes from which the writing thread wants to be woken
  Figures figures_;

  // Of the writing thread.
  std::deque<std::shared_ptr<Write>> kept_;
  std::atomic<int> log_pages_{0};
  std::atomic<bool> disk_full_{false};
  std::thread thread_;
};

}  // namespace amk
