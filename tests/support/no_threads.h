// While one of these lives, no thread can be made: each would get a stack that no address space has. What std::thread throws then is what it throws
// at a limit of threads or within little memory.
#pragma once

#include <pthread.h>

#include <cstddef>

namespace amk::testing {

class NoThreads {
 public:
  NoThreads() {
    pthread_getattr_default_np(&before_);
    pthread_attr_t none = before_;
    pthread_attr_setstacksize(&none, std::size_t{1} << 47);
    pthread_setattr_default_np(&none);
  }
  ~NoThreads() { pthread_setattr_default_np(&before_); }
  NoThreads(const NoThreads&) = delete;
  NoThreads& operator=(const NoThreads&) = delete;

 private:
  pthread_attr_t before_;
};

}  // namespace amk::testing
