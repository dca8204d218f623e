// Every CUDA call is checked; owners of CUDA things.
#pragma once

#include <cuda_runtime_api.h>

#include <string>
#include <utility>

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

class DeviceBuffer {
 public:
  DeviceBuffer() = default;
  explicit DeviceBuffer(std::size_t bytes) {
    if (bytes != 0) check(cudaMalloc(&data_, bytes), "cudaMalloc");
  }
  ~DeviceBuffer() { reset(); }
  DeviceBuffer(DeviceBuffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  DeviceBuffer& operator=(DeviceBuffer&& other) noexcept {
    reset();
    data_ = std::exchange(other.data_, nullptr);
    return *this;
  }
  void* get() const { return data_; }

 private:
  void reset() {
    if (data_ != nullptr) static_cast<void>(cudaFree(data_));
    data_ = nullptr;
  }
  void* data_ = nullptr;
};

class PinnedBuffer {
 public:
  PinnedBuffer() = default;
  explicit PinnedBuffer(std::size_t bytes, unsigned flags = cudaHostAllocPortable) {
    if (bytes != 0) check(cudaHostAlloc(&data_, bytes, flags), "cudaHostAlloc");
  }
  ~PinnedBuffer() { reset(); }
  PinnedBuffer(PinnedBuffer&& other) noexcept : data_(std::exchange(other.data_, nullptr)) {}
  PinnedBuffer& operator=(PinnedBuffer&& other) noexcept {
    reset();
    data_ = std::exchange(other.data_, nullptr);
    return *this;
  }
  void* get() const { return data_; }

 private:
  void reset() {
    if (data_ != nullptr) static_cast<void>(cudaFreeHost(data_));
    data_ = nullptr;
  }
  void* data_ = nullptr;
};

}  // namespace swaplab::cuda
