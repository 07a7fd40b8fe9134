// What the targets share. A target is LLVMFuzzerTestOneInput: it must return for every input; an abort, a sanitizer's report or an exception that
// leaves it is a fault.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <utility>

#include "core/base/error.h"

namespace amk::fuzz {

// A property that every input must keep; says which one and aborts, so that libFuzzer keeps the input.
void require(bool holds, std::string_view property);

inline std::string_view text_of(const std::uint8_t* data, std::size_t size) { return {reinterpret_cast<const char*>(data), size}; }

// Before and after the first NUL; all of it and nothing when there is none.
std::pair<std::string_view, std::string_view> split(std::string_view input);

// A folder of this process, in memory where the machine has /dev/shm; emptied when the process ends.
const std::filesystem::path& scratch();
void write_file(const std::filesystem::path& path, std::string_view bytes);

// The same value written otherwise: keys of every object in the opposite order. What reads JSON must not tell them apart.
std::string reversed_keys(const Json& value);

}  // namespace amk::fuzz
