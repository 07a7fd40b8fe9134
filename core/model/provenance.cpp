#include "core/model/provenance.h"

#include "core/base/parse_json.h"
#include "core/model/config_fields.h"
#include "core/model/import.h"
#include "core/model/shards.h"

namespace amk {

Status apply_provenance(const std::filesystem::path& directory, ModelSpec& spec) {
  const auto path = directory / "about.json";
  auto text = read_text_file(path, 1u << 20);
  if (!text) return {};  // optional, and anybody's file name
  auto about = parse_json(*text, path.string());
  if (!about || !about->is_object() || !about->contains("transformers") || !about->contains("weights_dtype")) return {};
  AMK_TRY(name, Fields(*about, "about.json: ").text("weights_dtype"));
  const auto dtype = dtype_from_torch(name);
  if (!dtype) return bad_field("about.json: weights_dtype", name, "torch.bfloat16, torch.float16, torch.float32");
  spec.rope.inv_freq_dtype = *dtype;
  return {};
}

}  // namespace amk
