// Tool calls on behalf of a verb: through the daemon or in-process, with a progress bar; Ctrl-C cancels the job and says so.
#pragma once

#include <filesystem>
#include <string>

#include "core/base/error.h"

namespace amk::cli {

struct CallOptions {
  std::filesystem::path workspace;
  bool no_daemon = false;
  bool detach = false;  // return a running job instead of waiting for it
};

// The finished result. A call that became a job is followed until it ends (unless detach).
Result<Json> call_tool(const CallOptions& options, const std::string& tool, Json args);

// All pages of amk_results into `file`; the ending (.tsv, .csv, .jsonl) names the format. {file, rows}.
Result<Json> export_rows(const CallOptions& options, Json filters, const std::string& file);

}  // namespace amk::cli
