// The host device on a clock of its own, which moves only when the host works or waits: work is really done,
// when it is submitted, and takes exactly the time that is asked for. Two replays on it are the same to the
// nanosecond, so decisions that depend on measured times can be compared call by call.
#pragma once

#include <algorithm>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "gpu_validate/accelerator.hpp"
#include "gpu_validate/host_verify.hpp"

namespace swaplab::test {

// What a kernel takes on this device instead of its duration; empty: the duration.
using Stretch = std::function<Nanos(Nanos duration)>;

class SteppedAccelerator final : public Accelerator {
 public:
  explicit SteppedAccelerator(const AcceleratorOptions& options, Stretch stretch = {})
      : depth_(static_cast<Ticket>(options.queue_depth)),
        stretch_(std::move(stretch)),
        memory_(static_cast<std::size_t>(options.reservation.value)),
        lanes_(options.compute_streams + 2u) {
    info_.kind = "host";
    info_.name = "stepped clock";
    info_.driver = info_.runtime = "none";
    info_.stretches_copies = true;
  }

  const AcceleratorInfo& info() const override { return info_; }

  Ticket launch(std::uint16_t lane, const KernelWork& work) override {
    for (const Operand& o : work.operands) {
      if (o.expected == 0) continue;
      ++verified_.operands;
      verify(o.address, o.bytes, o.expected, work.sampling, o.slot, lane);
    }
    for (const Operand& o : work.operands) {
      if (o.written != 0) write_content(at(o.address), o.bytes, o.written);
    }
    return run(lane, stretch_ ? stretch_(work.duration) : work.duration);
  }
  Ticket copy(std::uint16_t lane, const CopyWork& work) override {
    const bool in = work.direction == Direction::host_to_device;
    std::memcpy(in ? at(work.device) : work.host, in ? work.host : at(work.device), work.bytes);
    if (in && work.expected != 0) {
      ++verified_.swap_ins;
      verify(work.device, work.bytes, work.expected, work.sampling, work.slot, lane);
    }
    return run(lane, work.at_least);
  }
  void wait(std::uint16_t lane, std::uint16_t on, Ticket ticket) override {
    if (ticket != 0) lanes_[lane].ready = std::max(lanes_[lane].ready, end(on, ticket));
  }
  bool query(std::uint16_t lane, Ticket ticket) override { return ticket == 0 || end(lane, ticket) <= now_; }
  void synchronize(std::uint16_t lane, Ticket ticket) override {
    if (ticket != 0) now_ = std::max(now_, end(lane, ticket));
  }
  Ticket issued(std::uint16_t lane) const override { return lanes_[lane].times.size(); }

  std::byte* pin(Bytes bytes) override {
    pinned_.push_back(std::make_unique<std::byte[]>(static_cast<std::size_t>(bytes.value)));
    return pinned_.back().get();
  }
  std::uintptr_t reservation() const override { return reinterpret_cast<std::uintptr_t>(memory_.data()); }
  std::uintptr_t range_reservation() const override { return 0; }
  void map(std::uintptr_t, Bytes) override {}
  void unmap(std::uintptr_t, Bytes) override {}
  std::uintptr_t allocate(std::uint16_t, Bytes) override { return 0; }
  void release(std::uint16_t, std::uintptr_t) override {}
  Bytes peak_device_bytes() const override { return Bytes{0}; }

  Nanos host_now() const override { return now_; }
  void spend(Nanos time) override { now_ += time; }
  WorkTime time(std::uint16_t lane, Ticket ticket) override { return lanes_[lane].times.at(ticket - 1); }
  std::vector<Finding> findings() override { return findings_; }
  VerifyCounts verified() override { return verified_; }

 private:
  struct Lane {
    Nanos ready{0};  // everything before the next work, and what it waits for, is done
    std::vector<WorkTime> times;
  };

  static std::byte* at(std::uintptr_t address) {
    return reinterpret_cast<std::byte*>(address);  // NOLINT(performance-no-int-to-ptr)
  }
  Nanos end(std::uint16_t lane, Ticket ticket) const { return lanes_[lane].times.at(ticket - 1).end; }

  Ticket run(std::uint16_t lane, Nanos duration) {
    Lane& l = lanes_[lane];
    const bool compute = lane + 2u < lanes_.size();
    if (compute && depth_ != 0 && l.times.size() >= depth_) synchronize(lane, l.times.size() - depth_ + 1);
    const Nanos begin = std::max(l.ready, now_);
    l.times.push_back({begin, begin + duration});
    l.ready = begin + duration;
    return l.times.size();
  }
  void verify(std::uintptr_t address, std::uint64_t bytes, ContentKey key, Sampling sampling,
              std::uint32_t slot, std::uint16_t lane) {
    const WordCheck check = check_content(at(address), bytes, key, sampling);
    verified_.words += check.words;
    verified_.wrong_words += check.wrong;
    if (check.wrong == 0) return;
    findings_.push_back(
        {lane, lanes_[lane].times.size() + 1, slot, check.first_wrong, check.expected, check.found});
  }

  const Ticket depth_;
  const Stretch stretch_;
  AcceleratorInfo info_;
  Nanos now_{0};
  std::vector<std::byte> memory_;
  std::vector<std::unique_ptr<std::byte[]>> pinned_;
  std::vector<Lane> lanes_;
  std::vector<Finding> findings_;
  VerifyCounts verified_;
};

}  // namespace swaplab::test
