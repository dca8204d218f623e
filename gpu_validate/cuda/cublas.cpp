#include "gpu_validate/cuda/cublas.hpp"

#include <cublas_v2.h>
#include <dlfcn.h>

#include <array>
#include <string>

#include "trace/error.hpp"

namespace swaplab::cuda {
namespace {

struct Type {
  std::string_view name;
  cudaDataType_t data;
  cublasComputeType_t compute;
  std::size_t bytes;
};
constexpr std::array<Type, 4> kTypes{{{"fp32", CUDA_R_32F, CUBLAS_COMPUTE_32F, 4},
                                      {"tf32", CUDA_R_32F, CUBLAS_COMPUTE_32F_FAST_TF32, 4},
                                      {"bf16", CUDA_R_16BF, CUBLAS_COMPUTE_32F, 2},
                                      {"fp16", CUDA_R_16F, CUBLAS_COMPUTE_32F, 2}}};

const Type* find(std::string_view name) {
  for (const Type& type : kTypes) {
    if (type.name == name) return &type;
  }
  return nullptr;
}

void check(cublasStatus_t status, const char* call) {
  if (status != CUBLAS_STATUS_SUCCESS)
    throw Error(ErrorKind::input, std::string("cuBLAS: ") + call + " failed with status " +
                                      std::to_string(static_cast<int>(status)));
}

}  // namespace

struct Cublas::Functions {
  void* shared_object = nullptr;
  decltype(&cublasCreate_v2) create = nullptr;
  decltype(&cublasDestroy_v2) destroy = nullptr;
  decltype(&cublasSetStream_v2) set_stream = nullptr;
  // Overloaded in the header for C++: the function of the C interface.
  cublasStatus_t (*gemm)(cublasHandle_t, cublasOperation_t, cublasOperation_t, int, int, int, const void*,
                         const void*, cudaDataType, int, const void*, cudaDataType, int, const void*, void*,
                         cudaDataType, int, cublasComputeType_t, cublasGemmAlgo_t) = nullptr;
  cublasHandle_t handle = nullptr;

  template <class Function>
  bool find(Function& function, const char* name) {
    function = reinterpret_cast<Function>(::dlsym(shared_object, name));
    return function != nullptr;
  }
};

Cublas::Cublas() : functions_(std::make_unique<Functions>()) {}

Cublas::~Cublas() {
  if (functions_->handle != nullptr) static_cast<void>(functions_->destroy(functions_->handle));
  if (functions_->shared_object != nullptr) ::dlclose(functions_->shared_object);
}

std::unique_ptr<Cublas> Cublas::load(cudaStream_t stream) {
  std::unique_ptr<Cublas> cublas(new Cublas);
  Functions& f = *cublas->functions_;
  const std::string name = "libcublas.so." + std::to_string(CUDART_VERSION / 1000);
  f.shared_object = ::dlopen(name.c_str(), RTLD_NOW | RTLD_LOCAL);
  if (f.shared_object == nullptr) return nullptr;
  if (!f.find(f.create, "cublasCreate_v2") || !f.find(f.destroy, "cublasDestroy_v2") ||
      !f.find(f.set_stream, "cublasSetStream_v2") || !f.find(f.gemm, "cublasGemmEx")) {
    return nullptr;
  }
  check(f.create(&f.handle), "cublasCreate");
  check(f.set_stream(f.handle, stream), "cublasSetStream");
  return cublas;
}

bool Cublas::offers(std::string_view type) {
  return find(type) != nullptr;
}

std::size_t Cublas::element_bytes(std::string_view type) {
  const Type* const found = find(type);
  return found == nullptr ? 0 : found->bytes;
}

void Cublas::multiply(std::string_view name, std::int64_t n, const void* a, const void* b, void* c) {
  const Type* const type = find(name);
  if (type == nullptr)
    throw Error(ErrorKind::input, "cuBLAS: no product of type '" + std::string(name) + "'");
  const float one = 1, zero = 0;
  const int size = static_cast<int>(n);
  check(functions_->gemm(functions_->handle, CUBLAS_OP_N, CUBLAS_OP_N, size, size, size, &one, a, type->data,
                         size, b, type->data, size, &zero, c, type->data, size, type->compute,
                         CUBLAS_GEMM_DEFAULT),
        "cublasGemmEx");
}

}  // namespace swaplab::cuda
