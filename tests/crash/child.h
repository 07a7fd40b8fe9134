// Runs a function in a forked child and stops it. The parent must have no other threads.
#pragma once

#include <functional>

namespace amk::test {

enum class ChildEnd { Finished, Killed, Failed };  // Killed: by SIGKILL, its own or ours

// `after_us` >= 0: SIGKILL after so long, unless the child ended before.
ChildEnd run_child(const std::function<int()>& body, long after_us = -1);

}  // namespace amk::test
