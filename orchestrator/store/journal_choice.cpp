#include "orchestrator/store/journal_choice.h"

namespace amk {

JournalChoice choose_journal(int sqlite_version_number, FilesystemKind filesystem, JournalMode wanted) {
  constexpr int kWalResetFixed = 3'051'003;
  if (wanted == JournalMode::Rollback) return {false, "asked for"};
  if (filesystem == FilesystemKind::Unknown) return {false, "the file system may lack shared memory"};
  if (wanted == JournalMode::Wal) return {true, "asked for"};
  if (sqlite_version_number < kWalResetFixed) return {true, "one connection writes and checkpoints: the WAL-reset race of this SQLite cannot occur"};
  return {true, "this SQLite has no known race"};
}

}  // namespace amk
