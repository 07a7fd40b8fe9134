#include "core/base/random.h"

namespace amk {

double Rng::normal() {
  // Irwin-Hall with 12 terms: additions only, hence the same bits everywhere (log and cos differ between C libraries).
  double sum = -6.0;
  for (int i = 0; i < 12; ++i) sum += uniform();
  return sum;
}

}  // namespace amk
