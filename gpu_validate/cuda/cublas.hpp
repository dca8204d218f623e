// Matrix products by cuBLAS, loaded at run time where it is installed.
#pragma once

#include <cuda_runtime_api.h>

#include <cstdint>
#include <memory>
#include <string_view>

namespace swaplab::cuda {

class Cublas {
 public:
  // Null when the library of this CUDA version is not installed.
  static std::unique_ptr<Cublas> load(cudaStream_t stream);
  ~Cublas();
  Cublas(const Cublas&) = delete;
  Cublas& operator=(const Cublas&) = delete;

  // "fp32", "tf32", "bf16", "fp16"; others are not offered.
  static bool offers(std::string_view type);
  static std::size_t element_bytes(std::string_view type);
  // c = a b, n x n, on the stream. Throws Error(input).
  void multiply(std::string_view type, std::int64_t n, const void* a, const void* b, void* c);

 private:
  struct Functions;
  Cublas();
  std::unique_ptr<Functions> functions_;
};

}  // namespace swaplab::cuda
