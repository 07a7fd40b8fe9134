#include "core/program/validator.h"

#include "core/base/json.h"
#include "core/program/validator_coverage.h"
#include "core/program/validator_footprint.h"
#include "core/program/validator_order.h"
#include "core/program/validator_structure.h"

namespace amk {

Validation validate(const Program& program, Footprints footprints) {
  using namespace validation;
  Validation out;
  out.tasks = static_cast<std::int64_t>(program.tasks.size());
  for (Verdict (*check)(const Program&) : {check_structure, check_counters, check_streams})
    if ((out.rejection = check(program))) return out;
  if (footprints == Footprints::Check && (out.rejection = check_footprints(program))) return out;
  const Layout layout(program);
  OrderPass order(program, layout);
  out.rejection = order.run();
  out.edges = order.edges();
  if (!out.rejection) out.rejection = check_coverage(program);
  return out;
}

Json to_json(const Rejection& rejection) { return {{"rule", rejection.rule}, {"message", rejection.message}, {"witness", rejection.witness}}; }

}  // namespace amk
