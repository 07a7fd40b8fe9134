#include "tests/crash/ack_log.h"

#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>

namespace amk::test {

AckLog::AckLog(std::size_t capacity) : capacity_(capacity) {
  void* memory = ::mmap(nullptr, bytes(), PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) std::abort();
  shared_ = static_cast<Shared*>(memory);  // zero bytes are an empty log
}

AckLog::~AckLog() { ::munmap(shared_, bytes()); }

void AckLog::append(const AckEntry& entry) {
  const std::size_t at = shared_->used.fetch_add(1);
  if (at >= capacity_) return;
  slots()[at].entry = entry;
  slots()[at].complete.store(true, std::memory_order_release);
}

std::vector<AckEntry> AckLog::taken() const {
  std::vector<AckEntry> out;
  for (std::size_t i = 0; i < std::min(shared_->used.load(), capacity_); ++i)
    if (slots()[i].complete.load(std::memory_order_acquire)) out.push_back(slots()[i].entry);
  return out;
}

void AckLog::clear() {
  for (std::size_t i = 0; i < std::min(shared_->used.load(), capacity_); ++i) slots()[i].complete.store(false);
  shared_->used.store(0);
}

}  // namespace amk::test
