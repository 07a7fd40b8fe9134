#include "bench/gemm/cublas.h"

#include <cstdlib>

namespace amk::det_gemm {
namespace {

constexpr int kOpN = 0, kOpT = 1;                   // cublasOperation_t
constexpr int kBf16 = 14, kFp32 = 0;                // cudaDataType: CUDA_R_16BF, CUDA_R_32F
constexpr int kCompute32F = 68;                     // CUBLAS_COMPUTE_32F
constexpr int kDefaultTensorOp = 99;                // CUBLAS_GEMM_DEFAULT_TENSOR_OP
constexpr std::size_t kWorkspaceBytes = 32u << 20;  // what PyTorch gives on Hopper

Status check(int code, const char* call) {
  if (code == 0) return {};
  return fail(ErrorKind::Unavailable, std::string(call) + " failed with cublasStatus " + std::to_string(code), {{"call", call}, {"code", code}});
}

}  // namespace

Result<Cublas> Cublas::open(const cuda::Stream& stream) {
  std::vector<std::string> folders = cuda_library_folders();
  if (const char* dir = std::getenv("AMK_CUBLAS_DIR")) folders.insert(folders.begin(), dir);
  // libcublas needs libcublasLt, which lies beside it: open that first, so that the loader finds it by name.
  (void)SharedLibrary::open("cuBLAS Lt", {"libcublasLt.so.13", "libcublasLt.so.12"}, folders);
  Cublas blas;
  AMK_TRY(library, SharedLibrary::open("cuBLAS", {"libcublas.so.13", "libcublas.so.12"}, folders));
  int (*create)(void**) = nullptr;
  int (*set_stream)(void*, cuda::abi::Stream) = nullptr;
  int (*set_workspace)(void*, void*, std::size_t) = nullptr;
  int (*get_version)(void*, int*) = nullptr;
  AMK_CHECK(library.load(create, "cublasCreate_v2"));
  AMK_CHECK(library.load(set_stream, "cublasSetStream_v2"));
  AMK_CHECK(library.load(set_workspace, "cublasSetWorkspace_v2"));
  AMK_CHECK(library.load(get_version, "cublasGetVersion_v2"));
  AMK_CHECK(library.load(blas.destroy_, "cublasDestroy_v2"));
  AMK_CHECK(library.load(blas.gemm_ex_, "cublasGemmEx"));
  AMK_CHECK(check(create(&blas.handle_), "cublasCreate"));
  AMK_CHECK(check(get_version(blas.handle_, &blas.version_), "cublasGetVersion"));
  AMK_TRY(workspace, cuda::Memory::allocate(kWorkspaceBytes));
  blas.workspace_ = std::move(workspace);
  AMK_CHECK(check(set_stream(blas.handle_, stream.handle()), "cublasSetStream"));
  AMK_CHECK(check(set_workspace(blas.handle_, reinterpret_cast<void*>(blas.workspace_.pointer()), kWorkspaceBytes), "cublasSetWorkspace"));
  blas.library_ = std::move(library);
  return blas;
}

Cublas::Cublas(Cublas&& other) noexcept
    : library_(std::move(other.library_)),
      handle_(std::exchange(other.handle_, nullptr)),
      version_(other.version_),
      workspace_(std::move(other.workspace_)),
      destroy_(other.destroy_),
      gemm_ex_(other.gemm_ex_) {}

Cublas::~Cublas() {
  if (handle_ != nullptr) destroy_(handle_);
}

Status Cublas::gemm(const Canonical& s, cuda::DevicePtr x, cuda::DevicePtr y, cuda::DevicePtr out, float beta) const {
  // Row-major out[m][n] is column-major n × m: cuBLAS multiplies yᵀ-side first.
  const float one = 1;
  return check(gemm_ex_(handle_, s.y_k_contiguous ? kOpT : kOpN, s.x_k_contiguous ? kOpN : kOpT, static_cast<int>(s.n), static_cast<int>(s.m),
                        static_cast<int>(s.k), &one, reinterpret_cast<const void*>(y), kBf16, static_cast<int>(dense_stride_y(s)),
                        reinterpret_cast<const void*>(x), kBf16, static_cast<int>(dense_stride_x(s)), &beta, reinterpret_cast<void*>(out),
                        s.out == OutType::Bf16 ? kBf16 : kFp32, static_cast<int>(s.n), kCompute32F, kDefaultTensorOp),
               "cublasGemmEx");
}

}  // namespace amk::det_gemm
