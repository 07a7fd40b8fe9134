// Spearman's rank correlation, ties at their mean rank (Kendall & Gibbons 1990). Pure.
#pragma once

#include <vector>

namespace amk {

double rank_correlation(const std::vector<double>& a, const std::vector<double>& b);  // 0 for fewer than two pairs or a constant series

}  // namespace amk
