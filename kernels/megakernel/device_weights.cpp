#include "kernels/megakernel/device_weights.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "core/program/packing.h"
#include "embedded/megakernel_sources.h"

namespace amk {
namespace {

constexpr int kPackThreads = 256, kPackBlocks = 2048;

// The view's elements as `to`, exact where the types are equal, else through fp32.
std::vector<std::byte> converted(const TensorView& view, DType to) {
  std::vector<std::byte> out(static_cast<std::size_t>(view.elements()) * static_cast<std::size_t>(dtype_bytes(to)));
  if (view.dtype == to) {
    std::memcpy(out.data(), view.data, out.size());
    return out;
  }
  std::vector<float> row(static_cast<std::size_t>(view.cols));
  std::byte* at = out.data();
  for (std::int64_t r = 0; r < view.rows; ++r) {
    row_to_f32(view, r, row);
    for (const float v : row) {
      if (to == DType::F32) {
        std::memcpy(at, &v, 4);
        at += 4;
      } else {
        const std::uint16_t bits = to == DType::BF16 ? f32_to_bf16(v) : f32_to_f16(v);
        std::memcpy(at, &bits, 2);
        at += 2;
      }
    }
  }
  return out;
}

class Uploader {
 public:
  Uploader(const Weights& weights, WeightLayout layout, const cuda::Stream& stream)
      : weights_(weights), spec_(weights.spec()), layout_(spec_, layout), stream_(stream) {}

  Status load_kernel(const Compiler& compiler, const BuildCache& cache, const std::string& architecture) {
    CompileRequest request;
    request.name = "pack.cu";
    request.architecture = architecture;
    request.options = {"-std=c++17"};
    for (const auto& [path, text] : megakernel_sources()) {
      if (path.ends_with("/pack.cu")) request.source = text;
    }
    AMK_TRY(built, cache.build(compiler, request));
    AMK_TRY(module, cuda::Module::load(built.kernel.cubin));
    module_ = std::move(module);
    AMK_TRY(function, module_.function(element_ == 1 ? "amk_pack8" : element_ == 2 ? "amk_pack16" : "amk_pack32"));
    kernel_ = function;
    return {};
  }
  cuda::Module take_module() { return std::move(module_); }

  Status matrices(cuda::DevicePtr base) {
    // Staging: the source tensors of one fused matrix, one after the other.
    std::int64_t staging_bytes = 0, map_rows = 0;
    for (const Matrix m : {Matrix::Qkv, Matrix::O, Matrix::GateUp, Matrix::Down, Matrix::LmHead}) {
      staging_bytes = std::max(staging_bytes, std::int64_t{packed_rows(spec_, m)} * packed_cols(spec_, m) * element_);
      map_rows = std::max<std::int64_t>(map_rows, packed_rows(spec_, m));
    }
    AMK_TRY(staging, cuda::Memory::allocate(static_cast<std::size_t>(staging_bytes)));
    AMK_TRY(map, cuda::Memory::allocate(static_cast<std::size_t>(map_rows) * 4));
    for (int layer = 0; layer < spec_.layers; ++layer) {
      for (const Matrix m : {Matrix::Qkv, Matrix::O, Matrix::GateUp, Matrix::Down}) AMK_CHECK(matrix(m, layer, base, staging, map));
    }
    AMK_CHECK(matrix(Matrix::LmHead, 0, base, staging, map));
    return stream_.synchronize();
  }

  Result<std::vector<std::byte>> vectors() const {
    std::vector<std::byte> out(static_cast<std::size_t>(layout_.vector_bytes()));
    const auto put = [&](std::int64_t offset, WeightKind kind, int layer) -> Status {
      if (offset == GpuLayout::kNoVector) return {};
      const TensorView view = weights_.get(kind, layer);
      if (!view) return fail(ErrorKind::Internal, "the model lacks a vector that its spec promises");
      const std::vector<std::byte> bytes = converted(view, spec_.dtype);
      std::memcpy(out.data() + offset, bytes.data(), bytes.size());
      return {};
    };
    for (int layer = 0; layer < spec_.layers; ++layer) {
      AMK_CHECK(put(layout_.norm_offset(WeightKind::AttnNorm, layer), WeightKind::AttnNorm, layer));
      AMK_CHECK(put(layout_.norm_offset(WeightKind::MlpNorm, layer), WeightKind::MlpNorm, layer));
      if (spec_.qk_norm) {
        const std::int64_t q = layout_.norm_offset(WeightKind::QNorm, layer);
        AMK_CHECK(put(q, WeightKind::QNorm, layer));
        AMK_CHECK(put(q + std::int64_t{spec_.head_dim} * dtype_bytes(spec_.dtype), WeightKind::KNorm, layer));
      }
      for (const Matrix m : {Matrix::Qkv, Matrix::O, Matrix::GateUp, Matrix::Down}) {
        bias(m, layer, out);
        scales(m, layer, out);
      }
    }
    scales(Matrix::LmHead, 0, out);
    AMK_CHECK(put(layout_.norm_offset(WeightKind::FinalNorm, 0), WeightKind::FinalNorm, 0));
    return out;
  }

  const GpuLayout& layout() const { return layout_; }

 private:
  void bias(Matrix m, int layer, std::vector<std::byte>& out) const {
    const std::int64_t offset = layout_.bias_offset(m, layer);
    if (offset == GpuLayout::kNoVector) return;
    const int bytes = dtype_bytes(spec_.dtype);
    std::map<WeightKind, std::vector<std::byte>> sources;
    for (std::int32_t r = 0; r < packed_rows(spec_, m); ++r) {
      const LogicalRow row = logical_row(spec_, m, r);
      auto& source = sources[row.kind];
      if (source.empty()) source = converted(weights_.get(bias_of(row.kind), layer), spec_.dtype);
      std::memcpy(out.data() + offset + std::int64_t{r} * bytes, source.data() + std::int64_t{row.row} * bytes, static_cast<std::size_t>(bytes));
    }
  }

  void scales(Matrix m, int layer, std::vector<std::byte>& out) const {
    const std::int64_t offset = layout_.scale_offset(m, layer);
    if (offset == GpuLayout::kNoVector) return;
    for (std::int32_t r = 0; r < packed_rows(spec_, m); ++r) {
      const LogicalRow row = logical_row(spec_, m, r);
      std::memcpy(out.data() + offset + std::int64_t{r} * 4, weights_.get(row.kind, layer).scales + row.row, 4);
    }
  }

  Status matrix(Matrix m, int layer, cuda::DevicePtr base, const cuda::Memory& staging, const cuda::Memory& map) {
    const std::int64_t columns = packed_cols(spec_, m);
    const std::int64_t source_row_bytes = columns * element_;
    std::map<WeightKind, std::uint32_t> first_row;  // of each source tensor in the staging buffer
    std::uint32_t staged_rows = 0;
    std::vector<std::uint32_t> row_map(static_cast<std::size_t>(packed_rows(spec_, m)));
    for (std::size_t r = 0; r < row_map.size(); ++r) {
      const LogicalRow row = logical_row(spec_, m, static_cast<std::int32_t>(r));
      auto found = first_row.find(row.kind);
      if (found == first_row.end()) {
        const TensorView view = weights_.get(row.kind, layer);
        if (!view || view.cols != columns) return fail(ErrorKind::Internal, "a weight matrix does not have the shape that its spec promises");
        const cuda::DevicePtr to = staging.pointer() + staged_rows * static_cast<std::uint64_t>(source_row_bytes);
        if (view.dtype == spec_.matrix_dtype()) {
          AMK_CHECK(cuda::copy_to_device(to, view.data, static_cast<std::size_t>(view.bytes()), stream_));
        } else {
          const std::vector<std::byte> bytes = converted(view, spec_.dtype);
          AMK_CHECK(cuda::copy_to_device(to, bytes.data(), bytes.size(), stream_));
          AMK_CHECK(stream_.synchronize());
        }
        found = first_row.emplace(row.kind, staged_rows).first;
        staged_rows += static_cast<std::uint32_t>(view.rows);
      }
      row_map[r] = found->second + static_cast<std::uint32_t>(row.row);
    }
    AMK_CHECK(cuda::copy_to_device(map.pointer(), row_map.data(), row_map.size() * 4, stream_));
    const cuda::DevicePtr out = base + static_cast<std::uint64_t>(layout_.matrix_offset(m, layer));
    const auto rows = static_cast<std::uint32_t>(row_map.size());
    const auto padded_rows = (rows + kRowUnit - 1) / kRowUnit * kRowUnit;
    cuda::Launch launch;
    launch.grid.x = kPackBlocks;
    launch.block.x = kPackThreads;
    AMK_CHECK(kernel_(launch, stream_, out, staging.pointer(), map.pointer(), rows, static_cast<std::uint32_t>(columns), padded_rows,
                      static_cast<std::uint32_t>(padded_columns(columns)), layout_.layout() == WeightLayout::Packed ? 1 : 0));
    return stream_.synchronize();  // before the staging buffer is used again
  }

  const Weights& weights_;
  const ModelSpec& spec_;
  const int element_ = dtype_bytes(spec_.matrix_dtype());
  GpuLayout layout_;
  const cuda::Stream& stream_;
  cuda::Module module_;
  cuda::Function kernel_;
};

}  // namespace

Result<DeviceWeights> DeviceWeights::upload(const Weights& weights, WeightLayout layout, const Compiler& compiler, const BuildCache& cache,
                                            const std::string& architecture, const cuda::Stream& stream) {
  const ModelSpec& spec = weights.spec();
  if (layout == WeightLayout::Row && spec.weight_format == WeightFormat::Int8)
    return fail(ErrorKind::Unsupported, "int8 weights are in the packed layout only",
                {{"field", "weight_layout"}, {"value", "row"}, {"accepted", "packed"}});
  if (layout == WeightLayout::Packed && dtype_bytes(spec.dtype) != 2)
    return fail(ErrorKind::Unsupported, "the packed layout holds 2-byte weights",
                {{"field", "weight_layout"}, {"value", "packed"}, {"accepted", "row"}});
  Uploader uploader(weights, layout, stream);
  AMK_CHECK(uploader.load_kernel(compiler, cache, architecture));
  DeviceWeights out;
  out.layout_ = layout;
  AMK_TRY(matrices, cuda::Memory::allocate(static_cast<std::size_t>(uploader.layout().matrix_bytes())));
  AMK_CHECK(uploader.matrices(matrices.pointer()));
  AMK_TRY(vector_bytes, uploader.vectors());
  AMK_TRY(vectors, cuda::Memory::allocate(vector_bytes.size()));
  AMK_CHECK(cuda::copy_to_device(vectors.pointer(), vector_bytes.data(), vector_bytes.size(), stream));
  const TensorView table = weights.get(WeightKind::Embedding);
  AMK_TRY(embedding, cuda::Memory::allocate(static_cast<std::size_t>(table.elements()) * static_cast<std::size_t>(dtype_bytes(spec.dtype))));
  if (table.dtype == spec.dtype) {
    AMK_CHECK(cuda::copy_to_device(embedding.pointer(), table.data, static_cast<std::size_t>(table.bytes()), stream));
  } else {
    const std::vector<std::byte> bytes = converted(table, spec.dtype);
    AMK_CHECK(cuda::copy_to_device(embedding.pointer(), bytes.data(), bytes.size(), stream));
    AMK_CHECK(stream.synchronize());
  }
  AMK_CHECK(stream.synchronize());
  out.matrices_ = std::move(matrices);
  out.vectors_ = std::move(vectors);
  out.embedding_ = std::move(embedding);
  out.module_ = uploader.take_module();
  AMK_TRY(kernel, out.module_.function("amk_checksum"));
  out.checksum_kernel_ = kernel;
  AMK_TRY(sum, cuda::Memory::allocate(8));
  out.sum_ = std::move(sum);
  AMK_TRY(checksum, out.checksum(stream));
  out.uploaded_sum_ = checksum;
  return out;
}

Result<std::uint64_t> DeviceWeights::checksum(const cuda::Stream& stream) const {
  AMK_CHECK(cuda::fill_u8(sum_.pointer(), 0, 8, stream));
  cuda::Launch launch;
  launch.grid.x = kPackBlocks;
  launch.block.x = kPackThreads;
  for (const cuda::Memory* memory : {&matrices_, &vectors_, &embedding_}) {
    AMK_CHECK(checksum_kernel_(launch, stream, sum_.pointer(), memory->pointer(), static_cast<std::uint64_t>(memory->bytes() / 8)));
  }
  std::uint64_t sum = 0;
  AMK_CHECK(cuda::copy_to_host(&sum, sum_.pointer(), 8, stream));
  AMK_CHECK(stream.synchronize());
  return sum;
}

Result<bool> DeviceWeights::intact(const cuda::Stream& stream) const {
  AMK_TRY(now, checksum(stream));
  return now == uploaded_sum_;
}

}  // namespace amk
