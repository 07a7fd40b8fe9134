// Repacks a matrix once: rows by a map (which source row is packed row r), columns into blocks of 64 or padded rows. One 16-byte piece a thread and
// turn. Elements beyond the source's rows and columns are zero.
using u32 = unsigned int;
using u64 = unsigned long long;

template <class T, int PerPiece>
__device__ void pack(T* out, const T* source, const u32* row_map, u32 rows, u32 columns, u32 padded_rows, u32 padded_columns, int blocked) {
  const u64 pieces = static_cast<u64>(padded_rows) * padded_columns / PerPiece;
  for (u64 i = blockIdx.x * static_cast<u64>(blockDim.x) + threadIdx.x; i < pieces; i += static_cast<u64>(gridDim.x) * blockDim.x) {
    u32 row, column;
    if (blocked && PerPiece == 16) {  // 1-byte elements: unit, block, lane
      const u32 lane = i % 32;
      const u64 block = i / 32;
      const u32 blocks = padded_columns / 64;
      row = static_cast<u32>(block / blocks) * 8 + lane / 4;
      column = static_cast<u32>(block % blocks) * 64 + lane % 4 * 16;
    } else if (blocked) {  // 2-byte elements: unit, block, half, lane
      const u32 lane = i % 32, half = i / 32 % 2;
      const u64 block = i / 64;
      const u32 blocks = padded_columns / 64;
      row = static_cast<u32>(block / blocks) * 8 + lane / 4;
      column = static_cast<u32>(block % blocks) * 64 + lane % 4 * 16 + half * 8;
    } else {
      row = static_cast<u32>(i / (padded_columns / PerPiece));
      column = static_cast<u32>(i % (padded_columns / PerPiece)) * PerPiece;
    }
    T piece[PerPiece];
    const T* from = source + static_cast<u64>(row < rows ? row_map[row] : 0) * columns + column;
#pragma unroll
    for (int e = 0; e < PerPiece; ++e) piece[e] = row < rows && column + e < columns ? from[e] : T(0);
#pragma unroll
    for (int e = 0; e < PerPiece; ++e) out[i * PerPiece + e] = piece[e];
  }
}

extern "C" __global__ void amk_pack8(unsigned char* out, const unsigned char* source, const u32* row_map, u32 rows, u32 columns, u32 padded_rows,
                                     u32 padded_columns, int blocked) {
  pack<unsigned char, 16>(out, source, row_map, rows, columns, padded_rows, padded_columns, blocked);
}
extern "C" __global__ void amk_pack16(unsigned short* out, const unsigned short* source, const u32* row_map, u32 rows, u32 columns, u32 padded_rows,
                                      u32 padded_columns, int blocked) {
  pack<unsigned short, 8>(out, source, row_map, rows, columns, padded_rows, padded_columns, blocked);
}
extern "C" __global__ void amk_pack32(u32* out, const u32* source, const u32* row_map, u32 rows, u32 columns, u32 padded_rows, u32 padded_columns,
                                      int blocked) {
  pack<u32, 4>(out, source, row_map, rows, columns, padded_rows, padded_columns, blocked);
}

// A sum over 8-byte words that depends on their places: tells whether anything changed. `out` starts at 0.
extern "C" __global__ void amk_checksum(u64* out, const u64* words, u64 count) {
  u64 sum = 0;
  for (u64 i = blockIdx.x * static_cast<u64>(blockDim.x) + threadIdx.x; i < count; i += static_cast<u64>(gridDim.x) * blockDim.x) {
    u64 z = words[i] + i * 0x9E3779B97F4A7C15ull;
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    sum += z ^ (z >> 27);
  }
  for (int d = 16; d > 0; d >>= 1) sum += __shfl_xor_sync(0xffffffffu, sum, d);
  if (threadIdx.x % 32 == 0) atomicAdd(out, sum);
}
