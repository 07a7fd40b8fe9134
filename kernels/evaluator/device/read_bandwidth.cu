// Reads a buffer once, 16 bytes a thread and load, eight loads in flight: what a streaming kernel can hope for.
extern "C" __global__ void __launch_bounds__(512) amk_read(const uint4* data, unsigned long long pieces, unsigned* sink) {
  unsigned sum = 0;
  const unsigned long long stride = static_cast<unsigned long long>(gridDim.x) * blockDim.x;
  unsigned long long i = blockIdx.x * static_cast<unsigned long long>(blockDim.x) + threadIdx.x;
  for (; i + 7 * stride < pieces; i += 8 * stride) {
    uint4 v[8];
#pragma unroll
    for (int j = 0; j < 8; ++j) v[j] = __ldcs(data + i + j * stride);
#pragma unroll
    for (int j = 0; j < 8; ++j) sum += v[j].x ^ v[j].y ^ v[j].z ^ v[j].w;
  }
  for (; i < pieces; i += stride) sum += __ldcs(data + i).x;
  if (sum == 0x9e3779b9u) *sink = sum;  // never decided at compile time: the loads stay
}
