// Where the cache's rows are, and which of them come through the ring: what producer and consumers must agree on, by counting.
#include <doctest/doctest.h>

#include <algorithm>
#include <array>
#include <set>
#include <utility>
#include <vector>

#include "kernels/megakernel/device/cache_ranges.cuh"

using namespace amk_vm;

namespace {

// Tiles cover every visible position once, and what the ring brings is all that it may bring: whole groups in the window and older than the launch.
template <u32 KvBlock, u32 Splits, u32 Step, u32 Window, u32 Group, u32 From>
const char* problem_at(int position, int limit) {
  using R = CacheRanges<KvBlock, Splits, Step, Window, Group, From>;
  const int low = Window > 0 ? std::max(0, position - static_cast<int>(Window) + 1) : 0;
  std::vector<int> covered(static_cast<std::size_t>(position) + 1 + KvBlock), brought = covered;
  for (u32 first = 0; first < Step; ++first) {
    u32 split = first;
    do {
      const SplitRange range = R::range(position, split);
      const RingGroups groups = R::ring(range, limit);
      const u32 tiles = R::tiles(range), rows = groups.count() * Group;
      if (groups.end < groups.begin || groups.end * (Group / kTile) > tiles) return "groups beyond the tiles";
      if (rows != 0 && rows < From) return "few rows in the ring";
      for (u32 i = 0; i < tiles; ++i) {
        const int base = R::at(range, i * kTile);
        if (base % static_cast<int>(kTile) != 0) return "a tile that does not begin at a multiple of 16";
        for (u32 k = 0; k < kTile; ++k) ++covered[static_cast<std::size_t>(base) + k];
      }
      for (u32 g = groups.begin; g < groups.end; ++g)
        for (u32 k = 0; k < Group; ++k) {
          if (R::at(range, g * Group + k) != R::at(range, g * Group) + static_cast<int>(k)) return "a chunk whose rows are apart";
          ++brought[static_cast<std::size_t>(R::at(range, g * Group)) + k];
        }
    } while (R::next(split, position));
  }
  for (int p = low; p <= position; ++p)
    if (covered[static_cast<std::size_t>(p)] != 1) return "a position not covered once";
  for (std::size_t at = 0; at < brought.size(); ++at) {
    const int base = static_cast<int>(at / Group * Group);
    const bool may = base >= low && base + static_cast<int>(Group) <= limit;
    if (brought[at] > (may ? 1 : 0)) return "a row that must not come";
    if (From <= 1 && may && brought[at] != 1) return "a row that does not come";
  }
  return nullptr;
}

template <u32 KvBlock, u32 Splits, u32 Step, u32 Window, u32 Group, u32 From>
void check() {
  for (int position = 0; position < 2100; position += position < 600 ? 3 : 13) {
    for (const int back : {0, 1, 17, 31}) {
      const char* problem = position < back ? nullptr : problem_at<KvBlock, Splits, Step, Window, Group, From>(position, position - back);
      if (problem == nullptr) continue;
      CAPTURE(position);
      CAPTURE(back);
      FAIL_CHECK(problem);
    }
  }
}

}  // namespace

TEST_CASE("cache: splits cover every visible position once; the ring brings whole groups in the window that are older than the launch") {
  check<64, 16, 16, 0, 64, 1>();
  check<64, 16, 16, 0, 32, 144>();
  check<128, 4, 4, 0, 64, 144>();
  check<512, 3, 3, 0, 128, 1>();
  check<64, 16, 16, 100, 64, 1>();
  check<64, 5, 2, 500, 32, 1>();
  check<256, 3, 1, 1000, 64, 144>();
  check<64, 1, 1, 33, 16, 1>();
  check<128, 7, 3, 8, 16, 1>();
}

TEST_CASE("cache: the order of a row's pieces loses none, and eight lanes at once meet eight banks") {
  for (const u32 head_dim : {32u, 64u, 96u, 128u}) {
    CAPTURE(head_dim);
    const u32 pieces = head_dim / 8, row_bytes = head_dim * 2;
    for (u32 position = 0; position < 64; ++position) {
      std::vector<int> seen(pieces);
      for (u32 i = 0; i < pieces; ++i) {
        REQUIRE((i ^ cache_swizzle(head_dim, position)) < pieces);
        ++seen[i ^ cache_swizzle(head_dim, position)];
      }
      CHECK(std::count(seen.begin(), seen.end(), 1) == static_cast<std::ptrdiff_t>(pieces));
      CHECK(cache_swizzle(head_dim, position) == cache_swizzle(head_dim, position % 16));  // a tile's rows are the same in every tile
    }
    // A load of 16 bytes a lane takes eight lanes at a time; 128 bytes of shared memory are all banks. Keys: lane 4g + t, piece t + 4c of row
    // 4 (g / 2) + g % 2 + 2h; values: piece g + 8d of row 4t + e.
    const auto most = [&](auto row_of, auto piece_of) {
      int worst = 0;
      for (u32 phase = 0; phase < 4; ++phase) {
        std::array<int, 8> bank{};
        for (u32 lane = phase * 8; lane < phase * 8 + 8; ++lane) {
          const u32 row = row_of(lane / 4, lane % 4), piece = piece_of(lane / 4, lane % 4);
          if (piece >= pieces) continue;
          ++bank[(row * row_bytes / 16 + (piece ^ cache_swizzle(head_dim, row))) % 8];
        }
        worst = std::max(worst, *std::max_element(bank.begin(), bank.end()));
      }
      return worst;
    };
    for (u32 h = 0; h < 2; ++h)
      for (u32 c = 0; c < head_dim / 32; ++c)
        CHECK(most([&](u32 g, u32) { return 4 * (g / 2) + g % 2 + 2 * h; }, [&](u32, u32 t) { return t + 4 * c; }) == 1);
    for (u32 e = 0; e < 4; ++e)
      for (u32 d = 0; d < (head_dim + 63) / 64; ++d)
        CHECK(most([&](u32, u32 t) { return 4 * t + e; }, [&](u32 g, u32) { return g + 8 * d; }) <= (head_dim % 64 == 0 ? 1 : 2));
  }
}

// Attention's partials in halves: each kv head keeps to the place that the program gives it, no two words are one, what is loaded by 16 or 8 bytes is
// aligned so; and where whole lines are promised, a kv head's values are nothing but lines.
namespace {
template <unsigned Heads, unsigned Gqa, unsigned HeadDim, bool Halves, unsigned TailWords>
void check_partials(bool whole_lines) {
  using Places = PartialPlaces<Heads, Gqa, HeadDim, 4, Halves, TailWords>;
  CAPTURE(Heads);
  CAPTURE(Gqa);
  CAPTURE(HeadDim);
  const unsigned values = Halves ? HeadDim / 2 : HeadDim, place = Gqa * (HeadDim + 4);
  std::set<unsigned> taken;
  for (unsigned head = 0; head < Heads; ++head) {
    for (const auto& [first, count] : {std::pair{Places::values(head), values}, {Places::tail(head), TailWords}}) {
      for (unsigned w = first; w < first + count; ++w) {
        CHECK(w / place == head / Gqa);
        CHECK(taken.insert(w).second);
      }
    }
    CHECK(Places::values(head) % 4 == 0);
    CHECK(Places::tail(head) % (TailWords == 4 ? 4 : 2) == 0);
  }
  CHECK(Places::kWholeLines == whole_lines);
  for (unsigned head = 0; whole_lines && head < Heads; head += Gqa) CHECK(Places::values(head) % 32 == 0);  // words of a line of 128 bytes
}
}  // namespace

TEST_CASE("attention's partials keep to their kv head's place, in whole lines where there is room") {
  check_partials<32, 4, 64, true, 2>(true);   // llama-3.2-1b
  check_partials<32, 4, 64, true, 4>(true);   // flagged
  check_partials<32, 4, 128, true, 2>(true);  // llama-3.1-8b
  check_partials<14, 7, 64, true, 2>(false);  // qwen2.5-0.5b: a split is no whole number of lines
  check_partials<9, 3, 64, true, 4>(false);   // smollm2-135m
  check_partials<16, 1, 64, true, 2>(true);
  check_partials<16, 1, 32, true, 2>(false);  // a head's values are half a line
  check_partials<8, 2, 32, true, 4>(true);    // small
  check_partials<4, 2, 16, true, 2>(false);
  check_partials<32, 4, 64, false, 4>(false);
}
