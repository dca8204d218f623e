#include "sim/checker/walk.hpp"

#include <algorithm>

#include "sim/cost_model.hpp"

namespace swaplab::checker {

Walk::Walk(const Schedule& schedule, const Trace& trace, const Facts& facts, const Machine& machine,
           Findings& findings)
    : schedule_(schedule),
      trace_(trace),
      facts_(facts),
      machine_(machine),
      findings_(findings),
      contents_(facts.lives.size()),
      open_(trace.storages.size(), kNever),
      signature_time_(trace.signatures.size(), Nanos{-1}) {
  result_.iterations.resize(facts.iterations.size());
}

WalkResult Walk::run() {
  place_initial();
  result_.iterations.front().peak_acquired = acquired_;
  enter_position();
  for (std::uint64_t e = 0; e < schedule_.entries.size(); ++e) check_entry(e);
  check_end();
  return std::move(result_);
}

std::string Walk::storage_text(std::uint32_t life) const {
  const Life& l = facts_.lives[life];
  std::string text = "storage " + std::to_string(l.storage);
  const std::string_view name = trace_.names[trace_.storages.name[l.storage]];
  if (!name.empty()) text += " '" + std::string(name) + "'";
  return text;
}

std::string Walk::operator_text(std::uint32_t op) const {
  return "operator " + std::to_string(op) + " (" + std::string(trace_.op_name(op)) + ")";
}

// ---- positions

// Every initial storage is on exactly one of the two places; those on the host have a valid copy.
void Walk::place_initial() {
  const std::uint64_t whole = schedule_.entries.size();
  std::vector<std::uint8_t> placed(facts_.lives.size(), 0);
  const auto place = [&](StorageId storage, bool on_host) {
    const auto s = index(storage);
    const auto list =
        s < trace_.storages.size() ? facts_.lives_of_storage(s) : std::span<const std::uint32_t>();
    const bool initial = !list.empty() && facts_.lives[list.front()].initial;
    if (!findings_.expect(initial, whole, [&] {
          return "initial placement: storage " + std::to_string(s) +
                 " is not a device storage that lives before the first operator";
        })) {
      return;
    }
    const std::uint32_t life = list.front();
    findings_.expect(placed[life]++ == 0, whole,
                     [&] { return "initial placement: " + storage_text(life) + " is placed twice"; });
    if (!on_host) {
      if (placed[life] == 1) open_residency(life, whole, true);
      return;
    }
    if (placed[life] > 1) return;
    contents_[life].host_valid = true;
    contents_[life].counted_on_host = true;
    only_on_host_ += facts_.lives[life].bytes;
  };
  for (const StorageId s : schedule_.initial_device) place(s, false);
  for (const StorageId s : schedule_.initial_host) place(s, true);
  result_.peak_only_on_host = only_on_host_;
  findings_.expect(acquired_ <= schedule_.budget, whole, [&] {
    return "initial placement: " + bytes_text(acquired_) + " on the device, more than the budget of " +
           bytes_text(schedule_.budget);
  });
  const bool started = std::any_of(schedule_.entries.begin(), schedule_.entries.end(),
                                   [](const ScheduleEntry& e) { return e.kind == ScheduleKind::op; });
  if (!started && schedule_.result.outcome != Outcome::ok) return;  // ended while placing them
  for (std::uint32_t life = 0; life < facts_.lives.size(); ++life) {
    if (!facts_.lives[life].initial) continue;
    findings_.expect(placed[life] != 0, whole, [&] {
      return "initial placement: " + storage_text(life) +
             " lives before the first operator but is placed nowhere";
    });
  }
}

// Everything in the log up to an operator belongs to the operator's iteration. Storages that die in
// the gap before it need no place on the host any more.
void Walk::enter_position() {
  while (iteration_ < facts_.iterations.size() && facts_.iterations[iteration_].end <= result_.operators) {
    iteration()->complete = true;
    iteration()->last_kernel_end = last_kernel_end_;
    ++iteration_;
    if (iteration() != nullptr) iteration()->peak_acquired = acquired_;
  }
  for (const std::uint32_t life : facts_.dead[result_.operators]) leave_host(life);
}

void Walk::leave_host(std::uint32_t life) {
  if (!contents_[life].counted_on_host) return;
  contents_[life].counted_on_host = false;
  only_on_host_ -= facts_.lives[life].bytes;
}

void Walk::check_entry(std::uint64_t e) {
  const ScheduleEntry& entry = schedule_.entries[e];
  if (!findings_.expect(entry.start >= Nanos{0} && entry.end >= entry.start, e, [&] {
        return "times: from " + ns(entry.start) + " to " + ns(entry.end) + " is no interval after the start";
      })) {
    return;
  }
  const bool is_op = entry.kind == ScheduleKind::op;
  if (!findings_.expect(entry.index < (is_op ? trace_.ops.size() : trace_.storages.size()), e, [&] {
        return std::string(is_op ? "operator " : "storage ") + std::to_string(entry.index) +
               " does not exist in the trace";
      })) {
    return;
  }
  findings_.expect(entry.start >= host_now_, e, [&] {
    return "host order: starts at " + ns(entry.start) + ", but the host issued it after an entry at " +
           ns(host_now_);
  });
  switch (entry.kind) {
    case ScheduleKind::op:
      return check_operator(e);
    case ScheduleKind::copy_out:
      return check_copy(e, Direction::device_to_host);
    case ScheduleKind::copy_in:
      return check_copy(e, Direction::host_to_device);
    case ScheduleKind::acquire:
      return check_acquire(e);
    case ScheduleKind::release:
      return check_release(e);
  }
}

// ---- operators

void Walk::check_operator(std::uint64_t e) {
  const ScheduleEntry& entry = schedule_.entries[e];
  const std::uint32_t op = entry.index, expected = result_.operators;
  if (!findings_.expect(op == expected, e,
                        [&] {
                          return "operator order: expected operator " + std::to_string(expected) +
                                 ", found " + operator_text(op);
                        }) &&
      op < expected) {
    return;  // a repetition: its effects would be counted twice
  }
  while (result_.operators < op) {  // skipped ones are reported above; go on from the one found
    ++result_.operators;
    enter_position();
  }
  for (const std::uint32_t life : facts_.born[op]) {
    if (facts_.lives[life].death == op) continue;  // came and went in the gap
    findings_.expect(contents_[life].ever_acquired, e, [&] {
      return storage_text(life) + " is allocated before " + operator_text(op) +
             " but never took device bytes";
    });
  }
  findings_.expect(entry.stream == trace_.ops.stream[op], e, [&] {
    return operator_text(op) + ": expected on stream " + std::to_string(trace_.ops.stream[op]) +
           ", found on stream " + std::to_string(entry.stream);
  });
  if (entry.stream >= stream_end_.size()) stream_end_.resize(entry.stream + 1u);
  if (facts_.uses_of(op).empty() && !works_without_storages(op)) {
    findings_.expect(entry.start == entry.end, e, [&] {
      return operator_text(op) + " runs no kernel but takes " + ns(entry.end - entry.start);
    });
  } else {
    const Nanos previous_end = stream_end_[entry.stream];
    stream_end_[entry.stream] = std::max(previous_end, entry.end);
    check_kernel(e, op, previous_end);
  }
  ++result_.operators;
  enter_position();
}

bool Walk::works_without_storages(std::uint32_t op) const {
  return schedule_.times == TimeSource::trace && trace_.header.device != "cpu" &&
         !trace_.ops.device_time.empty() && trace_.ops.device_time[op] > Nanos{0};
}

Nanos Walk::device_time(std::uint32_t op) {
  if (schedule_.times == TimeSource::trace) {
    return trace_.ops.device_time.empty() ? Nanos{-1} : trace_.ops.device_time[op];
  }
  const SigId signature = trace_.ops.signature[op];
  Nanos& time = signature_time_[index(signature)];
  if (time < Nanos{0}) time = model_device_time(trace_, signature, machine_);
  return time;
}

void Walk::check_kernel(std::uint64_t e, std::uint32_t op, Nanos previous_end) {
  const ScheduleEntry& entry = schedule_.entries[e];
  findings_.expect(entry.start >= previous_end, e, [&] {
    return operator_text(op) + " starts at " + ns(entry.start) +
           ", before its stream's previous kernel ends at " + ns(previous_end);
  });
  const Nanos expected = device_time(op), found = entry.end - entry.start;
  const Interference& slow = machine_.interference;
  const bool exact = slow.kernel_during_d2h == kUnchanged && slow.kernel_during_h2d == kUnchanged;
  if (findings_.expect(expected >= Nanos{0}, e,
                       [&] { return operator_text(op) + " has no device time in the trace"; })) {
    findings_.expect(exact ? found == expected : found >= expected, e, [&] {
      return operator_text(op) + ": its kernel takes " + (exact ? "" : "at least ") + ns(expected) +
             ", found " + ns(found);
    });
  }
  for (const Use& use : facts_.uses_of(op)) check_use(e, op, use);
  result_.kernels.push_back({entry.start, entry.end});
  last_kernel_end_ = std::max(last_kernel_end_, entry.end);
}

void Walk::check_use(std::uint64_t e, std::uint32_t op, const Use& use) {
  const ScheduleEntry& entry = schedule_.entries[e];
  Content& content = contents_[use.life];
  const auto text = [&] { return operator_text(op) + ": " + storage_text(use.life); };
  if (findings_.expect(content.residency != kNever, e,
                       [&] { return text() + " has no bytes on the device when it is accessed"; })) {
    touch(content.residency, entry.start, entry.end);
    if (!use.creates) {
      findings_.expect(content.on_device, e, [&] {
        return text() + " is accessed, but its content (version " + std::to_string(content.version) +
               ") is not on the device";
      });
    }
    findings_.expect(entry.start >= content.ready, e, [&] {
      return text() + " is accessed at " + ns(entry.start) + ", before its copy to the device ends at " +
             ns(content.ready);
    });
  }
  findings_.expect(entry.start >= content.written, e, [&] {
    return text() + " is accessed at " + ns(entry.start) + ", before the kernel that writes version " +
           std::to_string(content.version) + " ends at " + ns(content.written);
  });
  if (use.writes) {
    findings_.expect(entry.start >= content.accessed, e, [&] {
      return text() + " is written at " + ns(entry.start) + ", while an earlier kernel accesses it until " +
             ns(content.accessed);
    });
    findings_.expect(entry.start >= content.copied_out, e, [&] {
      return text() + " is written at " + ns(entry.start) + ", while its copy to the host runs until " +
             ns(content.copied_out);
    });
    ++content.version;
    content.written = entry.end;
    content.on_device = content.residency != kNever;
    content.host_valid = false;
  }
  content.accessed = std::max(content.accessed, entry.end);
}

void Walk::touch(std::uint32_t residency, Nanos start, Nanos end) {
  Residency& r = result_.residencies[residency];
  r.first = r.active ? std::min(r.first, start) : start;
  r.last = r.active ? std::max(r.last, end) : end;
  r.active = true;
}

}  // namespace swaplab::checker
