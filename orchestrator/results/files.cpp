// ResultFiles: results.tsv and corpus.jsonl follow the store. results.state says how far and how long they were when last in order; a file
// that does not fit it was torn by a crash or touched by somebody, and is put right from the store.
#include <errno.h>
#include <stdio.h>
#include <unistd.h>

#include <atomic>
#include <exception>
#include <fstream>
#include <future>
#include <mutex>
#include <thread>
#include <unordered_set>
#include <utility>

#include "core/base/files.h"
#include "core/base/hash.h"
#include "core/base/parse_json.h"
#include "orchestrator/results/ended_rows.h"
#include "orchestrator/results/formats.h"
#include "orchestrator/results/results.h"
#include "orchestrator/store/failpoint.h"
#include "orchestrator/store/filesystem.h"

namespace amk {
namespace {

constexpr int kPiece = 500;
constexpr std::int64_t kTail = 4096;
constexpr std::size_t kMostStrange = 16u << 20;  // bytes of strange lines that are put aside one by one, and of a line that may still be one of ours

// One export: where it is, how long it was, and what its end looked like.
struct Mark {
  std::int64_t bytes = 0;
  std::string tail;  // hash of the last kTail bytes
};

std::int64_t size_of(const std::filesystem::path& path) {
  std::error_code code;
  const auto bytes = std::filesystem::file_size(path, code);
  return code ? -1 : static_cast<std::int64_t>(bytes);
}

Mark mark_of(const std::filesystem::path& path, std::int64_t bytes) {
  return {bytes, hash128_hex(read_range(path, std::max<std::int64_t>(0, bytes - kTail), bytes).value_or(std::string()))};
}

Json to_json(const Mark& mark) { return {{"bytes", mark.bytes}, {"tail", mark.tail}}; }

Status append_torn(const std::filesystem::path& path, std::string_view bytes, Failpoint before, Failpoint torn) {
  if (bytes.empty()) return {};
  AMK_CHECK(failpoint::check(before));
  if (failpoint::armed()) {
    // In two steps, so that a test can stop between them.
    AMK_CHECK(append_bytes(path, bytes.substr(0, bytes.size() / 2)));
    AMK_CHECK(failpoint::check(torn));
    return append_bytes(path, bytes.substr(bytes.size() / 2));
  }
  return append_bytes(path, bytes);
}

}  // namespace

struct ResultFiles::Impl {
  explicit Impl(Store& s)
      : store(s), folder(s.workspace()), tsv(folder / "results.tsv"), corpus(folder / "corpus.jsonl"), state(folder / "results.state") {}

  Store& store;
  const std::filesystem::path folder, tsv, corpus, state;
  std::mutex mutex;
  std::atomic<std::int64_t> pokes{0};
  bool in_order = false;  // the files end where `end_seq` says
  std::int64_t end_seq = 0;
  std::jthread beside;

  Status save_state() {
    const Json json = {{"store_id", store.health().store_id},
                       {"end_seq", end_seq},
                       {"tsv", to_json(mark_of(tsv, size_of(tsv)))},
                       {"corpus", to_json(mark_of(corpus, size_of(corpus)))}};
    AMK_CHECK(failpoint::check(Failpoint::StateWrite));
    // Not fsynced: an old or torn one only means that the files are checked and cut back to it, or rebuilt.
    return replace_file(state, canonical_dump(json) + "\n", {.durable = false});
  }

  // What the state file promises, if the files keep it: the part after the promised length came later and is checked by the caller.
  std::optional<std::pair<Mark, Mark>> promised() {
    constexpr std::int64_t kLongest = 64 << 10;  // it has some 300 bytes
    const auto text = read_range(state, 0, kLongest);
    if (!text) return std::nullopt;
    const auto json = parse_json(*text, "results.state");
    if (!json || !json->is_object() || json->value("store_id", Json()) != store.health().store_id) return std::nullopt;
    const auto mark = [&json](const char* name, const std::filesystem::path& path) -> std::optional<Mark> {
      const Json part = json->value(name, Json());
      if (!part.is_object() || !part.value("bytes", Json()).is_number_integer() || !part.value("tail", Json()).is_string()) return std::nullopt;
      const Mark said{part["bytes"], part["tail"]};
      if (said.bytes < 0 || size_of(path) < said.bytes || mark_of(path, said.bytes).tail != said.tail) return std::nullopt;
      return said;
    };
    const auto a = mark("tsv", tsv), b = mark("corpus", corpus);
    if (!a || !b || !json->value("end_seq", Json()).is_number_integer()) return std::nullopt;
    end_seq = (*json)["end_seq"];
    return std::pair(*a, *b);
  }

  Status quarantine(const std::string& lines) {
    if (lines.empty()) return {};
    AMK_CHECK(failpoint::check(Failpoint::QuarantineAppend));
    return append_bytes(folder / "results.quarantine", lines);
  }

  // Moves what stands after `mark` and is not among `expected` to the quarantine, and cuts the file back.
  Status cut_back(const std::filesystem::path& path, const Mark& mark, const std::unordered_set<std::string>& expected) {
    const std::int64_t size = size_of(path);
    if (size <= mark.bytes) return {};
    AMK_TRY(extra, read_range(path, mark.bytes, size));
    std::string strange;
    for (std::size_t from = 0; from < extra.size();) {
      const auto end = extra.find('\n', from);
      const std::string line = extra.substr(from, end == std::string::npos ? std::string::npos : end - from);
      if (end == std::string::npos || !expected.contains(line)) (strange += line) += '\n';
      from = end == std::string::npos ? extra.size() : end + 1;
    }
    AMK_CHECK(quarantine(strange));
    AMK_CHECK(failpoint::check(Failpoint::ExportCut));
    if (::truncate(path.c_str(), mark.bytes) != 0) return system_error("truncate", path, errno);
    return {};
  }

  Status start() {
    const auto marks = promised();
    if (!marks) return rebuild();
    const auto longer = [](const std::filesystem::path& path, const Mark& mark) {
      return size_of(path) - mark.bytes > static_cast<std::int64_t>(kMostStrange);
    };
    if (longer(tsv, marks->first) || longer(corpus, marks->second)) return rebuild();
    if (size_of(tsv) > marks->first.bytes || size_of(corpus) > marks->second.bytes) {
      // A crash between an append and its state: at most a few lines, unless somebody else wrote there.
      std::unordered_set<std::string> lines, points;
      AMK_TRY(rows, ended_rows(store, end_seq, kPiece));
      for (const EndedRow& row : rows) {
        std::string line = tsv_line(tsv_fields(row.experiment, row.campaign));
        line.pop_back();
        lines.insert(std::move(line));
        std::string point = corpus_line(row.experiment, row.campaign);
        point.pop_back();
        points.insert(std::move(point));
      }
      AMK_CHECK(cut_back(tsv, marks->first, lines));
      AMK_CHECK(cut_back(corpus, marks->second, points));
    }
    in_order = true;
    return {};
  }

  Status follow() {
    for (;;) {
      AMK_TRY(rows, ended_rows(store, end_seq, kPiece));
      if (rows.empty()) return {};
      std::string lines, points;
      for (const EndedRow& row : rows) {
        lines += tsv_line(tsv_fields(row.experiment, row.campaign));
        if (row.experiment.outcome == Outcome::Kept) points += corpus_line(row.experiment, row.campaign);
      }
      in_order = false;  // until both have the rows: a failure in between is put right by the next call
      AMK_CHECK(append_torn(tsv, lines, Failpoint::TsvAppend, Failpoint::TsvAppendTorn));
      AMK_CHECK(append_torn(corpus, points, Failpoint::CorpusAppend, Failpoint::CorpusAppendTorn));
      end_seq = rows.back().end_seq;
      AMK_CHECK(save_state());
      in_order = true;
      if (rows.size() < kPiece) return {};
    }
  }

  // Lines of the old file that the new one does not have.
  Status keep_strange(const std::filesystem::path& path, const std::unordered_set<std::uint64_t>& known) {
    std::error_code code;
    if (std::filesystem::symlink_status(path, code).type() != std::filesystem::file_type::regular) return {};
    std::ifstream in(path, std::ios::binary);
    std::string line, strange, piece(64u << 10, '\0');
    const auto look = [&] {
      if (!line.empty() && !known.contains(hash64(line))) (strange += line) += '\n';
      line.clear();
    };
    while (in.read(piece.data(), static_cast<std::streamsize>(piece.size())), in.gcount() > 0) {
      std::string_view rest(piece.data(), static_cast<std::size_t>(in.gcount()));
      for (std::size_t end; (end = rest.find('\n')) != std::string_view::npos; rest.remove_prefix(end + 1)) {
        line += rest.substr(0, end);
        look();
      }
      line += rest;
      if (line.size() + strange.size() > kMostStrange) return set_aside(path);
    }
    look();
    return quarantine(strange);
  }

  // A file that is mostly not ours goes as it is: what it holds may be more than the memory, or than the disk has room for twice.
  static Status set_aside(const std::filesystem::path& path) {
    AMK_CHECK(failpoint::check(Failpoint::QuarantineAppend));
    std::error_code code;
    std::filesystem::path to = path.string() + ".strange";
    for (int n = 2; std::filesystem::exists(std::filesystem::symlink_status(to, code)) && n < 100; ++n)
      to = path.string() + ".strange" + std::to_string(n);
    if (::rename(path.c_str(), to.c_str()) != 0) return system_error("rename", path, errno);
    return {};
  }

  Status rebuild() {
    in_order = false;
    AMK_TRY(new_tsv, AtomicFile::create(tsv));
    AMK_TRY(new_corpus, AtomicFile::create(corpus));
    std::unordered_set<std::uint64_t> lines, points;
    const auto add = [](AtomicFile& file, const std::string& line, std::unordered_set<std::uint64_t>& known) {
      known.insert(hash64(std::string_view(line).substr(0, line.size() - 1)));
      return file.write(line);
    };
    AMK_CHECK(add(new_tsv, tsv_header(), lines));
    std::int64_t last = 0;
    for (;;) {
      AMK_TRY(rows, ended_rows(store, last, kPiece));
      for (const EndedRow& row : rows) {
        AMK_CHECK(add(new_tsv, tsv_line(tsv_fields(row.experiment, row.campaign)), lines));
        if (row.experiment.outcome == Outcome::Kept) AMK_CHECK(add(new_corpus, corpus_line(row.experiment, row.campaign), points));
        last = row.end_seq;
      }
      if (rows.size() < kPiece) break;
    }
    AMK_CHECK(keep_strange(tsv, lines));
    AMK_CHECK(keep_strange(corpus, points));
    for (AtomicFile* file : {&new_tsv, &new_corpus}) {
      AMK_CHECK(file->complete());
      AMK_CHECK(failpoint::check(Failpoint::ExportWritten));
      AMK_CHECK(file->publish());
      AMK_CHECK(failpoint::check(Failpoint::ExportRenamed));
    }
    end_seq = last;
    AMK_CHECK(save_state());
    in_order = true;
    return {};
  }
};

ResultFiles::ResultFiles(Store& store) : impl_(std::make_unique<Impl>(store)) {}
ResultFiles::~ResultFiles() {
  if (impl_->beside.joinable()) impl_->beside.join();
}

Status ResultFiles::catch_up() {
  const std::lock_guard lock(impl_->mutex);
  if (!impl_->in_order) AMK_CHECK(impl_->start());
  return impl_->follow();
}

void ResultFiles::catch_up_beside(std::chrono::milliseconds patience) {
  std::promise<void> done;
  const auto ended = done.get_future();
  try {
    impl_->beside = std::jthread([this, done = std::move(done)]() mutable {
      poke();
      done.set_value();
    });
  } catch (const std::exception&) {  // no thread to be had
    poke();
    return;
  }
  (void)ended.wait_for(patience);
}

void ResultFiles::poke() {
  // Whoever counts from zero works until the count is zero again; a failure waits for the next call.
  std::int64_t seen = ++impl_->pokes;
  if (seen != 1) return;
  do {
    try {
      (void)catch_up();
    } catch (const std::exception&) {  // no memory, and this may be a thread's outermost call
    }
  } while (!impl_->pokes.compare_exchange_strong(seen, 0));
}

Status ResultFiles::rebuild() {
  const std::lock_guard lock(impl_->mutex);
  return impl_->rebuild();
}

std::filesystem::path ResultFiles::tsv_path() const { return impl_->tsv; }
std::filesystem::path ResultFiles::corpus_path() const { return impl_->corpus; }

}  // namespace amk
