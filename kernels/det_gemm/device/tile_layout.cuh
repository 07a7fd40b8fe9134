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

  // Matrix descriptor of k16 step `step` for the lines from `line` on: start, leading and stride offset.
  DG_BOTH constexpr int start(int line, int step) const {
    return k_major ? step / 4 * box_bytes() + line * 128 + step % 4 * 32 : line / atom * box_bytes() + step * 16 * row_bytes();
  }
  DG_BOTH constexpr int leading() const { return k_major ? 16 : box_bytes(); }
  DG_BOTH constexpr int stride() const { return 8 * row_bytes(); }
};
