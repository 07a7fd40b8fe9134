// A worker gone bad: bytes on its pipe, then what its JSON says as a reply, a timing and a verdict. The judge believes a timing only when it could
// have been measured.
#include <sys/mman.h>
#include <unistd.h>

#include <cmath>

#include "core/base/parse_json.h"
#include "kernels/evaluator/judged_timing.h"
#include "kernels/evaluator/worker_process.h"
#include "kernels/verdict.h"
#include "tests/fuzz/fuzz.h"

using namespace amk;
using fuzz::require;

namespace {

void judge(const Json& reply) {
  for (const bool incumbent : {false, true}) {
    const TimingAsked asked{incumbent, 2, 1, std::chrono::seconds(100)};
    const auto timing = judged_timing(reply, asked);
    if (!timing) {
      require(timing.error().kind == ErrorKind::Corrupt && timing.error().data.contains("lie"), "a lie is named");
      continue;
    }
    require(timing->latency_us > 0 && std::isfinite(timing->latency_us), "a believed latency is a time");
    require(timing->candidate_us.size() >= 6 && timing->versus.has_value() == incumbent, "a believed timing has its samples");
    require(judged_timing(to_json(*timing), asked).has_value(), "what the judge computed it would believe");
  }
  if (const auto verdict = verdict_from_json(reply)) {
    require(!verdict->latency_us || (verdict->correct && verdict->valid), "no latency without correctness");
    require(verdict_from_json(to_json(*verdict)).has_value(), "a verdict that was read can be read again");
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  const auto text = fuzz::text_of(data, size);
  if (const auto json = parse_json(text, "reply")) {
    judge(*json);
    Message message;
    message.body = *json;
    (void)take_reply(message, 1);
  }
  // A file stands for the pipe: always ready, and it ends.
  static const int fd = ::memfd_create("worker", MFD_CLOEXEC);
  require(::ftruncate(fd, 0) == 0 && ::pwrite(fd, data, size, 0) == static_cast<ssize_t>(size) && ::lseek(fd, 0, SEEK_SET) == 0, "a file holds it");
  for (int messages = 0; messages < 16; ++messages) {
    auto message = read_message(fd, std::chrono::steady_clock::now() + std::chrono::seconds(5));
    if (!message) {
      require(message.error().kind == ErrorKind::Corrupt || message.error().kind == ErrorKind::Unavailable, "a damaged stream is called so");
      return 0;
    }
    judge(message->body);
    (void)take_reply(std::move(*message), 1);
  }
  return 0;
}
