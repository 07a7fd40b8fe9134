// Numbers as text, in a locale with a comma too; and that nobody writes or reads them in another way.
#include "core/base/number_text.h"

#include <doctest/doctest.h>

#include <array>
#include <bit>
#include <charconv>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>

#include "core/base/json.h"
#include "core/base/parse_json.h"
#include "core/base/random.h"
#include "tests/support/comma_locale.h"

using namespace amk;

namespace {

std::string printed(const char* format, int precision, double value) {
  std::array<char, 600> text{};
  std::snprintf(text.data(), text.size(), format, precision, value);
  return text.data();
}

}  // namespace

TEST_CASE("numbers as text: printf's digits, whatever the number") {
  Rng rng(5);
  for (int i = 0; i < 20'000; ++i) {
    const double value = i < 10'000 ? std::bit_cast<double>(rng.next()) : std::ldexp(rng.uniform() - 0.5, static_cast<int>(rng.below(40)));
    if (!std::isfinite(value)) continue;
    const int precision = static_cast<int>(rng.below(12));
    REQUIRE(with_digits(value, precision) == printed("%.*g", precision, value));
    REQUIRE(with_decimals(value, precision) == printed("%.*f", precision, value));
    REQUIRE(scientific(value, precision) == printed("%.*e", precision, value));
    const std::string text = shortest(value);
    double back = 0;
    std::from_chars(text.data(), text.data() + text.size(), back);
    REQUIRE(back == value);
  }
  CHECK(scientific(1e-5, 9) == "1.000000000e-05");
  CHECK(with_decimals(627.04, 1) == "627.0");
  CHECK(with_digits(0.25, 6) == "0.25");
  CHECK(shortest(0.1) == "0.1");
  CHECK(with_digits(-HUGE_VAL, 3) == "-inf");
}

TEST_CASE("numbers as text: a point in a locale with a comma, in JSON as well") {
  const double value = 1234567.5;
  const Json json = {{"us", value}, {"n", 1234567}};
  const std::string before = json.dump();
  const test::CommaLocale comma;
  if (!comma.there()) {
    MESSAGE("skipped: no locale with a comma, and localedef makes none");
    return;
  }
  REQUIRE(printed("%.*f", 1, value) == "1234567,5");  // so it would be
  CHECK(with_decimals(value, 1) == "1234567.5");
  CHECK(with_digits(value, 9) == "1234567.5");
  CHECK(scientific(value, 2) == "1.23e+06");
  CHECK(shortest(value) == "1234567.5");
  CHECK(json.dump() == before);
  const auto read = parse_json(R"({"us": 1234567.5, "n": 1.5e3})", "text");
  REQUIRE(read);
  CHECK((*read)["us"] == value);
  CHECK((*read)["n"] == 1500.0);
}

TEST_CASE("numbers as text: no source of ours prints or reads floating point by the locale") {
  namespace fs = std::filesystem;
  const std::regex printf_float(R"(%[-+ #0]*[0-9*]*(\.[0-9*]+)?l?[aefgAEFG]\b)"),
      by_locale(R"(\b(strtod|strtof|strtold|atof|stod|stof|stold|setprecision|setlocale|imbue)\b|std::(fixed|scientific|defaultfloat)\b)");
  int files = 0;
  for (const char* folder : {"core", "kernels", "orchestrator", "server"})
    for (const auto& entry : fs::recursive_directory_iterator(fs::path(AMK_SOURCE_DIR) / folder)) {
      const std::string ext = entry.path().extension().string();
      if (ext != ".cpp" && ext != ".h") continue;
      ++files;
      std::ifstream in(entry.path());
      for (std::string line; std::getline(in, line);) {
        const std::string code = line.substr(0, line.find("//"));
        const bool bad = (code.find('"') != std::string::npos && code.find('%') != std::string::npos && std::regex_search(code, printf_float) &&
                          code.find("set_pattern") == std::string::npos) ||
                         std::regex_search(code, by_locale);
        CHECK_MESSAGE(!bad, entry.path().string() << ": " << line);
      }
    }
  CHECK(files > 200);
}
