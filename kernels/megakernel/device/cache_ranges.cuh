// Which positions a split of an attention task covers, and which of them come through the ring: producer and consumers work that out from the same
// numbers, those of the launch. Compiled by the host too, for tests.
#pragma once

#include "layout.cuh"

namespace amk_vm {

constexpr u32 kTile = 16;  // positions that matrix instructions take at a time

// Blocks split, split + splits, … of kv_block positions, those in the window.
struct SplitRange {
  u32 first_block, split, count;  // positions of the split, counted through its blocks
  int low, position;
};

// What of a split comes through the ring: groups [begin, end), the last first.
struct RingGroups {
  u32 begin = 0, end = 0;
  constexpr u32 count() const { return end - begin; }
};

// Window, Group 0: none. Group: positions of a ring chunk, a divisor of KvBlock; From: fewer of a split do not take the ring.
template <u32 KvBlock, u32 Splits, u32 Step, u32 Window, u32 Group, u32 From>
struct CacheRanges {
  // The split's i-th position.
  static constexpr int at(const SplitRange& r, u32 i) {
    return static_cast<int>((r.split + Splits * (r.first_block + i / KvBlock)) * KvBlock + i % KvBlock);
  }

  static constexpr SplitRange range(int position, u32 split) {
    SplitRange r{};
    r.position = position;
    r.low = Window > 0 && position >= static_cast<int>(Window) ? position - static_cast<int>(Window) + 1 : 0;
    r.split = split;
    const u32 last_block = static_cast<u32>(position) / KvBlock, low_block = static_cast<u32>(r.low) / KvBlock;
    // Blocks in [low_block, last_block].
    r.first_block = low_block <= split ? 0 : (low_block - split + Splits - 1) / Splits;
    const u32 end_block = last_block < split ? 0 : (last_block - split) / Splits + 1;
    r.count = end_block > r.first_block ? (end_block - r.first_block) * KvBlock : 0;
    return r;
  }

  // Tiles of the split, up to the one that has the position.
  static constexpr u32 tiles(const SplitRange& r) {
    if (r.count == 0) return 0;
    const u32 position = static_cast<u32>(r.position), end = static_cast<u32>(at(r, r.count - 1));
    return (r.count - (end > position ? end - position : 0) + kTile - 1) / kTile;
  }

  // The split that a task takes after `split`, when it has keys at this position: a batch's task may have several.
  static constexpr bool next(u32& split, int position) {
    if (Step >= Splits || split + Step >= Splits || position < static_cast<int>((split + Step) * KvBlock)) return false;
    split += Step;
    return true;
  }

  // Whole groups within the window and before `limit`, the launch's first position, so that nothing in the launch writes them. Few rows are loaded as
  // fast by the warps themselves, while they wait.
  static constexpr RingGroups ring(const SplitRange& r, int limit) {
    RingGroups g;
    if constexpr (Group > 0) {
      const u32 block = static_cast<u32>(limit) / KvBlock;  // the first that is not whole
      const u32 whole = block > r.split ? (block - r.split + Splits - 1) / Splits : 0;
      g.end = whole > r.first_block ? (whole - r.first_block) * (KvBlock / Group) : 0;
      if (whole >= r.first_block && r.split + Splits * whole == block) g.end += static_cast<u32>(limit) % KvBlock / Group;
      if constexpr (Window > 0) {
        const int over = r.low - at(r, 0);
        g.begin = over > 0 ? (static_cast<u32>(over) + Group - 1) / Group : 0;
        if (g.end < g.begin) g.end = g.begin;
      }
      if (r.count == 0 || g.count() * Group < From) g.begin = g.end = 0;
    }
    return g;
  }
};

}  // namespace amk_vm
