// Named places before and after every durable step, at which a test makes the process die or the step fail. Compiled in always, inert until
// arm() is called: the product calls it only in builds with test hooks. Costs one relaxed load when inert. Thread-safe.
#pragma once

#include <atomic>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/error.h"

namespace amk {

enum class Failpoint {
  OpenCreated,        // open.created: the database file exists, its schema does not
  MigrateBackup,      // migrate.backup: before the copy is made
  MigrateBackupDone,  // migrate.backup-done: the copy has its final name
  MigrateStep,        // migrate.step: a step's statements ran, its commit has not
  MigrateStepDone,    // migrate.step-done
  WriteBegin,         // write.begin: a group's transaction has begun
  WriteBody,          // write.body: after the statements of one write
  WriteCommit,        // write.commit: before the group's COMMIT
  WriteCommitted,     // write.committed: durable, nobody told yet
  ReserveCreate,      // reserve.create
  ReserveRelease,     // reserve.release
  BackupCopied,       // backup.copied: written under a temporary name
  DbWrite,            // vfs.db.write: one page of the database file (checkpoint, or rollback mode)
  DbSync,             // vfs.db.sync
  DbTruncate,         // vfs.db.truncate
  WalWrite,           // vfs.wal.write: one frame header or page of the write-ahead log
  WalSync,            // vfs.wal.sync
  WalTruncate,        // vfs.wal.truncate
  JournalWrite,       // vfs.journal.write (rollback mode)
  JournalSync,        // vfs.journal.sync
  JournalTruncate,    // vfs.journal.truncate: the commit point of rollback mode
  FileDelete,         // vfs.delete
  TsvAppend,          // tsv.append: before a line is appended to results.tsv
  TsvAppendTorn,      // tsv.append-torn: half of the line is written
  CorpusAppend,       // corpus.append
  CorpusAppendTorn,   // corpus.append-torn
  ExportWritten,      // export.written: a rebuilt file is complete under its temporary name
  ExportRenamed,      // export.renamed
  ExportCut,          // export.cut: before a file is cut back to its last complete line
  QuarantineAppend,   // quarantine.append: before lines of a stranger are put aside
  StateWrite,         // state.write: before results.state says how far the exports are
  kCount
};
inline constexpr int kFailpoints = static_cast<int>(Failpoint::kCount);

std::string_view to_string(Failpoint point);

enum class FailAction {
  None,
  Error,     // the step reports an I/O error without being done
  DiskFull,  // the step reports that the disk is full
};

namespace failpoint {

// "name=action[@n][+]", comma-separated; action: kill (SIGKILL to this process), error, enospc; n: the n-th time the place is reached
// (default 1); "+": then and every later time. Replaces what was armed before.
Status arm(std::string_view spec);
// arm() with the environment variable AMK_FAILPOINT, if it is set. For test programs and builds with test hooks only.
Status arm_from_environment();
void disarm();
std::uint64_t hits(Failpoint point);  // since the last arm(); places are counted only while armed

namespace detail {
extern std::atomic<bool> armed;
FailAction reached(Failpoint point);
}  // namespace detail

inline bool armed() { return detail::armed.load(std::memory_order_relaxed); }
inline FailAction hit(Failpoint point) { return armed() ? detail::reached(point) : FailAction::None; }
// For steps that are ours rather than SQLite's: an Io or disk-full error, or nothing.
Status check(Failpoint point);

}  // namespace failpoint
}  // namespace amk
