// Where an operand's tile of one stage lies in shared memory: where TMA's boxes are put and where wgmma reads. Shared by the kernel and by a host
// test, which replays both sides element by element.
#pragma once

#include "raster.cuh"

// k contiguous: boxes of 64 k, `lines` rows of 128 bytes each. Lines contiguous: boxes of `atom` lines, tile_k rows of 2·atom bytes each, atom 64 or
// 32 being one swizzled row.
struct TileLayout {
  bool k_major;
  int lines, tile_k, atom;

  DG_BOTH constexpr int row_bytes() const { return k_major ? 128 : atom * 2; }
  DG_BOTH constexpr int box_rows() const { return k_major ? lines : tile_k; }
  DG_BOTH constexpr int boxes() const { return k_major ? tile_k / 64 : lines / atom; }
  DG_BOTH constexpr int box_bytes() const { return box_rows() * row_bytes(); }
  DG_BOTH constexpr int box_start(int box, int row) const { return box * box_bytes() + row * row_bytes(); }

  // Where k16 step `step` of the lines from `line` on starts; leading and stride offset as wgmma means them: with k contiguous 8-row groups are
  // `stride` apart and `leading` is unused; else blocks of one swizzled row are `leading` apart and groups of 8 k `stride`.
  DG_BOTH constexpr int start(int line, int step) const {
    return k_major ? step / 4 * box_bytes() + line * 128 + step % 4 * 32 : line / atom * box_bytes() + step * 16 * row_bytes();
  }
  DG_BOTH constexpr int leading() const { return k_major ? 16 : box_bytes(); }
  DG_BOTH constexpr int stride() const { return 8 * row_bytes(); }

  // The matrix descriptor (PTX ISA: start, leading and stride in units of 16 bytes; swizzle 1 = 128 bytes, 2 = 64) of a tile at `base`, as its low
  // word, and of a step within that tile: one addition away where both are constants, since the start lies in the low bits. Built anew for every
  // instruction, descriptors took 1–2% of the time of tiles of 32 columns (measured).
  DG_BOTH constexpr unsigned descriptor_low(unsigned base) const { return (base & 0x3FFFFu) >> 4 | static_cast<unsigned>(leading()) >> 4 << 16; }
  DG_BOTH constexpr unsigned descriptor_high() const { return static_cast<unsigned>(stride()) >> 4 | (row_bytes() == 128 ? 1u : 2u) << 30; }
  DG_BOTH constexpr unsigned long long descriptor(unsigned low, int line, int step) const {
    return static_cast<unsigned long long>(descriptor_high()) << 32 | (low + static_cast<unsigned>(start(line, step)) / 16);
  }
};
