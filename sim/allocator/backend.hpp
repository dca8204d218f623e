// What the caching allocator needs from a device, bound at compile time.
#pragma once

#include <concepts>
#include <cstdint>

namespace swaplab {

// Streams are small dense numbers; the allocator orders free blocks by them, as PyTorch orders by handle.
inline constexpr std::uint32_t kMaxAllocatorStreams = 64;

// A device below the allocator. Sizes are bytes; addresses are non-zero, multiples of 512 and below 2^48.
//
//   capacity()                 total device memory; sizes address ranges and the memory fraction
//   device_malloc(size, s)     cudaMalloc for a segment of stream s; 0 when it does not fit
//   device_free(a, size, s)    cudaFree; the device is idle afterwards
//   va_reserve(size)           cuMemAddressReserve; takes no memory, never fails
//   va_free(a, size)           cuMemAddressFree
//   map(a, size, page, s)      creates and maps size/page pages at a; false when memory ran out, and
//                              then nothing stays mapped
//   unmap(a, size, page, s)    unmaps and releases size/page pages (the allocator has synchronised s)
//   record_event(s)            records an event on stream s
//   query(e)                   whether the work before e is done
//   synchronize(e)             waits for it
//   synchronize_stream(s)      waits for everything on s
//
// Optional: on_deferred_free(a), called when a block that waited for events is free at last (a is its
// address before merging). Calls come in the order in which PyTorch makes them, so a backend may charge
// the host time of each. A backend must not call back into the allocator.
template <class B>
concept AllocatorBackend = requires(B& backend, const B& constant, std::uint64_t address, std::uint64_t size,
                                    std::uint64_t page, std::uint32_t stream,
                                    const typename B::Event& event) {
  { constant.capacity() } -> std::convertible_to<std::uint64_t>;
  { backend.device_malloc(size, stream) } -> std::same_as<std::uint64_t>;
  {backend.device_free(address, size, stream)};
  { backend.va_reserve(size) } -> std::same_as<std::uint64_t>;
  {backend.va_free(address, size)};
  { backend.map(address, size, page, stream) } -> std::same_as<bool>;
  {backend.unmap(address, size, page, stream)};
  { backend.record_event(stream) } -> std::same_as<typename B::Event>;
  { backend.query(event) } -> std::same_as<bool>;
  {backend.synchronize(event)};
  {backend.synchronize_stream(stream)};
};

}  // namespace swaplab
