// Options of ThreadSanitizer for every program of its build. Daemons, shims and workers are started by tests with environments of their own and with
// stderr in a log or nowhere: what TSAN_OPTIONS says would not reach them, and what they report would not be seen. So each process writes to a file
// of its own, named after the program, which tests/tsan/run counts. The sanitizer calls this before anything is set up: nothing but a constant may be
// here.
extern "C" __attribute__((visibility("default"))) const char* __tsan_default_options();

extern "C" const char* __tsan_default_options() {
  // Tests fork from processes with threads on purpose (what a killed daemon leaves); the children only use what the standard allows between fork and
  // exec.
  return "log_path=" AMK_TSAN_REPORTS ":log_exe_name=1:exitcode=66:second_deadlock_stack=1:history_size=4:die_after_fork=0:report_signal_unsafe=0";
}

extern "C" __attribute__((visibility("default"))) const char* __tsan_default_suppressions();

// NVRTC is not instrumented: its own locks are seen, what orders its memory is not, and it guards what it shares among callers.
extern "C" const char* __tsan_default_suppressions() { return "called_from_lib:libnvrtc.so"; }
