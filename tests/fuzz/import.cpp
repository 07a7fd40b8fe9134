// A corpus of another tool, as a file: rows are refused one by one or stored as foreign, and everything stored reads back as text.
#include "core/base/parse_json.h"
#include "orchestrator/results/results.h"
#include "orchestrator/store/store.h"
#include "tests/fuzz/fuzz.h"

using namespace amk;
using fuzz::require;

namespace {

// Anew now and then: rows are kept for ever, and pages of many of them would be what is measured.
Store& store_for(int input) {
  static std::unique_ptr<Store> held;
  if (held == nullptr || input % 2000 == 0) {
    held.reset();
    std::error_code code;
    std::filesystem::remove_all(fuzz::scratch() / "workspace", code);
    StoreOptions options;
    options.workspace = fuzz::scratch() / "workspace";
    options.reserve_bytes = 1 << 16;
    auto opened = Store::open(options);
    require(opened.has_value(), opened ? "" : "the store opens: " + opened.error().message);
    held = std::move(*opened);
  }
  return *held;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  static int inputs = 0;
  Store& store = store_for(inputs++);
  const auto file = fuzz::scratch() / "in";
  fuzz::write_file(file, fuzz::text_of(data, size));
  const auto report = import_results(store, file, "fuzz");
  if (!report) {
    require(!report.error().message.empty(), "a refusal says why");
    return 0;
  }
  require(report->rows >= 0 && report->duplicates >= 0, "counts are counts");
  const auto twice = import_results(store, file, "fuzz");
  require(twice && twice->rows == 0 && twice->duplicates == report->rows + report->duplicates, "a second import adds nothing");
  ResultsQuery query;
  query.foreign = true;
  query.limit = 5;
  const auto page = Results(store).page(query);
  require(page.has_value(), "foreign rows can be read");
  for (const Json& row : page->rows) require(parse_json(canonical_dump(row), "row").has_value(), "a row is JSON");
  require(Results(store).best()->empty(), "foreign rows are never a best");
  require(foreign_rows(store, "", "", 5).has_value(), "foreign rows reach the prior");
  return 0;
}
