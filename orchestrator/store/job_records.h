// Jobs as rows, so that a long call's result outlives its daemon. What a job is belongs to whoever runs it: here it is an id, the key under
// which a repeated call finds it, whether it is over, and a JSON document. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "orchestrator/store/store.h"

namespace amk {

struct JobRecord {
  std::string job_id;       // unique
  std::string kind;         // the tool's name
  std::string request_key;  // empty: none; else unique within kind
  bool final = false;       // ended: its document does not change again
  Json document = Json::object();
  std::int64_t incarnation = 0;  // of the store, when last written: a job that is not final and of an earlier one lost its daemon
};

class JobRecords {
 public:
  explicit JobRecords(Store& store) : store_(store) {}

  // Inserts or replaces by job_id. Conflict when the stored one is final and differs, or request_key belongs to another job of this kind.
  // On a full disk: Unavailable, and the record waits in memory.
  Status put(const JobRecord& job);
  Status forget(std::string_view job_id);                       // no error when absent
  Result<JobRecord> get(std::string_view job_id) const;         // NotFound
  Result<std::vector<JobRecord>> load(int newest = 256) const;  // oldest first

 private:
  Store& store_;
};

}  // namespace amk
