// Virtual memory management of the driver: an address range, and memory behind parts of it. The driver's
// functions are looked up at run time, so that the program starts on computers without a driver.
#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <utility>
#include <vector>

namespace swaplab::cuda {

class AddressRange {
 public:
  // Reserves `bytes` (rounded up to the granularity) on the device. Throws Error(input).
  AddressRange(int device, std::uint64_t bytes);
  ~AddressRange();  // unmaps and frees everything
  AddressRange(const AddressRange&) = delete;
  AddressRange& operator=(const AddressRange&) = delete;

  std::uintptr_t address() const { return address_; }
  std::uint64_t granularity() const { return granularity_; }
  // Both on multiples of the granularity; unmap takes what was mapped, in pieces as they were mapped.
  void map(std::uintptr_t address, std::uint64_t bytes);
  void unmap(std::uintptr_t address, std::uint64_t bytes);
  std::uint64_t peak_mapped() const { return peak_; }

 private:
  struct Handle {
    unsigned long long handle;
    std::uint64_t bytes;
  };
  int device_;
  std::uintptr_t address_ = 0;
  std::uint64_t bytes_ = 0, granularity_ = 0, mapped_ = 0, peak_ = 0;
  std::map<std::uintptr_t, Handle> handles_;
};

}  // namespace swaplab::cuda
