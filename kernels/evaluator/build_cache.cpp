#include "kernels/evaluator/build_cache.h"

#include <fcntl.h>
#include <sys/file.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cstring>
#include <fstream>
#include <sstream>

#include "core/base/files.h"
#include "core/base/hash.h"

namespace amk {
namespace {

constexpr std::string_view kMagic = "amk-cubin-1\n";
constexpr std::string_view kSuffix = ".cubin";

// Length-prefixed, so that moving a byte from one field to the next changes the key.
void append_field(std::string& out, std::string_view field) {
  out += std::to_string(field.size());
  out += ':';
  out += field;
}

// magic, key, hash of the payload, cubin bytes, log bytes, then the payload (cubin, log).
std::string encode(const std::string& key, const CompiledKernel& kernel) {
  std::string payload(reinterpret_cast<const char*>(kernel.cubin.data()), kernel.cubin.size());
  payload += kernel.log;
  // No stream: a process that this library is loaded into may have set a locale that groups digits.
  return std::string(kMagic) + key + '\n' + hash128_hex(payload) + '\n' + std::to_string(kernel.cubin.size()) + '\n' +
         std::to_string(kernel.log.size()) + '\n' + payload;
}

std::optional<CompiledKernel> decode(const std::string& key, const std::string& text) {
  std::istringstream in(text);
  std::string magic, stored_key, hash, cubin_bytes, log_bytes;
  if (!std::getline(in, magic) || magic + "\n" != kMagic || !std::getline(in, stored_key) || stored_key != key || !std::getline(in, hash) ||
      !std::getline(in, cubin_bytes) || !std::getline(in, log_bytes) || cubin_bytes.size() > 12 || log_bytes.size() > 12 || cubin_bytes.empty() ||
      log_bytes.empty() || cubin_bytes.find_first_not_of("0123456789") != std::string::npos ||
      log_bytes.find_first_not_of("0123456789") != std::string::npos) {
    return std::nullopt;
  }
  const std::size_t start = kMagic.size() + key.size() + 1 + hash.size() + 1 + cubin_bytes.size() + 1 + log_bytes.size() + 1;
  const std::size_t cubin_size = std::stoull(cubin_bytes), log_size = std::stoull(log_bytes);
  if (text.size() != start + cubin_size + log_size) return std::nullopt;
  const std::string payload = text.substr(start);
  if (hash128_hex(payload) != hash) return std::nullopt;
  CompiledKernel kernel;
  kernel.cubin.resize(cubin_size);
  std::memcpy(kernel.cubin.data(), payload.data(), cubin_size);
  kernel.log = payload.substr(cubin_size);
  return kernel;
}

}  // namespace

Result<NvrtcCompiler> NvrtcCompiler::open() {
  AMK_TRY(nvrtc, Nvrtc::open());
  NvrtcCompiler compiler;
  compiler.nvrtc_ = nvrtc;
  return compiler;
}

Result<BuildCache> BuildCache::open(std::filesystem::path folder, Limits limits) {
  std::error_code code;
  std::filesystem::create_directories(folder, code);
  if (code) return fail(ErrorKind::Io, "cannot create the build cache " + folder.string() + ": " + code.message(), {{"path", folder.string()}});
  return BuildCache(std::move(folder), limits);
}

std::string BuildCache::key(const std::string& compiler_version, const CompileRequest& request) {
  std::string text;
  append_field(text, compiler_version);
  append_field(text, request.architecture);
  append_field(text, request.source);
  append_field(text, std::to_string(request.headers.size()));
  for (const auto& [name, header] : request.headers) {
    append_field(text, name);
    append_field(text, header);
  }
  for (const std::string& option : request.options) append_field(text, option);
  return hash128_hex(text);
}

std::optional<CompiledKernel> BuildCache::find(const std::string& key) const {
  const std::filesystem::path path = folder_ / (key + std::string(kSuffix));
  std::ifstream in(path, std::ios::binary);
  if (!in) return std::nullopt;
  std::ostringstream text;
  text << in.rdbuf();
  std::optional<CompiledKernel> kernel = decode(key, text.str());
  if (kernel) ::utimensat(AT_FDCWD, path.c_str(), nullptr, 0);  // "used now", for evict(); failing costs only its order
  return kernel;
}

Status BuildCache::store(const std::string& key, const CompiledKernel& kernel) const {
  AMK_CHECK(replace_file(folder_ / (key + std::string(kSuffix)), encode(key, kernel), {.mode = 0600}));
  evict();
  return {};
}

void BuildCache::evict() const {
  // One evictor at a time is enough; whoever does not get the lock leaves it to the other.
  const int lock = ::open((folder_ / "lock").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
  if (lock < 0) return;
  if (::flock(lock, LOCK_EX | LOCK_NB) == 0) {
    struct Entry {
      std::filesystem::path path;
      std::int64_t bytes;
      std::filesystem::file_time_type used;
    };
    std::vector<Entry> entries;
    std::int64_t total = 0;
    std::error_code code;
    const auto now = std::filesystem::file_time_type::clock::now();
    for (std::filesystem::directory_iterator it(folder_, code), end; !code && it != end; it.increment(code)) {
      std::error_code gone;
      const auto used = it->last_write_time(gone);
      const auto bytes = static_cast<std::int64_t>(it->file_size(gone));
      if (gone) continue;
      const std::string name = it->path().filename().string();
      // Left by a killed process; ".tmp-" by earlier versions.
      if (name.ends_with(".partial") || name.find(".tmp-") != std::string::npos) {
        if (now - used > std::chrono::hours(1)) std::filesystem::remove(it->path(), gone);
      } else if (it->path().extension() == kSuffix) {
        entries.push_back({it->path(), bytes, used});
        total += bytes;
      }
    }
    std::sort(entries.begin(), entries.end(), [](const Entry& a, const Entry& b) { return a.used < b.used; });
    for (std::size_t i = 0; i + 1 < entries.size() && total > limits_.bytes; ++i) {  // the newest always stays
      std::error_code gone;
      std::filesystem::remove(entries[i].path, gone);
      total -= entries[i].bytes;
    }
  }
  ::close(lock);  // releases the lock
}

Result<BuildCache::Built> BuildCache::build(const Compiler& compiler, const CompileRequest& request) const {
  const auto start = std::chrono::steady_clock::now();
  const auto elapsed_ms = [&] { return std::chrono::duration<double, std::milli>(std::chrono::steady_clock::now() - start).count(); };
  const std::string entry = key(compiler.version(), request);
  if (std::optional<CompiledKernel> kernel = find(entry)) return Built{std::move(*kernel), true, elapsed_ms()};
  AMK_TRY(kernel, compiler.compile(request));
  const Status stored = store(entry, kernel);  // a cache that cannot be written is slow, not wrong
  (void)stored;
  return Built{std::move(kernel), false, elapsed_ms()};
}

}  // namespace amk
