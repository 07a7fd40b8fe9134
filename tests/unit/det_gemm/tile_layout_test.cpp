// Both sides of a stage in shared memory, replayed element by element: TMA puts boxes of rows and swizzles them, wgmma reads what a matrix descriptor
// says. The two address rules are those of the PTX ISA (tensor swizzling modes; canonical layouts of wgmma's shared-memory operands), written here
// once more and independently of the kernel's own arithmetic.
#include "kernels/det_gemm/device/tile_layout.cuh"

#include <doctest/doctest.h>

#include <utility>
#include <vector>

namespace {

using Element = std::pair<int, int>;  // line, k

// Bits 4… of an address are crossed with bits 7…: three of them over rows of 128 bytes, two over rows of 64.
int swizzled(int address, int row_bytes) { return address ^ (address >> 3 & (row_bytes == 128 ? 0x70 : 0x30)); }

// `columns`: lines that are copied where lines lie contiguous; a last box that is narrower keeps its rows as far apart as full ones.
std::vector<Element> tile_by_tma(const TileLayout& layout, int slices, int columns) {
  std::vector<Element> memory(static_cast<std::size_t>(layout.lines * layout.tile_k), {-1, -1});
  const int row_elements = layout.row_bytes() / 2, rows = layout.box_rows() / slices;
  for (int box = 0; box < layout.boxes(); ++box) {
    for (int slice = 0; slice < slices; ++slice) {
      for (int row = 0; row < rows; ++row) {
        for (int i = 0; i < row_elements && (layout.k_major || box * row_elements + i < columns); ++i) {
          const int inner = box * row_elements + i, outer = slice * rows + row;
          const int at = swizzled(layout.box_start(box, slice * rows) + row * layout.row_bytes() + i * 2, layout.row_bytes());
          memory[static_cast<std::size_t>(at / 2)] = layout.k_major ? Element{outer, inner} : Element{inner, outer};
        }
      }
    }
  }
  return memory;
}

// Where wgmma looks for (line, k) of an operand whose descriptor starts at `start`: canonical layouts in 16-byte units of 8 elements.
int wgmma_address(const TileLayout& layout, int start, int line, int k) {
  const int leading = layout.leading(), stride = layout.stride(), units = layout.row_bytes() / 16;
  if (layout.k_major) return swizzled(start + line % 8 * 128 + line / 8 * stride + k * 2, 128);
  const int unit = line / 8;
  return swizzled(start + unit % units * 16 + unit / units * leading + k % 8 * layout.row_bytes() + k / 8 * stride + line % 8 * 2,
                  layout.row_bytes());
}

}  // namespace

TEST_CASE("wgmma reads each element where TMA put it: both layouts, both swizzles, every width, shared among the blocks of a cluster") {
  std::vector<TileLayout> layouts;
  for (const int tile_k : {64, 128, 256}) {
    for (const int lines : {8, 16, 24, 64, 112, 128, 256}) layouts.push_back({true, lines, tile_k, 64});
    for (const int lines : {64, 128, 192, 256}) layouts.push_back({false, lines, tile_k, 64});
    for (const int lines : {32, 96, 160, 224}) layouts.push_back({false, lines, tile_k, 32});
  }
  for (const TileLayout& layout : layouts) {
    for (const int slices : {1, 2, 4}) {
      if (layout.box_rows() % (8 * slices) != 0) continue;
      CAPTURE(layout.k_major);
      CAPTURE(layout.lines);
      CAPTURE(layout.tile_k);
      CAPTURE(layout.atom);
      CAPTURE(slices);
      // The descriptor that the kernel adds up says just that: start, leading and stride in 16 bytes, the swizzle in its top bits, nothing else.
      for (const unsigned base : {0u, 1024u, 96u * 1024}) {
        for (int step = 0; step < layout.tile_k / 16; ++step) {
          for (int line = 0; line < layout.lines; line += 64) {
            const unsigned long long got = layout.descriptor(layout.descriptor_low(base), line, step);
            const unsigned long long start = base + static_cast<unsigned>(layout.start(line, step)),
                                     leading = static_cast<unsigned>(layout.leading()), stride = static_cast<unsigned>(layout.stride()),
                                     swizzle = layout.row_bytes() == 128 ? 1 : 2;
            if (got != (start / 16 | leading / 16 << 16 | stride / 16 << 32 | swizzle << 62)) FAIL_CHECK("descriptor of line ", line, " step ", step);
            if (start / 16 > 0x3FFF || leading / 16 > 0x3FFF) FAIL_CHECK("fields of 14 bits");
          }
        }
      }
      for (const int columns : {layout.lines, layout.lines - 16, layout.lines - 24}) {
        if (columns < layout.lines && (layout.k_major || columns <= layout.lines - layout.atom)) continue;
        CAPTURE(columns);
        const auto memory = tile_by_tma(layout, slices, columns);
        int wrong = 0;
        const int first_lines = layout.lines % 64 == 0 ? layout.lines / 64 : 1;  // the row tile is read from every 64th line on
        for (int fragment = 0; fragment < first_lines; ++fragment) {
          for (int step = 0; step < layout.tile_k / 16; ++step) {
            for (int line = fragment * 64; line < columns; ++line) {
              for (int k = 0; k < 16; ++k) {
                const int at = wgmma_address(layout, layout.start(fragment * 64, step), line - fragment * 64, k);
                wrong += at < 0 || at % 2 != 0 || memory.at(static_cast<std::size_t>(at / 2)) != Element{line, step * 16 + k};
              }
            }
          }
        }
        CHECK(wrong == 0);
      }
    }
  }
}
