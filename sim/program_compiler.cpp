#include "sim/program_compiler.hpp"

#include <algorithm>
#include <string>
#include <utility>

#include "sim/cost_model.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

void after_stretch(std::size_t row, const std::function<void()>& passed) {
  if (row % (std::size_t{1} << 20) == 0 && passed) passed();
}

// Which storages would occupy device memory in a GPU run.
std::vector<bool> device_storages(const Trace& trace, const std::function<void()>& passed) {
  const auto n = trace.storages.size();
  std::vector<std::uint8_t> cpu_name(trace.names.size());
  for (std::uint32_t i = 0; i < trace.names.size(); ++i) cpu_name[i] = trace.names[NameId{i}] == "cpu";
  const auto on_cpu = [&](NameId device) { return cpu_name[index(device)] != 0; };
  bool gpu_recording = false;
  for (std::size_t s = 0; s < n && !gpu_recording; ++s) {
    gpu_recording = !on_cpu(trace.storages.device[s]);
    after_stretch(s, passed);
  }
  std::vector<bool> on_device(n, true);
  for (std::size_t s = 0; s < n; ++s) {
    if (gpu_recording) {
      on_device[s] = !on_cpu(trace.storages.device[s]);
    } else if (trace.storages.cls[s] == StorageClass::optimizer_state &&
               trace.names[trace.storages.name[s]].ends_with(".step")) {
      on_device[s] = false;  // PyTorch keeps the step counters of a GPU run on the host
    }
    after_stretch(s, passed);
  }
  // Profiler hooks run on the host whatever their tensors say.
  std::vector<std::uint8_t> hook(trace.signatures.size());
  for (std::size_t s = 0; s < hook.size(); ++s)
    hook[s] = trace.names[trace.signatures.name[s]].starts_with("profiler.");
  for (std::uint32_t op = 0; op < trace.ops.size(); ++op) {
    after_stretch(op, passed);
    if (hook[index(trace.ops.signature[op])] == 0) continue;
    for (const StorageId s : trace.outputs(op)) on_device[index(s)] = false;
  }
  return on_device;
}

}  // namespace

ProgramCompiler::ProgramCompiler(const Trace& trace, const Machine& machine, TimeSource times,
                                 const std::function<void()>& passed)
    : trace_(trace),
      machine_(machine),
      on_device_(device_storages(trace, passed)),
      current_slot_(trace.storages.size()),
      model_time_(trace.signatures.size(), Nanos{-1}),
      windowed_(static_cast<bool>(passed)) {
  program_.times = times;
  program_.names = trace.names;
  program_.gap_begin.push_back(0);
  program_.access_begin.push_back(0);
  add_iterations();
  add_initial_slots(passed);
}

void ProgramCompiler::append(std::uint32_t end) {
  Program& p = program_;
  const std::uint32_t rows = end - p.first_op;
  p.device_time.reserve(rows);
  p.host_time.reserve(rows);
  p.op_flags.reserve(rows);
  p.stream.reserve(rows);
  p.phase.reserve(rows);
  p.name.reserve(rows);
  p.signature.reserve(rows);
  p.access_begin.reserve(rows + std::size_t{1});
  p.gap_begin.reserve(rows + std::size_t{2});
  for (std::uint32_t op = p.op_count(); op < end; ++op) {
    add_gap(op);
    add_operator(op);
  }
}

void ProgramCompiler::close() {
  add_gap(program_.op_count());
  if (missing_times_ == 0) return;
  throw Error(ErrorKind::input,
              "operator " + std::to_string(first_missing_) + " (" +
                  std::string(trace_.op_name(first_missing_)) + ") and " +
                  std::to_string(missing_times_ - 1) +
                  " more have no device time ('ns'): use --times model, which needs FLOP and byte counts "
                  "per signature, or record with real execution");
}

std::span<const Slot> ProgramCompiler::next_window() {
  Program& p = program_;
  // Keeps the last row: hooks still ask for the operator that has just run, and for its storages, which is
  // why slots wait one window more.
  const std::size_t rows = p.device_time.size();
  if (rows > 1) {
    const auto keep_last = [](auto& column) { column.erase(column.begin(), column.end() - 1); };
    const auto keep_range = [rows](auto& begin, auto& elements) {
      elements.erase(elements.begin(), elements.begin() + begin[rows - 1]);
      begin = {0, begin[rows] - begin[rows - 1]};
    };
    keep_last(p.device_time);
    keep_last(p.host_time);
    keep_last(p.op_flags);
    keep_last(p.stream);
    keep_last(p.phase);
    keep_last(p.name);
    keep_last(p.signature);
    keep_range(p.access_begin, p.accesses);
    keep_range(p.gap_begin, p.gap_events);
    p.first_op += static_cast<std::uint32_t>(rows - 1);
  }
  const std::size_t known = free_.size();
  free_.insert(free_.end(), died_before_.begin(), died_before_.end());
  died_before_.swap(died_);
  died_.clear();
  return std::span(free_).subspan(known);
}

void ProgramCompiler::add_iterations() {
  auto& list = program_.iterations;
  const auto n = static_cast<std::uint32_t>(trace_.ops.size());
  for (const Iteration& it : trace_.iterations) {
    list.push_back({it.number, it.kind, it.step_skipped, it.first_op, it.end_op});
  }
  if (list.empty()) list.push_back({0, IterationKind::train, false, 0, n});
  list.front().first_op = 0;
  for (std::size_t i = 0; i + 1 < list.size(); ++i) list[i].end_op = list[i + 1].first_op;
  list.back().end_op = n;
  const auto count = static_cast<std::uint32_t>(list.size());
  program_.steady_first = count >= 2 ? 1 : 0;
  program_.steady_end = count >= 4 ? count - 1 : count;
}

std::uint32_t ProgramCompiler::add_slot(StorageId storage, Bytes bytes, std::uint32_t gap, bool initial) {
  auto& p = program_;
  const bool has_op = gap < trace_.ops.size();
  std::uint32_t slot = p.slot_count();
  const bool fresh = free_.empty();
  if (!fresh) {
    slot = index(free_.back());
    free_.pop_back();
  }
  const auto put = [fresh, slot](auto& column, auto value) {
    if (fresh) {
      column.push_back(value);
    } else {
      column[slot] = value;
    }
  };
  put(p.cls, trace_.storages.cls[index(storage)]);
  put(p.slot_name, trace_.storages.name[index(storage)]);
  put(p.home_stream, !initial && has_op ? trace_.ops.stream[gap] : std::uint16_t{0});
  put(p.initial, static_cast<std::uint8_t>(initial ? 1 : 0));
  put(p.birth, initial ? 0 : gap);
  put(p.death, kNever);
  put(p.origin, storage);
  if (windowed_) put(p.birth_rank, births_++);
  put(last_access_, kNever);
  put(p.bytes, bytes);  // last: its size is the number of slots
  current_slot_.set(storage, slot);
  return slot;
}

bool ProgramCompiler::is_initial(std::uint32_t s) const {
  if (trace_.storages.external[s] == 0) return false;
  const StorageClass cls = trace_.storages.cls[s];
  const bool persistent = cls == StorageClass::parameter || cls == StorageClass::buffer ||
                          cls == StorageClass::gradient || cls == StorageClass::optimizer_state;
  return persistent || trace_.storages.birth_gap[s] < program_.iterations.front().end_op;
}

void ProgramCompiler::add_initial_slots(const std::function<void()>& passed) {
  for (std::uint32_t s = 0; s < trace_.storages.size(); ++s) {
    after_stretch(s, passed);
    if (!on_device_[s] || trace_.storages.bytes[s] <= Bytes{0} || !is_initial(s)) continue;
    add_slot(StorageId{s}, trace_.storages.bytes[s], 0, true);
    live_ += trace_.storages.bytes[s];
  }
  program_.peak_bytes = live_;
}

void ProgramCompiler::allocate(StorageId storage, Bytes bytes, std::uint32_t gap) {
  if (bytes <= Bytes{0}) return;  // the allocator is not entered for zero bytes
  const std::uint32_t slot = add_slot(storage, bytes, gap, false);
  program_.gap_events.push_back({Slot{slot}, false});
  live_ += bytes;
  program_.peak_bytes = std::max(program_.peak_bytes, live_);
}

void ProgramCompiler::release(StorageId storage, std::uint32_t gap) {
  const std::uint32_t slot = current_slot_.get(storage);
  if (slot == kNever) return;
  program_.gap_events.push_back({Slot{slot}, true});
  program_.death[slot] = gap;
  live_ -= program_.bytes[slot];
  current_slot_.clear(storage);
  if (windowed_) died_.push_back(Slot{slot});
}

void ProgramCompiler::add_gap(std::uint32_t gap) {
  for (const Event& event : trace_.gap(gap)) {
    if (event.kind == EventKind::resize) {
      // storage.resize_ allocates anew and frees the old bytes; contents are carried over for free.
      const Resize& resize = trace_.resizes[event.arg];
      if (!on_device_[index(resize.storage)]) continue;
      release(resize.storage, gap);
      allocate(resize.storage, resize.to, gap);
      continue;
    }
    const StorageId storage{event.arg};
    switch (event.kind) {
      case EventKind::alloc_op:
      case EventKind::alloc_external:
        if (on_device_[event.arg] && !is_initial(event.arg)) {
          allocate(storage, trace_.storages.bytes[event.arg], gap);
        }
        break;
      case EventKind::free:
        release(storage, gap);
        break;
      default:
        break;
    }
  }
  program_.gap_begin.push_back(static_cast<std::uint32_t>(program_.gap_events.size()));
}

void ProgramCompiler::add_access(StorageId storage, std::uint8_t flags, std::uint32_t op) {
  const std::uint32_t slot = current_slot_.get(storage);
  if (slot == kNever) return;  // on the host, or of no bytes
  auto& accesses = program_.accesses;
  if (last_access_[slot] == op) {  // repeated argument
    for (auto i = program_.access_begin.back(); i < accesses.size(); ++i) {
      if (accesses[i].slot == Slot{slot}) accesses[i].flags |= flags;
    }
    return;
  }
  if (last_access_[slot] == kNever && program_.birth[slot] == op && program_.initial[slot] == 0 &&
      (flags & kRead) == 0) {
    flags |= kCreate;
  }
  last_access_[slot] = op;
  accesses.push_back({Slot{slot}, flags});
}

void ProgramCompiler::add_operator(std::uint32_t op) {
  auto& p = program_;
  const SigId sig = trace_.ops.signature[op];
  const bool view = trace_.signatures.view[index(sig)] != 0;
  bool device_input = false;
  if (!view) {
    for (const StorageId s : trace_.inputs(op)) {
      device_input |= on_device_[index(s)];
      add_access(s, kRead, op);
    }
    for (const StorageId s : trace_.written(op)) add_access(s, kWrite, op);
    for (const StorageId s : trace_.outputs(op)) {
      const std::uint32_t slot = current_slot_.get(s);
      const bool fresh = slot != kNever && p.birth[slot] == op && p.initial[slot] == 0;
      add_access(s, fresh ? kWrite : kRead, op);
    }
  }
  const auto first = p.access_begin.back();
  const bool kernel = p.accesses.size() > first || recorded_work(op);
  Bytes working_set{0};
  for (auto i = first; i < p.accesses.size(); ++i) working_set += p.bytes[index(p.accesses[i].slot)];
  if (working_set > p.largest_working_set) {
    p.largest_working_set = working_set;
    p.largest_working_set_op = op;
  }
  p.access_begin.push_back(static_cast<std::uint32_t>(p.accesses.size()));
  p.name.push_back(trace_.signatures.name[index(sig)]);
  p.signature.push_back(sig);
  p.phase.push_back(trace_.ops.phase[op]);
  p.stream.push_back(trace_.ops.stream[op]);
  p.stream_count = std::max<std::uint16_t>(p.stream_count, static_cast<std::uint16_t>(p.stream.back() + 1));
  std::uint8_t flags = kernel ? kKernel : 0;
  if (trace_.ops.sync[op] == SyncKind::explicit_sync ||
      (trace_.ops.sync[op] != SyncKind::none && device_input)) {
    flags |= kSync;
  }
  p.op_flags.push_back(flags);
  p.device_time.push_back(kernel ? device_time(op) : Nanos{0});
  p.host_time.push_back(host_time(op, view));
  add_time(p.device_time.back(), op);
  add_time(p.host_time.back(), op);
}

// Clocks have 63 bits.
void ProgramCompiler::add_time(Nanos time, std::uint32_t op) {
  constexpr Nanos kMost{std::int64_t{1} << 60};
  if (time > kMost - total_time_) [[unlikely]] {
    throw Error(ErrorKind::input, "operator " + std::to_string(op) + " (" + std::string(trace_.op_name(op)) +
                                      ") takes " + std::to_string(time.value) +
                                      " ns; all operators together may take 2^60 ns (36 years)");
  }
  total_time_ += time;
}

// Work that a device did, though the trace knows no storage of it (host tensors, views that copy): the time
// is real. On a CPU the same figure is time of the host.
bool ProgramCompiler::recorded_work(std::uint32_t op) const {
  return program_.times == TimeSource::trace && trace_.header.device != "cpu" &&
         !trace_.ops.device_time.empty() && trace_.ops.device_time[op] > Nanos{0};
}

Nanos ProgramCompiler::device_time(std::uint32_t op) {
  if (program_.times == TimeSource::model) {
    const auto sig = index(trace_.ops.signature[op]);
    if (model_time_[sig] < Nanos{0}) model_time_[sig] = model_device_time(trace_, SigId{sig}, machine_);
    return model_time_[sig];
  }
  const Nanos time = trace_.ops.device_time.empty() ? Nanos{-1} : trace_.ops.device_time[op];
  if (time < Nanos{0}) {
    if (missing_times_++ == 0) first_missing_ = op;
    return Nanos{0};
  }
  return time;
}

Nanos ProgramCompiler::host_time(std::uint32_t op, bool view) const {
  const auto known = [op](const Column<Nanos>& column) { return column.empty() ? Nanos{-1} : column[op]; };
  const Nanos own = known(trace_.ops.host_time), gap = known(trace_.ops.host_gap);
  if (own < Nanos{0} && gap < Nanos{0}) return view ? machine_.host.view_dispatch : machine_.host.op_dispatch;
  return std::max(own, Nanos{0}) + std::max(gap, Nanos{0});
}

}  // namespace swaplab
