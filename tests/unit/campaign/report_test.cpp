// The report's history and plots against values worked out from the runs below; knob importance by hand.
#include <cmath>

#include "orchestrator/campaign/config_leaves.h"
#include "orchestrator/campaign/history.h"
#include "orchestrator/campaign/knob_importance.h"
#include "tests/unit/campaign/fixture.h"

using namespace amk;
using namespace amk::test;

TEST_CASE("knob importance: what explains all, nothing, or a part, by hand") {
  KnobImportance all;
  for (int i = 0; i < 8; ++i) all.add({{"a", std::to_string(i % 2)}, {"b", std::to_string(i / 4)}}, i % 2 ? std::exp(1.0) : 1.0);
  const auto ranked = all.ranked(5);
  REQUIRE(ranked.size() == 1);  // b's groups have equal means: corrected for its choices it explains less than nothing
  CHECK(ranked[0].knob == "a");
  CHECK(ranked[0].explains == doctest::Approx(1));
  CHECK(ranked[0].observations == 8);
  CHECK(ranked[0].confidence == "low");

  // Logs 0, 0, 1, 1 with a = 0 and 1, 1, 2, 2 with a = 1: total 4, between 2, within 2; (2 - 1·2/6) / 4.
  KnobImportance part;
  for (const auto& [a, y] : {std::pair{"0", 0.0}, {"0", 0.0}, {"0", 1.0}, {"0", 1.0}, {"1", 1.0}, {"1", 1.0}, {"1", 2.0}, {"1", 2.0}})
    part.add({{"a", a}}, std::exp(y));
  REQUIRE(part.ranked(1).size() == 1);
  CHECK(part.ranked(1)[0].explains == doctest::Approx((2.0 - 2.0 / 6.0) / 4.0));

  // A knob with a choice of its own for every row explains nothing, though its groups fit perfectly.
  KnobImportance unique;
  for (int i = 0; i < 10; ++i) unique.add({{"serial", std::to_string(i)}}, 1.0 + i);
  CHECK(unique.ranked(5).empty());
  KnobImportance few;
  for (int i = 0; i < 5; ++i) few.add({{"a", std::to_string(i % 2)}}, 1.0 + i % 2);
  CHECK(few.ranked(5).empty());
}

TEST_CASE("leaves of a config are dotted paths; lists are whole") {
  const auto leaves = config_leaves({{"a", {{"b", 1}, {"c", "x"}}}, {"d", {1, 2}}});
  REQUIRE(leaves.size() == 3);
  CHECK(leaves[0] == std::pair<std::string, std::string>{"a.b", "1"});
  CHECK(leaves[1] == std::pair<std::string, std::string>{"a.c", "\"x\""});
  CHECK(leaves[2] == std::pair<std::string, std::string>{"d", "[1,2]"});
}

TEST_CASE("leaves of a canonical text are those of the value, whatever it holds; other texts are refused or read as what they are") {
  const auto scanned = [](const std::string& text) {
    std::vector<std::pair<std::string, std::string>> out;
    const bool whole = scan_leaves(text, [&](std::string_view path, std::string_view leaf) { out.emplace_back(path, leaf); });
    return whole ? out : std::vector<std::pair<std::string, std::string>>{{"refused", ""}};
  };
  const Json configs[] = {
      Json::object(),
      {{"a", {{"b", 1}, {"c", "x"}}}, {"d", {1, 2}}},
      {{"a", Json::object()}, {"b", Json::array()}, {"c", nullptr}, {"d", true}, {"e", -1.5e300}, {"f", 12345678901234567ull}},
      {{"s", "quotes \", commas , braces } ] and \\ and \n\u0001"}, {"t", {{{"deep", {1, {2, {{"k", "]},"}}}}}}, "\"", 3}}},
      {{"µ", "größer"}, {"k", {{"L0.qkv.0", 5}, {"", 1}}}},
      Json(7),
      Json("text"),
  };
  for (const Json& c : configs) {
    CAPTURE(c.dump());
    CHECK(scanned(canonical_dump(c)) == config_leaves(c));
  }
  // A key with an escape is left to the parser; so is what is no JSON, of which nothing is read past the end.
  const std::vector<std::pair<std::string, std::string>> refused{{"refused", ""}};
  for (const char* text :
       {R"({"a\"b":1})", "", "{", "{\"a", "{\"a\":", "{\"a\":1", "{\"a\":}", "{\"a\":1,}", "{\"a\":[1}", "{\"a\":1}}", "{\"a\":\"x", "{\"a\":\"x\\"})
    CHECK(scanned(text) == refused);
  CHECK(scanned(std::string(1000, '{')) == refused);
  std::string deep;
  for (int i = 0; i < 200; ++i) deep += "{\"a\":";
  CHECK(scanned(deep + "1" + std::string(200, '}')) == refused);
  KnobImportance importance;
  CHECK(importance.add_config(R"({"a\"b":1})", 1.0));
  CHECK(importance.add_config("{\"a", 1.0).error().message.find("stored config") != std::string::npos);
}

TEST_CASE("knob importance leaves out what some experiments lack and what has too many choices, and counts configs as their leaves") {
  KnobImportance gaps, texts, leaves;
  for (int i = 0; i < 40; ++i) {
    const double us = i % 2 ? 2.0 : 1.0;
    std::vector<std::pair<std::string, std::string>> row = {{"always", std::to_string(i % 2)}};
    if (i != 20) row.emplace_back("once missing", std::to_string(i % 2));
    if (i > 0) row.emplace_back("late", std::to_string(i % 2));
    gaps.add(row, us);
    const Json c = {{"knob", {{"x", i % 2}, {"y", i % 3}}}, {"list", {1, i % 2}}};
    texts.add_config(canonical_dump(c), us);
    leaves.add(config_leaves(c), us);
  }
  REQUIRE(gaps.ranked(9).size() == 1);
  CHECK(gaps.ranked(9)[0].knob == "always");
  REQUIRE(texts.ranked(9).size() == 2);
  CHECK(texts.ranked(9)[0].knob == "knob.x");
  CHECK(texts.ranked(9)[1].knob == "list");
  CHECK(texts.ranked(9)[1].explains == leaves.ranked(9)[1].explains);
  KnobImportance many;
  for (int round = 0; round < 4; ++round)
    for (std::size_t i = 0; i <= KnobImportance::kMostChoices; ++i)
      many.add({{"fine", std::to_string(i)}, {"coarse", std::to_string(i % 2)}}, 1.0 + i % 2);
  REQUIRE(many.ranked(9).size() == 1);
  CHECK(many.ranked(9)[0].knob == "coarse");
}

TEST_CASE("a later report reads what ended since, and says the same as one that reads all of it") {
  Lab lab;
  for (int i = 0; i < 30; ++i) {
    lab.run(i, 100.0 - i + 10 * (i % 3));
    if (i % 7 == 0) must(lab.service->report(lab.campaign));
  }
  const Json grown = must(lab.service->report(lab.campaign)).json["history"];
  lab.open_store();  // forgets what it read
  const Json whole = must(lab.service->report(lab.campaign)).json["history"];
  CHECK(whole["experiments_read"] == 30);
  CHECK(grown == whole);
  // Of nine campaigns the one that was looked at first is read anew, with the same result.
  for (int k = 0; k < 9; ++k) must(lab.service->report(must(lab.service->open({"other-" + std::to_string(k), "h100", "cpu", "bf16-b1"}, {})).id));
  CHECK(must(lab.service->report(lab.campaign)).json["history"] == whole);
}

TEST_CASE("a history is the same in windows of any size, beside other campaigns' experiments") {
  Lab lab;
  const CampaignId mine = lab.campaign, other = must(lab.service->open({"other", "h100", "cpu", "bf16-b1"}, {})).id;
  for (int i = 0; i < 40; ++i) {
    lab.campaign = i % 3 == 0 ? mine : other;
    lab.run(i, 100.0 - i + 10 * (i % 4));
  }
  History whole(mine, 1000);
  const Json expected = must(lab.store->read<Json>([&](sql::Connection& c) { return whole.json(c); }));
  CHECK(expected["experiments_read"] == 14);  // 0, 3, … 39
  for (const std::int64_t window : {1, 2, 7, 40}) {
    CAPTURE(window);
    History history(mine, window);
    int reads = 0;
    while (must(lab.store->read<bool>([&](sql::Connection& c) { return history.read_on(c); }))) ++reads;
    CHECK(reads == (40 + window - 1) / window);
    CHECK(must(lab.store->read<Json>([&](sql::Connection& c) { return history.json(c); })) == expected);
  }
}

TEST_CASE("a report shows the course of the best, what was believed, where the time went, and plots that say so") {
  Lab lab;
  lab.run(1, 100);
  lab.run(2, 120);
  lab.run(3, 80);
  Verdict asked = verdict_of(config(7), 90);
  asked.notes = "hypothesis: wider <tiles> help";
  must(lab.service->issue(lab.campaign, asked));
  // What would leave its cell, tell a terminal what to do, or is cut inside a character.
  Verdict hostile = verdict_of(config(9), 95);
  hostile.notes = "hypothesis: a|b `c` [x](javascript:y) <img> &lt; \x1b[2J\n# head\xE2\x80\xAE" + std::string(247, 'z') + "\xF0\x9F\x98\x80 tail";
  must(lab.service->issue(lab.campaign, hostile));
  const auto report = must(lab.service->report(lab.campaign));
  const Json& h = report.json["history"];
  // Kept: the first (baseline) and the third; the second was slower.
  REQUIRE(h["course"].size() == 2);
  CHECK(h["course"][0]["n"] == 1);
  CHECK(h["course"][0]["latency_us"] == 100.0);
  CHECK(h["course"][1]["n"] == 3);
  CHECK(h["course"][1]["latency_us"] == 80.0);
  CHECK(h["experiments_read"] == 3);
  bool found = false;
  for (const Json& e : h["hypotheses"])
    if (e["hypothesis"] == "wider <tiles> help") {
      found = true;
      CHECK(e["outcome"] == "not recorded");
      CHECK(e["latency_us"] == 90.0);
    }
  CHECK(found);
  CHECK(report.markdown.find("wider \\<tiles> help") != std::string::npos);
  CHECK(report.markdown.find("-best-so-far.svg)") != std::string::npos);
  const std::size_t row = report.markdown.find("| a\\|b ");
  REQUIRE(row != std::string::npos);
  CHECK(report.markdown.substr(row, report.markdown.find('\n', row) - row)
            .starts_with("| a\\|b \\`c\\` \\[x](javascript:y) \\<img> \\&lt; �\\[2J # head�zzz"));
  CHECK(report.markdown.find("zzz… | not recorded | 95.000 |") != std::string::npos);  // 298 bytes: the next character ends at 302
  CHECK(h["hypotheses"][0]["hypothesis"].get<std::string>().ends_with("😀 tail"));      // whole in the JSON
  REQUIRE(report.plots.size() == 4);
  CHECK(report.plots[0].first == "best-so-far");
  for (const auto& [name, svg] : report.plots) {
    CHECK(svg.rfind("<svg ", 0) == 0);
    CHECK(svg.find("nan") == std::string::npos);
  }
  // The legend says the values, and each step has its mark.
  CHECK(report.plots[0].second.find("best of what was kept: 100 µs to 80 µs") != std::string::npos);
  CHECK(report.plots[0].second.find("physical floor: 50 µs") != std::string::npos);
  CHECK(report.plots[0].second.find("width=\"6.00\"") != std::string::npos);
}

TEST_CASE("the report of an empty campaign has plots that say nothing yet") {
  Lab lab;
  const auto report = must(lab.service->report(lab.campaign));
  CHECK(report.json["history"]["course"].empty());
  CHECK(report.plots.size() == 4);
}

TEST_CASE("phases add up to the time of the experiments") {
  Lab lab;
  const auto run = [&](int n, double latency, std::int64_t us, const Json& phases) {
    const Ticket t = lab.begin(config(n));
    lab.clock.advance_us(us);
    must(lab.service->finish(t, verdict_of(config(n), latency), phases));
  };
  run(1, 100, 3'000'000, {{"build_us", 1'000'000}, {"gate_us", 500'000}});
  run(2, 90, 2'000'000, {{"build_us", 2'000'000}});
  run(3, 95, 4'000'000, nullptr);
  run(4, 97, 2'000'000, {{"search_us", 250'000}, {"gate_us", 500'000}, {"other_us", 1'500'000}});  // the caller named the rest
  const Json phases = must(lab.service->report(lab.campaign)).json["history"]["time_by_phase_s"];
  CHECK(phases["build"].get<double>() == doctest::Approx(3));
  CHECK(phases["gate"].get<double>() == doctest::Approx(1));
  CHECK(phases["search"].get<double>() == doctest::Approx(0.25));  // before the experiment began
  CHECK(phases["other"].get<double>() == doctest::Approx(3));
  CHECK(phases["evaluation"].get<double>() == doctest::Approx(4));
}
