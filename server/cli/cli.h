// The command line: verbs are clients of the workspace's daemon (or, with --no-daemon, of the same application in this process).
// stdout carries exactly one JSON document (or its --pretty rendering); everything else goes to stderr.
#pragma once

#include "core/base/error.h"

namespace amk::cli {

// Exit codes: 0 valid and correct (or done), 1 rejected or incorrect, 2 wrong usage, 3 the machinery failed.
inline constexpr int kOk = 0, kNotGood = 1, kUsage = 2, kMachinery = 3;
int exit_code_of(const Error& error);

// `stdout_fd`: where the document goes (descriptor 1 itself points at stderr by then).
int run(int argc, char** argv, int stdout_fd);

}  // namespace amk::cli
