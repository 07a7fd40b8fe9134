#include "kernels/det_gemm/capi/amk_gemm.h"

#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <set>
#include <string>

#include "core/base/files.h"
#include "kernels/det_gemm/autotune.h"
#include "kernels/det_gemm/bed.h"
#include "kernels/det_gemm/capi/guard.h"
#include "kernels/det_gemm/defaults.h"
#include "kernels/det_gemm/dispatch.h"
#include "kernels/det_gemm/driver_extras.h"
#include "kernels/det_gemm/gpu_tuner.h"
#include "kernels/det_gemm/runner.h"

using namespace amk;
using namespace amk::det_gemm;

struct amk_gemm {
  std::unique_ptr<Runner> runner;
  Resources resources;
  std::filesystem::path cache;
  std::unique_ptr<Autotuner> tuner;  // null: off
  TunedTable table;
  int gpu = 0;
  std::string error, text;
  std::set<std::string> verified, warned;
  amk_gemm_log log = nullptr;
  void* log_user = nullptr;
};

namespace {

thread_local std::string open_error;
constexpr std::int64_t kStepTokens = 16;  // a chain is resumed between two k16 steps

struct Call {
  Problem problem;
  Storage storage;
  Buffers buffers;
  std::vector<std::string> order;
};

std::int64_t alignment_of(std::uintptr_t address) {
  std::int64_t alignment = 256;
  while (alignment > 1 && address % static_cast<std::uintptr_t>(alignment) != 0) alignment /= 2;
  return alignment;
}
std::int64_t alignment_of(const void* pointer) { return alignment_of(reinterpret_cast<std::uintptr_t>(pointer)); }

cuda::DevicePtr device_pointer(const void* pointer) { return reinterpret_cast<cuda::DevicePtr>(pointer); }

Status check_extent(const char* field, std::int64_t value) {
  if (value >= 0 && value <= 0x7FFFFFFF) return {};
  return bad_field(field, value, "0 to 2147483647");
}

Result<std::int64_t> stride_or_dense(const char* field, std::int64_t given, std::int64_t row) {
  if (given == 0) return row;
  if (given < row) return bad_field(field, given, "0 (dense) or at least the row length " + std::to_string(row));
  return given;
}

Result<Problem> problem_of(const amk_gemm_args& a) {
  if (a.op < 0 || a.op > 2) return bad_field("op", a.op, "AMK_GEMM_FWD, AMK_GEMM_DA, AMK_GEMM_DB");
  if (a.weights < 0 || a.weights > 1) return bad_field("weights", a.weights, "AMK_GEMM_WEIGHTS_KN, AMK_GEMM_WEIGHTS_NK");
  if (a.out_type < 0 || a.out_type > 1) return bad_field("out_type", a.out_type, "AMK_GEMM_BF16, AMK_GEMM_FP32");
  AMK_CHECK(check_extent("m", a.m));
  AMK_CHECK(check_extent("n", a.n));
  AMK_CHECK(check_extent("k", a.k));
  Problem p{static_cast<Op>(a.op), a.m, a.n, a.k, static_cast<WeightLayout>(a.weights), static_cast<OutType>(a.out_type), a.chunk};
  if (a.chunk != 0 && p.op != Op::Db) return bad_field("chunk", a.chunk, "0 unless op is AMK_GEMM_DB");
  if (a.chunk < 0 || a.chunk % 16 != 0 || a.chunk > 0x7FFFFFFF) return bad_field("chunk", a.chunk, "0 or a positive multiple of 16");
  if (p.op != Op::Db && (a.token_offset != 0 || a.total_in != nullptr))
    return bad_field("token_offset", a.token_offset, "0, and total_in NULL, unless op is AMK_GEMM_DB");
  const std::int64_t cut = a.chunk > 0 ? a.chunk : kStepTokens;
  if (a.token_offset < 0 || a.token_offset % cut != 0) {
    return bad_field("token_offset", a.token_offset,
                     "a multiple of " + std::string(a.chunk > 0 ? "chunk" : "a step of the chain") + " (" + std::to_string(cut) +
                         "): calls are cut on canonical boundaries");
  }
  p.resumed = a.chunk == 0 && a.total_in != nullptr;
  return p;
}

std::vector<std::string> split_order(const char* text) {
  std::vector<std::string> order;
  std::string rest = text != nullptr ? text : "";
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    order.push_back(rest.substr(0, comma));
    rest = comma == std::string::npos ? "" : rest.substr(comma + 1);
  }
  return order;
}

// A device pointer of this handle's GPU with room for nothing in particular: the driver knows where an address lives, not how long it is.
Status check_pointer(const char* field, const void* pointer, bool needed, int gpu) {
  if (!needed) return {};
  if (pointer == nullptr) return bad_field(field, nullptr, "a device pointer");
  AMK_TRY(extras, driver_extras());
  int ordinal = -1;
  constexpr int kDeviceOrdinal = 9;  // CU_POINTER_ATTRIBUTE_DEVICE_ORDINAL
  if (extras->cuPointerGetAttribute(&ordinal, kDeviceOrdinal, device_pointer(pointer)) != 0) {
    return bad_field(field, reinterpret_cast<std::uintptr_t>(pointer), "a device pointer; this address is not known to the driver");
  }
  if (ordinal != gpu) return bad_field(field, ordinal, "memory of GPU " + std::to_string(gpu) + ", this handle's; it lies on another device");
  return {};
}

Result<Call> parse_call(const amk_gemm& handle, const amk_gemm_args& a, bool with_pointers) {
  if (a.struct_bytes != sizeof(amk_gemm_args))
    return bad_field("struct_bytes", a.struct_bytes, std::to_string(sizeof(amk_gemm_args)) + ", sizeof(amk_gemm_args)");
  Call call;
  AMK_TRY(problem, problem_of(a));
  call.problem = problem;
  const Canonical shape = canonical(problem);
  AMK_TRY(stride_x, stride_or_dense("left_stride", a.left_stride, dense_stride_x(shape)));
  AMK_TRY(stride_y, stride_or_dense("right_stride", a.right_stride, dense_stride_y(shape)));
  AMK_TRY(stride_out, stride_or_dense("out_stride", a.out_stride, shape.n));
  call.storage = {stride_x, stride_y, stride_out, alignment_of(a.left), alignment_of(a.right), alignment_of(a.out), alignment_of(a.total_in)};
  call.order = split_order(a.implementation);
  if (!with_pointers) return call;
  AMK_CHECK(check_pointer("left", a.left, shape.m * shape.k > 0, handle.gpu));
  AMK_CHECK(check_pointer("right", a.right, shape.n * shape.k > 0, handle.gpu));
  AMK_CHECK(check_pointer("out", a.out, shape.m * shape.n > 0, handle.gpu));
  AMK_CHECK(check_pointer("total_in", a.total_in, a.total_in != nullptr, handle.gpu));
  const int element = problem.out == OutType::Bf16 ? 2 : 4;
  if (call.storage.align_x < 2 || call.storage.align_y < 2 || call.storage.align_out < element || alignment_of(a.total_in) < 4) {
    return bad_field("pointers", nullptr, "addresses that are multiples of their element size");
  }
  call.buffers = {device_pointer(a.left), device_pointer(a.right), device_pointer(a.out), device_pointer(a.total_in)};
  return call;
}

void warn(amk_gemm& handle, const std::string& message) {
  if (!handle.warned.insert(message).second) return;  // once each
  if (handle.log != nullptr)
    handle.log(handle.log_user, message.c_str());
  else
    std::fprintf(stderr, "amk_gemm: %s\n", message.c_str());
}

// A hit is verified before it is used: the same config on a small problem of the same kind, against the plain kernel.
Status verify(amk_gemm& handle, const Call& call, const Plan& plan) {
  const Config& c = plan.config;
  Problem small = call.problem;
  const Canonical full = canonical(call.problem);
  const std::int64_t rows = std::int64_t{c.swap ? c.tile_n * c.cluster_n : c.tile_m * c.cluster_m} + 72;
  const std::int64_t cols = std::int64_t{c.swap ? c.tile_m * c.cluster_m : c.tile_n * c.cluster_n} + 72;
  Canonical wanted = full;
  wanted.m = std::min(full.m, rows);
  wanted.n = std::min(full.n, cols);
  wanted.k = std::min<std::int64_t>(full.k, call.problem.chunk > 0 ? 2 * call.problem.chunk + 40 : 520);
  const bool kn = small.weights == WeightLayout::KN;
  if (small.op == Op::Fwd)
    small.M = wanted.m, small.N = wanted.n, small.K = wanted.k;
  else if (small.op == Op::Da)
    small.M = wanted.m, small.K = wanted.n, small.N = wanted.k;
  else
    small.M = wanted.k, (kn ? small.K : small.N) = wanted.m, (kn ? small.N : small.K) = wanted.n;
  small.resumed = false;
  const Canonical whole = canonical(small);
  Canonical last = whole;  // of a resumed chain: what the schedule computes, after the plain kernel has computed the tokens before
  const std::int64_t cut = full.resumed ? whole.k / 2 / kStepTokens * kStepTokens : 0;
  last.k -= cut;
  last.resumed = full.resumed;
  const auto skipped = [&](std::int64_t stride) { return static_cast<std::uintptr_t>(cut * stride * 2); };  // bytes of the tokens before
  Storage storage = dense_storage(last);
  storage.align_x = alignment_of(skipped(storage.stride_x));
  storage.align_y = alignment_of(skipped(storage.stride_y));
  const auto small_plan = make_plan(last, storage, c, handle.runner->target());
  if (!small_plan) return {};  // e.g. dense small strides that TMA cannot take: the large call's own plan was accepted
  const std::string key = to_json(*small_plan).dump();
  if (handle.verified.count(key) != 0) return {};
  AMK_TRY(gemm, handle.runner->compile(*small_plan));
  AMK_TRY(bed, Bed::make(*handle.runner, small, 0x5EED, 0));
  Canonical first = whole;
  first.k = cut;
  first.out = OutType::Fp32;
  AMK_TRY(total, cuda::Memory::allocate(full.resumed ? static_cast<std::size_t>(whole.m * whole.n) * 4 : 0));
  AMK_TRY(compared, bed.check([&](const Buffers& b) -> Status {
    const cuda::abi::Stream stream = handle.runner->stream().handle();
    if (!full.resumed) return gemm->launch(b, stream);
    AMK_TRY(before_plan, make_plan(first, dense_storage(first), plain_kernel_config(), handle.runner->target()));
    AMK_TRY(before, handle.runner->compile(before_plan));
    AMK_CHECK(before->launch({b.x, b.y, total.pointer(), 0}, stream));
    return gemm->launch({b.x + skipped(storage.stride_x), b.y + skipped(storage.stride_y), b.out, total.pointer()}, stream);
  }));
  if (!compared.clean()) {
    return fail(ErrorKind::Internal,
                "the chosen kernel differs from the plain one in " + std::to_string(compared.different) + " words; it is not used");
  }
  handle.verified.insert(key);
  return {};
}

Status run(amk_gemm& handle, const amk_gemm_args& args, void* stream) {
  AMK_CHECK(handle.runner->make_current());  // the caller's thread may be another than the one that opened
  AMK_TRY(call, parse_call(handle, args, true));
  if (canonical(call.problem).m == 0 || canonical(call.problem).n == 0) return {};
  const GpuTarget& target = handle.runner->target();
  AMK_TRY(choice, handle.tuner ? handle.tuner->choose(call.problem, call.storage, target, handle.table, call.order)
                               : choose(call.problem, call.storage, target, handle.table, call.order));
  for (const std::string& message : choice.warnings) warn(handle, message);
  AMK_CHECK(verify(handle, call, choice.plan));
  AMK_TRY(gemm, handle.runner->compile(choice.plan));
  return gemm->launch(call.buffers, static_cast<cuda::abi::Stream>(stream));
}

Status set_autotune(amk_gemm& handle, int max_candidates, int max_ms) {
  if (max_candidates < 0 || max_candidates > 1000) return bad_field("max_candidates", max_candidates, "0 (off) to 1000");
  if (max_ms < 0 || max_ms > 3'600'000) return bad_field("max_ms", max_ms, "0 to 3600000");
  handle.tuner.reset();
  if (max_candidates == 0) return {};
  TuneLimits limits;
  limits.candidates = static_cast<std::size_t>(max_candidates);
  limits.time = std::chrono::milliseconds(max_ms);
  handle.tuner = std::make_unique<Autotuner>(std::make_unique<GpuTuner>(*handle.runner, handle.resources, handle.cache), std::move(limits),
                                             handle.cache / "det_gemm_tuned.json");
  handle.table.append(handle.tuner->found());
  for (const std::string& message : handle.tuner->warnings()) warn(handle, message);
  return {};
}

Result<amk_gemm*> open(int gpu, const char* cache_dir, const char* resources_dir) {
  AMK_TRY(resources, resources_dir != nullptr ? find_resources(resources_dir, {}, {}) : find_resources());
  auto handle = std::make_unique<amk_gemm>();
  const std::filesystem::path cache =
      cache_dir != nullptr ? std::filesystem::path(cache_dir) : own_folder("/tmp/amk-gemm-cache-" + std::to_string(::geteuid()));
  AMK_TRY(runner, Runner::open(gpu, resources, cache));
  AMK_TRY(numeric, numeric_class_of(runner->target().sm_major, runner->target().sm_minor));
  handle->runner = std::move(runner);
  handle->resources = resources;
  handle->cache = cache;
  handle->gpu = gpu;
  AMK_TRY(table, TunedTable::load(resources.config() / "tuned" / "det_gemm.json"));
  handle->table = std::move(table);
  return handle.release();
}

}  // namespace

extern "C" {

amk_gemm_status amk_gemm_open(int gpu, const char* cache_dir, const char* resources_dir, amk_gemm** handle) {
  if (handle == nullptr) return AMK_GEMM_INVALID_ARGUMENT;
  *handle = nullptr;
  return guarded(open_error, [&]() -> Status {
    AMK_TRY(opened, open(gpu, cache_dir, resources_dir));
    *handle = opened;
    return {};
  });
}

void amk_gemm_close(amk_gemm* handle) { delete handle; }

amk_gemm_status amk_gemm_set_autotune(amk_gemm* handle, int max_candidates, int max_ms) {
  if (handle == nullptr) return AMK_GEMM_INVALID_ARGUMENT;
  return guarded(handle->error, [&] { return set_autotune(*handle, max_candidates, max_ms); });
}

amk_gemm_status amk_gemm_run(amk_gemm* handle, const amk_gemm_args* args, void* stream) {
  if (handle == nullptr) return AMK_GEMM_INVALID_ARGUMENT;
  return guarded(handle->error, [&]() -> Status {
    if (args == nullptr) return fail(ErrorKind::InvalidArgument, "args is NULL; accepted: a pointer to amk_gemm_args");
    return run(*handle, *args, stream);
  });
}

const char* amk_gemm_error(const amk_gemm* handle) { return handle == nullptr ? open_error.c_str() : handle->error.c_str(); }

const char* amk_gemm_numeric_class(amk_gemm* handle, const amk_gemm_args* args) {
  if (handle == nullptr || args == nullptr) return nullptr;
  const amk_gemm_status status = guarded(handle->error, [&]() -> Status {
    AMK_TRY(call, parse_call(*handle, *args, false));
    AMK_TRY(numeric, numeric_class_of(handle->runner->target().sm_major, handle->runner->target().sm_minor));
    handle->text = numeric.id;
    if (call.problem.chunk == 0) return {};
    AMK_TRY(in_chunks, chunked(numeric, call.problem.chunk));
    handle->text = in_chunks.id;
    return {};
  });
  return status == AMK_GEMM_OK ? handle->text.c_str() : nullptr;
}

const char* amk_gemm_explain(amk_gemm* handle, const amk_gemm_args* args) {
  if (handle == nullptr || args == nullptr) return nullptr;
  const amk_gemm_status status = guarded(handle->error, [&]() -> Status {
    AMK_TRY(call, parse_call(*handle, *args, false));
    AMK_TRY(choice, choose(call.problem, call.storage, handle->runner->target(), handle->table, call.order));
    handle->text = choice.implementation + " (" + choice.origin + ")";
    return {};
  });
  return status == AMK_GEMM_OK ? handle->text.c_str() : nullptr;
}

void amk_gemm_set_log(amk_gemm* handle, amk_gemm_log log, void* user) {
  if (handle == nullptr) return;
  handle->log = log;
  handle->log_user = user;
}

}  // extern "C"
