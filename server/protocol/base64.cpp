#include "server/protocol/base64.h"

#include <cstdint>

namespace amk::mcp {
namespace {

constexpr std::string_view kAlphabet = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";

}  // namespace

std::string base64_encode(std::string_view bytes) {
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    const std::size_t n = std::min<std::size_t>(3, bytes.size() - i);
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 3; ++j) group = group << 8 | (j < n ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    for (std::size_t j = 0; j < 4; ++j) out += j <= n ? kAlphabet[group >> (18 - 6 * j) & 63] : '=';
  }
  return out;
}

std::optional<std::string> base64_decode(std::string_view text) {
  if (text.size() % 4 != 0) return std::nullopt;
  std::string out;
  for (std::size_t i = 0; i < text.size(); i += 4) {
    std::size_t n = 4;
    if (i + 4 == text.size()) n -= (text[i + 3] == '=') + (text[i + 3] == '=' && text[i + 2] == '=');
    std::uint32_t group = 0;
    for (std::size_t j = 0; j < 4; ++j) {
      const std::size_t value = j < n ? kAlphabet.find(text[i + j]) : 0;
      if (value == std::string_view::npos) return std::nullopt;
      group = group << 6 | static_cast<std::uint32_t>(value);
    }
    if ((n == 2 && (group & 0xFFFF)) || (n == 3 && (group & 0xFF))) return std::nullopt;
    for (std::size_t j = 0; j + 1 < n; ++j) out += static_cast<char>(group >> (16 - 8 * j) & 0xFF);
  }
  return out;
}

}  // namespace amk::mcp
