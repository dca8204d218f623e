#include "gpu_validate/real_device.hpp"

#include <algorithm>
#include <bit>

#include "gpu_validate/host_verify.hpp"
#include "sim/memory.hpp"
#include "sim/wide_math.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

constexpr std::int64_t kLargestDivisor = 64;

}  // namespace

RealDevice::RealDevice(const Program& program, const Machine& machine, Accelerator& accelerator,
                       const RealDeviceOptions& options)
    : program_(program),
      machine_(machine),
      accelerator_(accelerator),
      options_(options),
      divisor_(static_cast<std::uint64_t>(options.bytes_divisor)),
      compute_streams_(program.stream_count),
      blocks_(accelerator, machine.host_memory.round_to_power_of_two),
      storages_(program.slot_count()),
      kind_of_(program.names.size()),
      kind_known_(program.names.size()),
      ticket_of_(program.op_count()) {
  if (options.bytes_divisor < 1 || options.bytes_divisor > kLargestDivisor ||
      !std::has_single_bit(static_cast<std::uint64_t>(options.bytes_divisor))) {
    throw Error(ErrorKind::usage, "bytes can be scaled by 1, 1/2, 1/4, ... 1/64, not by 1/" +
                                      std::to_string(options.bytes_divisor));
  }
  if (options.memory == MemoryMode::vmm && options.bytes_divisor != 1)
    throw Error(ErrorKind::usage, "mapped memory comes in whole pages: --memory vmm needs --bytes-scale 1");
  if (options.time_scale <= 0) throw Error(ErrorKind::usage, "the time scale must be above 0");
  std::vector<std::uint8_t> seen(program.slot_count());
  for (const Access& access : program.accesses) {
    if (seen[index(access.slot)]++ == 0 && (access.flags & kCreate) == 0)
      storages_[index(access.slot)].from_outside = true;
  }
  for (std::uint32_t s = 0; s < program.slot_count(); ++s) {
    if (program.initial[s] != 0) storages_[s].from_outside = true;
  }
  history_.compute_streams = compute_streams_;
  history_.lanes.resize(compute_streams_ + 2u);
}

Nanos RealDevice::to_real(Nanos model) const {
  if (options_.time_scale == kUnchanged) return model;
  return Nanos{static_cast<std::int64_t>(static_cast<Wide>(model.value) * options_.time_scale / kUnchanged)};
}

Nanos RealDevice::to_model(Nanos real) const {
  if (options_.time_scale == kUnchanged) return real;
  return Nanos{static_cast<std::int64_t>(static_cast<Wide>(real.value) * kUnchanged / options_.time_scale)};
}

// ---- host clock

void RealDevice::host_spend(Nanos time, Stall reason) {
  if (time <= Nanos{0} || (reason != Stall::policy && reason != Stall::profiling)) return;
  const Nanos begin = accelerator_.host_now();
  accelerator_.spend(to_real(time));
  history_.host.push_back({begin, accelerator_.host_now(), reason});
}

void RealDevice::host_dispatch(Nanos time) {
  if (!measuring_) begin_measuring();
  if (options_.interrupted != nullptr && options_.interrupted->load(std::memory_order_relaxed))
    throw Interrupted{};
  owed_ += to_real(time);
  if (owed_ <= accelerator_.info().dispatch_grain) return;
  const Nanos begin = accelerator_.host_now();
  accelerator_.spend(owed_);
  owed_ -= accelerator_.host_now() - begin;
}

// The first operator is about to be issued: what was put in place before it does not count.
void RealDevice::begin_measuring() {
  measuring_ = true;
  host_wait_all(Stall::synchronization);
  history_.start = last_marker_ = accelerator_.host_now();
}

void RealDevice::host_wait(std::uint16_t lane, Ticket ticket, Stall reason) {
  if (ticket == 0 || accelerator_.query(lane, ticket)) return;
  const Nanos begin = accelerator_.host_now();
  accelerator_.synchronize(lane, ticket);
  const Nanos end = accelerator_.host_now();
  owed_ = std::max(Nanos{0}, owed_ - (end - begin));  // the time that was saved up passes meanwhile
  history_.host.push_back({begin, end, reason});
}

void RealDevice::host_wait_all(Stall reason) {
  for (std::uint16_t lane = 0; lane < compute_streams_ + 2; ++lane) host_wait(lane, issued(lane), reason);
}

// ---- work

void RealDevice::note(std::uint16_t lane, const LaneEvent& event) {
  history_.lanes[lane].push_back(event);
}

Sampling RealDevice::next_sampling() {
  return {options_.verify_stride, sampling_phase_++};
}

Ticket RealDevice::launch(std::uint16_t stream, Nanos duration, std::uint32_t log, std::uint32_t op,
                          std::span<const Access> accesses) {
  operands_.clear();
  for (const Access& access : accesses) {
    const std::uint32_t slot = index(access.slot);
    if (program_.bytes[slot] == Bytes{0}) continue;
    Storage& s = storages_[slot];
    if (s.address == 0) {
      throw Error(ErrorKind::invariant, "operator " + std::to_string(op) + " is launched while storage " +
                                            std::to_string(index(program_.origin[slot])) +
                                            " is not on the device");
    }
    Operand operand;
    operand.address = s.address;
    operand.bytes = real_bytes(program_.bytes[slot]);
    operand.slot = slot;
    if ((access.flags & kRead) != 0 && s.content) operand.expected = content_key(slot, s.version);
    if ((access.flags & kWrite) != 0) {
      operand.written = content_key(slot, ++s.version);
      s.content = true;
    }
    operands_.push_back(operand);
  }
  const std::uint32_t name = index(program_.name[op]);
  if (kind_known_[name] == 0) {
    kind_known_[name] = 1;
    kind_of_[name] =
        options_.kinds[static_cast<std::size_t>(classify_operator(program_.names[program_.name[op]]))];
  }
  const Nanos issued_at = accelerator_.host_now();
  const Ticket ticket =
      accelerator_.launch(stream, {to_real(duration), kind_of_[name], next_sampling(), operands_});
  ticket_of_[op] = ticket;
  for (const Operand& operand : operands_) {
    Storage& s = storages_[operand.slot];
    s.used_on = stream;
    s.used = ticket;
  }
  note(stream, {false, 0, ticket, log, op, kNever, issued_at, {}, {}});
  return ticket;
}

Nanos RealDevice::measured_time(std::uint32_t op, Nanos) {
  const Ticket ticket = ticket_of_[op];
  if (ticket == 0) return Nanos{0};
  const WorkTime time = accelerator_.time(program_.stream[op], ticket);
  return to_model(time.end - time.begin);
}

Ticket RealDevice::copy(Direction direction, Bytes bytes, std::uint32_t log, Slot slot) {
  Storage& s = storage(slot);
  const std::uint16_t lane = copy_lane(direction);
  const bool in = direction == Direction::host_to_device;
  if (bytes > Bytes{0} && (s.address == 0 || !s.has_block)) {
    throw Error(ErrorKind::invariant, "storage " + std::to_string(index(program_.origin[index(slot)])) +
                                          " is copied without " + (s.has_block ? "device" : "host") +
                                          " bytes");
  }
  // The block's bytes may still be on their way to the device for whoever had it before.
  if (!in && s.block.last_read != 0) wait(lane, copy_lane(Direction::host_to_device), s.block.last_read);
  CopyWork work;
  work.direction = direction;
  work.host = s.block.data;
  work.device = s.address;
  work.bytes = real_bytes(bytes);
  if (options_.stretch_copies) work.at_least = to_real(machine_.link(direction).time(bytes));
  if (in && s.content) work.expected = content_key(index(slot), s.version);
  work.sampling = next_sampling();
  work.slot = index(slot);
  const Nanos issued_at = accelerator_.host_now();
  const Ticket ticket = accelerator_.copy(lane, work);
  if (in) s.block.last_read = ticket;
  (in ? s.in : s.out) = ticket;
  note(lane, {false, 0, ticket, log, kNever, index(slot), issued_at, {}, {}});
  return ticket;
}

void RealDevice::wait(std::uint16_t lane, std::uint16_t on, Ticket ticket) {
  if (lane == on || ticket == 0) return;
  const Nanos issued_at = accelerator_.host_now();
  accelerator_.wait(lane, on, ticket);
  note(lane, {true, on, ticket, kNever, kNever, kNever, issued_at, {}, {}});
}

// ---- memory

std::uintptr_t RealDevice::real_address(std::uint64_t address) const {
  return address >= kRangeBase ? accelerator_.range_reservation() + (address - kRangeBase) / divisor_
                               : accelerator_.reservation() + (address - kSegmentBase) / divisor_;
}

Ticket RealDevice::bytes_taken(Slot slot, std::uint64_t address, bool arriving) {
  Storage& s = storage(slot);
  const std::uint64_t bytes = real_bytes(program_.bytes[index(slot)]);
  if (bytes == 0) return 0;
  const std::uint16_t home = program_.home_stream[index(slot)];
  const std::uint16_t user = arriving ? copy_lane(Direction::host_to_device) : home;
  s.address = options_.memory == MemoryMode::stream_ordered
                  ? accelerator_.allocate(user, Bytes{static_cast<std::int64_t>(bytes)})
                  : real_address(address);
  s.used = s.in = s.out = 0;
  if (arriving || !s.from_outside) return 0;
  s.content = true;
  Operand operand;
  operand.address = s.address;
  operand.bytes = bytes;
  operand.written = content_key(index(slot), s.version);
  operand.slot = index(slot);
  const Nanos issued_at = accelerator_.host_now();
  const Ticket ticket =
      accelerator_.launch(home, {Nanos{0}, KernelKind::spin, next_sampling(), std::span(&operand, 1)});
  s.used_on = home;
  s.used = ticket;
  note(home, {false, 0, ticket, kNever, kNever, index(slot), issued_at, {}, {}});
  return ticket;
}

void RealDevice::bytes_given(Slot slot) {
  Storage& s = storage(slot);
  if (options_.memory == MemoryMode::stream_ordered && s.address != 0) {
    // The bytes may go to anybody once `home` has come to this point: it must come after all users.
    const std::uint16_t home = program_.home_stream[index(slot)];
    wait(home, s.used_on, s.used);
    wait(home, copy_lane(Direction::host_to_device), s.in);
    wait(home, copy_lane(Direction::device_to_host), s.out);
    accelerator_.release(home, s.address);
  }
  s.address = 0;
}

void RealDevice::host_block_taken(Slot slot) {
  Storage& s = storage(slot);
  const auto bytes = static_cast<std::int64_t>(real_bytes(program_.bytes[index(slot)]));
  s.has_block = true;
  s.block = bytes == 0 ? HostBlock{} : blocks_.take(bytes);
  if (s.content || s.address != 0 || bytes == 0) return;
  // Starts on the host, before anything runs.
  write_content(s.block.data, static_cast<std::uint64_t>(bytes), content_key(index(slot), s.version));
  s.content = true;
}

void RealDevice::host_block_given(Slot slot) {
  Storage& s = storage(slot);
  if (s.block.data != nullptr) blocks_.give(s.block);
  s.has_block = false;
  s.block = {};
}

void RealDevice::check_extent(std::uint64_t address, std::uint64_t size) const {
  const bool expandable = address >= kRangeBase;
  const Bytes there = expandable ? options_.range_reservation : options_.reservation;
  if (expandable && there == Bytes{0})
    throw Error(ErrorKind::usage, "expandable segments need memory that can be mapped: use --memory vmm");
  const std::uint64_t end = (address - (expandable ? kRangeBase : kSegmentBase) + size) / divisor_;
  if (end <= static_cast<std::uint64_t>(there.value)) return;
  throw Error(ErrorKind::input, "the allocator's segments reach " + std::to_string(end) +
                                    " B, beyond the reservation of " + std::to_string(there.value) +
                                    " B of device memory: freed segments left holes; use --memory vmm");
}

void RealDevice::memory_mapped(std::uint64_t address, std::uint64_t size, std::uint64_t piece) {
  if (options_.memory == MemoryMode::stream_ordered) return;
  check_extent(address, size);
  for (std::uint64_t at = 0; at < size; at += piece)
    accelerator_.map(real_address(address + at), real_extent(std::min(piece, size - at)));
}

void RealDevice::memory_unmapped(std::uint64_t address, std::uint64_t size) {
  if (options_.memory == MemoryMode::stream_ordered) return;
  accelerator_.unmap(real_address(address), real_extent(size));
}

// ---- results

void RealDevice::end_iteration() {
  std::vector<Ticket> tickets(compute_streams_);
  for (std::uint16_t lane = 0; lane < compute_streams_; ++lane) tickets[lane] = issued(lane);
  history_.markers.push_back(std::move(tickets));
}

Nanos RealDevice::last_iteration_time() {
  for (; complete_markers_ < history_.markers.size(); ++complete_markers_) {
    const std::vector<Ticket>& tickets = history_.markers[complete_markers_];
    Nanos end = last_marker_;
    for (std::uint16_t lane = 0; lane < compute_streams_; ++lane) {
      if (tickets[lane] == 0) continue;
      if (!accelerator_.query(lane, tickets[lane])) return newest_iteration_;
      end = std::max(end, accelerator_.time(lane, tickets[lane]).end);
    }
    newest_iteration_ = to_model(end - last_marker_);
    last_marker_ = end;
  }
  return newest_iteration_;
}

void RealDevice::finish() {
  if (!measuring_) begin_measuring();
  for (std::uint16_t lane = 0; lane < compute_streams_ + 2; ++lane)
    accelerator_.synchronize(lane, issued(lane));
  for (std::uint16_t lane = 0; lane < compute_streams_ + 2; ++lane) {
    for (LaneEvent& event : history_.lanes[lane]) {
      event.issued = to_model(event.issued);
      if (event.is_wait) continue;
      const WorkTime time = accelerator_.time(lane, event.ticket);
      event.begin = to_model(time.begin);
      event.end = to_model(time.end);
    }
  }
  for (HostTime& time : history_.host) {
    time.begin = to_model(time.begin);
    time.end = to_model(time.end);
  }
  history_.start = to_model(history_.start);
  snapshots_ = account_lanes(history_, &stalls_);
  if (log_ == nullptr) return;
  for (const auto& lane : history_.lanes) {
    for (const LaneEvent& event : lane) {
      if (event.log == kNever) continue;
      (*log_)[event.log].start = event.begin - history_.start;
      (*log_)[event.log].end = event.end - history_.start;
    }
  }
}

const LaneEvent& RealDevice::work(std::uint16_t lane, Ticket ticket) const {
  for (const LaneEvent& event : history_.lanes.at(lane)) {
    if (!event.is_wait && event.ticket == ticket) return event;
  }
  throw Error(ErrorKind::invariant,
              "lane " + std::to_string(lane) + " has no work " + std::to_string(ticket));
}

std::optional<std::pair<Slot, std::uint32_t>> RealDevice::owner_of(std::uint64_t word,
                                                                   std::uint64_t number) const {
  const ContentKey key = key_of_word(word, number);
  for (std::uint32_t slot = 0; slot < program_.slot_count(); ++slot) {
    for (std::uint32_t version = 0; version <= storages_[slot].version; ++version) {
      if (content_key(slot, version) == key) return std::pair{Slot{slot}, version};
    }
  }
  return std::nullopt;
}

}  // namespace swaplab
