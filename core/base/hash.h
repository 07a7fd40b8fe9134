// Content hashes (XXH3, 128 bit, by xxhash). Not cryptographic: names content, does not authenticate it. Thread-safe.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace amk {

std::uint64_t hash64(std::string_view bytes, std::uint64_t seed = 0);

// 32 lowercase hex digits, the same on every machine.
std::string hash128_hex(std::string_view bytes);

}  // namespace amk
