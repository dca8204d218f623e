// An accelerator that forgets some of what it is told (the planted races of the tests), or is slower at it.
#pragma once

#include <functional>
#include <memory>
#include <utility>

#include "gpu_validate/accelerator.hpp"

namespace swaplab::test {

struct Faults {
  // Each returns true for what is to be forgotten.
  std::function<bool(std::uint16_t lane, std::uint16_t on, Ticket ticket)> drop_wait;
  std::function<bool(const CopyWork&)> skip_copy;
  std::function<void(CopyWork&)> change_copy;
  std::function<void(KernelWork&)> change_kernel;
  std::size_t planted = 0;
};

class FaultyAccelerator final : public Accelerator {
 public:
  FaultyAccelerator(std::unique_ptr<Accelerator> inner, Faults& faults)
      : inner_(std::move(inner)), faults_(faults) {}

  const AcceleratorInfo& info() const override { return inner_->info(); }
  Ticket launch(std::uint16_t lane, const KernelWork& work) override {
    KernelWork changed = work;
    if (faults_.change_kernel) faults_.change_kernel(changed);
    return inner_->launch(lane, changed);
  }
  Ticket copy(std::uint16_t lane, const CopyWork& work) override {
    CopyWork changed = work;
    if (faults_.change_copy) faults_.change_copy(changed);
    if (faults_.skip_copy && faults_.skip_copy(work)) {
      ++faults_.planted;
      changed.bytes = 0;  // takes its time and its ticket, moves and checks nothing
    }
    return inner_->copy(lane, changed);
  }
  void wait(std::uint16_t lane, std::uint16_t on, Ticket ticket) override {
    if (faults_.drop_wait && !inner_->query(on, ticket) && faults_.drop_wait(lane, on, ticket)) {
      ++faults_.planted;
      return;
    }
    inner_->wait(lane, on, ticket);
  }
  bool query(std::uint16_t lane, Ticket ticket) override { return inner_->query(lane, ticket); }
  void synchronize(std::uint16_t lane, Ticket ticket) override { inner_->synchronize(lane, ticket); }
  Ticket issued(std::uint16_t lane) const override { return inner_->issued(lane); }
  std::byte* pin(Bytes bytes) override { return inner_->pin(bytes); }
  std::uintptr_t reservation() const override { return inner_->reservation(); }
  std::uintptr_t range_reservation() const override { return inner_->range_reservation(); }
  void map(std::uintptr_t address, Bytes bytes) override { inner_->map(address, bytes); }
  void unmap(std::uintptr_t address, Bytes bytes) override { inner_->unmap(address, bytes); }
  std::uintptr_t allocate(std::uint16_t lane, Bytes bytes) override { return inner_->allocate(lane, bytes); }
  void release(std::uint16_t lane, std::uintptr_t address) override { inner_->release(lane, address); }
  Bytes peak_device_bytes() const override { return inner_->peak_device_bytes(); }
  Nanos host_now() const override { return inner_->host_now(); }
  void spend(Nanos time) override { inner_->spend(time); }
  WorkTime time(std::uint16_t lane, Ticket ticket) override { return inner_->time(lane, ticket); }
  std::vector<Finding> findings() override { return inner_->findings(); }
  VerifyCounts verified() override { return inner_->verified(); }

 private:
  std::unique_ptr<Accelerator> inner_;
  Faults& faults_;
};

}  // namespace swaplab::test
