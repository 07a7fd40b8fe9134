// Lines of results.tsv, corpus.jsonl and CSV. Pure.
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "core/base/text.h"
#include "orchestrator/campaign/campaign.h"

namespace amk {

inline constexpr int kCorpusSchemaVersion = 1;

// The fixed twelve, then ours: experiment … description, campaign, latency_kind, verdict_id, device, time.
const std::vector<std::string_view>& tsv_columns();
std::vector<std::string> tsv_fields(const Experiment& experiment, const CampaignInfo& campaign);
std::vector<std::string> tsv_fields(const Json& row);  // of a page of amk_results, foreign ones too: what they lack is empty

std::string tsv_header();                                      // with its line break
std::string tsv_line(const std::vector<std::string>& fields);  // escaped, with its line break
std::string escape_tsv(std::string_view text);                 // \t \n \r \\ for tab, line feed, carriage return, backslash
std::string unescape_tsv(std::string_view text);
// RFC 4180. What a spreadsheet would take for a formula (=, +, -, @, a tab or carriage return first, and no number) has an apostrophe before it.
std::string csv_line(const std::vector<std::string>& fields);
std::string corpus_line(const Experiment& experiment, const CampaignInfo& campaign);  // of a kept point

}  // namespace amk
