#include "sim/program.hpp"

#include <algorithm>
#include <string>

#include "sim/cost_model.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

constexpr std::uint32_t kNoSlotIndex = kNever;

bool ends_with(std::string_view text, std::string_view end) {
  return text.size() >= end.size() && text.substr(text.size() - end.size()) == end;
}

// Which storages would occupy device memory in a GPU run.
std::vector<std::uint8_t> device_storages(const Trace& trace) {
  const auto n = trace.storages.size();
  bool gpu_recording = false;
  for (std::size_t s = 0; s < n; ++s) gpu_recording |= trace.names[trace.storages.device[s]] != "cpu";
  std::vector<std::uint8_t> on_device(n, 1);
  for (std::size_t s = 0; s < n; ++s) {
    if (gpu_recording) {
      on_device[s] = trace.names[trace.storages.device[s]] != "cpu";
    } else if (trace.storages.cls[s] == StorageClass::optimizer_state &&
               ends_with(trace.names[trace.storages.name[s]], ".step")) {
      on_device[s] = 0;  // PyTorch keeps the step counters of a GPU run on the host
    }
  }
  // Profiler hooks run on the host whatever their tensors say.
  for (std::uint32_t op = 0; op < trace.ops.size(); ++op) {
    if (!trace.op_name(op).starts_with("profiler.")) continue;
    for (const StorageId s : trace.outputs(op)) on_device[index(s)] = 0;
  }
  return on_device;
}

class Compiler {
 public:
  Compiler(const Trace& trace, const Machine& machine, TimeSource times)
      : trace_(trace), machine_(machine), on_device_(device_storages(trace)) {
    program_.times = times;
    program_.names = trace.names;
    current_slot_.assign(trace.storages.size(), kNoSlotIndex);
    model_time_.assign(trace.signatures.size(), Nanos{-1});
  }

  Program run() {
    add_iterations();
    const auto n = static_cast<std::uint32_t>(trace_.ops.size());
    reserve(n);
    add_initial_slots();
    program_.gap_begin.push_back(0);
    program_.access_begin.push_back(0);
    for (std::uint32_t op = 0; op < n; ++op) {
      add_gap(op);
      add_operator(op);
    }
    add_gap(n);
    check_device_times();
    return std::move(program_);
  }

 private:
  void reserve(std::uint32_t n) {
    auto& p = program_;
    p.device_time.reserve(n);
    p.host_time.reserve(n);
    p.op_flags.reserve(n);
    p.stream.reserve(n);
    p.phase.assign(trace_.ops.phase.begin(), trace_.ops.phase.end());
    p.name.reserve(n);
    p.signature.assign(trace_.ops.signature.begin(), trace_.ops.signature.end());
    p.access_begin.reserve(n + 1);
    p.gap_begin.reserve(n + 2);
  }

  void add_iterations() {
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

  std::uint32_t add_slot(StorageId storage, Bytes bytes, std::uint32_t gap, bool initial) {
    auto& p = program_;
    const auto slot = p.slot_count();
    p.bytes.push_back(bytes);
    p.cls.push_back(trace_.storages.cls[index(storage)]);
    p.slot_name.push_back(trace_.storages.name[index(storage)]);
    const bool has_op = gap < trace_.ops.size();
    p.home_stream.push_back(!initial && has_op ? trace_.ops.stream[gap] : std::uint16_t{0});
    p.initial.push_back(initial ? 1 : 0);
    p.birth.push_back(initial ? 0 : gap);
    p.death.push_back(kNever);
    p.origin.push_back(storage);
    last_access_.push_back(kNever);
    current_slot_[index(storage)] = slot;
    return slot;
  }

  bool is_initial(std::uint32_t s) const {
    if (trace_.storages.external[s] == 0) return false;
    const StorageClass cls = trace_.storages.cls[s];
    const bool persistent = cls == StorageClass::parameter || cls == StorageClass::buffer ||
                            cls == StorageClass::gradient || cls == StorageClass::optimizer_state;
    return persistent || trace_.storages.birth_gap[s] < program_.iterations.front().end_op;
  }

  void add_initial_slots() {
    for (std::uint32_t s = 0; s < trace_.storages.size(); ++s) {
      if (on_device_[s] == 0 || trace_.storages.bytes[s] <= Bytes{0} || !is_initial(s)) continue;
      add_slot(StorageId{s}, trace_.storages.bytes[s], 0, true);
      live_ += trace_.storages.bytes[s];
    }
    program_.peak_bytes = live_;
  }

  void allocate(StorageId storage, Bytes bytes, std::uint32_t gap) {
    if (bytes <= Bytes{0}) return;  // the allocator is not entered for zero bytes
    const std::uint32_t slot = add_slot(storage, bytes, gap, false);
    program_.gap_events.push_back({Slot{slot}, false});
    live_ += bytes;
    program_.peak_bytes = std::max(program_.peak_bytes, live_);
  }

  void release(StorageId storage, std::uint32_t gap) {
    const std::uint32_t slot = current_slot_[index(storage)];
    if (slot == kNoSlotIndex) return;
    program_.gap_events.push_back({Slot{slot}, true});
    program_.death[slot] = gap;
    live_ -= program_.bytes[slot];
    current_slot_[index(storage)] = kNoSlotIndex;
  }

  void add_gap(std::uint32_t gap) {
    for (const Event& event : trace_.gap(gap)) {
      if (event.kind == EventKind::resize) {
        // storage.resize_ allocates anew and frees the old bytes; contents are carried over for free.
        const Resize& resize = trace_.resizes[event.arg];
        if (on_device_[index(resize.storage)] == 0) continue;
        release(resize.storage, gap);
        allocate(resize.storage, resize.to, gap);
        continue;
      }
      const StorageId storage{event.arg};
      switch (event.kind) {
        case EventKind::alloc_op:
        case EventKind::alloc_external:
          if (on_device_[event.arg] != 0 && !is_initial(event.arg)) {
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

  void add_access(StorageId storage, std::uint8_t flags, std::uint32_t op) {
    const std::uint32_t slot = current_slot_[index(storage)];
    if (slot == kNoSlotIndex) return;  // on the host, or of no bytes
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

  void add_operator(std::uint32_t op) {
    auto& p = program_;
    const SigId sig = trace_.ops.signature[op];
    const bool view = trace_.signatures.view[index(sig)] != 0;
    bool device_input = false;
    if (!view) {
      for (const StorageId s : trace_.inputs(op)) {
        device_input |= on_device_[index(s)] != 0;
        add_access(s, kRead, op);
      }
      for (const StorageId s : trace_.written(op)) add_access(s, kWrite, op);
      for (const StorageId s : trace_.outputs(op)) {
        const std::uint32_t slot = current_slot_[index(s)];
        const bool fresh = slot != kNoSlotIndex && p.birth[slot] == op && p.initial[slot] == 0;
        add_access(s, fresh ? kWrite : kRead, op);
      }
    }
    const auto first = p.access_begin.back();
    const bool kernel = p.accesses.size() > first;
    Bytes working_set{0};
    for (auto i = first; i < p.accesses.size(); ++i) working_set += p.bytes[index(p.accesses[i].slot)];
    if (working_set > p.largest_working_set) {
      p.largest_working_set = working_set;
      p.largest_working_set_op = op;
    }
    p.access_begin.push_back(static_cast<std::uint32_t>(p.accesses.size()));
    p.name.push_back(trace_.signatures.name[index(sig)]);
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
  }

  Nanos device_time(std::uint32_t op) {
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

  Nanos host_time(std::uint32_t op, bool view) const {
    const auto known = [op](const Column<Nanos>& column) { return column.empty() ? Nanos{-1} : column[op]; };
    const Nanos own = known(trace_.ops.host_time), gap = known(trace_.ops.host_gap);
    if (own < Nanos{0} && gap < Nanos{0})
      return view ? machine_.host.view_dispatch : machine_.host.op_dispatch;
    return std::max(own, Nanos{0}) + std::max(gap, Nanos{0});
  }

  void check_device_times() const {
    if (missing_times_ == 0) return;
    throw Error(ErrorKind::input,
                "operator " + std::to_string(first_missing_) + " (" +
                    std::string(trace_.op_name(first_missing_)) + ") and " +
                    std::to_string(missing_times_ - 1) +
                    " more have no device time ('ns'): use --times model, which needs FLOP and byte counts "
                    "per signature, or record with real execution");
  }

  const Trace& trace_;
  const Machine& machine_;
  std::vector<std::uint8_t> on_device_;
  std::vector<std::uint32_t> current_slot_;  // per trace storage
  std::vector<std::uint32_t> last_access_;   // per slot
  std::vector<Nanos> model_time_;            // per signature, -1 not computed yet
  Bytes live_{0};
  std::uint64_t missing_times_ = 0;
  std::uint32_t first_missing_ = 0;
  Program program_;
};

}  // namespace

Program compile_program(const Trace& trace, const Machine& machine, TimeSource times) {
  return Compiler(trace, machine, times).run();
}

AccessIndex index_accesses(const Program& program) {
  AccessIndex result;
  result.begin.assign(program.slot_count() + 1, 0);
  for (const Access& access : program.accesses) ++result.begin[index(access.slot) + 1];
  for (std::uint32_t s = 0; s < program.slot_count(); ++s) result.begin[s + 1] += result.begin[s];
  result.ops.resize(program.accesses.size());
  result.flags.resize(program.accesses.size());
  std::vector<std::uint32_t> next(result.begin.begin(), result.begin.end() - 1);
  for (std::uint32_t op = 0; op < program.op_count(); ++op) {
    for (const Access& access : program.accesses_of(op)) {
      const std::uint32_t row = next[index(access.slot)]++;
      result.ops[row] = op;
      result.flags[row] = access.flags;
    }
  }
  return result;
}

}  // namespace swaplab
