#include "gpu_validate/cuda/vmm.hpp"

#include <cuda.h>

#include <algorithm>
#include <string>

#include "gpu_validate/cuda/check.hpp"

namespace swaplab::cuda {
namespace {

void* entry_point(const char* name) {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult found = cudaDriverEntryPointSymbolNotFound;
#if CUDART_VERSION >= 12050
  check(cudaGetDriverEntryPointByVersion(name, &function, 12000, cudaEnableDefault, &found),
        "cudaGetDriverEntryPointByVersion");
#else
  check(cudaGetDriverEntryPoint(name, &function, cudaEnableDefault, &found), "cudaGetDriverEntryPoint");
#endif
  if (found != cudaDriverEntryPointSuccess || function == nullptr)
    throw Error(ErrorKind::input, std::string("CUDA: the driver has no ") + name);
  return function;
}

// The driver's functions, by the types that its header declares.
struct Driver {
  decltype(&cuGetErrorName) error_name = load<decltype(&cuGetErrorName)>("cuGetErrorName");
  decltype(&cuMemGetAllocationGranularity) granularity =
      load<decltype(&cuMemGetAllocationGranularity)>("cuMemGetAllocationGranularity");
  decltype(&cuMemAddressReserve) reserve = load<decltype(&cuMemAddressReserve)>("cuMemAddressReserve");
  decltype(&cuMemAddressFree) free = load<decltype(&cuMemAddressFree)>("cuMemAddressFree");
  decltype(&cuMemCreate) create = load<decltype(&cuMemCreate)>("cuMemCreate");
  decltype(&cuMemRelease) release = load<decltype(&cuMemRelease)>("cuMemRelease");
  decltype(&cuMemMap) map = load<decltype(&cuMemMap)>("cuMemMap");
  decltype(&cuMemUnmap) unmap = load<decltype(&cuMemUnmap)>("cuMemUnmap");
  decltype(&cuMemSetAccess) set_access = load<decltype(&cuMemSetAccess)>("cuMemSetAccess");

  void check(CUresult result, const char* call) const {
    if (result == CUDA_SUCCESS) return;
    const char* name = nullptr;
    if (error_name(result, &name) != CUDA_SUCCESS || name == nullptr) name = "unknown error";
    throw Error(ErrorKind::input, std::string("CUDA: ") + call + " failed: " + name);
  }

 private:
  template <class Function>
  static Function load(const char* name) {
    return reinterpret_cast<Function>(entry_point(name));
  }
};

const Driver& driver() {
  static const Driver functions;
  return functions;
}

CUmemAllocationProp properties(int device) {
  CUmemAllocationProp prop{};
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = device;
  return prop;
}

}  // namespace

AddressRange::AddressRange(int device, std::uint64_t bytes) : device_(device) {
  const Driver& d = driver();
  const CUmemAllocationProp prop = properties(device);
  std::size_t granularity = 0;
  d.check(d.granularity(&granularity, &prop, CU_MEM_ALLOC_GRANULARITY_MINIMUM),
          "cuMemGetAllocationGranularity");
  granularity_ = granularity;
  bytes_ = (bytes + granularity_ - 1) / granularity_ * granularity_;
  CUdeviceptr address = 0;
  d.check(d.reserve(&address, bytes_, 0, 0, 0), "cuMemAddressReserve");
  address_ = static_cast<std::uintptr_t>(address);
}

AddressRange::~AddressRange() {
  const Driver& d = driver();  // loaded by the constructor
  for (const auto& [address, handle] : handles_) {
    static_cast<void>(d.unmap(address, handle.bytes));
    static_cast<void>(d.release(handle.handle));
  }
  if (address_ != 0) static_cast<void>(d.free(address_, bytes_));
}

void AddressRange::map(std::uintptr_t address, std::uint64_t bytes) {
  const Driver& d = driver();
  if (address % granularity_ != 0 || bytes % granularity_ != 0 || address < address_ ||
      address + bytes > address_ + bytes_) {
    throw Error(ErrorKind::input, "CUDA: cannot map " + std::to_string(bytes) +
                                      " B: mapped pieces are multiples of " + std::to_string(granularity_) +
                                      " B within the reserved range");
  }
  const CUmemAllocationProp prop = properties(device_);
  CUmemGenericAllocationHandle handle = 0;
  d.check(d.create(&handle, bytes, &prop, 0), "cuMemCreate");
  CUresult result = d.map(address, bytes, 0, handle, 0);
  if (result != CUDA_SUCCESS) {
    static_cast<void>(d.release(handle));
    d.check(result, "cuMemMap");
  }
  handles_[address] = {handle, bytes};
  mapped_ += bytes;
  peak_ = std::max(peak_, mapped_);
  CUmemAccessDesc access{};
  access.location = prop.location;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  d.check(d.set_access(address, bytes, &access, 1), "cuMemSetAccess");
}

void AddressRange::unmap(std::uintptr_t address, std::uint64_t bytes) {
  const Driver& d = driver();
  for (std::uintptr_t at = address; at < address + bytes;) {
    const auto found = handles_.find(at);
    if (found == handles_.end() || at + found->second.bytes > address + bytes)
      throw Error(ErrorKind::invariant, "CUDA: memory is unmapped in other pieces than it was mapped");
    const Handle handle = found->second;
    d.check(d.unmap(at, handle.bytes), "cuMemUnmap");
    d.check(d.release(handle.handle), "cuMemRelease");
    handles_.erase(found);
    mapped_ -= handle.bytes;
    at += handle.bytes;
  }
}

}  // namespace swaplab::cuda
