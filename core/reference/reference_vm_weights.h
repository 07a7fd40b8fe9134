// Weight buffers of a program as fp32 rows in packed order, taken from Weights. Internal to reference_vm*.cpp.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "core/base/error.h"
#include "core/program/program.h"

namespace amk::vm {

// One Weight buffer: a packed matrix (rows in the order of packing.h), a packed bias, or a vector or table of the model.
struct WeightBuffer {
  enum class Kind { Matrix, Vector, Table } kind = Kind::Vector;
  std::int64_t elements = 0;
  std::int64_t cols = 0;  // matrices and tables
  bool scale = false;     // a vector that holds the scales of an int8 matrix
  struct Row {
    const TensorView* tensor = nullptr;
    std::int64_t row = 0;
  };
  std::vector<TensorView> tensors;  // fixed once rows point into it
  std::vector<Row> packed_rows;     // matrices only
  std::vector<float> values;        // the whole buffer in fp32: vectors always, matrices of small models
  TensorView table;                 // the embedding table: rows are converted when they are looked up
  DType dtype = DType::F32;         // the buffer's: values are rounded to it as packing would
};

class WeightBuffers {
 public:
  // `weights` must outlive this. Fails when a buffer's shape is not that of the tensor it is bound to.
  static Result<WeightBuffers> create(const Program& program, const Weights& weights);
  // Kinds and sizes only, as the program declares them: enough to bind tasks, not to run them.
  static Result<WeightBuffers> shapes(const Program& program);

  // Row `row` of a matrix (int8: its integers, without the scale) or table in fp32; points into memory of this object or into `scratch`.
  std::span<const float> row(BufferId buffer, std::int64_t row, std::vector<float>& scratch) const;
  // Elements [first, first + count) of a vector.
  std::span<const float> vector(BufferId buffer, std::int64_t first, std::int64_t count) const;
  const WeightBuffer& operator[](BufferId buffer) const { return *buffers_[buffer]; }

 private:
  std::vector<std::unique_ptr<WeightBuffer>> buffers_;  // by BufferId; null for other spaces
};

// Sum of products in 16 fixed lanes: the same bits on every machine, and in a form that compilers vectorise.
float dot(std::span<const float> a, std::span<const float> b);

}  // namespace amk::vm
