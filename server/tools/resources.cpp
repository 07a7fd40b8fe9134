// What a client can read: the export of all experiments, campaign reports, verdicts, schemas, the playbook.
#include <fstream>
#include <sstream>

#include "core/base/json.h"
#include "core/base/resources.h"
#include "embedded/tool_schema_files.h"
#include "server/tools/parts.h"

namespace amk {
namespace {

constexpr std::uintmax_t kReadLimit = 16u << 20;  // a resource is one message

Result<std::string> read_text(const std::filesystem::path& path) {
  std::error_code code;
  const auto size = std::filesystem::file_size(path, code);
  if (code) return fail(ErrorKind::NotFound, path.filename().string() + " does not exist yet");
  if (size > kReadLimit)
    return fail(ErrorKind::Unsupported, path.string() + " has " + std::to_string(size) + " bytes; at most " + std::to_string(kReadLimit) +
                                            " are sent as a resource: read the file, or page with amk_results");
  std::ifstream in(path, std::ios::binary);
  std::stringstream text;
  text << in.rdbuf();
  if (!in) return fail(ErrorKind::Io, "cannot read " + path.string());
  return text.str();
}

}  // namespace

void add_resources(mcp::ServerDefinition& definition, const std::shared_ptr<App>& app) {
  definition.resources.push_back(
      {"amk://results.tsv", "results.tsv", "All experiments",
       "Export of the store: one line an experiment; twelve fixed columns, then campaign, latency_kind, verdict_id, device, time.",
       "text/tab-separated-values",
       [app](mcp::RequestContext&) -> Result<mcp::ResourceContent> {
         AMK_CHECK(app->service().result_files().catch_up());
         AMK_TRY(text, read_text(app->service().result_files().tsv_path()));
         return mcp::ResourceContent{std::move(text), false, {}};
       },
       0});
  definition.resources.push_back({"amk://playbook", "playbook", "How to search well",
                                  "The loop, the honesty rules, how to read a verdict, when to stop.", "text/markdown",
                                  [](mcp::RequestContext&) -> Result<mcp::ResourceContent> {
                                    return mcp::ResourceContent{playbook_text(), false, {}};
                                  },
                                  3'600'000});

  mcp::ResourceTemplateSpec report;
  report.uri_template = "amk://campaigns/{campaign}/report";
  report.name = "campaign-report";
  report.title = "Report of a campaign";
  report.description = "Baseline, best, kept steps with their evidence, counts, where the time went.";
  report.mime_type = "text/markdown";
  report.read = [app](const std::string&, const std::map<std::string, std::string>& v, mcp::RequestContext&) -> Result<mcp::ResourceContent> {
    AMK_TRY(id, app->service().campaigns().resolve(v.at("campaign")));
    AMK_TRY(text, app->service().campaigns().report(id));
    return mcp::ResourceContent{text.markdown, false, {}};
  };
  definition.resource_templates.push_back(std::move(report));

  mcp::ResourceTemplateSpec verdict;
  verdict.uri_template = "amk://verdicts/{verdict_id}";
  verdict.name = "verdict";
  verdict.title = "One verdict";
  verdict.description = "Everything the evaluator recorded of one judgement.";
  verdict.mime_type = "application/json";
  verdict.read = [app](const std::string&, const std::map<std::string, std::string>& v, mcp::RequestContext&) -> Result<mcp::ResourceContent> {
    AMK_TRY(found, app->service().campaigns().verdict(v.at("verdict_id")));
    return mcp::ResourceContent{to_json(found).dump(2), false, {}};
  };
  definition.resource_templates.push_back(std::move(verdict));

  mcp::ResourceTemplateSpec schema;
  schema.uri_template = "amk://schemas/{name}";
  schema.name = "schema";
  schema.title = "JSON Schema";
  schema.description = "schedule_config, program, verdict, experiment, campaign, or a tool's name.";
  schema.mime_type = "application/schema+json";
  schema.ttl_ms = 3'600'000;
  schema.read = [](const std::string&, const std::map<std::string, std::string>& v, mcp::RequestContext&) -> Result<mcp::ResourceContent> {
    const std::string& name = v.at("name");
    for (const auto& [path, text] : tool_schema_files())
      if (std::filesystem::path(path).stem() == name) return mcp::ResourceContent{text, false, {}};
    // Only names of files in the folder: what was asked for never becomes part of a path.
    AMK_TRY(resources, find_resources());
    std::string known;
    std::error_code code;
    for (const auto& entry : std::filesystem::directory_iterator(resources.schemas(), code)) {
      std::string stem = entry.path().filename().string();
      constexpr std::string_view kSuffix = ".schema.json";
      if (!stem.ends_with(kSuffix)) continue;
      stem.resize(stem.size() - kSuffix.size());
      if (stem == name) {
        AMK_TRY(text, read_text(entry.path()));
        return mcp::ResourceContent{std::move(text), false, {}};
      }
      known += (known.empty() ? "" : ", ") + stem;
    }
    return fail(ErrorKind::NotFound, "no schema named " + name + "; accepted: " + known + ", or a tool's name");
  };
  definition.resource_templates.push_back(std::move(schema));

  definition.list_resources = [app] {
    std::vector<mcp::ResourceSpec> out;
    auto status = app->service().status("");
    if (!status || !status->contains("campaigns")) return out;
    for (const Json& campaign : (*status)["campaigns"]) {
      const std::string id = campaign.value("campaign", "");
      if (id.empty()) continue;
      out.push_back({"amk://campaigns/" + id + "/report",
                     id + "-report",
                     "Report of " + id,
                     campaign.value("workload", "") + " on " + campaign.value("gpu", ""),
                     "text/markdown",
                     {},
                     0});
    }
    return out;
  };
}

}  // namespace amk
