// What the oracle promises besides being right: repeatability, the cache's layout, errors, rotary tables.
#include <doctest/doctest.h>

#include <cmath>
#include <cstring>

#include "core/model/seeded.h"
#include "core/reference/forward.h"
#include "core/reference/native.h"
#include "fixture.h"

using namespace amk;
using namespace amk::testing;

namespace {

ModelSpec catalogue(const char* name) {
  auto ref = resolve_model(name, {std::filesystem::path(AMK_SOURCE_DIR) / "config/models", {}});
  REQUIRE(ref);
  return ref->spec;
}

template <class Forward>
std::vector<float> run(const std::shared_ptr<const Weights>& weights, int threads, int tokens) {
  Forward forward(weights, 64, threads);
  std::vector<float> all;
  for (int t = 0; t < tokens; ++t) {
    auto logits = forward.step((t * 37 + 5) % weights->spec().vocab);
    REQUIRE(logits);
    all.insert(all.end(), logits->begin(), logits->end());
  }
  return all;
}

bool same_bits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

}  // namespace

TEST_CASE("logits are the same bits for any thread count, and after reset") {
  const auto weights = *generate_weights(catalogue("small"), 4, 1);
  const auto one = run<Oracle>(weights, 1, 6);
  for (const int threads : {2, 3, 8}) CHECK(same_bits(one, run<Oracle>(weights, threads, 6)));
  CHECK(same_bits(run<NativeForward>(weights, 1, 3), run<NativeForward>(weights, 3, 3)));

  Oracle oracle(weights, 8, 1);
  REQUIRE(oracle.step(5));
  REQUIRE(oracle.step(42));
  oracle.reset();
  CHECK(oracle.position() == 0);
  const auto again = oracle.step(5);
  REQUIRE(again);
  CHECK(std::memcmp(again->data(), one.data(), again->size() * sizeof(float)) == 0);
}

template <class Forward>
void feed_equals_steps(const std::shared_ptr<const Weights>& weights, int count, int before, int threads) {
  const int vocab = weights->spec().vocab, width = count + 2;
  const auto token = [&](int p) { return (p * 37 + 5) % vocab; };
  Forward one(weights, width, 1), many(weights, width, threads);
  std::vector<int> tokens, wanted;
  for (int p = 0; p < before; ++p) REQUIRE(many.step(token(p)));
  for (int p = before; p < count; ++p) {
    tokens.push_back(token(p));
    if (p % 3 != 1) wanted.push_back(p);
  }
  const auto fed = many.feed(tokens, wanted);
  REQUIRE(fed);
  REQUIRE(fed->size() == wanted.size());
  CHECK(many.position() == count);
  std::size_t at = 0;
  for (int p = 0; p < count; ++p) {
    const auto logits = one.step(token(p));
    REQUIRE(logits);
    if (at < wanted.size() && wanted[at] == p) CHECK_MESSAGE(same_bits((*fed)[at++], {logits->begin(), logits->end()}), p);
  }
  // The caches are the same, too: so is what comes next.
  const auto a = one.step(7), b = many.step(7);
  REQUIRE((a && b));
  CHECK(same_bits({a->begin(), a->end()}, {b->begin(), b->end()}));
}

TEST_CASE("several tokens at once give the bits of one at a time: windows, biases, norms of heads, fp32 and int8 weights") {
  for (const std::string& name : fixture_names()) {
    INFO(name);
    const auto weights = load_fixture_weights(name);
    feed_equals_steps<Oracle>(weights, 21, 0, 3);
    feed_equals_steps<NativeForward>(weights, 21, 5, 2);
  }
  const auto int8 = resolve_model(fixture_path("qwen2-bias").string() + "@int8", {});
  REQUIRE(int8);
  const auto weights = *load_weights(*int8);
  feed_equals_steps<Oracle>(weights, 9, 2, 2);
  feed_equals_steps<NativeForward>(weights, 9, 0, 2);
  feed_equals_steps<Oracle>(*generate_weights(catalogue("toy"), 4, 1), 135, 3, 2);  // more than a block of them, and a rest
}

TEST_CASE("fed tokens that cannot be: errors that name them, and nothing is processed") {
  const auto weights = *generate_weights(catalogue("toy"), 1, 1);
  Oracle oracle(weights, 4, 1);
  const std::vector<int> tokens = {1, 2, 3}, bad = {1, 256}, many = {1, 2, 3, 4, 5};
  const auto refused = [&](std::span<const int> t, std::vector<int> wanted, const char* field) {
    const auto fed = oracle.feed(t, wanted);
    REQUIRE_FALSE(fed);
    CHECK(fed.error().data.at("field") == field);
    CHECK(oracle.position() == 0);
  };
  refused(bad, {}, "token");
  refused(many, {}, "tokens");
  refused(tokens, {3}, "wanted");
  refused(tokens, {-1}, "wanted");
  refused(tokens, {1, 1}, "wanted");
  refused(tokens, {2, 0}, "wanted");
  CHECK(oracle.feed({}, {}).value().empty());
  CHECK(oracle.feed(tokens, std::vector<int>{2}).value().size() == 1);
}

TEST_CASE("bad tokens, a full cache and impossible lengths are errors that name them") {
  const auto weights = *generate_weights(catalogue("toy"), 1, 1);
  Oracle oracle(weights, 2, 1);
  for (const int token : {-1, 256, INT32_MAX, INT32_MIN}) {
    const auto r = oracle.step(token);
    REQUIRE_FALSE(r);
    CHECK(r.error().data["field"] == "token");
    CHECK(r.error().data["value"] == token);
  }
  CHECK(oracle.position() == 0);
  REQUIRE(oracle.step(255));
  REQUIRE(oracle.step(0));
  CHECK(oracle.step(0).error().data["field"] == "position");
  for (const int max_seq : {0, -5, 2049, INT32_MAX}) {
    Oracle impossible(weights, max_seq, 1);
    CHECK(impossible.step(0).error().data["field"] == "max_seq");
    CHECK(impossible.keys(0).empty());
  }
  CHECK_FALSE(Oracle(nullptr, 8, 1).step(0));
  CHECK(oracle.keys(1).empty());
  CHECK(oracle.keys(-1).empty());
}

TEST_CASE("the cache holds [kv_heads][max_seq][head_dim]: position 0 is the unrotated projection of the normalised embedding") {
  const auto weights = load_fixture_weights("llama-gqa");
  const ModelSpec& s = weights->spec();
  constexpr int kMaxSeq = 5;
  constexpr int kToken = 17;
  Oracle oracle(weights, kMaxSeq, 1);
  REQUIRE(oracle.step(kToken));
  REQUIRE(oracle.step(3));

  std::vector<float> x(static_cast<std::size_t>(s.hidden)), norm(x.size()), row(x.size());
  row_to_f32(weights->get(WeightKind::Embedding), kToken, x);
  row_to_f32(weights->get(WeightKind::AttnNorm, 0), 0, norm);
  double squares = 0;
  for (float v : x) squares += static_cast<double>(v) * v;
  const double inverse = 1.0 / std::sqrt(squares / s.hidden + s.rms_eps);
  REQUIRE(oracle.keys(0).size() == static_cast<std::size_t>(s.kv_heads) * kMaxSeq * static_cast<std::size_t>(s.head_dim));
  for (const auto kind : {WeightKind::K, WeightKind::V})
    for (int r = 0; r < s.kv_rows(); ++r) {
      row_to_f32(weights->get(kind, 0), r, row);
      double want = 0;
      for (std::size_t i = 0; i < x.size(); ++i) want += row[i] * (x[i] * inverse * norm[i]);
      const auto cache = kind == WeightKind::K ? oracle.keys(0) : oracle.values(0);
      const float got = cache[static_cast<std::size_t>((r / s.head_dim * kMaxSeq + 0) * s.head_dim + r % s.head_dim)];
      CHECK(got == doctest::Approx(want).epsilon(1e-4));
    }
  for (const float v : oracle.keys(0).subspan(static_cast<std::size_t>(2 * s.head_dim), static_cast<std::size_t>(s.head_dim)))
    CHECK(v == 0.0f);  // position 2: not reached
}

TEST_CASE("rotary angles equal the formulas evaluated in double") {
  // Frequencies computed apart, in Python doubles, for theta 500000, head_dim 64, llama3 with factor 32, low 1, high 4, original 8192.
  const std::pair<int, double> llama3[] = {{0, 1},
                                           {1, 0.66360123769608848},
                                           {8, 0.037606030930863933},
                                           {14, 0.0032114459947525909},
                                           {15, 0.001290547928209264},
                                           {16, 0.00042955679655936815},
                                           {17, 9.7082878026276702e-05},
                                           {18, 1.9461638184831125e-05},
                                           {24, 1.6619674677953088e-06},
                                           {31, 9.41830672543491e-08}};
  ModelSpec spec = catalogue("llama-3.2-1b");
  std::vector<float> cos(32), sin(32);
  for (const int position : {0, 1, 100, 1000}) {
    rope_cos_sin(spec, position, cos, sin);
    for (const auto& [pair, frequency] : llama3) {
      CAPTURE(pair);
      CAPTURE(position);
      const double tolerance = 3e-7 * (1 + position * frequency);  // the angle is an fp32 number
      CHECK(std::abs(cos[static_cast<std::size_t>(pair)] - std::cos(position * frequency)) <= tolerance);
      CHECK(std::abs(sin[static_cast<std::size_t>(pair)] - std::sin(position * frequency)) <= tolerance);
    }
  }
  spec.rope.scaling = RopeScaling::Linear;
  spec.rope.factor = 4.0;
  rope_cos_sin(spec, 8, cos, sin);
  CHECK(cos[0] == static_cast<float>(std::cos(2.0)));  // pair 0 has frequency 1, and 1/4 after scaling
  spec.rope.scaling = RopeScaling::None;
  spec.rope.inv_freq_dtype = DType::BF16;
  rope_cos_sin(spec, 1, cos, sin);
  CHECK(sin[1] == static_cast<float>(std::sin(static_cast<double>(bf16_to_f32(f32_to_bf16(static_cast<float>(std::pow(500000.0, -2.0 / 64))))))));
}

TEST_CASE("argmax takes the lowest index among equals and never a NaN over a number before it") {
  const float a[] = {1, 3, 3, 2};
  CHECK(argmax(a) == 1);
  const float b[] = {1, NAN, 2};
  CHECK(argmax(b) == 2);
}

TEST_CASE("seeded models decode into something: finite logits of order one, varied tokens, a reason to attend") {
  for (const char* name : {"toy", "toy-2L", "small"}) {
    CAPTURE(name);
    const auto weights = *generate_weights(catalogue(name), 1, 2);
    Oracle oracle(weights, 64, 2);
    std::vector<bool> seen(static_cast<std::size_t>(weights->spec().vocab));
    int token = 1, distinct = 0;
    for (int t = 0; t < 48; ++t) {
      const auto logits = oracle.step(token);
      REQUIRE(logits);
      double sum = 0, squares = 0;
      for (const float v : *logits) sum += v, squares += static_cast<double>(v) * v;
      const double n = static_cast<double>(logits->size());
      const double deviation = std::sqrt(squares / n - sum / n * sum / n);
      CHECK(deviation > 1.0);
      CHECK(deviation < 5.0);
      token = argmax(*logits);
      distinct += !seen[static_cast<std::size_t>(token)];
      seen[static_cast<std::size_t>(token)] = true;
    }
    CHECK(distinct >= 20);
    // Another first token changes what follows much later: attention reaches back.
    const auto with = [&](int first) {
      Oracle o(weights, 32, 2);
      std::vector<float> last;
      for (int t = 0; t < 24; ++t) {
        const auto l = o.step(t == 0 ? first : t);
        REQUIRE(l);
        last.assign(l->begin(), l->end());
      }
      return last;
    };
    const auto x = with(100), y = with(200);
    double change = 0;
    for (std::size_t i = 0; i < x.size(); ++i) change = std::max(change, std::abs(static_cast<double>(x[i]) - y[i]));
    CHECK(change > 0.05);
  }
}
