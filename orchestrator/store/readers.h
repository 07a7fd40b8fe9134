// Connections that only read: each use sees one consistent snapshot. They never write, checkpoint or tidy up, so that exactly one connection
// of the process does. Thread-safe.
#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "core/base/error.h"
#include "orchestrator/store/sqlite.h"

namespace amk {

class Readers {
 public:
  static Result<std::unique_ptr<Readers>> open(const std::string& path, const std::string& vfs, int count);
  // Waits for a free connection. `body` must not call this again (it would wait for itself when all are taken).
  Status with_snapshot(const std::function<Status(sql::Connection&)>& body);

 private:
  Readers() = default;
  std::mutex mutex_;
  std::condition_variable freed_;
  std::vector<std::unique_ptr<sql::Connection>> free_;
};

}  // namespace amk
