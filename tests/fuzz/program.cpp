// Programs as text: whatever parses makes an exact round trip, and the validator answers.
#include "core/base/parse_json.h"
#include "core/program/program_json.h"
#include "core/program/validator.h"
#include "tests/fuzz/fuzz.h"

using namespace amk;
using fuzz::require;

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto json = parse_json(fuzz::text_of(data, size), "program");
  if (!json) return 0;
  const auto program = program_from_json(*json);
  if (!program) {
    require(!program.error().message.empty(), "a refusal says why");
    return 0;
  }
  const Json written = to_json(*program);
  const auto again = program_from_json(written);
  require(again && canonical_dump(to_json(*again)) == canonical_dump(written), "a program that was read makes a round trip");
  for (const Footprints footprints : {Footprints::Check, Footprints::Trust}) {
    const Validation one = validate(*program, footprints), two = validate(*again, footprints);
    require(one.valid() == two.valid(), "the validator answers alike for equal programs");
    if (!one.valid()) require(!one.rejection->rule.empty() && !one.rejection->message.empty(), "a rejection names its rule");
  }
  return 0;
}
