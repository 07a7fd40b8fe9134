// Greedy decoding with the oracle: what `amk generate` does on the CPU, and what `--verify` compares a GPU with.
#pragma once

#include <filesystem>
#include <functional>
#include <memory>
#include <span>
#include <vector>

#include "core/base/error.h"
#include "core/model/weights.h"

namespace amk {

struct GenerateRequest {
  std::vector<int> prompt_ids;
  int max_tokens = 16;        // new tokens; 0 only processes the prompt
  std::vector<int> stop_ids;  // generation ends with (and includes) the first of these
  int threads = 0;            // 0 = all cores
  // After every processed token, in order: its index in prompt + generated ids, the token, the logits that follow it (valid during the
  // call). An error ends generation and is returned: cancellation, a full disk.
  std::function<Status(int index, int token, std::span<const float> logits)> on_token;
};

struct Generated {
  std::vector<int> ids;      // new tokens only
  int tokens_processed = 0;  // prompt + ids - 1: the last new token is not fed back (the prompt's length if max_tokens is 0)
  bool stopped = false;      // by a stop id
};

// What is wrong with a request for this model, naming the field: prompt_ids empty or outside the vocabulary, max_tokens negative, or both
// together longer than max_position. Needs no weights.
Status check_generate(const ModelSpec& spec, const GenerateRequest& request);

// Deterministic: equal weights and requests give equal ids on every machine and for any thread count.
Result<Generated> generate(const std::shared_ptr<const Weights>& weights, const GenerateRequest& request);

// Raw little-endian fp32 [rows, vocab], no header: what `--logits FILE` writes, row i being the logits after token i.
class LogitsFile {
 public:
  // Creates or truncates. Errors name the call and the path (Io).
  static Result<LogitsFile> create(const std::filesystem::path& path);
  Status append(std::span<const float> logits);
  // Flushes and closes; until it succeeded the file may be short. Without it the destructor closes and drops errors.
  Status finish();

  LogitsFile(LogitsFile&& other) noexcept;
  LogitsFile& operator=(LogitsFile&& other) noexcept;
  LogitsFile(const LogitsFile&) = delete;
  LogitsFile& operator=(const LogitsFile&) = delete;
  ~LogitsFile();

 private:
  LogitsFile(std::filesystem::path path, int fd) : path_(std::move(path)), fd_(fd) {}
  std::filesystem::path path_;
  int fd_ = -1;
};

}  // namespace amk
