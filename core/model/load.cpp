#include "core/model/load.h"

#include <algorithm>
#include <system_error>

#include "core/base/hash.h"
#include "core/base/memory_map.h"
#include "core/model/catalogue.h"
#include "core/model/checkpoint.h"
#include "core/model/hf_cache.h"
#include "core/model/model_variant.h"
#include "core/model/quantise.h"
#include "core/model/seeded.h"

namespace amk {
namespace {

namespace fs = std::filesystem;

Result<ModelRef> from_directory(const fs::path& directory, std::string_view name) {
  AMK_TRY(spec, read_checkpoint_spec(directory, name));
  return ModelRef{ModelRef::Source::Directory, std::move(spec), directory, 0};
}

// A name without its suffix.
Result<ModelRef> resolve_plain(std::string_view name, const ModelSources& sources) {
  if (is_catalogue_name(name)) {
    auto entry = read_catalogue_entry(sources.catalogue_dir, name);
    if (entry) return ModelRef{ModelRef::Source::Catalogue, std::move(entry->spec), {}, entry->seed};
    if (entry.error().kind != ErrorKind::NotFound) return tl::unexpected<Error>(std::move(entry).error());
  }
  const fs::path directory(name);
  std::error_code ec;
  if (fs::is_directory(directory, ec)) {
    std::error_code unknown;  // a folder that may not be read says so when it is opened
    if (!fs::exists(directory / "config.json", unknown) && !unknown)
      return fail(ErrorKind::NotFound,
                  "model is \"" + std::string(name.substr(0, 200)) + "\", a folder without config.json; accepted: a checkpoint's own folder",
                  {{"field", "model"}, {"value", std::string(name)}, {"accepted", "a folder with config.json and safetensors"}});
    return from_directory(directory, name);
  }
  if (ec == std::errc::too_many_symbolic_link_levels)
    return fail(ErrorKind::Io, std::string(name) + ": too many levels of symbolic links", {{"field", "model"}, {"value", std::string(name)}});
  if (is_hub_name(name)) {
    AMK_TRY(snapshot, find_snapshot(sources.hf_cache_dir, name));
    return from_directory(snapshot, name);
  }
  std::string known;
  for (const std::string& n : catalogue_names(sources)) known += (known.empty() ? "" : ", ") + n;
  return fail(ErrorKind::NotFound,
              "model is \"" + std::string(name.substr(0, 200)) +
                  "\"; accepted: a folder with config.json, org/name in the HuggingFace cache, or one of " + known,
              {{"field", "model"}, {"value", std::string(name)}, {"accepted", catalogue_names(sources)}});
}

}  // namespace

ModelSources ModelSources::from_environment(const fs::path& config_dir) { return {config_dir / "models", default_hf_cache()}; }

Result<ModelRef> resolve_model(std::string_view name, const ModelSources& sources) {
  constexpr std::size_t kLongestPath = 4096;
  if (name.empty() || name.size() > kLongestPath || name.find('\0') != std::string_view::npos)
    return bad_field("model", std::string(name), "a catalogue name, a folder with config.json, or org/name in the HuggingFace cache");
  AMK_TRY(variant, parse_model_variant(name));
  AMK_TRY(ref, resolve_plain(variant.model, sources));
  if (variant.batch != 1 && variant.weights != WeightFormat::Stored)
    return fail(ErrorKind::Unsupported, "int8 weights are built for one sequence a launch, a batch for weights as stored; accepted: one of both",
                {{"field", "model"}, {"value", std::string(name)}, {"accepted", "@int8, or @b2 to @b8"}});
  ref.spec.weight_format = variant.weights;
  ref.batch = static_cast<int>(variant.batch);
  variant.model = ref.spec.name;
  ref.spec.name = to_string(variant);
  return ref;
}

Result<std::shared_ptr<const Weights>> load_weights(const ModelRef& ref, int threads) {
  ModelSpec stored = ref.spec;
  stored.weight_format = WeightFormat::Stored;
  AMK_TRY(weights, ref.source == ModelRef::Source::Catalogue ? generate_weights(stored, ref.seed, threads) : open_checkpoint(ref.directory, stored));
  if (ref.spec.weight_format == WeightFormat::Stored) return weights;
  return quantise_weights(std::move(weights), ref.spec.name, threads);
}

std::string stamp_of(const ModelRef& ref) {
  if (ref.source == ModelRef::Source::Catalogue) return {};
  std::vector<std::string> names;
  std::error_code failed;
  for (fs::directory_iterator at(ref.directory, failed), end; !failed && at != end; at.increment(failed)) {
    const std::string name = at->path().filename().string();
    if (name == "config.json" || name.ends_with(".safetensors") || name == "model.safetensors.index.json") names.push_back(name);
  }
  std::sort(names.begin(), names.end());
  const fs::path canonical = fs::canonical(ref.directory, failed);  // however the path was written
  std::string text = (failed ? ref.directory : canonical).string() + "\n";
  for (const std::string& name : names) {
    text += name;
    const auto id = identity_of(ref.directory / name);
    if (!id) {
      text += " gone\n";
      continue;
    }
    for (const auto number :
         {id->device, id->inode, id->size, static_cast<std::uint64_t>(id->modified_ns), static_cast<std::uint64_t>(id->changed_ns)})
      text += " " + std::to_string(number);
    text += "\n";
  }
  return hash128_hex(text);
}

std::vector<std::string> catalogue_names(const ModelSources& sources) { return list_catalogue(sources.catalogue_dir); }

}  // namespace amk
