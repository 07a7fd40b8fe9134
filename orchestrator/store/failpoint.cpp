#include "orchestrator/store/failpoint.h"

#include <signal.h>
#include <unistd.h>

#include <array>
#include <charconv>
#include <cstdlib>
#include <mutex>
#include <string>

namespace amk {
namespace {

constexpr std::array<std::string_view, kFailpoints> kNames{
    "open.created",      "migrate.backup",     "migrate.backup-done",  "migrate.step",   "migrate.step-done", "write.begin",
    "write.body",        "write.commit",       "write.committed",      "reserve.create", "reserve.release",   "backup.copied",
    "vfs.db.write",      "vfs.db.sync",        "vfs.db.truncate",      "vfs.wal.write",  "vfs.wal.sync",      "vfs.wal.truncate",
    "vfs.journal.write", "vfs.journal.sync",   "vfs.journal.truncate", "vfs.delete",     "tsv.append",        "tsv.append-torn",
    "corpus.append",     "corpus.append-torn", "export.written",       "export.renamed", "export.cut",        "quarantine.append",
    "state.write"};

enum class Action { None, Kill, Error, DiskFull };

struct Armed {
  Action action = Action::None;
  std::uint64_t from = 1;
  bool onwards = false;
  std::uint64_t hits = 0;
};

std::mutex mutex;
std::array<Armed, kFailpoints> table;

Result<Armed> parse_action(std::string_view text) {
  Armed out;
  if (!text.empty() && text.back() == '+') {
    out.onwards = true;
    text.remove_suffix(1);
  }
  if (const auto at = text.find('@'); at != std::string_view::npos) {
    const std::string_view number = text.substr(at + 1);
    const auto [end, code] = std::from_chars(number.data(), number.data() + number.size(), out.from);
    if (code != std::errc() || end != number.data() + number.size() || out.from == 0)
      return bad_field("failpoint count", number, "a positive integer");
    text = text.substr(0, at);
  }
  if (text == "kill")
    out.action = Action::Kill;
  else if (text == "error")
    out.action = Action::Error;
  else if (text == "enospc")
    out.action = Action::DiskFull;
  else
    return bad_field("failpoint action", text, "kill, error, enospc");
  return out;
}

}  // namespace

std::string_view to_string(Failpoint point) { return kNames[static_cast<std::size_t>(point)]; }

namespace failpoint {

namespace detail {
std::atomic<bool> armed{false};

FailAction reached(Failpoint point) {
  const std::lock_guard lock(mutex);
  Armed& entry = table[static_cast<std::size_t>(point)];
  ++entry.hits;
  if (entry.action == Action::None || !(entry.hits == entry.from || (entry.onwards && entry.hits > entry.from))) return FailAction::None;
  switch (entry.action) {
    case Action::Kill:
      ::kill(::getpid(), SIGKILL);
      for (;;) ::pause();  // the signal may reach another thread first
    case Action::Error:
      return FailAction::Error;
    case Action::DiskFull:
      return FailAction::DiskFull;
    case Action::None:
      break;
  }
  return FailAction::None;
}
}  // namespace detail

Status arm(std::string_view spec) {
  std::array<Armed, kFailpoints> wanted{};
  while (!spec.empty()) {
    const auto comma = spec.find(',');
    const std::string_view item = spec.substr(0, comma);
    spec = comma == std::string_view::npos ? std::string_view() : spec.substr(comma + 1);
    const auto equals = item.find('=');
    const std::string_view name = item.substr(0, equals);
    std::size_t index = 0;
    while (index < kNames.size() && kNames[index] != name) ++index;
    if (index == kNames.size() || equals == std::string_view::npos) {
      std::string accepted = "name=action with one of";
      for (std::string_view known : kNames) accepted.append(" ").append(known);
      return bad_field("failpoint", item, accepted);
    }
    AMK_TRY(action, parse_action(item.substr(equals + 1)));
    wanted[index] = action;
  }
  const std::lock_guard lock(mutex);
  table = wanted;
  detail::armed.store(true, std::memory_order_relaxed);
  return {};
}

Status arm_from_environment() {
  const char* spec = std::getenv("AMK_FAILPOINT");
  return spec == nullptr ? Status{} : arm(spec);
}

void disarm() {
  const std::lock_guard lock(mutex);
  detail::armed.store(false, std::memory_order_relaxed);
}

std::uint64_t hits(Failpoint point) {
  const std::lock_guard lock(mutex);
  return table[static_cast<std::size_t>(point)].hits;
}

Status check(Failpoint point) {
  switch (hit(point)) {
    case FailAction::None:
      break;
    case FailAction::Error:
      return fail(ErrorKind::Io, "failpoint " + std::string(to_string(point)) + ": I/O error");
    case FailAction::DiskFull:
      return fail(ErrorKind::Unavailable, "failpoint " + std::string(to_string(point)) + ": disk full", {{"reason", "disk-full"}});
  }
  return {};
}

}  // namespace failpoint
}  // namespace amk
