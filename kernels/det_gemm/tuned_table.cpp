#include "kernels/det_gemm/tuned_table.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>

#include "core/base/parse_json.h"

namespace amk::det_gemm {
namespace {

constexpr std::string_view kSchema = "amk.det_gemm.tuned/1";

std::string capability_of(const GpuTarget& target) { return std::to_string(target.sm_major) + "." + std::to_string(target.sm_minor); }

// What the smallest Hopper offers; entries of other architectures are checked against its shared memory too, which is generous to none.
GpuTarget device_of(const TunedEntry& entry) {
  GpuTarget target;
  target.sm_major = entry.capability[0] - '0';
  target.sm_minor = entry.capability[2] - '0';
  target.sm_count = entry.sm_count;
  target.smem_optin_bytes = target.sm_major == 9 || target.sm_major == 10 ? 232448 : target.sm_minor == 0 ? 166912 : 101376;
  return target;
}

Canonical shape_at_edge(const TunedEntry& entry) {
  const bool forward = entry.op == Op::Fwd, kn = entry.weights == WeightLayout::KN;
  return {.m = entry.m,
          .n = entry.n,
          .k = entry.k,
          .x_k_contiguous = entry.op != Op::Db,
          .y_k_contiguous = entry.op == Op::Db ? false
                            : forward          ? !kn
                                               : kn,
          .out = entry.out,
          .chunk = entry.chunk};
}

template <class Enum>
Result<Enum> named(const Json& json, const char* field, std::initializer_list<std::pair<std::string_view, Enum>> names) {
  const auto found = json.find(field);
  std::string accepted;
  for (const auto& [name, value] : names) {
    if (found != json.end() && found->is_string() && found->get_ref<const std::string&>() == name) return value;
    accepted += (accepted.empty() ? "" : ", ") + std::string(name);
  }
  return bad_field(field, found == json.end() ? Json(nullptr) : *found, accepted);
}

Result<std::int64_t> whole(const Json& json, const char* field, std::int64_t low) {
  const auto found = json.find(field);
  if (found != json.end() && found->is_number_integer() && *found >= low && *found <= 0x7FFFFFFF) return found->get<std::int64_t>();
  return bad_field(field, found == json.end() ? Json(nullptr) : *found, "an integer from " + std::to_string(low) + " to 2147483647");
}

Result<TunedEntry> parse_entry(const Json& json) {
  if (!json.is_object()) return bad_field("entry", json, "an object");
  TunedEntry entry;
  const auto capability = json.find("capability");
  const bool shaped = capability != json.end() && capability->is_string() && capability->get_ref<const std::string&>().size() == 3 &&
                      std::isdigit(capability->get_ref<const std::string&>()[0]) != 0 && capability->get_ref<const std::string&>()[1] == '.' &&
                      std::isdigit(capability->get_ref<const std::string&>()[2]) != 0;
  if (!shaped) return bad_field("capability", capability == json.end() ? Json(nullptr) : *capability, "major.minor, e.g. \"9.0\"");
  entry.capability = capability->get<std::string>();
  AMK_TRY(sm_count, whole(json, "sm_count", 1));
  entry.sm_count = static_cast<int>(sm_count);
  AMK_TRY(op, (named<Op>(json, "op", {{"fwd", Op::Fwd}, {"da", Op::Da}, {"db", Op::Db}})));
  AMK_TRY(weights, (named<WeightLayout>(json, "weights", {{"kn", WeightLayout::KN}, {"nk", WeightLayout::NK}})));
  AMK_TRY(out, (named<OutType>(json, "out", {{"bf16", OutType::Bf16}, {"fp32", OutType::Fp32}})));
  entry.op = op;
  entry.weights = weights;
  entry.out = out;
  if (json.contains("chunk")) {
    AMK_TRY(chunk, whole(json, "chunk", 0));
    entry.chunk = chunk;
  }
  const auto bucket = json.find("bucket");
  if (bucket == json.end() || !bucket->is_object())
    return bad_field("bucket", bucket == json.end() ? Json(nullptr) : *bucket, "{\"m\", \"n\", \"k\"}");
  for (const auto& [name, field] : {std::pair{"m", &TunedEntry::m}, {"n", &TunedEntry::n}, {"k", &TunedEntry::k}}) {
    AMK_TRY(edge, whole(*bucket, name, 1));
    if (bucket_edge(edge) != edge) return bad_field("bucket." + std::string(name), edge, "a bucket edge: 1, 8, 16, 32, 64 or a larger power of two");
    entry.*field = edge;
  }
  const auto config = json.find("config");
  if (config == json.end()) return bad_field("config", nullptr, "an object of knobs");
  AMK_TRY(parsed, parse_config(*config));
  entry.config = parsed;
  if (json.contains("evidence")) entry.evidence = json["evidence"];
  const Canonical shape = shape_at_edge(entry);
  AMK_TRY(plan, make_plan(shape, dense_storage(shape), entry.config, device_of(entry)));
  return entry;
}

double distance(const TunedEntry& e, const Canonical& shape) {
  const auto away = [](std::int64_t edge, std::int64_t extent) {
    return std::fabs(std::log2(static_cast<double>(edge)) - std::log2(static_cast<double>(bucket_edge(std::max<std::int64_t>(extent, 1)))));
  };
  return 2 * away(e.m, shape.m) + away(e.n, shape.n) + away(e.k, shape.k);  // M decides tiles most
}

bool same_key(const TunedEntry& a, const TunedEntry& b) {
  return a.capability == b.capability && a.sm_count == b.sm_count && a.op == b.op && a.weights == b.weights && a.out == b.out && a.chunk == b.chunk &&
         a.m == b.m && a.n == b.n && a.k == b.k;
}

}  // namespace

std::int64_t bucket_edge(std::int64_t extent) {
  if (extent <= 1) return 1;
  std::int64_t edge = 8;
  while (edge < extent) edge *= 2;
  return edge;
}

Result<TunedTable> TunedTable::parse(const Json& json) {
  if (!json.is_object() || json.value("schema", Json()) != kSchema || !json.contains("entries") || !json["entries"].is_array()) {
    return fail(ErrorKind::Corrupt, "not a tuned table: accepted is {\"schema\": \"" + std::string(kSchema) + "\", \"entries\": […]}");
  }
  TunedTable table;
  for (std::size_t i = 0; i < json["entries"].size(); ++i) {
    auto entry = parse_entry(json["entries"][i]);
    if (!entry) return fail(ErrorKind::Corrupt, "entries[" + std::to_string(i) + "]: " + entry.error().message, entry.error().data);
    table.entries_.push_back(std::move(*entry));
  }
  return table;
}

Result<TunedTable> TunedTable::load(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  const std::string text((std::istreambuf_iterator<char>(file)), std::istreambuf_iterator<char>());
  if (!file) return fail(ErrorKind::Io, "cannot read the tuned table " + path.string(), {{"path", path.string()}});
  AMK_TRY(json, parse_json(text, path.string()));
  return parse(json);
}

void TunedTable::append(TunedTable other) {
  for (TunedEntry& entry : other.entries_) {
    const auto at = std::find_if(entries_.begin(), entries_.end(), [&](const TunedEntry& e) { return same_key(e, entry); });
    if (at != entries_.end())
      *at = std::move(entry);
    else
      entries_.push_back(std::move(entry));
  }
}

std::vector<TunedHit> TunedTable::find(const Problem& problem, const GpuTarget& target) const {
  const Canonical shape = canonical(problem);
  std::vector<const TunedEntry*> fitting;
  for (const TunedEntry& e : entries_) {
    if (e.capability == capability_of(target) && e.op == problem.op && e.weights == problem.weights && e.out == problem.out &&
        e.chunk == problem.chunk) {
      fitting.push_back(&e);
    }
  }
  const auto rank = [&](const TunedEntry* e) { return std::pair(e->sm_count != target.sm_count, distance(*e, shape)); };
  std::stable_sort(fitting.begin(), fitting.end(), [&](const TunedEntry* a, const TunedEntry* b) { return rank(a) < rank(b); });
  std::vector<TunedHit> hits;
  for (const TunedEntry* e : fitting) hits.push_back({e, e->sm_count == target.sm_count && distance(*e, shape) == 0 ? Match::Exact : Match::Nearest});
  return hits;
}

Json to_json(const TunedEntry& e) {
  Json json = {{"capability", e.capability},      {"sm_count", e.sm_count},  {"op", to_string(e.op)},
               {"weights", to_string(e.weights)}, {"out", to_string(e.out)}, {"bucket", {{"m", e.m}, {"n", e.n}, {"k", e.k}}},
               {"config", to_json(e.config)},     {"evidence", e.evidence}};
  if (e.chunk > 0) json["chunk"] = e.chunk;
  return json;
}

Json tuned_file(const std::vector<TunedEntry>& entries) {
  Json list = Json::array();
  for (const TunedEntry& e : entries) list.push_back(to_json(e));
  return {{"schema", kSchema}, {"entries", std::move(list)}};
}

}  // namespace amk::det_gemm
