/* libamk_gemm: deterministic, batch-invariant bf16 matrix products for training and serving engines.
 *
 * A row of the result has the same bits whatever the batch around it. Inputs bf16, accumulation fp32 in ascending k16 steps, output bf16 or
 * fp32. Plain C; a handle is used by one thread at a time; calls are asynchronous on the given stream. The device's primary context is used,
 * so pointers of the CUDA runtime and of PyTorch work. Errors are statuses; amk_gemm_error() says what was wrong and what is accepted. */
#ifndef AMK_GEMM_H
#define AMK_GEMM_H

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define AMK_GEMM_API __attribute__((visibility("default")))

typedef struct amk_gemm amk_gemm;

typedef enum {
  AMK_GEMM_OK = 0,
  AMK_GEMM_INVALID_ARGUMENT = 1, /* the call is wrong; nothing was launched */
  AMK_GEMM_UNSUPPORTED = 2,      /* no implementation that was asked for can serve it; nothing was launched */
  AMK_GEMM_UNAVAILABLE = 3,      /* no driver, GPU, NVRTC or memory */
  AMK_GEMM_FAILED = 4            /* the machinery failed; the device may be unusable */
} amk_gemm_status;

typedef enum { AMK_GEMM_FWD = 0, AMK_GEMM_DA = 1, AMK_GEMM_DB = 2 } amk_gemm_op;
typedef enum { AMK_GEMM_WEIGHTS_KN = 0, AMK_GEMM_WEIGHTS_NK = 1 } amk_gemm_weights; /* row-major [K,N] or [N,K] */
typedef enum { AMK_GEMM_BF16 = 0, AMK_GEMM_FP32 = 1 } amk_gemm_type;

/* M, N, K are those of the forward product C[M,N] = A[M,K] · B. Left and right operand by op:
 *   FWD  out C[M,N],  left A[M,K],  right B
 *   DA   out dA[M,K], left dC[M,N], right B
 *   DB   out dB in B's layout; weights KN: left A, right dC; NK: left dC, right A
 * Strides in elements between rows as stored; 0 means dense. Zero-initialise the struct; new fields are added at its end. */
typedef struct {
  uint32_t struct_bytes; /* sizeof(amk_gemm_args) */
  int32_t op, weights, out_type;
  int64_t m, n, k;
  int64_t left_stride, right_stride, out_stride;
  const void* left;
  const void* right;
  void* out;
  /* DB only: tokens split over several calls. total_in: fp32 [rows][columns] dense, an fp32 output of the call before, or NULL for the first; it may
   * be out itself, where that is dense.
   * chunk 0: one chain over all calls. The result has the bits of a single call, if each call starts at a multiple of 16 tokens.
   * chunk > 0: a class of its own. Tokens are cut at multiples of chunk (a multiple of 16) and the partial sums added in order in fp32: no bit
   * depends on the split, if each call starts at a multiple of chunk. */
  int64_t chunk;
  int64_t token_offset; /* index of this call's first token; checked to be a multiple of chunk, or of 16 */
  const void* total_in;
  const char* implementation; /* NULL: tuned, default, mma, plain in turn. One name: fails fast. "a,b,c": tried in turn, with warnings */
} amk_gemm_args;

typedef void (*amk_gemm_log)(void* user, const char* message);

/* gpu: ordinal. cache_dir: where compiled kernels are kept (NULL: a folder of the user's own below /tmp). resources_dir: folder with config/ and
 * kernels/ (NULL: found beside the library's program, or $AMK_RESOURCES). */
AMK_GEMM_API amk_gemm_status amk_gemm_open(int gpu, const char* cache_dir, const char* resources_dir, amk_gemm** handle);
AMK_GEMM_API void amk_gemm_close(amk_gemm* handle);

/* Tunes on a miss: a call whose bucket no table holds first tries up to max_candidates schedules (operands of its own on the device, each held bit
 * for bit against the plain kernel and timed; none is begun after max_ms), and keeps the fastest in cache_dir/det_gemm_tuned.json for later
 * processes. At most once a bucket and process; where it fails the call is served as without, with a warning. max_candidates 0 turns it off, as it is
 * at first. Never changes bits. A call that may tune, as any first call of a kind, must not be under stream capture. */
AMK_GEMM_API amk_gemm_status amk_gemm_set_autotune(amk_gemm* handle, int max_candidates, int max_ms);

/* stream: a CUstream or cudaStream_t; NULL is the default stream. The first call of a problem kind compiles, and verifies the chosen kernel
 * bit for bit against the plain one on a small problem of the same kind. */
AMK_GEMM_API amk_gemm_status amk_gemm_run(amk_gemm* handle, const amk_gemm_args* args, void* stream);

/* Text of the last error of this handle (NULL handle: of the last failed open on this thread). Valid until the next call. */
AMK_GEMM_API const char* amk_gemm_error(const amk_gemm* handle);

/* Numeric class of a call's result, e.g. "hopper-k16" or "hopper-k16/chunk512": results of different classes must not be mixed.
 * NULL when the arguments are wrong. Valid until the next call. */
AMK_GEMM_API const char* amk_gemm_numeric_class(amk_gemm* handle, const amk_gemm_args* args);

/* Which implementation serves a call and why, e.g. "tuned (exact bucket m16 n16384 k4096)". NULL when none can. Valid until the next call. */
AMK_GEMM_API const char* amk_gemm_explain(amk_gemm* handle, const amk_gemm_args* args);

/* Warnings (fallbacks) go here; default: standard error. */
AMK_GEMM_API void amk_gemm_set_log(amk_gemm* handle, amk_gemm_log log, void* user);

#ifdef __cplusplus
}
#endif
#endif
