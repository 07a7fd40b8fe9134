// Greedy generation and the logits file, against transformers' greedy ids.
#include <doctest/doctest.h>

#include <cmath>
#include <fstream>
#include <iterator>

#include "core/reference/forward.h"
#include "core/reference/generate.h"
#include "fixture.h"
#include "tests/support/temp_folder.h"

using namespace amk;
using namespace amk::testing;

TEST_CASE("generate gives transformers' ids, and the file holds the logits after every processed token") {
  const Fixture f = load_fixture("qwen2-bias");
  const auto vocab = static_cast<std::size_t>(f.weights->spec().vocab);
  const test::TempFolder folder;
  auto file = LogitsFile::create(folder.path / "logits.bin");
  REQUIRE(file);
  GenerateRequest request;
  request.prompt_ids.assign(f.input_ids.begin(), f.input_ids.begin() + 5);
  request.max_tokens = 16;
  request.threads = 2;
  std::vector<int> indices;
  request.on_token = [&](int index, int, std::span<const float> logits) {
    indices.push_back(index);
    return file->append(logits);
  };
  const auto out = generate(f.weights, request);
  REQUIRE(out);
  CHECK(out->ids == std::vector<int>(f.greedy_ids.begin() + 5, f.greedy_ids.end()));
  CHECK(out->tokens_processed == 20);
  CHECK_FALSE(out->stopped);
  REQUIRE(indices.size() == 20);
  CHECK((indices.front() == 0 && indices.back() == 19));
  REQUIRE(file->finish());

  std::ifstream in(folder.path / "logits.bin", std::ios::binary);
  const std::string bytes((std::istreambuf_iterator<char>(in)), {});
  REQUIRE(bytes.size() == 20 * vocab * 4);
  for (std::size_t i = 0; i < 5 * vocab; ++i) {
    // Assembled byte by byte: little-endian whatever this machine is.
    std::uint32_t bits = 0;
    for (std::size_t b = 0; b < 4; ++b) bits |= static_cast<std::uint32_t>(static_cast<unsigned char>(bytes[4 * i + b])) << (8 * b);
    float value;
    std::memcpy(&value, &bits, 4);
    REQUIRE(std::abs(value - f.logits_fp32[i]) <= 1e-4 * f.logit_std);
  }
}

TEST_CASE("generation stops at a stop id, after the prompt with max_tokens 0, and when the callback fails") {
  const Fixture f = load_fixture("llama-gqa");
  GenerateRequest request;
  request.prompt_ids.assign(f.input_ids.begin(), f.input_ids.begin() + 5);
  request.stop_ids = {f.greedy_ids[7]};
  const auto stopped = generate(f.weights, request);
  REQUIRE(stopped);
  CHECK(stopped->stopped);
  CHECK(stopped->ids.back() == f.greedy_ids[7]);
  CHECK(stopped->ids.size() <= 3);
  request.max_tokens = 0;
  const auto prompt_only = generate(f.weights, request);
  REQUIRE(prompt_only);
  CHECK(prompt_only->ids.empty());
  CHECK(prompt_only->tokens_processed == 5);
  int calls = 0;
  request.on_token = [&](int, int, std::span<const float>) -> Status {
    return ++calls == 3 ? Status(fail(ErrorKind::Cancelled, "enough")) : Status{};
  };
  const auto cancelled = generate(f.weights, request);
  REQUIRE_FALSE(cancelled);
  CHECK(cancelled.error().kind == ErrorKind::Cancelled);
  CHECK(calls == 3);
}

TEST_CASE("wrong requests are refused before any work, naming the field") {
  const auto weights = load_fixture_weights("llama-gqa");  // vocabulary 323, 512 positions
  const auto field = [&](std::vector<int> prompt, int max_tokens, std::vector<int> stop = {}) {
    const auto r = generate(weights, {std::move(prompt), max_tokens, std::move(stop), 1, {}});
    REQUIRE_FALSE(r);
    CHECK(r.error().kind == ErrorKind::InvalidArgument);
    return r.error().data["field"].get<std::string>();
  };
  CHECK(field({}, 1) == "prompt_ids");
  CHECK(field({1, 323}, 1) == "prompt_ids[1]");
  CHECK(field({-1}, 1) == "prompt_ids[0]");
  CHECK(field({1}, 1, {400}) == "stop_ids[0]");
  CHECK(field({1}, -1) == "max_tokens");
  CHECK(field({1}, 512) == "max_tokens");
  CHECK(field({1}, INT32_MAX) == "max_tokens");
  CHECK(field(std::vector<int>(513, 1), 0) == "prompt_ids");
  CHECK(check_generate(weights->spec(), {{1}, 511, {}, 1, {}}));
  CHECK_FALSE(generate(nullptr, {{1}, 1, {}, 1, {}}));
}

TEST_CASE("a logits file that cannot be written is an error that names it") {
  CHECK(LogitsFile::create("/nonexistent/logits").error().message.find("/nonexistent/logits") != std::string::npos);
  auto full = LogitsFile::create("/dev/full");  // every write fails with ENOSPC
  REQUIRE(full);
  const float logits[4] = {};
  CHECK(full->append(logits).error().data["errno"] == ENOSPC);
}
