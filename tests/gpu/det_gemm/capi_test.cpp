// The C interface on the GPU: a miss is tuned once, kept in a file, found there by the next process.
#include <stdlib.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "kernels/det_gemm/capi/amk_gemm.h"
#include "kernels/det_gemm/tuned_table.h"
#include "tests/gpu/det_gemm/cases.h"
#include "tests/gpu/det_gemm/checks.h"

namespace amk::det_gemm::gpu_test {
namespace {

struct Handle {
  amk_gemm* gemm = nullptr;
  std::vector<std::string> warnings;
  Handle() = default;
  Handle(const Handle&) = delete;
  Handle& operator=(const Handle&) = delete;
  ~Handle() { amk_gemm_close(gemm); }
  bool open(const std::filesystem::path& cache, const std::filesystem::path& resources) {
    if (amk_gemm_open(0, cache.c_str(), resources.c_str(), &gemm) != AMK_GEMM_OK) return false;
    amk_gemm_set_log(
        gemm, [](void* user, const char* message) { static_cast<Handle*>(user)->warnings.emplace_back(message); }, this);
    return true;
  }
};

struct Folder {
  std::filesystem::path path;
  Folder() {
    std::string pattern = (std::filesystem::temp_directory_path() / "amk-gemm-test-XXXXXX").string();
    if (::mkdtemp(pattern.data()) != nullptr) path = pattern;
  }
  Folder(const Folder&) = delete;
  Folder& operator=(const Folder&) = delete;
  ~Folder() {
    std::error_code code;
    std::filesystem::remove_all(path, code);
  }
};

std::string text_of(const std::filesystem::path& path) {
  std::ifstream file(path, std::ios::binary);
  return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
}

// One forward product through the C interface; its bits.
Result<std::vector<std::uint32_t>> forward(Runner& runner, const Handle& handle, const Operands& o, amk_gemm_args& args) {
  const cuda::Stream& stream = runner.stream();
  AMK_TRY(memory, on_device(o, stream));
  const auto& [x, y, out] = memory;
  args.struct_bytes = sizeof(args);
  args.op = AMK_GEMM_FWD;
  args.weights = o.shape.y_k_contiguous ? AMK_GEMM_WEIGHTS_NK : AMK_GEMM_WEIGHTS_KN;
  args.m = o.shape.m, args.n = o.shape.n, args.k = o.shape.k;
  args.left = reinterpret_cast<const void*>(x.pointer());
  args.right = reinterpret_cast<const void*>(y.pointer());
  args.out = reinterpret_cast<void*>(out.pointer());
  if (amk_gemm_run(handle.gemm, &args, stream.handle()) != AMK_GEMM_OK) return fail(ErrorKind::Internal, amk_gemm_error(handle.gemm));
  std::vector<std::uint16_t> halves(out.bytes() / 2);
  AMK_CHECK(cuda::copy_to_host(halves.data(), out.pointer(), out.bytes(), stream));
  AMK_CHECK(runner.synchronize());
  std::vector<std::uint32_t> bits(halves.size());
  for (std::size_t i = 0; i < bits.size(); ++i) bits[i] = static_cast<std::uint32_t>(halves[i]) << 16;
  return bits;
}

}  // namespace

void test_capi(Runner& runner, Checks& checks, const Options& options) {
  const auto resources = find_resources();
  checks.expect_ok(resources, "resources");
  const Folder folder;
  checks.expect(!folder.path.empty(), "a folder for the cache");
  if (!resources || folder.path.empty()) return;
  const NumericClass numeric = *numeric_class_of(runner.target().sm_major, runner.target().sm_minor);
  const auto cache = folder.path, file = cache / "det_gemm_tuned.json";
  const int candidates = options.quick ? 3 : 8;
  for (const bool y_k : {false, true}) {
    const std::string layout = y_k ? " [N,K]" : " [K,N]";
    const Operands o = make_operands({.m = 200, .n = 1544, .k = 520, .y_k_contiguous = y_k}, 31, 3);  // a bucket that no shipped table has
    const auto want = expected(o, numeric);
    std::string explained, kept;
    {
      Handle handle;
      checks.expect(handle.open(cache, resources->root), std::string("open: ") + amk_gemm_error(nullptr));
      if (handle.gemm == nullptr) return;
      amk_gemm_args args{};
      const auto untuned = forward(runner, handle, o, args);
      checks.expect(untuned && *untuned == want, "bits before tuning" + layout + (untuned ? "" : ": " + untuned.error().message));
      const char* before = amk_gemm_explain(handle.gemm, &args);
      checks.expect(before != nullptr && std::string(before).find("exact bucket") == std::string::npos, "the shipped table has no such bucket");
      checks.expect(amk_gemm_set_autotune(handle.gemm, candidates, 20000) == AMK_GEMM_OK, "set_autotune");
      const auto tuned = forward(runner, handle, o, args);
      checks.expect(tuned && *tuned == want, "bits of the call that tunes" + layout + (tuned ? "" : ": " + tuned.error().message));
      for (const std::string& warning : handle.warnings)
        checks.expect(warning.find("autotuning") == std::string::npos, "tuning succeeds without a warning: " + warning);
      const char* after = amk_gemm_explain(handle.gemm, &args);
      explained = after == nullptr ? amk_gemm_error(handle.gemm) : after;
      checks.expect(explained == "tuned (exact bucket m256 n2048 k1024)", "the winner serves its bucket: " + explained);
      kept = text_of(file);
      const auto again = forward(runner, handle, o, args);
      checks.expect(again && *again == want && text_of(file) == kept, "a second call does not tune" + layout);
    }
    const auto table = TunedTable::load(file);
    checks.expect_ok(table, "the local table is a table");
    const std::size_t entries = y_k ? 2 : 1;
    checks.expect(table && table->entries().size() == entries, "one entry a bucket");
    if (!table || table->entries().size() != entries) continue;
    const Json& evidence = table->entries().back().evidence;
    std::printf("autotune%s: %s\n", layout.c_str(), evidence.dump().c_str());
    checks.expect(evidence.value("tried", 0) >= 1 && evidence.value("incorrect", -1) == 0 && evidence.value("us", 0.0) > 0,
                  "evidence of tuning: " + evidence.dump());
    Handle next;  // as a later process would
    checks.expect(next.open(cache, resources->root), "open again");
    if (next.gemm == nullptr) continue;
    checks.expect(amk_gemm_set_autotune(next.gemm, candidates, 20000) == AMK_GEMM_OK, "set_autotune again");
    amk_gemm_args args{};
    const auto found = forward(runner, next, o, args);
    checks.expect(found && *found == want && text_of(file) == kept, "the next process finds it and does not tune" + layout);
    const char* origin = amk_gemm_explain(next.gemm, &args);
    checks.expect(origin != nullptr && std::string(origin) == explained, "and serves the same");
  }
}

}  // namespace amk::det_gemm::gpu_test
