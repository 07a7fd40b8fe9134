// The local HuggingFace cache: <cache>/models--org--name/refs/main names the commit, snapshots/<commit> holds the files (links into blobs).
// Layout: https://huggingface.co/docs/huggingface_hub/guides/manage-cache. Read only; nothing is downloaded.
#pragma once

#include <filesystem>
#include <string_view>

#include "core/base/error.h"

namespace amk {

// $HF_HUB_CACHE, else $HF_HOME/hub, else $XDG_CACHE_HOME/huggingface/hub, else ~/.cache/huggingface/hub.
std::filesystem::path default_hf_cache();

// Both parts: letters, digits, '.', '_', '-', no leading or trailing '.' or '-', no ".." or "--" (the Hub's own rule; rules out traversal).
bool is_hub_name(std::string_view name);

// The snapshot folder of refs/main, or the only snapshot if there is no refs/main. NotFound otherwise.
Result<std::filesystem::path> find_snapshot(const std::filesystem::path& cache, std::string_view name);

}  // namespace amk
