// Values that are dear to make, wanted by several threads: the first to ask for a key makes its value, the others wait for it. A value that could not
// be made is not remembered; the next asker, one that waited included, tries itself. Thread-safe.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <stop_token>
#include <string>

#include "core/base/error.h"

namespace amk {

template <class T>
class OnceMap {
 public:
  // `make` runs without the map's lock. Cancelled when `stop` is requested while another thread makes the value.
  Result<T> get(const std::string& key, const std::function<Result<T>()>& make, const std::stop_token& stop) {
    {
      std::unique_lock lock(mutex_);
      if (!changed_.wait(lock, stop, [&] { return !slots_[key].being_made; }))
        return fail(ErrorKind::Cancelled, "cancelled while waiting for " + key);
      Slot& slot = slots_[key];
      if (slot.value) return *slot.value;
      slot.being_made = true;
    }
    Result<T> made = make();
    {
      const std::lock_guard lock(mutex_);
      Slot& slot = slots_[key];
      slot.being_made = false;
      if (made) slot.value = *made;
    }
    changed_.notify_all();
    return made;
  }

  // Forgets the values whose keys begin with `prefix`, but for `key`: what it was under earlier circumstances.
  void keep_only(const std::string& prefix, const std::string& key) {
    const std::lock_guard lock(mutex_);
    std::erase_if(slots_, [&](const auto& entry) { return entry.first.starts_with(prefix) && entry.first != key && !entry.second.being_made; });
  }

 private:
  struct Slot {
    bool being_made = false;
    std::optional<T> value;
  };
  std::mutex mutex_;
  std::condition_variable_any changed_;
  std::map<std::string, Slot> slots_;
};

}  // namespace amk
