// results_query_from_json: the arguments of amk_results.
#include "orchestrator/results/results.h"

namespace amk {
namespace {

Status text(const Json& value, std::string_view field, std::string& out) {
  if (!value.is_string()) return bad_field(field, value, "a text");
  out = value.get<std::string>();
  if (out.size() > 4096) return bad_field(field, value, "at most 4096 bytes");
  return {};
}

}  // namespace

Result<ResultsQuery> results_query_from_json(const Json& arguments) {
  if (!arguments.is_object()) return bad_field("arguments", arguments, "an object");
  ResultsQuery q;
  for (const auto& [key, value] : arguments.items()) {
    if (value.is_null()) continue;
    if (key == "model")
      AMK_CHECK(text(value, key, q.workload));
    else if (key == "gpu")
      AMK_CHECK(text(value, key, q.gpu));
    else if (key == "device_kind")
      AMK_CHECK(text(value, key, q.device_kind));
    else if (key == "regime")
      AMK_CHECK(text(value, key, q.regime));
    else if (key == "schedule_id")
      AMK_CHECK(text(value, key, q.schedule_id));
    else if (key == "loop")
      AMK_CHECK(text(value, key, q.loop));
    else if (key == "cursor")
      AMK_CHECK(text(value, key, q.cursor));
    else if (key == "campaign") {
      std::string id;
      AMK_CHECK(text(value, key, id));
      AMK_TRY(campaign, campaign_id_from(id));
      q.campaign = campaign;
    } else if (key == "outcome") {
      for (const Json& word : value.is_array() ? value : Json::array({value})) {
        std::string name;
        AMK_CHECK(text(word, key, name));
        const auto outcome = outcome_from(name);
        if (!outcome) return bad_field("outcome", word, "kept, revert, inconclusive, failed, crash, timeout, rejected, lost");
        q.outcomes.push_back(*outcome);
      }
    } else if (key == "kind") {
      std::string kind;
      AMK_CHECK(text(value, key, kind));
      if (kind == "foreign")
        q.foreign = true;
      else if (kind == "measured-gpu" || kind == "predicted")
        q.latency_kind = kind;
      else
        return bad_field("kind", value, "measured-gpu, predicted, foreign");
    } else if (key == "sort") {
      if (value == "-time")
        q.sort = ResultsSort::Newest;
      else if (value == "time")
        q.sort = ResultsSort::Oldest;
      else if (value == "latency_us")
        q.sort = ResultsSort::Fastest;
      else if (value == "-latency_us")
        q.sort = ResultsSort::Slowest;
      else
        return bad_field("sort", value, "time, -time, latency_us, -latency_us");
    } else if (key == "limit") {
      if (!value.is_number_integer() || value < 1 || value > kLargestPage) return bad_field("limit", value, "an integer from 1 to 200");
      q.limit = value;
    } else if (key == "since" || key == "until") {
      if (!value.is_number() || value < 0 || value > 1e11) return bad_field(key, value, "seconds since 1970");
      (key == "since" ? q.since_wall_us : q.until_wall_us) = static_cast<std::int64_t>(value.get<double>() * 1e6);
    } else {
      return bad_field("argument", key,
                       "model, gpu, device_kind, regime, campaign, outcome, kind, schedule_id, loop, since, until, sort, limit, cursor");
    }
  }
  return q;
}

}  // namespace amk
