// Write-ahead log or rollback journal. Pure.
#pragma once

#include <string>

#include "orchestrator/store/filesystem.h"
#include "orchestrator/store/store.h"

namespace amk {

struct JournalChoice {
  bool write_ahead_log = true;
  std::string why;
};
// SQLite 3.7.0 to 3.51.2 can corrupt a file in WAL mode when two connections write or checkpoint at the same instant
// (sqlite.org/wal.html#walresetbug). The store has one connection that does either, so the log is safe with those versions too, as long as it
// is known that no other process can have the file: on a file system whose locks or shared memory are in doubt, the rollback journal is used.
JournalChoice choose_journal(int sqlite_version_number, FilesystemKind filesystem, JournalMode wanted);

}  // namespace amk
