// Several agents ask for the same campaign's report at once.
#include <doctest/doctest.h>

#include <algorithm>
#include <thread>
#include <vector>

#include "core/base/json.h"
#include "server/tools/app.h"
#include "tests/support/temp_folder.h"

using namespace amk;

TEST_CASE("reports of one campaign by eight threads: all are written, none leaves a temporary file") {
  const test::TempFolder folder;
  AppOptions options;
  options.workspace = folder.path;
  const auto app = App::open(options);
  REQUIRE_MESSAGE(app, app.error().message);
  SearchRequest request;
  request.model = "toy";
  request.gpu = "rtx5090";
  request.device = "cpu";
  request.budget = 2;
  REQUIRE((*app)->service().loop(request, {}));
  std::vector<std::string> problems(8);
  std::vector<std::thread> threads;
  for (std::string& problem : problems)
    threads.emplace_back([&] {
      for (int i = 0; i < 25 && problem.empty(); ++i)
        if (const auto report = (*app)->service().report(""); !report) problem = report.error().message;
    });
  for (auto& thread : threads) thread.join();
  for (const std::string& problem : problems) CHECK(problem == "");
  for (const auto& entry : std::filesystem::directory_iterator(folder.path / "reports"))
    CHECK_MESSAGE(entry.path().string().find(".tmp") == std::string::npos, entry.path().string());
}
