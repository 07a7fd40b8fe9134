#include "orchestrator/store/vfs_shim.h"

#include <sqlite3.h>

#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <new>

#include "orchestrator/store/failpoint.h"

namespace amk {
namespace {

struct Shim {
  sqlite3_vfs vfs{};
  sqlite3_vfs* base = nullptr;
  VfsObserver* observer = nullptr;
  std::string name;
};

// SQLite allocates szOsFile bytes: this, then the base VFS's file.
struct File {
  sqlite3_file head;
  Shim* shim;
  StoreFile kind;
  std::string* path;
  sqlite3_file* base() { return reinterpret_cast<sqlite3_file*>(reinterpret_cast<char*>(this) + aligned()); }
  static constexpr std::size_t aligned() {
    return (sizeof(File) + alignof(std::max_align_t) - 1) / alignof(std::max_align_t) * alignof(std::max_align_t);
  }
};

File* as_file(sqlite3_file* f) { return reinterpret_cast<File*>(f); }
sqlite3_file* base_of(sqlite3_file* f) { return as_file(f)->base(); }
const sqlite3_io_methods& methods_of(sqlite3_file* f) { return *base_of(f)->pMethods; }
Shim& shim_of(sqlite3_vfs* vfs) { return *static_cast<Shim*>(vfs->pAppData); }

int close_file(sqlite3_file* f) {
  const int code = methods_of(f).xClose(base_of(f));
  delete as_file(f)->path;
  return code;
}
int read_file(sqlite3_file* f, void* to, int n, sqlite3_int64 at) { return methods_of(f).xRead(base_of(f), to, n, at); }
int write_file(sqlite3_file* f, const void* from, int n, sqlite3_int64 at) {
  File& file = *as_file(f);
  const int code = file.shim->observer->on_write(*file.path, file.kind, {static_cast<const char*>(from), static_cast<std::size_t>(n)}, at);
  return code != SQLITE_OK ? code : methods_of(f).xWrite(base_of(f), from, n, at);
}
int truncate_file(sqlite3_file* f, sqlite3_int64 size) {
  File& file = *as_file(f);
  const int code = file.shim->observer->on_truncate(*file.path, file.kind, size);
  return code != SQLITE_OK ? code : methods_of(f).xTruncate(base_of(f), size);
}
int sync_file(sqlite3_file* f, int flags) {
  File& file = *as_file(f);
  const int code = file.shim->observer->on_sync(*file.path, file.kind);
  return code != SQLITE_OK ? code : methods_of(f).xSync(base_of(f), flags);
}
int file_size(sqlite3_file* f, sqlite3_int64* size) { return methods_of(f).xFileSize(base_of(f), size); }
int lock_file(sqlite3_file* f, int level) { return methods_of(f).xLock(base_of(f), level); }
int unlock_file(sqlite3_file* f, int level) { return methods_of(f).xUnlock(base_of(f), level); }
int check_lock(sqlite3_file* f, int* out) { return methods_of(f).xCheckReservedLock(base_of(f), out); }
int control_file(sqlite3_file* f, int op, void* argument) { return methods_of(f).xFileControl(base_of(f), op, argument); }
int sector_size(sqlite3_file* f) { return methods_of(f).xSectorSize(base_of(f)); }
int characteristics(sqlite3_file* f) { return methods_of(f).xDeviceCharacteristics(base_of(f)); }
int shm_map(sqlite3_file* f, int page, int size, int extend, void volatile** out) {
  return methods_of(f).xShmMap(base_of(f), page, size, extend, out);
}
int shm_lock(sqlite3_file* f, int offset, int n, int flags) { return methods_of(f).xShmLock(base_of(f), offset, n, flags); }
void shm_barrier(sqlite3_file* f) { methods_of(f).xShmBarrier(base_of(f)); }
int shm_unmap(sqlite3_file* f, int remove) { return methods_of(f).xShmUnmap(base_of(f), remove); }

// Version 2: no memory-mapped reads (xFetch), which the store does not use.
constexpr sqlite3_io_methods kMethods{2,         close_file,  read_file,  write_file,   truncate_file, sync_file,       file_size,
                                      lock_file, unlock_file, check_lock, control_file, sector_size,   characteristics, shm_map,
                                      shm_lock,  shm_barrier, shm_unmap,  nullptr,      nullptr};

int open_file(sqlite3_vfs* vfs, const char* path, sqlite3_file* f, int flags, int* out_flags) {
  Shim& shim = shim_of(vfs);
  File& file = *as_file(f);
  std::memset(f, 0, static_cast<std::size_t>(vfs->szOsFile));
  file.shim = &shim;
  const int code = shim.base->xOpen(shim.base, path, file.base(), flags, out_flags);
  if (file.base()->pMethods == nullptr) return code;  // xClose will not be called
  file.path = new std::string(path != nullptr ? path : "");
  file.kind = store_file_of(*file.path);
  file.head.pMethods = &kMethods;
  return code;
}
int delete_file(sqlite3_vfs* vfs, const char* path, int sync_directory) {
  Shim& shim = shim_of(vfs);
  const int code = shim.observer->on_delete(path, sync_directory != 0);
  return code != SQLITE_OK ? code : shim.base->xDelete(shim.base, path, sync_directory);
}
int access_file(sqlite3_vfs* vfs, const char* path, int flags, int* out) { return shim_of(vfs).base->xAccess(shim_of(vfs).base, path, flags, out); }
int full_path(sqlite3_vfs* vfs, const char* path, int n, char* out) { return shim_of(vfs).base->xFullPathname(shim_of(vfs).base, path, n, out); }
void* dl_open(sqlite3_vfs*, const char*) { return nullptr; }
void dl_error(sqlite3_vfs*, int n, char* out) { sqlite3_snprintf(n, out, "%s", "extensions are not loaded"); }
void (*dl_symbol(sqlite3_vfs*, void*, const char*))() { return nullptr; }
void dl_close(sqlite3_vfs*, void*) {}
int randomness(sqlite3_vfs* vfs, int n, char* out) { return shim_of(vfs).base->xRandomness(shim_of(vfs).base, n, out); }
int sleep_us(sqlite3_vfs* vfs, int us) { return shim_of(vfs).base->xSleep(shim_of(vfs).base, us); }
int current_time(sqlite3_vfs* vfs, double* out) { return shim_of(vfs).base->xCurrentTime(shim_of(vfs).base, out); }
int last_error(sqlite3_vfs* vfs, int n, char* out) { return shim_of(vfs).base->xGetLastError(shim_of(vfs).base, n, out); }
int current_time64(sqlite3_vfs* vfs, sqlite3_int64* out) { return shim_of(vfs).base->xCurrentTimeInt64(shim_of(vfs).base, out); }

class FailpointObserver final : public VfsObserver {
 public:
  int on_write(const std::string&, StoreFile file, std::string_view, std::int64_t) override {
    return code(pick(file, Failpoint::DbWrite, Failpoint::WalWrite, Failpoint::JournalWrite), SQLITE_IOERR_WRITE);
  }
  int on_sync(const std::string&, StoreFile file) override {
    return code(pick(file, Failpoint::DbSync, Failpoint::WalSync, Failpoint::JournalSync), SQLITE_IOERR_FSYNC);
  }
  int on_truncate(const std::string&, StoreFile file, std::int64_t) override {
    return code(pick(file, Failpoint::DbTruncate, Failpoint::WalTruncate, Failpoint::JournalTruncate), SQLITE_IOERR_TRUNCATE);
  }
  int on_delete(const std::string&, bool) override { return code(Failpoint::FileDelete, SQLITE_IOERR_DELETE); }

 private:
  static Failpoint pick(StoreFile file, Failpoint database, Failpoint wal, Failpoint journal) {
    switch (file) {
      case StoreFile::Database:
        return database;
      case StoreFile::Wal:
        return wal;
      case StoreFile::Journal:
        return journal;
      case StoreFile::Other:
        break;
    }
    return Failpoint::kCount;
  }
  static int code(Failpoint point, int io_error) {
    if (point == Failpoint::kCount) return SQLITE_OK;
    switch (failpoint::hit(point)) {
      case FailAction::None:
        return SQLITE_OK;
      case FailAction::Error:
        return io_error;
      case FailAction::DiskFull:
        return SQLITE_FULL;
    }
    return SQLITE_OK;
  }
};

}  // namespace

StoreFile store_file_of(std::string_view path) {
  if (path.ends_with(".sqlite")) return StoreFile::Database;
  if (path.ends_with(".sqlite-wal")) return StoreFile::Wal;
  if (path.ends_with(".sqlite-journal")) return StoreFile::Journal;
  return StoreFile::Other;
}

std::string register_vfs_shim(const std::string& name, VfsObserver& observer) {
  static std::mutex mutex;
  static std::map<std::string, std::unique_ptr<Shim>> shims;
  const std::lock_guard lock(mutex);
  std::unique_ptr<Shim>& shim = shims[name];
  if (shim) return name;
  shim = std::make_unique<Shim>();
  shim->base = sqlite3_vfs_find(nullptr);
  shim->observer = &observer;
  shim->name = name;
  sqlite3_vfs& vfs = shim->vfs;
  vfs.iVersion = 2;
  vfs.szOsFile = static_cast<int>(File::aligned()) + shim->base->szOsFile;
  vfs.mxPathname = shim->base->mxPathname;
  vfs.zName = shim->name.c_str();
  vfs.pAppData = shim.get();
  vfs.xOpen = open_file;
  vfs.xDelete = delete_file;
  vfs.xAccess = access_file;
  vfs.xFullPathname = full_path;
  vfs.xDlOpen = dl_open;
  vfs.xDlError = dl_error;
  vfs.xDlSym = dl_symbol;
  vfs.xDlClose = dl_close;
  vfs.xRandomness = randomness;
  vfs.xSleep = sleep_us;
  vfs.xCurrentTime = current_time;
  vfs.xGetLastError = last_error;
  vfs.xCurrentTimeInt64 = current_time64;
  sqlite3_vfs_register(&vfs, 0);
  return name;
}

std::string failpoint_vfs() {
  static FailpointObserver observer;
  return register_vfs_shim("amk-failpoints", observer);
}

}  // namespace amk
