#include "orchestrator/store/job_records.h"

#include <algorithm>

#include "core/base/parse_json.h"
#include "orchestrator/store/sqlite.h"

namespace amk {
namespace {

std::optional<std::string> optional_text(const std::string& text) { return text.empty() ? std::nullopt : std::optional(text); }

Result<JobRecord> job_of(const sql::Query& row) {
  JobRecord job;
  job.job_id = row.text(0);
  job.kind = row.text(1);
  job.request_key = row.text(2);
  job.final = row.i64(3) != 0;
  job.incarnation = row.i64(4);
  AMK_TRY(document, parse_json(row.view(5), "stored job " + job.job_id));
  job.document = std::move(document);
  return job;
}

}  // namespace

Status JobRecords::put(const JobRecord& job) {
  if (job.job_id.empty()) return bad_field("job_id", job.job_id, "a non-empty id");
  auto body = [job, incarnation = store_.incarnation()](sql::Connection& c) -> Result<bool> {
    const std::string document = canonical_dump(job.document);
    AMK_TRY(stored, c.query("SELECT id, final, document FROM jobs WHERE job_id = ?1", job.job_id));
    AMK_TRY(known, stored.next());
    if (known) {
      if (stored.i64(1) != 0) {
        if (job.final && stored.view(2) == document) return true;  // a retry
        return fail(ErrorKind::Conflict, "job " + job.job_id + " has ended; its record does not change",
                    {{"reason", "job-final"}, {"job_id", job.job_id}});
      }
      AMK_CHECK(c.run("UPDATE jobs SET kind = ?2, request_key = ?3, final = ?4, incarnation = ?5, document = ?6 WHERE id = ?1", stored.i64(0),
                      job.kind, optional_text(job.request_key), job.final, incarnation, document));
      return true;
    }
    if (!job.request_key.empty()) {
      AMK_TRY(other, c.query("SELECT job_id FROM jobs WHERE kind = ?1 AND request_key = ?2", job.kind, job.request_key));
      AMK_TRY(taken, other.next());
      if (taken)
        return fail(ErrorKind::Conflict, "request_key \"" + job.request_key + "\" belongs to job " + other.text(0),
                    {{"reason", "request-key"}, {"job_id", other.text(0)}});
    }
    AMK_CHECK(c.run("INSERT INTO jobs(job_id, kind, request_key, final, incarnation, document) VALUES(?1, ?2, ?3, ?4, ?5, ?6)", job.job_id, job.kind,
                    optional_text(job.request_key), job.final, incarnation, document));
    return true;
  };
  AMK_CHECK(store_.write<bool>("recording job " + job.job_id, body, OnDiskFull::Keep));
  return {};
}

Status JobRecords::forget(std::string_view job_id) {
  AMK_CHECK(store_.write<std::int64_t>("forgetting a job",
                                       [id = std::string(job_id)](sql::Connection& c) { return c.run("DELETE FROM jobs WHERE job_id = ?1", id); }));
  return {};
}

Result<JobRecord> JobRecords::get(std::string_view job_id) const {
  return store_.read<JobRecord>([job_id](sql::Connection& c) -> Result<JobRecord> {
    AMK_TRY(row, c.query("SELECT job_id, kind, request_key, final, incarnation, document FROM jobs WHERE job_id = ?1", job_id));
    AMK_TRY(found, row.next());
    if (!found) return fail(ErrorKind::NotFound, "no job " + std::string(job_id), {{"field", "job_id"}, {"value", job_id}});
    return job_of(row);
  });
}

Result<std::vector<JobRecord>> JobRecords::load(int newest) const {
  return store_.read<std::vector<JobRecord>>([newest](sql::Connection& c) -> Result<std::vector<JobRecord>> {
    std::vector<JobRecord> jobs;
    AMK_TRY(row, c.query("SELECT job_id, kind, request_key, final, incarnation, document FROM jobs ORDER BY id DESC LIMIT ?1", newest));
    for (;;) {
      AMK_TRY(more, row.next());
      if (!more) break;
      AMK_TRY(job, job_of(row));
      jobs.push_back(std::move(job));
    }
    std::reverse(jobs.begin(), jobs.end());
    return jobs;
  });
}

}  // namespace amk
