// Verdicts of "MODEL#op": on the CPU, and on a GPU whose worker is played, also by wrong kernels.
#include <cmath>
#include <cstring>

#include "core/base/random.h"
#include "core/program/lower_instruction.h"
#include "kernels/megakernel/gpu_judge.h"
#include "tests/support/misread.h"
#include "tests/support/needs.h"
#include "tests/support/played_worker.h"
#include "tests/support/temp_folder.h"
#include "tests/unit/family/opened.h"

using namespace amk;
using namespace amk::test;

TEST_CASE("on the CPU every kind of several models is correct and predicted, cheaper than the whole step") {
  for (const char* name : {"toy", "small", "llama-3.2-1b", "qwen3-0.6b"}) {
    const auto whole = opened(name, "h200");
    const double token_us = whole->predict_us(whole->default_config()).value();
    for (const std::string_view op : instruction_ops()) {
      const std::string id = std::string(name) + "#" + std::string(op);
      CAPTURE(id);
      const auto workload = opened(id, "h200");
      CHECK(workload->id() == id);
      const Verdict v = judged(*workload, Json::object());
      const std::string text = to_json(v).dump();
      CAPTURE(text);
      CHECK(v.status == VerdictStatus::Ok);
      CHECK(v.correct);
      CHECK(v.correctness->bitwise_repeatable);
      CHECK(v.latency_kind == LatencyKind::Predicted);
      CHECK(*v.latency_us >= *v.bound_us);
      CHECK(*v.latency_us < token_us);
      CHECK(v.schedule_id == whole->schedule_id(v.config));
      CHECK(workload->config_at(workload->space().default_point()) == workload->default_config());
      CHECK(workload->point_of(workload->default_config()).value() == workload->space().default_point());
    }
  }
}

TEST_CASE("the floor of a kind is its bytes over the vendor's peak, and the kinds together weigh what the step does") {
  const auto whole = opened("llama-3.1-8b", "h200");
  std::int64_t bytes = 0;
  for (const std::string_view op : instruction_ops()) {
    const auto workload = opened("llama-3.1-8b#" + std::string(op), "h200");
    bytes += dynamic_cast<const InstructionWorkload&>(*workload).weight_bytes();
  }
  // 32 layers of (4096 + 2 * 1024 + 4096) * 4096 + 3 * 4096 * 14336, and 4096 * 128256, in bf16.
  CHECK(bytes == 2 * (32 * (10240ll * 4096 + 3ll * 4096 * 14336) + 4096ll * 128256));
  const auto gate_up = opened("llama-3.1-8b#gate_up", "h200");
  const double hbm = 2.0 * 32 * 2 * 4096 * 14336 - static_cast<double>(gate_up->target().l2_bytes);
  const Roofline floor = dynamic_cast<const InstructionWorkload&>(*gate_up).floor(256);
  CHECK(floor.bound_us == doctest::Approx(hbm / (gate_up->target().peak_bandwidth_gbs * 1e3)));
}

TEST_CASE("only knobs that the kind reads are offered, and another is refused by name") {
  const auto names = [](const Workload& w) {
    std::vector<std::string> out;
    for (const Knob& k : w.space().knobs) out.push_back(k.name);
    return out;
  };
  const auto has = [&](const Workload& w, const char* knob) {
    const auto all = names(w);
    return std::find(all.begin(), all.end(), knob) != all.end();
  };
  const auto attention = opened("small#attention", "h100"), down = opened("small#down", "h100");
  CHECK(has(*attention, "tiling.attention.kv_block"));
  CHECK_FALSE(has(*attention, "tiling.gemv.N_tile"));
  CHECK(has(*down, "tiling.gemv.N_tile"));
  CHECK(has(*down, "fusion_grouping[down+add]"));
  CHECK_FALSE(has(*down, "fusion_grouping[o_proj+add]"));
  CHECK_FALSE(has(*down, "page_allocation"));
  const auto refused = down->canonical({{"tiling", {{"attention", {{"kv_block", 256}}}}}});
  REQUIRE_FALSE(refused);
  CHECK(refused.error().kind == ErrorKind::InvalidArgument);
  CHECK(refused.error().message.find("tiling.attention.kv_block") != std::string::npos);
  CHECK_FALSE(down->canonical({{"page_allocation", "linear"}}));
  CHECK(down->canonical({{"tiling", {{"gemv", {{"N_tile", 64}}}}}}));
  CHECK(judged(*down, {{"sm_assignment", {{"L0.down.0", 3}}}}).status == VerdictStatus::Ok);
  CHECK(judged(*down, {{"sm_assignment", {{"L0.qkv.0", 3}}}}).status == VerdictStatus::Rejected);
  const auto bad = open_workload("small#mlp", gpu("h100"));
  REQUIRE_FALSE(bad);
  CHECK(bad.error().message.find("gate_up") != std::string::npos);
  CHECK_FALSE(open_workload("no-such-model#qkv", gpu("h100")));
  CHECK(open_workload(fixture("qwen3-qknorm") + "#qkv", gpu("h100")));
}

TEST_CASE("every point of the space means one config, and its constraints are the model's") {
  const auto w = opened("toy#gate_up", "rtx5090");
  Rng rng(3);
  for (int i = 0; i < 200; ++i) {
    Point p;
    for (const Knob& k : w->space().knobs) p.push_back(static_cast<std::uint16_t>(rng.below(k.choices.size())));
    const Json config = w->config_at(p);
    const auto canonical = w->canonical(config);
    REQUIRE_MESSAGE(canonical, (canonical ? "" : canonical.error().message));
    CHECK(w->point_of(*canonical).value() == p);
    if (w->space().violated(p) != nullptr) CHECK_FALSE(w->predict_us(*canonical));
  }
  CHECK(misread(w->space(), 500) == "");
}

namespace {

// Computes with the reference VM in the GPU's formats; tests change what it says.
struct VmWorker final : PlayedWorker {
  std::shared_ptr<const Weights> weights;
  std::size_t one = 0;  // outputs of a draw
  std::function<void(std::vector<float>&, Json&)> on_check = [](std::vector<float>&, Json&) {};
  std::vector<std::vector<int>> positions;

  Message check(const Json& request) override {
    const ScheduleConfig config = parse_schedule_config(request.at("config")).value();
    LoweringTarget target;
    target.sm_count = 4;
    target.smem_optin_bytes = 227 << 10;
    target.max_seq = 512;
    const NumericFormat format = gpu_format(weights->spec().dtype);
    const auto program = lower_instruction(weights->spec(), request.at("instruction").get<std::string>(), config, target, format).value();
    auto vm = ReferenceVm::create(program, weights).value();
    std::vector<float> out;
    positions.emplace_back();
    for (const Json& d : request.at("draws")) {
      const auto values = run_on_vm(vm, program, {d.at("position"), d.at("seed")}, format).value();
      one = values.size();
      out.insert(out.end(), values.begin(), values.end());
      positions.back().push_back(d.at("position"));
    }
    Message reply;
    reply.body = honest_facts(request);
    reply.body["partials_agree"] = true;
    on_check(out, reply.body);
    reply.payload.assign(reinterpret_cast<const char*>(out.data()), out.size() * sizeof(float));
    return reply;
  }
};

// A kernel is built once for all kinds: so it is here, for all courts.
const TempFolder& kernels() {
  static const TempFolder folder;
  return folder;
}

struct Court {
  explicit Court(const std::string& name) {
    workload = opened(name, "h100");
    const auto& mine = dynamic_cast<const InstructionWorkload&>(*workload);
    worker.weights = load_weights(mine.model().model()).value();
    worker.uuid = "GPU-played-" + folder.path.filename().string();
    device = played_device(workload->target(), worker.uuid);
    judge.emplace(device, played_options(kernels().path, folder.path), worker);
  }
  Verdict verdict(const std::optional<Json>& incumbent = std::nullopt) {
    auto v = judge->judge(*workload, workload->default_config(), incumbent, {});
    REQUIRE_MESSAGE(v, (v ? "" : v.error().message));
    return *v;
  }
  TempFolder folder;
  std::shared_ptr<const Workload> workload;
  VmWorker worker;
  GpuDevice device;
  std::optional<GpuJudge> judge;
};

}  // namespace

TEST_CASE("a GPU's honest answer of every kind passes and is timed against the incumbent" * needs_nvrtc()) {
  for (const std::string_view op : instruction_ops()) {
    CAPTURE(op);
    Court court("toy-2L#" + std::string(op));
    Json slower = court.workload->default_config();
    slower["threads_per_block"] = 192;
    const Verdict v = court.verdict(slower);
    CHECK_MESSAGE(v.status == VerdictStatus::Ok, v.notes);
    CHECK(v.correct);
    CHECK(v.latency_kind == LatencyKind::MeasuredGpu);
    CHECK(*v.latency_us == 50);
    REQUIRE(v.versus);
    CHECK(v.versus->decision == Decision::Faster);
    CHECK(v.workload == "toy-2L#" + std::string(op));
    CHECK(court.worker.positions.front().back() == kInstructionPosition);
    CHECK(court.worker.last_time.at("instruction") == op);
    CHECK(court.worker.patience_us == 0);  // of an instruction everything is checked
  }
}

TEST_CASE("wrong kernels of one kind are incorrect and get no latency" * needs_nvrtc()) {
  for (const char* name : {"toy-2L#down", "toy-2L#qkv", "toy-2L#attention", "toy-2L#lm_head"}) {
    CAPTURE(name);
    Court court(name);
    REQUIRE(court.verdict().correct);
    const auto refused = [&](const char* what, std::function<void(std::vector<float>&, Json&)> change) {
      CAPTURE(what);
      court.worker.on_check = std::move(change);
      const Verdict v = court.verdict();
      CHECK(v.status == VerdictStatus::Incorrect);
      CHECK_FALSE(v.correct);
      CHECK_FALSE(v.latency_us);
      CHECK(v.notes.find("Incorrect") != std::string::npos);
    };
    const std::size_t one = court.worker.one;
    refused("zeros", [](std::vector<float>& out, Json&) { std::fill(out.begin(), out.end(), 0.0f); });
    refused("the first draw's outputs for every draw", [one](std::vector<float>& out, Json&) {
      for (std::size_t i = one; i < out.size(); ++i) out[i] = out[i % one];
    });
    refused("off by one row", [](std::vector<float>& out, Json&) { std::rotate(out.begin(), out.begin() + 1, out.end()); });
    refused("the last unit of rows dropped",
            [one](std::vector<float>& out, Json&) { std::fill_n(out.begin() + static_cast<long>(one) - 8, 8, 0.0f); });
    refused("a precision that the format does not have", [](std::vector<float>& out, Json&) {
      for (float& v : out) {
        std::uint32_t bits;
        std::memcpy(&bits, &v, 4);
        bits &= 0xfff00000u;  // three bits of mantissa
        std::memcpy(&v, &bits, 4);
      }
    });
    refused("one value is not a number", [](std::vector<float>& out, Json&) { out[3] = std::nanf(""); });
    refused("a draw is missing", [one](std::vector<float>& out, Json&) { out.resize(out.size() - one); });
    refused("two runs differ", [](std::vector<float>&, Json& body) { body["repeatable"] = false; });
    refused("bytes were not written", [](std::vector<float>&, Json& body) { body["unwritten"] = 1; });
    refused("inputs were changed", [](std::vector<float>&, Json& body) { body["inputs_unchanged"] = false; });
    refused("guards are damaged", [](std::vector<float>&, Json& body) { body["damaged_guards"] = 4; });
    refused("argmax partials of something else", [](std::vector<float>&, Json& body) { body["partials_agree"] = false; });
    refused("outputs after timing differ", [](std::vector<float>&, Json& body) { body["last_hash"] = 78; });
    court.worker.on_check = [](std::vector<float>&, Json&) {};
    court.worker.on_time = [](Json& body) { body["timing"]["candidate_us"] = std::vector<double>(20, 1e-6); };
    const Verdict fast = court.verdict();
    CHECK_FALSE(fast.latency_us);
    CHECK_FALSE(fast.withheld.empty());
  }
}
