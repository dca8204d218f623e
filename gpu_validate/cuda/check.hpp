// Every CUDA call is checked; owners of CUDA things.
#pragma once

#include <cuda_runtime_api.h>

#include <memory>
#include <string>

#include "trace/error.hpp"

namespace swaplab::cuda {

// Throws Error(input) naming the call and what the driver says.
inline void check(cudaError_t result, const char* call) {
  if (result == cudaSuccess) return;
  cudaGetLastError();  // an error that is not sticky is reported once
  throw Error(ErrorKind::input, std::string("CUDA: ") + call + " failed: " + cudaGetErrorName(result) + ", " +
                                    cudaGetErrorString(result));
}

// Zeroes, and waits: our streams do not wait for the default stream, on which cudaMemset works.
inline void zero(void* data, std::size_t bytes) {
  check(cudaMemset(data, 0, bytes), "cudaMemset");
  check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
}

class Stream {
 public:
  Stream() { check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "cudaStreamCreateWithFlags"); }
  ~Stream() { static_cast<void>(cudaStreamDestroy(stream_)); }  // a failed device is reported elsewhere
  Stream(const Stream&) = delete;
  Stream& operator=(const Stream&) = delete;
  operator cudaStream_t() const { return stream_; }
  void synchronize() const { check(cudaStreamSynchronize(stream_), "cudaStreamSynchronize"); }

 private:
  cudaStream_t stream_ = nullptr;
};

class Event {
 public:
  explicit Event(unsigned flags = cudaEventDefault) {
    check(cudaEventCreateWithFlags(&event_, flags), "cudaEventCreateWithFlags");
  }
  ~Event() { static_cast<void>(cudaEventDestroy(event_)); }
  Event(const Event&) = delete;
  Event& operator=(const Event&) = delete;
  operator cudaEvent_t() const { return event_; }
  void record(cudaStream_t stream) const { check(cudaEventRecord(event_, stream), "cudaEventRecord"); }

 private:
  cudaEvent_t event_ = nullptr;
};

// Memory of one kind, freed with its owner.
template <class Kind>
class Buffer {
 public:
  Buffer() = default;
  template <class... Options>
  explicit Buffer(std::size_t bytes, Options... options)
      : data_(bytes == 0 ? nullptr : Kind::allocate(bytes, options...)) {}
  void* get() const { return data_.get(); }

 private:
  struct Free {
    void operator()(void* data) const { static_cast<void>(Kind::free(data)); }
  };
  std::unique_ptr<void, Free> data_;
};

struct DeviceMemory {
  static void* allocate(std::size_t bytes) {
    void* data = nullptr;
    check(cudaMalloc(&data, bytes), "cudaMalloc");
    return data;
  }
  static cudaError_t free(void* data) { return cudaFree(data); }
};
struct PinnedMemory {
  static void* allocate(std::size_t bytes, unsigned flags = cudaHostAllocPortable) {
    void* data = nullptr;
    check(cudaHostAlloc(&data, bytes, flags), "cudaHostAlloc");
    return data;
  }
  static cudaError_t free(void* data) { return cudaFreeHost(data); }
};
using DeviceBuffer = Buffer<DeviceMemory>;
using PinnedBuffer = Buffer<PinnedMemory>;

}  // namespace swaplab::cuda
