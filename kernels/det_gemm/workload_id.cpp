#include "kernels/det_gemm/workload_id.h"

#include <array>
#include <charconv>
#include <vector>

#include "core/base/text.h"

namespace amk::det_gemm {
namespace {

constexpr std::string_view kForm = "det_gemm:<fwd|da|db>:<M>x<N>x<K>[:kn|nk][:fp32][:chunk<tokens>], or det_gemm:<named shape>";
constexpr std::int64_t kMaxExtent = 0x7FFFFFFF;

// Digits only, no sign, no leading zero, at most kMaxExtent; -1 otherwise.
std::int64_t extent(std::string_view text) {
  std::int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  const bool digits = !text.empty() && text[0] >= '0' && text[0] <= '9' && (text[0] != '0' || text.size() == 1);
  return error == std::errc() && end == text.data() + text.size() && digits && value <= kMaxExtent ? value : -1;
}

Result<Problem> parse_parts(std::string_view text, std::string_view body) {
  const auto wrong = [&] { return bad_field("model", std::string(text), kForm); };
  const std::vector<std::string_view> parts = split(body, ':');
  if (parts.size() < 2) return wrong();
  Problem p;
  if (parts[0] == "fwd")
    p.op = Op::Fwd;
  else if (parts[0] == "da")
    p.op = Op::Da;
  else if (parts[0] == "db")
    p.op = Op::Db;
  else
    return wrong();
  const std::vector<std::string_view> extents = split(parts[1], 'x');
  if (extents.size() != 3) return wrong();
  p.M = extent(extents[0]);
  p.N = extent(extents[1]);
  p.K = extent(extents[2]);
  if (p.M < 0 || p.N < 0 || p.K < 0) return bad_field("model", std::string(text), "M, N and K from 0 to 2147483647, as " + std::string(kForm));
  std::size_t i = 2;
  if (i < parts.size() && (parts[i] == "kn" || parts[i] == "nk")) p.weights = parts[i++] == "kn" ? WeightLayout::KN : WeightLayout::NK;
  if (i < parts.size() && parts[i] == "fp32") ++i, p.out = OutType::Fp32;
  if (i < parts.size() && parts[i].substr(0, 5) == "chunk") {
    p.chunk = extent(parts[i++].substr(5));
    if (p.op != Op::Db || p.chunk <= 0 || p.chunk % 16 != 0) {
      return bad_field("model", std::string(text), "chunk<tokens> with db only, tokens a positive multiple of 16");
    }
  }
  if (i != parts.size()) return wrong();
  return p;
}

}  // namespace

Result<std::map<std::string, Problem>> named_shapes_from_json(const Json& json) {
  std::map<std::string, Problem> named;
  if (!json.is_object()) return bad_field("shapes", json, "an object of name -> workload text");
  for (const auto& [name, value] : json.items()) {
    if (!value.is_string()) return bad_field("shapes." + name, value, kForm);
    AMK_TRY(problem, parse_workload(value.get_ref<const std::string&>(), {}));
    named.emplace(name, problem);
  }
  return named;
}

Result<Problem> parse_workload(std::string_view text, const std::map<std::string, Problem>& named) {
  if (text.substr(0, kWorkloadPrefix.size()) != kWorkloadPrefix) return bad_field("model", std::string(text), kForm);
  const std::string_view body = text.substr(kWorkloadPrefix.size());
  if (const auto found = named.find(std::string(body)); found != named.end()) return found->second;
  if (body.find(':') == std::string_view::npos) {
    std::string accepted(kForm);
    for (const auto& [name, problem] : named) accepted += ", " + std::string(kWorkloadPrefix) + name;
    return bad_field("model", std::string(text), accepted);
  }
  return parse_parts(text, body);
}

std::string workload_id(const Problem& p) {
  std::string id =
      std::string(kWorkloadPrefix) + std::string(to_string(p.op)) + ":" + std::to_string(p.M) + "x" + std::to_string(p.N) + "x" + std::to_string(p.K);
  if (p.weights == WeightLayout::NK) id += ":nk";
  if (p.out == OutType::Fp32) id += ":fp32";
  if (p.chunk > 0) id += ":chunk" + std::to_string(p.chunk);
  return id;
}

}  // namespace amk::det_gemm
