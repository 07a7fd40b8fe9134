// How much two series agree: 0 for fewer than two pairs or a constant series. Pure.
#pragma once

#include <vector>

namespace amk {

double correlation(const std::vector<double>& a, const std::vector<double>& b);       // Pearson's
double rank_correlation(const std::vector<double>& a, const std::vector<double>& b);  // Spearman's, ties at their mean rank (Kendall & Gibbons 1990)

}  // namespace amk
