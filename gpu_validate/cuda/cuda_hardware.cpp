// A CUDA device as hardware: what it is, how fast its surrogate kernels are.
#include <algorithm>
#include <vector>

#include "gpu_validate/cuda/cuda_accelerator.hpp"
#include "gpu_validate/cuda/cuda_probe.hpp"
#include "gpu_validate/hardware.hpp"

namespace swaplab {
namespace cuda {
namespace {

std::string version_text(int version) {
  return std::to_string(version / 1000) + "." + std::to_string(version % 1000 / 10);
}

// Median time of a surrogate on an idle device, in ns.
std::int64_t time_of(const Surrogate& surrogate, unsigned blocks, const Stream& stream) {
  const Event begin, end;
  std::vector<float> times;
  for (int i = 0; i < 12; ++i) {
    check(launch_gate(20'000, stream), "launch of a gate");  // so that all three are queued before they run
    begin.record(stream);
    check(launch_surrogate(surrogate, blocks, stream), "launch of a surrogate kernel");
    end.record(stream);
    stream.synchronize();
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
    if (i >= 3) times.push_back(ms);
  }
  std::sort(times.begin(), times.end());
  return static_cast<std::int64_t>(static_cast<double>(times[times.size() / 2]) * 1e6);
}

// Iterations that take about a millisecond, and from them the time of 1024.
std::int64_t per_1024(Surrogate surrogate, unsigned blocks, const Stream& stream, std::int64_t base) {
  surrogate.amount = 1024;
  std::int64_t time = 0;
  while ((time = time_of(surrogate, blocks, stream) - base) < 1'000'000 && surrogate.amount < (1U << 26)) {
    surrogate.amount *= 2;
  }
  return std::max<std::int64_t>(1, time * 1024 / static_cast<std::int64_t>(surrogate.amount));
}

class CudaHardware final : public Hardware {
 public:
  explicit CudaHardware(int ordinal) {
    int count = 0;
    const cudaError_t found = cudaGetDeviceCount(&count);
    if (found != cudaSuccess) {
      cudaGetLastError();
      throw NoDevice(std::string("CUDA finds no usable GPU (") + cudaGetErrorString(found) +
                     "); --device host works without one");
    }
    if (ordinal >= count)
      throw NoDevice("cuda:" + std::to_string(ordinal) + ": this computer has " + std::to_string(count) +
                     " CUDA devices");
    shared_.device = ordinal;
    check(cudaSetDevice(ordinal), "cudaSetDevice");
    cudaDeviceProp properties{};
    check(cudaGetDeviceProperties(&properties, ordinal), "cudaGetDeviceProperties");
    int driver = 0, runtime = 0;
    check(cudaDriverGetVersion(&driver), "cudaDriverGetVersion");
    check(cudaRuntimeGetVersion(&runtime), "cudaRuntimeGetVersion");
    shared_.info.kind = "cuda";
    shared_.info.name = properties.name;
    shared_.info.driver = "CUDA " + version_text(driver);
    shared_.info.runtime = "CUDA " + version_text(runtime);
    shared_.rates.blocks = static_cast<unsigned>(properties.multiProcessorCount) * 2;
    // Larger than any cache, small beside the memory.
    std::uint64_t elements = std::uint64_t{1} << 24;
    while (elements * sizeof(float4) > properties.totalGlobalMem / 16) elements /= 2;
    shared_.scratch = DeviceBuffer(elements * sizeof(float4));
    shared_.scratch_elements = elements;
    zero(shared_.scratch.get(), elements * sizeof(float4));
  }

  const AcceleratorInfo& info() const override { return shared_.info; }
  std::unique_ptr<Accelerator> open(const AcceleratorOptions& options) override {
    measure_rates();
    return open_cuda_accelerator(shared_, options);
  }
  std::unique_ptr<ProbeDevice> open_probe() override {
    measure_rates();
    return open_cuda_probe(shared_);
  }
  std::int64_t reserve_percent(MemoryMode memory) const override {
    return memory == MemoryMode::reservation ? 115 : 400;
  }

 private:
  void measure_rates() {
    if (measured_) return;
    measured_ = true;
    const Stream stream;
    const DeviceBuffer report(sizeof(Report));
    zero(report.get(), sizeof(Report));
    KernelRates& rates = shared_.rates;
    Surrogate s;
    s.report = static_cast<Report*>(report.get());
    s.scratch = static_cast<float4*>(shared_.scratch.get());
    s.scratch_elements = shared_.scratch_elements;
    rates.base_ns = time_of(s, rates.blocks, stream);
    s.work = Work::compute;
    rates.compute_per_1024 = per_1024(s, rates.blocks, stream, rates.base_ns);
    s.work = Work::memory;
    rates.memory_per_1024 = per_1024(s, rates.blocks, stream, rates.base_ns);
    s.work = Work::spin;
    s.amount = 0;
    s.operands = 1;
    const std::uint64_t bytes = shared_.scratch_elements * sizeof(float4);
    s.operand[0] = {reinterpret_cast<std::uint64_t>(shared_.scratch.get()), bytes, 0, content_key(0, 0), 0};
    const std::int64_t time = std::max<std::int64_t>(1, time_of(s, rates.blocks, stream) - rates.base_ns);
    rates.write_bytes_per_us = static_cast<std::int64_t>(bytes) * 1000 / time;
  }

  CudaShared shared_;
  bool measured_ = false;
};

}  // namespace
}  // namespace cuda

std::unique_ptr<Hardware> open_cuda_hardware(int ordinal) {
  return std::make_unique<cuda::CudaHardware>(ordinal);
}

bool built_with_cuda() {
  return true;
}

}  // namespace swaplab
