// What every lowered program must satisfy, checked by brute force and independently of lowering and validator: quadratic, for small programs.
#pragma once

#include <string>
#include <vector>

#include "core/program/lower.h"

namespace amk::test {

// Problems found, for people; empty = none. `config` and `format` are those the program was lowered with.
std::vector<std::string> problems_of(const Program& program, const ScheduleConfig& config, const NumericFormat& format);

// The parts, for programs that are too large for the whole.
void check_structure(const Program& program, const ScheduleConfig& config,
                     std::vector<std::string>& problems);                         // ids, queues, streams, counters, bounds
void check_coverage(const Program& program, std::vector<std::string>& problems);  // every byte written once, every weight read once
void check_meaning(const Program& program, const NumericFormat& format, std::vector<std::string>& problems);  // regions against packing.h
void check_order(const Program& program, std::vector<std::string>& problems);  // conflicting accesses of storage bytes are ordered

}  // namespace amk::test
