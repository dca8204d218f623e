// Samples are device times between two events where work is measured, host times where calls are. What is
// measured, its events and what runs beside it are all queued behind a gate (a kernel that spins) before any
// of it starts, so the host's own pace is not part of the sample.
#include "gpu_validate/cuda/cuda_probe.hpp"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "gpu_validate/cuda/cublas.hpp"
#include "gpu_validate/probe_parts.hpp"

namespace swaplab::cuda {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kBackgroundPiece = 16 * kMiB;
constexpr std::int64_t kFastLink = 500;  // bytes per ns: no link is faster, so background copies suffice
constexpr std::int64_t kSlowLink = 3;    // bytes per ns: a copy is not slower, so background kernels suffice
// ns that the gate stands: longer than it takes to queue what is measured, and each copy beside it.
constexpr std::uint64_t kGate = 40'000, kGatePerCopy = 10'000;

std::byte* bytes(void* data) {
  return static_cast<std::byte*>(data);
}

class CudaProbe final : public ProbeDevice {
 public:
  explicit CudaProbe(CudaShared& shared) : shared_(shared), report_(sizeof(Report)) {
    zero(report_.get(), sizeof(Report));
    check(cudaGetDeviceCount(&devices_), "cudaGetDeviceCount");
    flag_ = PinnedBuffer(sizeof(unsigned), unsigned{cudaHostAllocMapped});
    background_host_[0] = PinnedBuffer(kBackgroundPiece);
    background_host_[1] = PinnedBuffer(kBackgroundPiece);
    background_device_[0] = DeviceBuffer(kBackgroundPiece);
    background_device_[1] = DeviceBuffer(kBackgroundPiece);
  }

  int number() const override { return shared_.device; }
  std::vector<int> peers() const override {
    std::vector<int> all;
    for (int peer = 0; peer < devices_; ++peer) {
      int can = 0;
      if (peer != shared_.device)
        check(cudaDeviceCanAccessPeer(&can, shared_.device, peer), "cudaDeviceCanAccessPeer");
      if (can != 0) all.push_back(peer);
    }
    return all;
  }

  bool prepare(std::string_view quantity, std::int64_t x) override {
    check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    work_ = {};
    beside_ = {};
    sample_ = {};
    gate_ns_ = kGate;
    if (quantity.starts_with("copy_p2p_")) return prepare_peer(quantity, x);
    if (quantity.starts_with("copy_")) return prepare_copy(quantity.substr(5), x);
    if (quantity == "kernel_empty") return measure([this] { check(launch_empty(main_), "launch"); });
    if (quantity.starts_with("kernel_")) return prepare_kernel(quantity.substr(7), x);
    if (quantity == "stream_copy") return prepare_stream_copy(x);
    if (quantity.starts_with("gemm_")) return prepare_gemm(quantity.substr(5), x);
    if (quantity.starts_with("vmm_")) return prepare_vmm(quantity, x);
    return prepare_call(quantity, x);
  }

  Nanos sample() override {
    if (sample_) return sample_();
    check(launch_gate(gate_ns_, main_), "launch of a gate");
    gate_.record(main_);
    if (beside_) {
      for (const Stream* stream : {&out_, &in_, &other_})
        check(cudaStreamWaitEvent(*stream, gate_, 0), "cudaStreamWaitEvent");
      beside_();
    }
    begin_.record(main_);
    work_();
    end_.record(main_);
    main_.synchronize();
    float ms = 0;
    check(cudaEventElapsedTime(&ms, begin_, end_), "cudaEventElapsedTime");
    if (beside_) check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
    return Nanos{std::max<std::int64_t>(1, std::llround(static_cast<double>(ms) * 1e6))};
  }

 private:
  bool measure(std::function<void()> work) {
    work_ = std::move(work);
    return true;
  }
  bool time_host(std::function<Nanos()> sample) {
    sample_ = std::move(sample);
    return true;
  }

  // False when the device or the host has not so much.
  bool device_memory(std::size_t which, std::int64_t x) {
    if (device_bytes_[which] >= x) return true;
    device_[which] = DeviceBuffer();
    device_bytes_[which] = 0;
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    if (static_cast<std::uint64_t>(x) > free / 10 * 9) return false;
    device_[which] = DeviceBuffer(static_cast<std::size_t>(x));
    device_bytes_[which] = x;
    return true;
  }
  std::byte* pinned_memory(std::int64_t x) {
    if (pinned_bytes_ < x) {
      pinned_ = PinnedBuffer();
      pinned_ = PinnedBuffer(static_cast<std::size_t>(x));
      pinned_bytes_ = x;
    }
    return bytes(pinned_.get());
  }

  static std::uint64_t gate_for_copies(std::int64_t total) {
    return kGatePerCopy * static_cast<std::uint64_t>(total / kBackgroundPiece + 1);
  }
  void copies_beside(bool to_host, std::int64_t total) {
    const std::size_t which = to_host ? 0 : 1;
    void* const host = background_host_[which].get();
    void* const device = background_device_[which].get();
    for (std::int64_t done = 0; done < total; done += kBackgroundPiece) {
      check(cudaMemcpyAsync(to_host ? host : device, to_host ? device : host, kBackgroundPiece,
                            to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, to_host ? out_ : in_),
            "cudaMemcpyAsync");
    }
  }
  Surrogate kernel(Work work, std::uint64_t amount) const {
    Surrogate s;
    s.report = static_cast<Report*>(report_.get());
    s.scratch = static_cast<float4*>(shared_.scratch.get());
    s.scratch_elements = shared_.scratch_elements;
    s.work = work;
    s.amount = amount;
    return s;
  }
  std::int64_t kernel_ns(Work work, std::int64_t amount) const {
    const std::int64_t per =
        work == Work::compute ? shared_.rates.compute_per_1024 : shared_.rates.memory_per_1024;
    return shared_.rates.base_ns + amount * per / 1024;
  }

  bool prepare_copy(std::string_view what, std::int64_t x) {
    if (what == "d2d") {
      if (!device_memory(0, x) || !device_memory(1, x)) return false;
      return measure([this, x] {
        check(cudaMemcpyAsync(device_[1].get(), device_[0].get(), static_cast<std::size_t>(x),
                              cudaMemcpyDeviceToDevice, main_),
              "cudaMemcpyAsync");
      });
    }
    const bool to_host = what.starts_with("d2h");
    if ((!to_host && !what.starts_with("h2d")) || what.size() < 5 || !device_memory(0, x)) return false;
    const std::string_view how = what.substr(4);
    if (how == "pageable") {
      pageable_.resize(static_cast<std::size_t>(x));
      std::byte* const host = pageable_.data();
      // The driver stages it and the host waits for most of it: the host's time is what it costs.
      return time_host([this, x, to_host, host] {
        return timed([&] {
          check(cudaMemcpy(to_host ? host : device_[0].get(), to_host ? device_[0].get() : host,
                           static_cast<std::size_t>(x),
                           to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice),
                "cudaMemcpy");
          check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
        });
      });
    }
    std::byte* const host = pinned_memory(x);
    const auto copy = [this, x, to_host, host] {
      check(cudaMemcpyAsync(to_host ? static_cast<void*>(host) : device_[0].get(),
                            to_host ? device_[0].get() : host, static_cast<std::size_t>(x),
                            to_host ? cudaMemcpyDeviceToHost : cudaMemcpyHostToDevice, main_),
            "cudaMemcpyAsync");
    };
    if (how == "duplex") {
      const std::int64_t total = std::max(4 * x, 4 * kBackgroundPiece);
      gate_ns_ += gate_for_copies(total);
      beside_ = [this, total, to_host] { copies_beside(!to_host, total); };
    } else if (how.starts_with("beside_")) {
      const Work work = how.substr(7) == "compute" ? Work::compute : Work::memory;
      const std::int64_t per =
          work == Work::compute ? shared_.rates.compute_per_1024 : shared_.rates.memory_per_1024;
      const std::int64_t amount = (x / kSlowLink + 1'000'000) * 1024 / per;
      beside_ = [this, work, amount] {
        check(
            launch_surrogate(kernel(work, static_cast<std::uint64_t>(amount)), shared_.rates.blocks, other_),
            "launch of a surrogate kernel");
      };
    } else if (how != "pinned") {
      return false;
    }
    return measure(copy);
  }

  bool prepare_kernel(std::string_view what, std::int64_t x) {
    const Work work = what.starts_with("compute") ? Work::compute : Work::memory;
    const std::size_t beside = what.find("_beside_");
    if (beside != std::string_view::npos) {
      const std::string_view copies = what.substr(beside + 8);
      // Long enough on any link, but not for seconds on a slow one.
      const std::int64_t total =
          std::min(kernel_ns(work, x) * kFastLink + 4 * kBackgroundPiece, 64 * kBackgroundPiece);
      const bool out = copies != "h2d", in = copies != "d2h";
      gate_ns_ += 2 * gate_for_copies(total);
      beside_ = [this, total, out, in] {
        if (out) copies_beside(true, total);
        if (in) copies_beside(false, total);
      };
    }
    return measure([this, work, x] {
      check(launch_surrogate(kernel(work, static_cast<std::uint64_t>(x)), shared_.rates.blocks, main_),
            "launch of a surrogate kernel");
    });
  }

  bool prepare_stream_copy(std::int64_t x) {
    if (!device_memory(0, x / 2) || !device_memory(1, x / 2)) return false;
    return measure([this, x] {
      check(launch_stream_copy(
                static_cast<float4*>(device_[1].get()), static_cast<const float4*>(device_[0].get()),
                static_cast<std::uint64_t>(x) / 2 / sizeof(float4), shared_.rates.blocks * 4, main_),
            "launch of a copy kernel");
    });
  }

  bool prepare_gemm(std::string_view type, std::int64_t flop) {
    if (!tried_cublas_) cublas_ = Cublas::load(main_);
    tried_cublas_ = true;
    if (!cublas_ || !Cublas::offers(type)) return false;
    const std::int64_t n = square_side(flop);
    if (n == 0) return false;
    const std::int64_t matrix = n * n * static_cast<std::int64_t>(Cublas::element_bytes(type));
    for (const std::size_t which : {0u, 1u, 2u}) {
      if (!device_memory(which, matrix)) return false;
      zero(device_[which].get(), static_cast<std::size_t>(matrix));
    }
    return measure([this, type = std::string(type), n] {
      cublas_->multiply(type, n, device_[0].get(), device_[1].get(), device_[2].get());
    });
  }

  bool prepare_peer(std::string_view quantity, std::int64_t x) {
    const std::size_t last = quantity.rfind('_');
    const int peer = std::stoi(std::string(quantity.substr(last + 1)));
    if (!device_memory(0, x)) return false;
    const cudaError_t enabled = cudaDeviceEnablePeerAccess(peer, 0);
    if (enabled != cudaErrorPeerAccessAlreadyEnabled) check(enabled, "cudaDeviceEnablePeerAccess");
    cudaGetLastError();
    check(cudaSetDevice(peer), "cudaSetDevice");
    try {
      peer_ = DeviceBuffer(static_cast<std::size_t>(x));
    } catch (...) {
      static_cast<void>(cudaSetDevice(shared_.device));
      throw;
    }
    check(cudaSetDevice(shared_.device), "cudaSetDevice");
    return measure([this, peer, x] {
      check(cudaMemcpyPeerAsync(peer_.get(), peer, device_[0].get(), shared_.device,
                                static_cast<std::size_t>(x), main_),
            "cudaMemcpyPeerAsync");
    });
  }

  bool prepare_vmm(std::string_view quantity, std::int64_t x) {
    const auto size = static_cast<std::uint64_t>(x);
    if (quantity == "vmm_reserve") {
      return time_host([this, size] {
        std::unique_ptr<AddressRange> range;
        return timed([&] { range = std::make_unique<AddressRange>(shared_.device, size); });
      });
    }
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    if (size > free / 10 * 9) return false;
    const bool maps = quantity == "vmm_map";
    range_ = std::make_unique<AddressRange>(shared_.device, size);
    if (size % range_->granularity() != 0) return false;
    return time_host([this, size, maps] {
      const Nanos map = timed([&] { range_->map(range_->address(), size); });
      const Nanos unmap = timed([&] { range_->unmap(range_->address(), size); });
      return maps ? map : unmap;
    });
  }

  bool prepare_call(std::string_view quantity, std::int64_t x) {
    const auto size = static_cast<std::size_t>(x);
    if (quantity == "launch_latency") {
      auto* const flag = static_cast<volatile unsigned*>(flag_.get());
      return time_host([this, flag] {
        *flag = 0;
        check(launch_flag(flag, 1, main_), "launch");
        const Nanos time = timed([&] {
          while (*flag == 0) {
          }
        });
        main_.synchronize();
        return time;
      });
    }
    if (quantity == "host_launch") return idle_call([this] { check(launch_empty(main_), "launch"); });
    if (quantity == "host_event_record") return idle_call([this] { begin_.record(main_); });
    if (quantity == "host_event_query") {
      begin_.record(main_);
      return idle_call([this] {
        const cudaError_t result = cudaEventQuery(begin_);
        if (result != cudaErrorNotReady) check(result, "cudaEventQuery");
      });
    }
    if (quantity == "host_event_wait") {
      begin_.record(main_);
      return idle_call([this] { check(cudaStreamWaitEvent(other_, begin_, 0), "cudaStreamWaitEvent"); });
    }
    if (quantity == "host_synchronize") return idle_call([this] { main_.synchronize(); });
    if (quantity == "host_copy_submit") {
      if (!device_memory(0, x)) return false;
      std::byte* const host = pinned_memory(x);
      return idle_call([this, host, size] {
        check(cudaMemcpyAsync(device_[0].get(), host, size, cudaMemcpyHostToDevice, main_),
              "cudaMemcpyAsync");
      });
    }
    if (quantity == "pin") {
      return time_host([size] {
        PinnedBuffer buffer;
        return timed([&] { buffer = PinnedBuffer(size); });
      });
    }
    const bool allocates = quantity == "host_malloc" || quantity == "host_malloc_async";
    std::size_t free = 0, total = 0;
    check(cudaMemGetInfo(&free, &total), "cudaMemGetInfo");
    if (size > free / 10 * 9) return false;
    if (quantity == "host_malloc" || quantity == "host_free") {
      return time_host([size, allocates] {
        void* data = nullptr;
        const Nanos made = timed([&] { check(cudaMalloc(&data, size), "cudaMalloc"); });
        const Nanos freed = timed([&] { check(cudaFree(data), "cudaFree"); });
        return allocates ? made : freed;
      });
    }
    if (quantity == "host_malloc_async" || quantity == "host_free_async") {
      keep_pool();
      return time_host([this, size, allocates] {
        void* data = nullptr;
        const Nanos made = timed([&] { check(cudaMallocAsync(&data, size, main_), "cudaMallocAsync"); });
        const Nanos freed = timed([&] { check(cudaFreeAsync(data, main_), "cudaFreeAsync"); });
        main_.synchronize();
        return allocates ? made : freed;
      });
    }
    return false;
  }
  // A call on an idle device, which is idle again afterwards.
  bool idle_call(std::function<void()> call) {
    return time_host([call = std::move(call)] {
      check(cudaDeviceSynchronize(), "cudaDeviceSynchronize");
      return timed(call);
    });
  }
  // As PyTorch sets it: freed memory stays in the pool.
  void keep_pool() const {
    cudaMemPool_t pool = nullptr;
    check(cudaDeviceGetDefaultMemPool(&pool, shared_.device), "cudaDeviceGetDefaultMemPool");
    std::uint64_t all = ~std::uint64_t{0};
    check(cudaMemPoolSetAttribute(pool, cudaMemPoolAttrReleaseThreshold, &all), "cudaMemPoolSetAttribute");
  }

  CudaShared& shared_;
  int devices_ = 0;
  DeviceBuffer report_;
  Stream main_, out_, in_, other_;
  Event gate_, begin_, end_;
  std::uint64_t gate_ns_ = kGate;
  DeviceBuffer device_[3], peer_, background_device_[2];
  std::int64_t device_bytes_[3] = {}, pinned_bytes_ = 0;
  PinnedBuffer pinned_, flag_, background_host_[2];
  std::vector<std::byte> pageable_;
  std::unique_ptr<AddressRange> range_;
  std::unique_ptr<Cublas> cublas_;
  bool tried_cublas_ = false;
  std::function<void()> work_, beside_;
  std::function<Nanos()> sample_;
};

}  // namespace

std::unique_ptr<ProbeDevice> open_cuda_probe(CudaShared& shared) {
  return std::make_unique<CudaProbe>(shared);
}

}  // namespace swaplab::cuda
