// Brings a store file to a schema, and copies it whole. The caller holds the workspace lock.
#pragma once

#include <filesystem>
#include <string>

#include "core/base/error.h"
#include "orchestrator/store/schema.h"
#include "orchestrator/store/sqlite.h"

namespace amk {

// What a file is, read without changing it or its log. Absent or empty: version 0.
// Unsupported when its schema is newer than `schema`; Corrupt when it is not ours or damaged.
Result<int> inspect_store_file(const std::filesystem::path& file, const Schema& schema, const std::string& vfs);

// Runs the missing steps, each in its own exclusive transaction. A file that is not new is copied to `backups` first.
Status migrate(sql::Connection& connection, const Schema& schema, const std::filesystem::path& backups);

// A consistent copy: temporary name, fsync, rename, directory fsync. Conflict when `to` exists.
Status copy_database(sql::Connection& from, const std::filesystem::path& to);

}  // namespace amk
