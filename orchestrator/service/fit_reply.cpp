#include "orchestrator/service/fit_reply.h"

#include "core/base/json.h"
#include "core/base/text.h"

namespace amk {
namespace {

// Left to be dropped from the end until `list` has `few`.
struct Shortened {
  Json& list;
  std::size_t few;
};

}  // namespace

void fit_reply(Json& out) {
  constexpr std::size_t kFew = 3, kNameShown = 256;
  const auto too_long = [&out] { return out.dump(-1, ' ', false, Json::error_handler_t::replace).size() > kReplyLimit; };
  const auto shorten = [&too_long](const Shortened& s) {
    while (s.list.size() > s.few && too_long()) s.list.erase(s.list.size() - 1);
  };
  Json &around = out["tried"]["around_incumbent"], &matter = out["knobs_that_matter"], &suggestions = out["suggestions"];
  Json &knobs = out["search_space"]["knobs"], &constraints = out["search_space"]["constraints"];
  const auto forget = [](Json& rows, const char* member, bool switches_only) {
    for (Json& row : rows)
      if (!switches_only || row.value("kind", "") == "boolean") row.erase(member);
  };

  if (too_long() && out.contains("tuned")) out["tuned"].erase("longer_contexts");
  if (out.contains("tuned") && out["tuned"].empty()) out.erase("tuned");
  shorten({around, kFew});
  if (too_long()) forget(knobs, "meaning", true);
  if (too_long()) forget(constraints, "reason", false);
  // An earlier measurement is of least use to who has found something better than the default.
  if (too_long() && out.value("incumbent_is", "") == "best") out.erase("tuned");
  shorten({matter, kFew});
  if (too_long()) forget(knobs, "meaning", false);
  shorten({suggestions, kFew});
  shorten({around, 0});
  shorten({matter, 1});
  if (too_long()) out.erase("tuned");
  if (too_long() && out["workload"].get_ref<const std::string&>().size() > kNameShown) {
    const std::string name = out["workload"];
    std::size_t from = name.size() - kNameShown;
    while (from < name.size() && utf8_length(name, from) == 0) ++from;
    out["workload"] = "…" + name.substr(from);
  }
  if (too_long()) {
    out["incumbent"] = nullptr;
    out["incumbent_left_out"] = "too long to be shown here: amk_results with best, or diff of its schedule_id, has it";
  }
  shorten({suggestions, 0});
  shorten({constraints, 0});
  shorten({knobs, 0});
}

}  // namespace amk
