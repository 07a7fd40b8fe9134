// The wrong kernels of tests/gpu/megakernel are the source with a line changed: every such line is there, once, so that a change of the source that
// loses one is noticed without a GPU.
#include "tests/gpu/megakernel/changed_lines.h"

#include <doctest/doctest.h>

#include <set>

#include "embedded/megakernel_sources.h"

using namespace amk;
using namespace amk::gpu_test;

TEST_CASE("every line that a wrong kernel changes is in the source, once") {
  CompileRequest good;
  good.name = "vm.cu";
  for (const auto& [path, text] : megakernel_sources()) {
    const std::string name = path.substr(path.rfind('/') + 1);
    if (name == good.name)
      good.source = text;
    else
      good.headers.emplace_back(name, text);
  }
  REQUIRE(!good.source.empty());
  const auto text_of = [](const CompileRequest& request) {
    std::string all = request.source;
    for (const auto& [name, text] : request.headers) all += text;
    return all;
  };
  for (const auto lines : {changed_int8(), changed_slices(), changed_attention_o(), changed_steps(), changed_ring_rows()}) {
    std::set<std::string> names;
    int unchanged = 0;
    for (const ChangedLine& line : lines) {
      CAPTURE(line.file);
      CAPTURE(line.name);
      CHECK(names.insert(line.name).second);
      CompileRequest request = good;
      REQUIRE(change(request, line));
      unchanged += line.nothing() ? 1 : 0;
      CHECK((text_of(request) == text_of(good)) == line.nothing());
      if (line.nothing()) continue;
      CompileRequest twice = good;
      // What is left of the line's first place must not hold it again.
      ChangedLine gone = line;
      gone.to = "";
      REQUIRE(change(twice, gone));
      CHECK_FALSE(change(twice, gone));
    }
    CHECK(unchanged >= 1);  // the test itself is tested
  }
  CompileRequest request = good;
  CHECK_FALSE(change(request, {"no such line", "vm.cu", "there is no such line", ""}));
  CHECK_FALSE(change(request, {"no such file", "none.cuh", "u32", ""}));
  CHECK(text_of(request) == text_of(good));
}
