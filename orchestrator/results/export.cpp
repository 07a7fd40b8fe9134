// Results::export_to.
#include "core/base/files.h"
#include "core/base/parse_json.h"
#include "orchestrator/campaign/json.h"
#include "orchestrator/campaign/rows.h"
#include "orchestrator/results/formats.h"
#include "orchestrator/results/results.h"

namespace amk {
namespace {

Result<std::string> line_of(Results::Format format, const Experiment& e, const CampaignInfo& campaign) {
  switch (format) {
    case Results::Format::Tsv:
      return tsv_line(tsv_fields(e, campaign));
    case Results::Format::Csv:
      return csv_line(tsv_fields(e, campaign));
    case Results::Format::Jsonl:
      break;
  }
  Json json = to_json(e);
  json.update(
      {{"model", campaign.key.workload}, {"gpu", campaign.key.gpu}, {"device_kind", campaign.key.device_kind}, {"regime", campaign.key.regime}});
  return canonical_dump(json) + "\n";
}

}  // namespace

Result<std::int64_t> Results::export_to(const std::filesystem::path& path, Format format, const ResultsQuery& filters) const {
  if (filters.foreign) return bad_field("kind", "foreign", "own rows; foreign ones stay with their source");
  AMK_TRY(file, AtomicFile::create(path));
  if (format == Format::Tsv) AMK_CHECK(file.write(tsv_header()));
  if (format == Format::Csv) AMK_CHECK(file.write(csv_line({tsv_columns().begin(), tsv_columns().end()})));
  ResultsQuery query = filters;
  query.limit = kLargestPage;
  query.cursor.clear();
  std::int64_t written = 0;
  for (;;) {
    AMK_TRY(part, page(query));
    AMK_TRY(lines, store_.read<std::string>([&](sql::Connection& c) -> Result<std::string> {
      std::string out;
      for (const Json& row : part.rows) {
        AMK_TRY(id, experiment_id_from(row["experiment"].get<std::string>()));
        AMK_TRY(experiment, rows::load_experiment(c, id));
        AMK_TRY(campaign, rows::load_campaign(c, experiment.campaign));
        AMK_TRY(line, line_of(format, experiment, campaign.info));
        out += line;
      }
      return out;
    }));
    AMK_CHECK(file.write(lines));
    written += static_cast<std::int64_t>(part.rows.size());
    if (part.next_cursor.empty()) break;
    query.cursor = part.next_cursor;
  }
  AMK_CHECK(file.publish());
  return written;
}

}  // namespace amk
