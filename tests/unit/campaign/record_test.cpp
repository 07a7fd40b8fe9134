#include "tests/unit/campaign/fixture.h"

using namespace amk;
using namespace amk::test;

namespace {

RecordRequest typed(const std::string& status, int n, const std::string& verdict_id = "") {
  RecordRequest r;
  r.status = status;
  r.config = config(n);
  r.schedule_id = id_of(*r.config);
  r.latency_us = 1;
  r.description = "typed";
  r.verdict_id = verdict_id;
  return r;
}

}  // namespace

TEST_CASE("numbers that are typed are claims and never a best") {
  Lab lab;
  const Json reply = must(lab.service->record(lab.campaign, typed("kept", 1)));
  CHECK(reply["recorded"] == "claim");
  const Json status = must(lab.service->status(lab.campaign));
  CHECK(status["best"].is_null());
  CHECK(status["claims"] == 1);
  CHECK(status["experiments"]["total"] == 0);
  CHECK(status["state"] == "baseline");
}

TEST_CASE("kept, backed by a verdict: named, or found by its config") {
  Lab lab;
  const Verdict issued = must(lab.service->issue(lab.campaign, verdict_of(config(1), 200)));
  CHECK(issued.verdict_id.size() > 32);
  const Json first = must(lab.service->record(lab.campaign, typed("kept", 1, issued.verdict_id)));
  CHECK(first["recorded"] == "kept");
  CHECK(first["is_best"] == true);
  CHECK(first["latency_us"] == 200.0);  // the verdict's, not what was typed
  must(lab.service->issue(lab.campaign, verdict_of(config(2), 150)));
  CHECK(must(lab.service->record(lab.campaign, typed("kept", 2)))["recorded"] == "kept");
  const auto best = must(lab.service->best(lab.campaign));
  CHECK(best->latency_us == 150);
  CHECK(best->loop == "agent");
  must(lab.service->check(lab.campaign));
}

TEST_CASE("every lie is refused by name, and kept as a refused claim") {
  Lab lab;
  const CampaignId other = must(lab.service->open({"toy", "h200", "cpu", "bf16-b1"})).id;
  const Verdict baseline = must(lab.service->issue(lab.campaign, verdict_of(config(1), 200)));
  must(lab.service->record(lab.campaign, typed("kept", 1, baseline.verdict_id)));
  const Verdict elsewhere = must(lab.service->issue(other, verdict_of(config(2), 100)));
  const Verdict slow = must(lab.service->issue(lab.campaign, verdict_of(config(3), 199)));
  const Verdict wrong = must(lab.service->issue(lab.campaign, bad(config(4), VerdictStatus::Incorrect)));
  const Verdict impossible = must(lab.service->issue(lab.campaign, verdict_of(config(5), 10)));

  const auto refusal = [&](RecordRequest r) { return reason_of(lab.service->record(lab.campaign, r)); };
  CHECK(refusal(typed("kept", 2, elsewhere.verdict_id)) == "other-campaign");
  CHECK(refusal(typed("kept", 6, slow.verdict_id)) == "other-config");
  const auto twice = lab.service->record(lab.campaign, typed("kept", 1, baseline.verdict_id));
  CHECK(reason_of(twice) == "already-recorded");
  CHECK(twice.error().data["experiment"] == to_string(must(lab.service->best(lab.campaign))->id));  // which one it became
  CHECK(refusal(typed("kept", 3, slow.verdict_id)) == "not-faster");
  CHECK(refusal(typed("kept", 4, wrong.verdict_id)) == "not-correct");
  CHECK(refusal(typed("kept", 5, impossible.verdict_id)) == "withheld");
  CHECK(refusal(typed("crash", 3, slow.verdict_id)) == "status-contradicts-verdict");
  CHECK(refusal(typed("revert", 4, wrong.verdict_id)) == "status-contradicts-verdict");
  // Made-up ids, and real ones with a wrong secret, a wrong row or other spelling.
  std::string forged = slow.verdict_id;
  forged.back() = forged.back() == '0' ? '1' : '0';
  for (const std::string& id : {forged, std::string("v1-"), std::string("v999999-00"), std::string("x"), std::string("v-1-2"),
                                "v0" + slow.verdict_id.substr(1) + "x", std::string(250, 'v')}) {
    CAPTURE(id);
    CHECK(refusal(typed("kept", 3, id)) == "unknown-verdict");
  }
  const Json status = must(lab.service->status(lab.campaign));
  CHECK(status["claims"] == 0);
  CHECK(status["experiments"]["total"] == 1);
  CHECK(status["best"]["schedule_id"] == id_of(config(1)));
  must(lab.service->check(lab.campaign));
  const auto report = must(lab.service->report(lab.campaign));
  CHECK(report.json["claims"].size() == 15);
  for (const Json& claim : report.json["claims"]) CHECK(claim["refused"].is_string());
  // What is true of the same verdicts is taken.
  CHECK(must(lab.service->record(lab.campaign, typed("revert", 3, slow.verdict_id)))["recorded"] == "revert");
  CHECK(must(lab.service->record(lab.campaign, typed("failed", 4, wrong.verdict_id)))["recorded"] == "failed");
  must(lab.service->check(lab.campaign));
}

TEST_CASE("a verdict that was compared with an older best does not make a new one") {
  Lab lab({}, "cuda");
  const auto issue = [&](const Verdict& v) { return must(lab.service->issue(lab.campaign, v)); };
  const Verdict base = issue(measured(config(0), 100, "", 0, 0));
  must(lab.service->record(lab.campaign, typed("kept", 0, base.verdict_id)));
  const Verdict a = issue(measured(config(1), 90, id_of(config(0)), 1.05, 1.2));
  const Verdict b = issue(measured(config(2), 80, id_of(config(0)), 1.1, 1.3));
  CHECK(must(lab.service->record(lab.campaign, typed("kept", 1, a.verdict_id)))["recorded"] == "kept");
  CHECK(reason_of(lab.service->record(lab.campaign, typed("kept", 2, b.verdict_id))) == "stale-incumbent");
}

TEST_CASE("records are idempotent by key; a refusal does not use the key up") {
  Lab lab;
  RecordRequest r = typed("kept", 1);
  r.idempotency_key = "once";
  const Json first = must(lab.service->record(lab.campaign, r));
  const Json second = must(lab.service->record(lab.campaign, r));
  CHECK(second["repeated"] == true);
  CHECK(second["recorded"] == first["recorded"]);
  CHECK(must(lab.service->status(lab.campaign))["claims"] == 1);
  RecordRequest changed = r;
  changed.latency_us = 2;
  CHECK(reason_of(lab.service->record(lab.campaign, changed)) == "key-reused");
  RecordRequest later = typed("kept", 2, "v7-bad");
  later.idempotency_key = "later";
  CHECK(reason_of(lab.service->record(lab.campaign, later)) == "unknown-verdict");
  later.verdict_id = must(lab.service->issue(lab.campaign, verdict_of(config(2), 100))).verdict_id;
  CHECK(must(lab.service->record(lab.campaign, later))["recorded"] == "kept");
  CHECK(must(lab.service->record(lab.campaign, later))["repeated"] == true);
}

TEST_CASE("wrong input is refused by field") {
  Lab lab;
  const auto field = [&](const RecordRequest& r) {
    const auto result = lab.service->record(lab.campaign, r);
    return result ? std::string("accepted") : result.error().data.value("field", "");
  };
  RecordRequest r = typed("kept", 1);
  r.status = "better";
  CHECK(field(r) == "status");
  r = typed("kept", 1);
  r.latency_us = -1;
  CHECK(field(r) == "latency_us");
  r.latency_us = std::nan("");
  CHECK(field(r) == "latency_us");
  r = typed("kept", 1);
  r.pct_roofline = 7800;
  CHECK(field(r) == "pct_roofline");
  r = typed("kept", 1);
  r.description = std::string(10'000, 'x');
  CHECK(field(r) == "description");
  CHECK(reason_of(lab.service->record(CampaignId{99}, typed("kept", 1))) == "");
  CHECK(lab.service->record(CampaignId{99}, typed("kept", 1)).error().kind == ErrorKind::NotFound);
}

TEST_CASE("next: says where the time goes, and does not repeat itself") {
  Lab lab;
  CHECK(must(lab.service->next(lab.campaign))["reason"] == "no-baseline");
  lab.run(1, 200);
  const Json first = must(lab.service->next(lab.campaign));
  CHECK(first["action"] == "continue");
  CHECK(first["focus"] == "mlp");
  CHECK(first["where"]["mlp"]["share"].get<double>() == doctest::Approx(0.6));
  CHECK(first["unchanged"] == false);
  const Json again = must(lab.service->next(lab.campaign));
  CHECK(again["unchanged"] == true);
  CHECK(again["advice_id"] == first["advice_id"]);
  CHECK_FALSE(again.contains("where"));
  lab.run(2, 200);
  const Json third = must(lab.service->next(lab.campaign));
  CHECK(third["unchanged"] == false);
  CHECK(third["advice_id"] != first["advice_id"]);
}

TEST_CASE("reports show text of others as text") {
  Lab lab;
  Verdict v = verdict_of(config(1), 200);
  BeginRequest r;
  r.config = v.config;
  r.schedule_id = v.schedule_id;
  r.description = "a|b\n# c <script> [x](y)";
  must(lab.service->finish(must(lab.service->begin(lab.campaign, r)), v));
  lab.run(2, 100);
  const auto report = must(lab.service->report(lab.campaign));
  CHECK(report.markdown.find("a\\|b # c \\<script> \\[x](y)") != std::string::npos);
  CHECK(report.markdown.find("predicted by the cost model, not measured") != std::string::npos);
  CHECK(report.json["speedup_over_own_baseline"] == 2.0);
  CHECK(report.json["changes_from_baseline"] == Json{{"kernel_knobs.cpasync", {false, true}}, {"tile", {1, 2}}});
  CHECK(report.json["kept"].size() == 2);
}
