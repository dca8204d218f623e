#include "gpu_validate/cuda/cuda_accelerator.hpp"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstring>
#include <limits>

namespace swaplab::cuda {

std::byte* PinnedCache::take(std::int64_t bytes) {
  std::vector<std::byte*>& free = free_[bytes];
  if (free.empty()) {
    all_.emplace_back(static_cast<std::size_t>(bytes));
    return static_cast<std::byte*>(all_.back().get());
  }
  std::byte* const data = free.back();
  free.pop_back();
  return data;
}

namespace {

using Clock = std::chrono::steady_clock;

constexpr std::size_t kMostPending = 4096;  // work per lane whose events are kept before they are looked at

void* pointer(std::uintptr_t address) {
  return reinterpret_cast<void*>(address);  // NOLINT(performance-no-int-to-ptr): device addresses are numbers
}

class CudaAccelerator final : public Accelerator {
 public:
  CudaAccelerator(CudaShared& shared, const AcceleratorOptions& options)
      : shared_(shared), options_(options), lanes_(options.compute_streams + 2u), report_(sizeof(Report)) {
    check(cudaSetDevice(shared_.device), "cudaSetDevice");
    zero(report_.get(), sizeof(Report));
    const auto bytes = static_cast<std::uint64_t>(options.reservation.value);
    switch (options.memory) {
      case MemoryMode::reservation:
        block_ = DeviceBuffer(bytes);
        reservation_ = reinterpret_cast<std::uintptr_t>(block_.get());
        taken_ = options.reservation;
        break;
      case MemoryMode::vmm:
        range_ = std::make_unique<AddressRange>(shared_.device, bytes);
        reservation_ = range_->address();
        if (options.range_reservation > Bytes{0})
          ranges_ = std::make_unique<AddressRange>(
              shared_.device, static_cast<std::uint64_t>(options.range_reservation.value));
        break;
      case MemoryMode::stream_ordered: {
        check(cudaDeviceGetDefaultMemPool(&pool_, shared_.device), "cudaDeviceGetDefaultMemPool");
        std::uint64_t all = std::numeric_limits<std::uint64_t>::max(), zero = 0;
        check(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReleaseThreshold, &all),
              "cudaMemPoolSetAttribute");
        check(cudaMemPoolSetAttribute(pool_, cudaMemPoolAttrReservedMemHigh, &zero),
              "cudaMemPoolSetAttribute");
        break;
      }
    }
    align_clocks();
  }

  ~CudaAccelerator() override {
    // Queued work ends by itself: every kernel has a bounded time. Errors were thrown where they occurred.
    for (Lane& lane : lanes_) static_cast<void>(cudaStreamSynchronize(lane.stream));
    for (const auto& [address, lane] : allocated_) static_cast<void>(cudaFree(pointer(address)));
    if (pool_ != nullptr) static_cast<void>(cudaMemPoolTrimTo(pool_, 0));
    for (const auto& [data, bytes] : pinned_) shared_.pinned.give(data, bytes);
  }

  const AcceleratorInfo& info() const override { return shared_.info; }

  Ticket launch(std::uint16_t lane, const KernelWork& work) override {
    Lane& l = lanes_[lane];
    const Ticket ticket = ++l.issued;
    const Pending& pending = begin_work(l);
    Surrogate s;
    s.stride = work.sampling.stride;
    s.phase = work.sampling.phase;
    s.lane = lane;
    s.ticket = ticket;
    s.report = static_cast<Report*>(report_.get());
    std::int64_t writes = 0;
    for (const Operand& operand : work.operands) {
      if (operand.written != 0) writes += static_cast<std::int64_t>(operand.bytes);
      if (operand.expected != 0 && work.sampling.stride != 0) {
        ++verified_.operands;
        verified_.words += sampled_words(operand.bytes, work.sampling);
      }
    }
    std::size_t next = 0;
    // All but the last launch of an operator only check and write; its time is the last one's.
    for (; work.operands.size() - next > kOperandsPerLaunch; next += kOperandsPerLaunch) {
      fill_operands(s, work.operands.subspan(next, kOperandsPerLaunch));
      check(launch_surrogate(s, shared_.rates.blocks, l.stream), "launch of a surrogate kernel");
    }
    fill_operands(s, work.operands.subspan(next));
    set_work(s, work, writes);
    const std::uint64_t bytes = operand_bytes(work.operands.subspan(next));
    check(launch_surrogate(s, blocks_for(work, bytes), l.stream), "launch of a surrogate kernel");
    end_work(l, pending);
    return ticket;
  }

  Ticket copy(std::uint16_t lane, const CopyWork& work) override {
    Lane& l = lanes_[lane];
    const Ticket ticket = ++l.issued;
    Pending& pending = begin_work(l);
    const bool in = work.direction == Direction::host_to_device;
    if (work.bytes != 0) {
      void* const device = pointer(work.device);
      check(cudaMemcpyAsync(in ? device : work.host, in ? static_cast<const void*>(work.host) : device,
                            work.bytes, in ? cudaMemcpyHostToDevice : cudaMemcpyDeviceToHost, l.stream),
            "cudaMemcpyAsync");
    }
    check(cudaEventRecord(pending.end, l.stream), "cudaEventRecord");
    if (!in || work.expected == 0 || work.sampling.stride == 0) {
      pending.done = pending.end;
      return ticket;
    }
    // Checked behind the copy; whoever waits for the copy waits for the check, too.
    Surrogate s;
    s.operand[0] = {work.device, work.bytes, work.expected, 0, work.slot};
    s.operands = 1;
    s.stride = work.sampling.stride;
    s.phase = work.sampling.phase;
    s.lane = lane;
    s.ticket = ticket;
    s.report = static_cast<Report*>(report_.get());
    const std::uint64_t words = sampled_words(work.bytes, work.sampling);
    const std::uint64_t blocks = std::min<std::uint64_t>(shared_.rates.blocks, words / kThreads / 4 + 1);
    check(launch_surrogate(s, static_cast<unsigned>(blocks), l.stream), "launch of a check");
    pending.done = take_event();
    check(cudaEventRecord(pending.done, l.stream), "cudaEventRecord");
    ++verified_.swap_ins;
    verified_.words += words;
    return ticket;
  }

  void wait(std::uint16_t lane, std::uint16_t on, Ticket ticket) override {
    if (lane == on || ticket == 0) return;
    if (const Pending* pending = find(lanes_[on], ticket))
      check(cudaStreamWaitEvent(lanes_[lane].stream, pending->done, 0), "cudaStreamWaitEvent");
  }
  bool query(std::uint16_t lane, Ticket ticket) override {
    const Pending* const pending = find(lanes_[lane], ticket);
    if (pending == nullptr) return true;
    const cudaError_t result = cudaEventQuery(pending->done);
    if (result == cudaErrorNotReady) return false;
    check(result, "cudaEventQuery");
    return true;
  }
  void synchronize(std::uint16_t lane, Ticket ticket) override {
    if (const Pending* pending = find(lanes_[lane], ticket))
      check(cudaEventSynchronize(pending->done), "cudaEventSynchronize");
  }
  Ticket issued(std::uint16_t lane) const override { return lanes_[lane].issued; }

  std::byte* pin(Bytes bytes) override {
    std::byte* const data = shared_.pinned.take(bytes.value);
    pinned_.emplace_back(data, bytes.value);
    return data;
  }
  std::uintptr_t reservation() const override { return reservation_; }
  std::uintptr_t range_reservation() const override { return ranges_ ? ranges_->address() : 0; }
  void map(std::uintptr_t address, Bytes bytes) override {
    if (options_.memory == MemoryMode::vmm)
      range_of(address).map(address, static_cast<std::uint64_t>(bytes.value));
  }
  void unmap(std::uintptr_t address, Bytes bytes) override {
    if (options_.memory == MemoryMode::vmm)
      range_of(address).unmap(address, static_cast<std::uint64_t>(bytes.value));
  }
  std::uintptr_t allocate(std::uint16_t lane, Bytes bytes) override {
    void* data = nullptr;
    check(cudaMallocAsync(&data, static_cast<std::size_t>(bytes.value), lanes_[lane].stream),
          "cudaMallocAsync");
    const auto address = reinterpret_cast<std::uintptr_t>(data);
    allocated_[address] = lane;
    return address;
  }
  void release(std::uint16_t lane, std::uintptr_t address) override {
    allocated_.erase(address);
    check(cudaFreeAsync(pointer(address), lanes_[lane].stream), "cudaFreeAsync");
  }
  Bytes peak_device_bytes() const override {
    if (options_.memory == MemoryMode::reservation) return taken_;
    if (options_.memory == MemoryMode::vmm)
      return Bytes{static_cast<std::int64_t>(range_->peak_mapped() + (ranges_ ? ranges_->peak_mapped() : 0))};
    std::uint64_t high = 0;
    check(cudaMemPoolGetAttribute(pool_, cudaMemPoolAttrReservedMemHigh, &high), "cudaMemPoolGetAttribute");
    return Bytes{static_cast<std::int64_t>(high)};
  }

  Nanos host_now() const override {
    return Nanos{std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now() - opened_).count()};
  }
  // As an eager program does: the CPU is busy meanwhile.
  void spend(Nanos time) override {
    const Nanos until = host_now() + time;
    while (host_now() < until) {
    }
  }
  WorkTime time(std::uint16_t lane, Ticket ticket) override {
    Lane& l = lanes_[lane];
    while (l.times.size() < ticket) take_time(l);
    return l.times[ticket - 1];
  }
  std::vector<Finding> findings() override {
    const std::unique_ptr<Report> report = fetch_report();
    std::vector<Finding> all;
    for (std::uint32_t i = 0; i < std::min(report->findings, kMostFindings); ++i) {
      const DeviceFinding& f = report->finding[i];
      // Threads find in any order: one finding for each piece of work and storage, that of the first word.
      const auto same = std::find_if(all.begin(), all.end(), [&](const Finding& g) {
        return g.lane == f.lane && g.ticket == f.ticket && g.slot == f.slot;
      });
      const Finding finding{
          static_cast<std::uint16_t>(f.lane), f.ticket, f.slot, f.word, f.expected, f.found};
      if (same == all.end()) {
        all.push_back(finding);
      } else if (f.word < same->word) {
        *same = finding;
      }
    }
    return all;
  }
  VerifyCounts verified() override {
    VerifyCounts counts = verified_;
    counts.wrong_words = fetch_report()->wrong_words;
    return counts;
  }

 private:
  struct Pending {
    cudaEvent_t begin = nullptr, end = nullptr, done = nullptr;  // done: the same as end, or after the check
  };
  struct Lane {
    Stream stream;
    Ticket issued = 0;
    std::deque<Pending> pending;  // of tickets times.size() + 1 on
    std::vector<WorkTime> times;
    cudaEvent_t last = nullptr;  // whose time is last_time: differences of near events are exact
    Nanos last_time{0};
  };

  // The host's and the device's clock: an event that the host sees complete as soon as it is.
  void align_clocks() {
    base_ = take_event();
    Nanos best{std::numeric_limits<std::int64_t>::max()};
    for (int attempt = 0; attempt < 100; ++attempt) {
      const Nanos before = host_now();
      check(cudaEventRecord(base_, lanes_[0].stream), "cudaEventRecord");
      check(cudaEventSynchronize(base_), "cudaEventSynchronize");
      const Nanos took = host_now() - before;
      base_time_ = before + took / 2;
      if (attempt >= 10 && took <= best + best / 10) break;
      best = std::min(best, took);
    }
  }

  cudaEvent_t take_event() {
    if (free_events_.empty()) {
      events_.push_back(std::make_unique<Event>());
      return *events_.back();
    }
    const cudaEvent_t event = free_events_.back();
    free_events_.pop_back();
    return event;
  }

  Pending& begin_work(Lane& l) {
    if (l.pending.size() >= kMostPending) {
      while (l.pending.size() > kMostPending / 2) take_time(l);
    }
    const cudaEvent_t begin = take_event(), end = take_event();
    l.pending.push_back({begin, end, end});
    check(cudaEventRecord(begin, l.stream), "cudaEventRecord");
    return l.pending.back();
  }
  void end_work(const Lane& l, const Pending& pending) {
    check(cudaEventRecord(pending.end, l.stream), "cudaEventRecord");
  }

  // Of the oldest pending work; waits for it.
  void take_time(Lane& l) {
    if (l.pending.empty())
      throw Error(ErrorKind::invariant, "the time of work that was never issued was asked for");
    const Pending pending = l.pending.front();
    l.pending.pop_front();
    check(cudaEventSynchronize(pending.done), "cudaEventSynchronize");
    const Nanos begin = time_of(l, pending.begin);
    const Nanos end = time_of(l, pending.end);
    l.times.push_back({begin, std::max(begin, end)});
    if (pending.done != pending.end) free_events_.push_back(pending.done);
  }
  // In order of the lane: the event before is kept until the next one's time is known.
  Nanos time_of(Lane& l, cudaEvent_t event) {
    float ms = 0;
    check(cudaEventElapsedTime(&ms, l.last == nullptr ? base_ : l.last, event), "cudaEventElapsedTime");
    const Nanos since{std::llround(static_cast<double>(ms) * 1e6)};
    l.last_time = (l.last == nullptr ? base_time_ : l.last_time) + since;
    if (l.last != nullptr) free_events_.push_back(l.last);
    l.last = event;
    return l.last_time;
  }
  const Pending* find(const Lane& l, Ticket ticket) const {
    if (ticket <= l.times.size()) return nullptr;
    const std::size_t at = ticket - l.times.size() - 1;
    if (at >= l.pending.size())
      throw Error(ErrorKind::invariant, "work " + std::to_string(ticket) + " of a lane was never issued");
    return &l.pending[at];
  }

  static std::uint64_t operand_bytes(std::span<const Operand> operands) {
    std::uint64_t bytes = 0;
    for (const Operand& operand : operands) bytes = std::max(bytes, operand.bytes);
    return bytes;
  }
  static void fill_operands(Surrogate& s, std::span<const Operand> operands) {
    s.operands = static_cast<std::uint32_t>(operands.size());
    for (std::size_t i = 0; i < operands.size(); ++i) {
      const Operand& o = operands[i];
      s.operand[i] = {o.address, o.bytes, o.expected, o.written, o.slot};
    }
  }
  // Small spins need not occupy the whole device.
  unsigned blocks_for(const KernelWork& work, std::uint64_t bytes) const {
    if (work.kind != KernelKind::spin) return shared_.rates.blocks;
    const std::uint64_t wanted = bytes / (std::uint64_t{kThreads} * 32) + 1;
    return static_cast<unsigned>(std::min<std::uint64_t>(wanted, shared_.rates.blocks));
  }
  // What is left of the duration when the contents' writing is taken off.
  void set_work(Surrogate& s, const KernelWork& work, std::int64_t writes) const {
    const KernelRates& rates = shared_.rates;
    std::int64_t left = work.duration.value - rates.base_ns;
    if (rates.write_bytes_per_us > 0) left -= writes * 1000 / rates.write_bytes_per_us;
    left = std::max<std::int64_t>(left, 0);
    s.scratch = static_cast<float4*>(shared_.scratch.get());
    s.scratch_elements = shared_.scratch_elements;
    if (work.kind == KernelKind::spin || rates.compute_per_1024 <= 0 || rates.memory_per_1024 <= 0) {
      s.work = Work::spin;
      s.amount = static_cast<std::uint64_t>(left);
    } else if (work.kind == KernelKind::compute) {
      s.work = Work::compute;
      s.amount = static_cast<std::uint64_t>(left * 1024 / rates.compute_per_1024);
    } else {
      s.work = Work::memory;
      s.amount = static_cast<std::uint64_t>(left * 1024 / rates.memory_per_1024);
    }
  }

  AddressRange& range_of(std::uintptr_t address) {
    return ranges_ && address >= ranges_->address() &&
                   address < ranges_->address() + static_cast<std::uint64_t>(options_.range_reservation.value)
               ? *ranges_
               : *range_;
  }

  std::unique_ptr<Report> fetch_report() const {
    auto report = std::make_unique<Report>();
    check(cudaMemcpy(report.get(), report_.get(), sizeof(Report), cudaMemcpyDeviceToHost), "cudaMemcpy");
    return report;
  }

  CudaShared& shared_;
  const AcceleratorOptions options_;
  const Clock::time_point opened_ = Clock::now();
  std::vector<std::unique_ptr<Event>> events_;
  std::vector<cudaEvent_t> free_events_;
  std::deque<Lane> lanes_;
  DeviceBuffer report_, block_;
  std::unique_ptr<AddressRange> range_, ranges_;
  cudaMemPool_t pool_ = nullptr;
  std::uintptr_t reservation_ = 0;
  Bytes taken_{0};
  std::unordered_map<std::uintptr_t, std::uint16_t> allocated_;
  std::vector<std::pair<std::byte*, std::int64_t>> pinned_;
  cudaEvent_t base_ = nullptr;
  Nanos base_time_{0};
  VerifyCounts verified_;
};

}  // namespace

std::unique_ptr<Accelerator> open_cuda_accelerator(CudaShared& shared, const AcceleratorOptions& options) {
  return std::make_unique<CudaAccelerator>(shared, options);
}

}  // namespace swaplab::cuda
