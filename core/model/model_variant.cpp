#include "core/model/model_variant.h"

#include <algorithm>
#include <filesystem>
#include <system_error>

namespace amk {
namespace {

tl::unexpected<Error> unknown(std::string_view suffix) {
  return bad_field("model", "@" + std::string(suffix.substr(0, 100)),
                   "behind the '@' \"int8\", one of \"b1\" to \"b8\", or both with a comma between; or a folder of that very name");
}

}  // namespace

Result<ModelVariant> parse_model_variant(std::string_view name) {
  ModelVariant out;
  out.model = name;
  const std::size_t at = name.rfind('@');
  if (at == std::string_view::npos || name.find('/', at) != std::string_view::npos) return out;
  std::error_code failed;
  if (std::filesystem::exists(std::filesystem::path(name), failed)) return out;
  out.model = name.substr(0, at);
  const std::string_view suffix = name.substr(at + 1);
  bool batch = false;
  for (std::size_t first = 0; first <= suffix.size();) {
    const std::size_t end = std::min(suffix.find(',', first), suffix.size());
    const std::string_view word = suffix.substr(first, end - first);
    first = end + 1;
    if (word == "int8" && out.weights == WeightFormat::Stored) {
      out.weights = WeightFormat::Int8;
    } else if (word.size() == 2 && word[0] == 'b' && word[1] >= '1' && word[1] <= '0' + static_cast<char>(kMostBatch) && !batch) {
      out.batch = static_cast<unsigned>(word[1] - '0');
      batch = true;
    } else {
      return unknown(suffix);
    }
  }
  return out;
}

std::string to_string(const ModelVariant& variant) {
  std::string suffix;
  if (variant.weights == WeightFormat::Int8) suffix = "int8";
  if (variant.batch != 1) suffix += (suffix.empty() ? "b" : ",b") + std::to_string(variant.batch);
  return suffix.empty() ? variant.model : variant.model + "@" + suffix;
}

}  // namespace amk
