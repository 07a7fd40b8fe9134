// The order in which a persistent grid walks the tiles of the output: shared by the kernels and by the host, which replays it.
#pragma once

#ifdef __CUDACC__
#define DG_BOTH __host__ __device__ __forceinline__
#else
#define DG_BOTH inline
#endif

struct RasterTile {
  unsigned m, n;
};

// Tile `index` of tiles_m × tiles_n: bands of `group` tiles along m (or along n), each band swept across the other dimension, so that the
// tiles computed at one time share rows and columns in L2.
DG_BOTH RasterTile raster_tile(unsigned index, unsigned tiles_m, unsigned tiles_n, unsigned group, bool bands_along_n) {
  const unsigned banded = bands_along_n ? tiles_n : tiles_m, swept = bands_along_n ? tiles_m : tiles_n;
  const unsigned band = index / (group * swept), first = band * group;
  const unsigned width = banded - first < group ? banded - first : group;
  const unsigned rest = index - first * swept;
  const unsigned in_band = first + rest % width, across = rest / width;
  return bands_along_n ? RasterTile{across, in_band} : RasterTile{in_band, across};
}
