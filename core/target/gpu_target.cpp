#include "core/target/gpu_target.h"

#include <algorithm>
#include <cmath>
#include <fstream>
#include <iterator>
#include <system_error>
#include <variant>

#include "core/base/parse_json.h"

namespace amk {
namespace fs = std::filesystem;
namespace {

constexpr std::int64_t kTiB = std::int64_t{1} << 40;

using Member = std::variant<int GpuTarget::*, std::int64_t GpuTarget::*, double GpuTarget::*>;

// One row a numeric field: both directions of the JSON form and the checks come from this table.
struct NumericField {
  const char* name;
  Member member;
  double low, high;  // inclusive
};

const std::vector<NumericField>& numeric_fields() {
  static const std::vector<NumericField> fields = {
      {"sm_major", &GpuTarget::sm_major, 8, 99},
      {"sm_minor", &GpuTarget::sm_minor, 0, 9},
      {"sm_count", &GpuTarget::sm_count, 1, 4096},
      {"smem_optin_bytes", &GpuTarget::smem_optin_bytes, 1024, 1 << 24},
      {"smem_per_sm_bytes", &GpuTarget::smem_per_sm_bytes, 1024, 1 << 24},
      {"registers_per_sm", &GpuTarget::registers_per_sm, 1024, 1 << 24},
      {"max_threads_per_sm", &GpuTarget::max_threads_per_sm, 128, 1 << 16},
      {"l2_bytes", &GpuTarget::l2_bytes, 1, kTiB},
      {"memory_bytes", &GpuTarget::memory_bytes, 1 << 20, 1024.0 * kTiB},
      {"peak_bandwidth_gbs", &GpuTarget::peak_bandwidth_gbs, 1, 1e6},
      {"read_bandwidth_gbs", &GpuTarget::read_bandwidth_gbs, 0, 1e6},
      {"peak_bf16_tflops", &GpuTarget::peak_bf16_tflops, 0.1, 1e6},
      {"l2_latency_us", &GpuTarget::l2_latency_us, 0.01, 1000},
      {"hop_us", &GpuTarget::hop_us, 0.01, 1000},
      {"boost_clock_mhz", &GpuTarget::boost_clock_mhz, 0, 100000},
  };
  return fields;
}

std::string accepted_range(const NumericField& field) {
  const bool integral = !std::holds_alternative<double GpuTarget::*>(field.member);
  return std::string(integral ? "an integer" : "a number") + " from " + Json(field.low).dump() + " to " + Json(field.high).dump();
}

Status read_number(const Json& json, const NumericField& field, GpuTarget& target) {
  const auto found = json.find(field.name);
  if (found == json.end()) return bad_field(field.name, nullptr, accepted_range(field) + " (missing)");
  const bool integral = !std::holds_alternative<double GpuTarget::*>(field.member);
  if (integral ? !found->is_number_integer() : !found->is_number()) return bad_field(field.name, *found, accepted_range(field));
  const double value = found->get<double>();
  if (!(value >= field.low && value <= field.high)) return bad_field(field.name, *found, accepted_range(field));
  std::visit([&](auto member) { target.*member = found->get<std::decay_t<decltype(target.*member)>>(); }, field.member);
  return {};
}

Result<std::string> read_text(const Json& json, const char* field) {
  const auto found = json.find(field);
  if (found == json.end() || !found->is_string() || found->get_ref<const std::string&>().empty())
    return bad_field(field, found == json.end() ? Json(nullptr) : *found, "a non-empty text");
  return found->get<std::string>();
}

bool plain_name(std::string_view name) {
  return !name.empty() && name.size() <= 64 &&
         std::all_of(name.begin(), name.end(), [](char c) { return (c >= 'a' && c <= 'z') || (c >= '0' && c <= '9') || c == '-'; });
}

std::string joined(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& name : names) out += (out.empty() ? "" : ", ") + name;
  return out.empty() ? "(none found)" : out;
}

}  // namespace

Json to_json(const GpuTarget& target) {
  Json json = {{"name", target.name}, {"product", target.product}, {"source", target.source}};
  for (const NumericField& field : numeric_fields()) std::visit([&](auto member) { json[field.name] = target.*member; }, field.member);
  return json;
}

Result<GpuTarget> gpu_target_from_json(const Json& json) {
  if (!json.is_object()) return bad_field("gpu target", json, "an object");
  GpuTarget target;
  for (const auto& item : json.items()) {
    const std::string& key = item.key();
    const bool numeric = std::any_of(numeric_fields().begin(), numeric_fields().end(), [&](const NumericField& f) { return key == f.name; });
    if (!numeric && key != "name" && key != "product" && key != "source") return bad_field(key, item.value(), "no such field in a gpu target");
  }
  AMK_TRY(name, read_text(json, "name"));
  if (!plain_name(name)) return bad_field("name", name, "lower-case letters, digits and '-'");
  AMK_TRY(product, read_text(json, "product"));
  AMK_TRY(source, read_text(json, "source"));
  target.name = std::move(name);
  target.product = std::move(product);
  target.source = std::move(source);
  for (const NumericField& field : numeric_fields()) AMK_CHECK(read_number(json, field, target));
  if (target.smem_optin_bytes > target.smem_per_sm_bytes)
    return bad_field("smem_optin_bytes", target.smem_optin_bytes, "at most smem_per_sm_bytes (" + std::to_string(target.smem_per_sm_bytes) + ")");
  if (target.read_bandwidth_gbs > target.peak_bandwidth_gbs)
    return bad_field("read_bandwidth_gbs", target.read_bandwidth_gbs, "at most peak_bandwidth_gbs (" + Json(target.peak_bandwidth_gbs).dump() + ")");
  return target;
}

std::vector<std::string> gpu_target_names(const fs::path& gpus_dir) {
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator it(gpus_dir, failed), end; !failed && it != end; it.increment(failed)) {
    const fs::path& path = it->path();
    if (path.extension() == ".json" && plain_name(path.stem().string())) names.push_back(path.stem().string());
  }
  std::sort(names.begin(), names.end());
  return names;
}

Result<GpuTarget> load_gpu_target(std::string_view name, const fs::path& gpus_dir) {
  const fs::path path = gpus_dir / (std::string(name) + ".json");
  std::error_code ignored;
  if (!plain_name(name) || !fs::is_regular_file(path, ignored)) {
    auto error = bad_field("gpu", name, "one of " + joined(gpu_target_names(gpus_dir))).value();
    error.kind = ErrorKind::NotFound;
    return tl::unexpected<Error>(std::move(error));
  }
  std::ifstream in(path, std::ios::binary);
  const std::string text{std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
  if (in.bad() || !in.is_open()) return fail(ErrorKind::Io, "cannot read " + path.string(), {{"path", path.string()}});

  // A wrong record is a damaged file of ours, not a wrong argument of the caller's.
  const auto damaged = [&](Error error) { return fail(ErrorKind::Corrupt, path.string() + ": " + error.message, std::move(error.data)); };
  auto json = parse_json(text, path.string(), {.max_bytes = 1u << 16});
  if (!json) return damaged(std::move(json).error());
  auto target = gpu_target_from_json(*json);
  if (!target) return damaged(std::move(target).error());
  if (target->name != name) return damaged(bad_field("name", target->name, "the file's own name, " + std::string(name)).value());
  return target;
}

}  // namespace amk
