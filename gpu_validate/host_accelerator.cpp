// The accelerator interface on threads: one per lane, real buffers, real copies. What it checks is order,
// not speed: work that did not wait for what it needs reads or overwrites real bytes at the wrong time.
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <cstring>
#include <deque>
#include <functional>
#include <mutex>
#include <thread>

#include "gpu_validate/accelerator.hpp"
#include "gpu_validate/host_verify.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

using Clock = std::chrono::steady_clock;

constexpr std::uint64_t kCopyPiece = std::uint64_t{64} << 10;  // a stretched copy moves this much at a time

// Device addresses are numbers, as on a GPU; here they are addresses of this process.
std::byte* bytes_at(std::uintptr_t address) {
  return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
}

// Address space without memory behind it until it is touched.
class Mapping {
 public:
  explicit Mapping(Bytes bytes) : bytes_(static_cast<std::size_t>(bytes.value)) {
    if (bytes_ == 0) return;
    address_ =
        ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (address_ == MAP_FAILED) {
      throw Error(ErrorKind::input, "the host device cannot reserve " + std::to_string(bytes.value) +
                                        " B of address space: " + std::strerror(errno));
    }
  }
  ~Mapping() {
    if (bytes_ != 0) ::munmap(address_, bytes_);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  std::uintptr_t address() const { return bytes_ == 0 ? 0 : reinterpret_cast<std::uintptr_t>(address_); }
  std::byte* data() const { return static_cast<std::byte*>(address_); }

 private:
  std::size_t bytes_;
  void* address_ = nullptr;
};

struct Item {
  enum class Kind : std::uint8_t { kernel, copy, wait } kind = Kind::kernel;
  KernelWork kernel;
  std::vector<Operand> operands;
  CopyWork copy;
  std::uint16_t on = 0;
  Ticket ticket = 0;  // of the work, or the one to wait for
};

class HostAccelerator final : public Accelerator {
 public:
  explicit HostAccelerator(const AcceleratorOptions& options)
      : options_(options),
        reservation_(options.reservation),
        ranges_(options.range_reservation),
        lanes_(options.compute_streams + 2u) {
    if (options.memory != MemoryMode::reservation)
      throw Error(ErrorKind::usage, "the host device has one kind of memory: reservation");
    info_.kind = "host";
    info_.name = "host threads";
    info_.driver = info_.runtime = "none";
    info_.stretches_copies = true;
    info_.dispatch_grain = Nanos{200'000};
    for (std::uint16_t lane = 0; lane < options.compute_streams + 2; ++lane) {
      lanes_[lane].thread = std::thread([this, lane] { work_on(lane); });
    }
  }

  ~HostAccelerator() override {
    stopping_ = true;
    for (Lane& lane : lanes_) {
      const std::lock_guard guard(lane.lock);
      lane.changed.notify_all();
    }
    for (Lane& lane : lanes_) lane.thread.join();
  }

  const AcceleratorInfo& info() const override { return info_; }

  Ticket launch(std::uint16_t lane, const KernelWork& work) override {
    Item item;
    item.kernel = work;
    item.operands.assign(work.operands.begin(), work.operands.end());
    return push_work(lane, std::move(item));
  }
  Ticket copy(std::uint16_t lane, const CopyWork& work) override {
    Item item;
    item.kind = Item::Kind::copy;
    item.copy = work;
    return push_work(lane, std::move(item));
  }
  void wait(std::uint16_t lane, std::uint16_t on, Ticket ticket) override {
    if (lane == on || ticket == 0) return;
    Item item;
    item.kind = Item::Kind::wait;
    item.on = on;
    item.ticket = ticket;
    push(lane, std::move(item));
  }
  bool query(std::uint16_t lane, Ticket ticket) override {
    const std::lock_guard guard(lanes_[lane].lock);
    return lanes_[lane].completed >= ticket;
  }
  void synchronize(std::uint16_t lane, Ticket ticket) override {
    std::unique_lock guard(lanes_[lane].lock);
    lanes_[lane].changed.wait(guard, [&] { return lanes_[lane].completed >= ticket; });
  }
  Ticket issued(std::uint16_t lane) const override { return lanes_[lane].issued; }

  std::byte* pin(Bytes bytes) override {
    pinned_.push_back(std::make_unique<Mapping>(bytes));
    return pinned_.back()->data();
  }
  std::uintptr_t reservation() const override { return reservation_.address(); }
  std::uintptr_t range_reservation() const override { return ranges_.address(); }
  void map(std::uintptr_t, Bytes) override {}
  void unmap(std::uintptr_t, Bytes) override {}
  std::uintptr_t allocate(std::uint16_t, Bytes) override { return 0; }
  void release(std::uint16_t, std::uintptr_t) override {}
  Bytes peak_device_bytes() const override { return Bytes{0}; }

  Nanos host_now() const override { return since_opening(Clock::now()); }
  // Asleep: the lanes' threads need the cores.
  void spend(Nanos time) override { std::this_thread::sleep_for(std::chrono::nanoseconds(time.value)); }
  WorkTime time(std::uint16_t lane, Ticket ticket) override {
    const std::lock_guard guard(lanes_[lane].lock);
    return lanes_[lane].times.at(ticket - 1);
  }
  std::vector<Finding> findings() override {
    std::vector<Finding> all;
    for (Lane& lane : lanes_) {
      const std::lock_guard guard(lane.lock);
      all.insert(all.end(), lane.findings.begin(), lane.findings.end());
    }
    return all;
  }
  VerifyCounts verified() override {
    VerifyCounts sum;
    for (Lane& lane : lanes_) {
      const std::lock_guard guard(lane.lock);
      sum += lane.verified;
    }
    return sum;
  }

 private:
  struct Lane {
    std::mutex lock;
    std::condition_variable changed;  // work was queued or completed
    std::deque<Item> queue;
    Ticket issued = 0;  // of the host thread
    Ticket completed = 0;
    std::vector<WorkTime> times;
    std::vector<Finding> findings;
    VerifyCounts verified;
    std::thread thread;
  };

  Nanos since_opening(Clock::time_point at) const {
    return Nanos{std::chrono::duration_cast<std::chrono::nanoseconds>(at - opened_).count()};
  }

  void push(std::uint16_t lane, Item&& item) {
    Lane& l = lanes_[lane];
    const std::lock_guard guard(l.lock);
    l.queue.push_back(std::move(item));
    l.changed.notify_all();
  }
  Ticket push_work(std::uint16_t lane, Item&& item) {
    Lane& l = lanes_[lane];
    const auto depth = static_cast<Ticket>(options_.queue_depth);
    if (depth != 0 && l.issued >= depth) synchronize(lane, l.issued - depth + 1);
    item.ticket = ++l.issued;
    push(lane, std::move(item));
    return l.issued;
  }

  void work_on(std::uint16_t lane) {
    ::prctl(PR_SET_TIMERSLACK, 1UL, 0UL, 0UL, 0UL);  // sleeps end when they should, not 50 us later
    Lane& l = lanes_[lane];
    std::unique_lock guard(l.lock);
    for (;;) {
      l.changed.wait(guard, [&] { return stopping_ || !l.queue.empty(); });
      if (stopping_) return;
      Item item = std::move(l.queue.front());
      l.queue.pop_front();
      guard.unlock();
      if (item.kind == Item::Kind::wait) {
        Lane& other = lanes_[item.on];
        std::unique_lock other_guard(other.lock);
        other.changed.wait(other_guard, [&] { return stopping_ || other.completed >= item.ticket; });
        other_guard.unlock();
        guard.lock();
        continue;
      }
      const Clock::time_point begin = Clock::now();
      std::vector<Finding> found;
      VerifyCounts counts;
      item.kind == Item::Kind::kernel ? run_kernel(item, begin, found, counts)
                                      : run_copy(item.copy, begin, found, counts);
      const Clock::time_point end = Clock::now();
      guard.lock();
      for (Finding& finding : found) {
        finding.lane = lane;
        finding.ticket = item.ticket;
        if (l.findings.size() < kMaxFindings) l.findings.push_back(finding);
      }
      l.verified += counts;
      l.times.push_back({since_opening(begin), since_opening(end)});
      l.completed = item.ticket;
      l.changed.notify_all();
    }
  }

  // Reads at the start, and what it only reads once more at the end; writes at the end: whoever touches the
  // operands in between without waiting is seen.
  void run_kernel(const Item& item, Clock::time_point begin, std::vector<Finding>& found,
                  VerifyCounts& counts) {
    const Sampling sampling = item.kernel.sampling;
    for (const Operand& operand : item.operands) {
      if (operand.expected == 0 || sampling.stride == 0) continue;
      ++counts.operands;
      verify(operand.address, operand.bytes, operand.expected, sampling, operand.slot, found, counts);
    }
    sleep_until(begin + std::chrono::nanoseconds(item.kernel.duration.value));
    for (const Operand& operand : item.operands) {
      if (operand.written != 0) {
        write_content(bytes_at(operand.address), operand.bytes, operand.written);
      } else if (operand.expected != 0 && sampling.stride != 0 && found.empty()) {
        verify(operand.address, operand.bytes, operand.expected, sampling, operand.slot, found, counts);
      }
    }
  }

  // Stretched copies move piece by piece, spread over their time.
  void run_copy(const CopyWork& copy, Clock::time_point begin, std::vector<Finding>& found,
                VerifyCounts& counts) {
    auto* const device = bytes_at(copy.device);
    const bool in = copy.direction == Direction::host_to_device;
    std::byte* const to = in ? device : copy.host;
    const std::byte* const from = in ? copy.host : device;
    const std::uint64_t pieces = copy.at_least > Nanos{0} ? (copy.bytes + kCopyPiece - 1) / kCopyPiece : 1;
    const std::uint64_t piece = copy.at_least > Nanos{0} ? kCopyPiece : copy.bytes;
    for (std::uint64_t p = 0; p < pieces; ++p) {
      const std::uint64_t at = p * piece;
      sleep_until(begin +
                  std::chrono::nanoseconds(copy.at_least.value / static_cast<std::int64_t>(pieces + 1) *
                                           static_cast<std::int64_t>(p + 1)));
      std::memcpy(to + at, from + at, std::min(piece, copy.bytes - at));
    }
    sleep_until(begin + std::chrono::nanoseconds(copy.at_least.value));
    if (!in || copy.expected == 0 || copy.sampling.stride == 0) return;
    ++counts.swap_ins;
    verify(copy.device, copy.bytes, copy.expected, copy.sampling, copy.slot, found, counts);
  }

  static void sleep_until(Clock::time_point when) {
    if (when > Clock::now()) std::this_thread::sleep_until(when);
  }

  static void verify(std::uintptr_t address, std::uint64_t bytes, ContentKey key, Sampling sampling,
                     std::uint32_t slot, std::vector<Finding>& found, VerifyCounts& counts) {
    const WordCheck check = check_content(bytes_at(address), bytes, key, sampling);
    counts.words += check.words;
    counts.wrong_words += check.wrong;
    if (check.wrong != 0 && found.empty()) {
      Finding finding;
      finding.slot = slot;
      finding.word = check.first_wrong;
      finding.expected = check.expected;
      finding.found = check.found;
      found.push_back(finding);
    }
  }

  static constexpr std::size_t kMaxFindings = 1000;

  const AcceleratorOptions options_;
  const Clock::time_point opened_ = Clock::now();
  AcceleratorInfo info_;
  Mapping reservation_, ranges_;
  std::vector<std::unique_ptr<Mapping>> pinned_;
  std::atomic<bool> stopping_{false};
  std::deque<Lane> lanes_;  // last: threads end before what they use
};

}  // namespace

std::unique_ptr<Accelerator> open_host_accelerator(const AcceleratorOptions& options) {
  return std::make_unique<HostAccelerator>(options);
}

}  // namespace swaplab
