// A sample of the mutation suite; bench/run validator runs the whole.
#include <doctest/doctest.h>

#include "tests/support/programs/mutation_suite.h"

using namespace amk::testing;

TEST_CASE("mutants: none is accepted that the adversary breaks, and no valid program is refused") {
  SuiteOptions options;
  options.seed = 90210;
  options.mutants = 6000;
  options.complain = [](const std::string& report) { FAIL_CHECK(report); };
  const SuiteResult result = run_suite(options);
  const KindCount all = result.total();
  CHECK(all.mutants == options.mutants);
  CHECK(all.false_accepts == 0);
  CHECK(result.false_rejects == 0);
  CHECK(result.broken_bases == 0);
  // The adversary has teeth: most of what is refused it breaks as well.
  CHECK(all.rejected_broken * 10 > all.rejected * 8);
  // Changes that can never be harmless.
  for (const Mutation m :
       {Mutation::LowerTarget, Mutation::RaiseTarget, Mutation::SelfWait, Mutation::DropSignal, Mutation::ChangeFanIn, Mutation::OverflowSteps,
        Mutation::DuplicateInQueue, Mutation::DropFromQueue, Mutation::SwapStream, Mutation::DropFromStream, Mutation::DuplicateInStream,
        Mutation::StrideChange, Mutation::AppendOtherRow, Mutation::RaiseMaxSeq, Mutation::Unalign}) {
    const KindCount& k = result.kinds[static_cast<std::size_t>(m)];
    CAPTURE(to_string(m));
    CHECK(k.mutants > 0);
    CHECK(k.rejected == k.mutants);
  }
}

TEST_CASE("equal seeds, equal suites") {
  SuiteOptions options;
  options.seed = 3;
  options.mutants = 200;
  CHECK(markdown_table(run_suite(options)) == markdown_table(run_suite(options)));
}
