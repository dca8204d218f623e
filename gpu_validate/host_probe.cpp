// The host device as hardware: its accelerator, and what can be measured about threads and memory copies.
// Quantities have their CUDA meaning as far as threads have one: a "pinned" block is memory that has been
// touched, a "pageable" copy goes through a small staging block as the driver's does, an event is a ticket.
#include <sys/mman.h>
#include <sys/utsname.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <fstream>
#include <functional>
#include <thread>

#include "gpu_validate/hardware.hpp"
#include "gpu_validate/probe_parts.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

constexpr std::int64_t kMiB = std::int64_t{1} << 20;
constexpr std::int64_t kLargest = 256 * kMiB;  // copies beyond it would need much of a small computer
constexpr std::int64_t kStaging = 4 * kMiB;

// A sample takes at least this, by repeating what is short: the clock's own time and resolution vanish in it.
constexpr Nanos kLeastTimed{20'000};
constexpr std::int64_t kMostRepeats = 4096;
constexpr std::int64_t kLaunches = 16;  // of a sample of launches

// Mean of `count` that took `total` together; never 0.
Nanos each(Nanos total, std::int64_t count) {
  return Nanos{std::max<std::int64_t>(1, (total.value + count / 2) / count)};
}

// Anonymous pages; `touch` brings them into memory.
class Pages {
 public:
  explicit Pages(std::int64_t bytes, bool touch) : bytes_(static_cast<std::size_t>(bytes)) {
    const int flags = MAP_PRIVATE | MAP_ANONYMOUS | (touch ? MAP_POPULATE : 0);
    data_ = ::mmap(nullptr, bytes_, PROT_READ | PROT_WRITE, flags, -1, 0);
    if (data_ == MAP_FAILED)
      throw Error(ErrorKind::input, "the host has no " + std::to_string(bytes) + " B free");
  }
  ~Pages() { ::munmap(data_, bytes_); }
  Pages(const Pages&) = delete;
  Pages& operator=(const Pages&) = delete;
  std::byte* data() { return static_cast<std::byte*>(data_); }

 private:
  std::size_t bytes_;
  void* data_ = nullptr;
};

// Repeats work on a thread of its own until it is destroyed.
class Background {
 public:
  explicit Background(std::function<void()> work)
      : thread_([this, work = std::move(work)] {
          while (!stop_.load(std::memory_order_relaxed)) {
            work();
            running_.store(true, std::memory_order_release);
          }
        }) {
    while (!running_.load(std::memory_order_acquire)) std::this_thread::yield();
  }
  ~Background() {
    stop_ = true;
    thread_.join();
  }
  Background(const Background&) = delete;
  Background& operator=(const Background&) = delete;

 private:
  std::atomic<bool> stop_{false}, running_{false};
  std::thread thread_;
};

float multiply_add(std::int64_t count) {
  float a[8] = {1, 2, 3, 4, 5, 6, 7, 8};
  for (std::int64_t i = 0; i < count; ++i) {
    for (float& x : a) x = x * 0.999F + 0.5F;
  }
  float sum = 0;
  for (const float x : a) sum += x;
  return sum;
}

class HostProbe final : public ProbeDevice {
 public:
  HostProbe() {
    AcceleratorOptions options;
    options.reservation = Bytes{kMiB};
    accelerator_ = open_host_accelerator(options);
    block_ = accelerator_->pin(Bytes{kMiB});
  }

  bool prepare(std::string_view quantity, std::int64_t x) override {
    background_.clear();
    sample_ = {};
    if (quantity.starts_with("copy_")) return prepare_copy(quantity.substr(5), x);
    if (quantity.starts_with("kernel_") && quantity != "kernel_empty")
      return prepare_kernel(quantity.substr(7), x);
    if (quantity == "stream_copy") return prepare_copy("d2d", x / 2);
    if (quantity == "gemm_fp32") return prepare_gemm(x);
    if (quantity == "pin") {
      sample_ = [x] {
        std::unique_ptr<Pages> pages;
        return each(timed([&] { pages = std::make_unique<Pages>(x, true); }), 1);
      };
      return x <= kLargest;
    }
    return prepare_call(quantity, x);
  }
  Nanos sample() override { return sample_(); }

 private:
  // Samples time `work`, several in a row where one is too short for the clock; `after` follows untimed.
  bool measure(
      std::function<void()> work, const std::function<void()>& after = [] {}) {
    const auto batch = [work = std::move(work), after](std::int64_t count) {
      const Nanos time = timed([&] {
        for (std::int64_t i = 0; i < count; ++i) work();
      });
      after();
      return time;
    };
    std::int64_t count = 1;
    while (count < kMostRepeats && batch(count) < kLeastTimed) count *= 2;
    sample_ = [batch, count] { return each(batch(count), count); };
    return true;
  }

  // Buffers of at least x bytes, touched; kept while they are large enough.
  std::byte* buffer(std::size_t which, std::int64_t x) {
    if (buffer_bytes_[which] < x) {
      buffers_[which].reset();
      buffers_[which] = std::make_unique<Pages>(x, true);
      buffer_bytes_[which] = x;
    }
    return buffers_[which]->data();
  }
  void copy_in_background(std::size_t from, std::size_t to) {
    constexpr std::int64_t piece = 4 * kMiB;
    std::byte* const source = buffer(from, piece);
    std::byte* const target = buffer(to, piece);
    background_.push_back(std::make_unique<Background>([=] { std::memcpy(target, source, piece); }));
  }
  void kernel_in_background(std::string_view kind) {
    if (kind == "compute") {
      background_.push_back(std::make_unique<Background>([this] { sink_ = multiply_add(10'000); }));
    } else {
      copy_in_background(6, 7);
    }
  }

  bool prepare_copy(std::string_view what, std::int64_t x) {
    if (x <= 0 || x > kLargest) return false;
    const bool to_host = what.starts_with("d2h");
    if (what != "d2d" && !to_host && !what.starts_with("h2d")) return false;
    std::byte* const source = buffer(to_host ? 0 : 1, x);
    std::byte* const target = buffer(to_host ? 1 : 0, x);
    const std::string_view how = what.size() > 4 ? what.substr(4) : std::string_view();
    if (how == "pageable") {
      std::byte* const staging = buffer(2, kStaging);
      return measure([=] {
        for (std::int64_t at = 0; at < x; at += kStaging) {
          const auto part = static_cast<std::size_t>(std::min(kStaging, x - at));
          std::memcpy(staging, source + at, part);
          std::memcpy(target + at, staging, part);
        }
      });
    }
    if (how == "duplex") {
      copy_in_background(4, 5);
    } else if (how.starts_with("beside_")) {
      kernel_in_background(how.substr(7));
    } else if (how != "pinned" && what != "d2d") {
      return false;
    }
    return measure([=] { std::memcpy(target, source, static_cast<std::size_t>(x)); });
  }

  bool prepare_kernel(std::string_view what, std::int64_t work) {
    const bool compute = what.starts_with("compute");
    if (const std::size_t beside = what.find("_beside_"); beside != std::string_view::npos) {
      const std::string_view copies = what.substr(beside + 8);
      if (copies != "d2h") copy_in_background(2, 3);
      if (copies != "h2d") copy_in_background(4, 5);
    }
    if (compute) return measure([this, work] { sink_ = multiply_add(work * 16); });
    const std::int64_t bytes = work * 1024;
    std::byte* const source = buffer(0, bytes);
    std::byte* const target = buffer(1, bytes);
    return measure([=] { std::memcpy(target, source, static_cast<std::size_t>(bytes)); });
  }

  // A plain blocked product, so x above small matrices takes too long to be asked for.
  bool prepare_gemm(std::int64_t flop) {
    const std::int64_t n = square_side(flop);
    if (n == 0 || n > 512) return false;
    const std::int64_t bytes = n * n * static_cast<std::int64_t>(sizeof(float));
    auto* const a = reinterpret_cast<float*>(buffer(0, bytes));
    auto* const b = reinterpret_cast<float*>(buffer(1, bytes));
    auto* const c = reinterpret_cast<float*>(buffer(2, bytes));
    return measure([=] {
      for (std::int64_t i = 0; i < n; ++i) {
        for (std::int64_t k = 0; k < n; ++k) {
          const float factor = a[i * n + k];
          for (std::int64_t j = 0; j < n; ++j) c[i * n + j] += factor * b[k * n + j];
        }
      }
    });
  }

  bool prepare_call(std::string_view quantity, std::int64_t x) {
    Accelerator& a = *accelerator_;
    const KernelWork nothing{Nanos{0}, KernelKind::spin, {0, 0}, {}};
    const CopyWork copy{Direction::host_to_device, block_, a.reservation(), static_cast<std::uint64_t>(kMiB)};
    a.synchronize(0, a.issued(0));
    a.synchronize(2, a.issued(2));
    const auto idle = [&a] { a.synchronize(0, a.issued(0)); };
    if (quantity == "kernel_empty") {
      // Queued behind a kernel that takes longer than queueing, so that the host's pace is not measured.
      sample_ = [&a, nothing, idle] {
        a.launch(0, {Nanos{1'000'000}, KernelKind::spin, {0, 0}, {}});
        const Ticket first = a.launch(0, nothing);
        for (std::int64_t i = 1; i < kLaunches; ++i) a.launch(0, nothing);
        idle();
        return each(a.time(0, a.issued(0)).end - a.time(0, first).begin, kLaunches);
      };
      return true;
    }
    if (quantity == "launch_latency") {
      // From the begin of the call: a thread that it wakes may run before it returns.
      sample_ = [&a, nothing, idle] {
        Nanos total{0};
        for (std::int64_t i = 0; i < kLaunches; ++i) {
          const Nanos called = a.host_now();
          const Ticket ticket = a.launch(0, nothing);
          idle();
          total += a.time(0, ticket).begin - called;
        }
        return each(total, kLaunches);
      };
      return true;
    }
    if (quantity == "host_launch") return measure([&a, nothing] { a.launch(0, nothing); }, idle);
    if (quantity == "host_copy_submit")
      return measure([&a, copy] { a.copy(2, copy); }, [&a] { a.synchronize(2, a.issued(2)); });
    if (quantity == "host_event_query") return measure([&a] { a.query(0, a.issued(0)); });
    if (quantity == "host_event_wait") return measure([&a] { a.wait(2, 0, a.issued(0)); });
    if (quantity == "host_synchronize") return measure(idle);
    if (quantity == "host_malloc" || quantity == "host_free") {
      if (x > kLargest) return false;
      const bool allocates = quantity == "host_malloc";
      sample_ = [x, allocates] {
        std::unique_ptr<Pages> pages;
        const Nanos made = timed([&] { pages = std::make_unique<Pages>(x, false); });
        const Nanos freed = timed([&] { pages.reset(); });
        return each(allocates ? made : freed, 1);
      };
      return true;
    }
    return false;
  }

  std::unique_ptr<Accelerator> accelerator_;
  std::byte* block_ = nullptr;
  std::unique_ptr<Pages> buffers_[8];
  std::int64_t buffer_bytes_[8] = {};
  std::function<Nanos()> sample_;
  std::atomic<float> sink_{0};
  std::vector<std::unique_ptr<Background>> background_;  // last: ends before its buffers
};

class HostHardware final : public Hardware {
 public:
  HostHardware() {
    info_.kind = "host";
    info_.name = "host threads";
    std::ifstream cpus("/proc/cpuinfo");
    for (std::string line; std::getline(cpus, line);) {
      const std::size_t colon = line.find(": ");
      if (line.starts_with("model name") && colon != std::string::npos) {
        info_.name = "host threads on " + line.substr(colon + 2);
        break;
      }
    }
    utsname system{};
    ::uname(&system);
    info_.driver = std::string(system.sysname) + " " + system.release;
    info_.runtime = "threads";
    info_.stretches_copies = true;
  }
  const AcceleratorInfo& info() const override { return info_; }
  std::unique_ptr<Accelerator> open(const AcceleratorOptions& options) override {
    return open_host_accelerator(options);
  }
  std::unique_ptr<ProbeDevice> open_probe() override { return std::make_unique<HostProbe>(); }
  std::int64_t reserve_percent(MemoryMode) const override { return 400; }

 private:
  AcceleratorInfo info_;
};

}  // namespace

std::unique_ptr<Hardware> open_host_hardware() {
  return std::make_unique<HostHardware>();
}

}  // namespace swaplab
