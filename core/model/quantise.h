// Weight-only int8: every row of a linear matrix as 8-bit integers and one fp32 scale. A pure function of the stored weights.
#pragma once

#include <cstdint>
#include <memory>
#include <span>

#include "core/base/error.h"
#include "core/model/weights.h"

namespace amk {

// Symmetric: scale = max|w| / 127 in fp32, q = w / scale rounded to the nearest integer, ties to even, within [-127, 127]. A row of zeros has scale
// 0. Returns the scale; NaN when an element is not finite.
float quantise_row(std::span<const float> row, std::span<std::int8_t> out);

// The same model with its linear matrices and LM head as I8 views that carry scales; embedding table, norms and biases stay views into `stored`, so
// that a tied table is there in both formats. The spec is stored's with weight_format Int8 and `name`. `threads` as in load.h; same bits for any
// count. Corrupt names a matrix that holds a value that is not finite; Unavailable if memory does not suffice.
Result<std::shared_ptr<const Weights>> quantise_weights(std::shared_ptr<const Weights> stored, const std::string& name, int threads = 0);

}  // namespace amk
