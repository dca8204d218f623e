// The part of Walk about copies and device bytes.
#include <algorithm>

#include "sim/checker/walk.hpp"

namespace swaplab::checker {

// ---- copies

void Walk::check_copy(std::uint64_t e, Direction direction) {
  const ScheduleEntry& entry = schedule_.entries[e];
  const bool out = direction == Direction::device_to_host;
  const std::string what = out ? "copy to the host of storage " : "copy to the device of storage ";
  const auto text = [&] { return what + std::to_string(entry.index); };
  const std::uint32_t life = open_[entry.index];
  if (!findings_.expect(life != kNever, e, [&] { return text() + ": it has no bytes on the device"; }))
    return;
  findings_.expect(live(life), e, [&] { return text() + ": it is not live"; });
  if (!findings_.expect(entry.bytes == facts_.lives[life].bytes, e, [&] {
        return text() + ": expected its size of " + bytes_text(facts_.lives[life].bytes) + ", found " +
               bytes_text(entry.bytes);
      })) {
    return;
  }
  if (IterationFigures* figures = iteration()) {
    (out ? figures->bytes_out : figures->bytes_in) += entry.bytes;
    ++(out ? figures->copies_out : figures->copies_in);
  }
  Nanos& lane = lane_end_[static_cast<std::size_t>(direction)];
  findings_.expect(entry.start >= lane, e, [&] {
    return text() + " starts at " + ns(entry.start) + ", before the previous copy in its direction ends at " +
           ns(lane);
  });
  lane = std::max(lane, entry.end);
  const Interference& slow = machine_.interference;
  const bool exact = (out ? slow.d2h_during_h2d : slow.h2d_during_d2h) == kUnchanged;
  const Nanos expected = machine_.link(direction).time(entry.bytes), found = entry.end - entry.start;
  findings_.expect(exact ? found == expected : found >= expected, e, [&] {
    return text() + ": " + bytes_text(entry.bytes) + " take " + (exact ? "" : "at least ") + ns(expected) +
           ", found " + ns(found);
  });
  touch(contents_[life].residency, entry.start, entry.end);
  out ? check_copy_out(e, life) : check_copy_in(e, life);
}

void Walk::check_copy_out(std::uint64_t e, std::uint32_t life) {
  const ScheduleEntry& entry = schedule_.entries[e];
  Content& content = contents_[life];
  const auto text = [&] { return "copy to the host of " + storage_text(life); };
  findings_.expect(content.on_device, e, [&] { return text() + ": its content is not on the device"; });
  findings_.expect(entry.start >= content.ready, e, [&] {
    return text() + " starts at " + ns(entry.start) + ", before its copy to the device ends at " +
           ns(content.ready);
  });
  findings_.expect(entry.start >= content.written, e, [&] {
    return text() + " starts at " + ns(entry.start) + ", before the kernel that writes version " +
           std::to_string(content.version) + " ends at " + ns(content.written);
  });
  content.copied_out = std::max(content.copied_out, entry.end);
  if (!content.host_valid) content.host_ready = entry.end;
  content.host_valid = true;
}

void Walk::check_copy_in(std::uint64_t e, std::uint32_t life) {
  const ScheduleEntry& entry = schedule_.entries[e];
  Content& content = contents_[life];
  const auto text = [&] { return "copy to the device of " + storage_text(life); };
  findings_.expect(!content.on_device, e, [&] { return text() + ": its content is on the device already"; });
  findings_.expect(content.host_valid, e, [&] {
    return text() + ": the host has no copy of version " + std::to_string(content.version);
  });
  findings_.expect(!content.host_valid || entry.start >= content.host_ready, e, [&] {
    return text() + " starts at " + ns(entry.start) + ", before the copy to the host ends at " +
           ns(content.host_ready);
  });
  content.on_device = true;
  content.ready = entry.end;
}

// ---- device bytes

// The life of the storage that takes bytes at this position. After a resize in the gap there are two.
std::uint32_t Walk::life_for_acquire(std::uint32_t storage, Bytes bytes) const {
  std::uint32_t found = kNever;
  for (const std::uint32_t life : facts_.lives_of_storage(storage)) {
    if (!live(life)) continue;
    // The size tells them apart; a size that fits neither is held against the later one.
    if (found == kNever || facts_.lives[life].bytes == bytes || facts_.lives[found].bytes != bytes)
      found = life;
  }
  return found;
}

// In its first residency a storage has the content it is born with, unless it starts on the host.
void Walk::open_residency(std::uint32_t life, std::uint64_t e, bool from_start) {
  Content& content = contents_[life];
  content.on_device = !content.ever_acquired && !content.host_valid;
  content.ever_acquired = true;
  content.residency = static_cast<std::uint32_t>(result_.residencies.size());
  const Life& l = facts_.lives[life];
  result_.residencies.push_back({life, e, l.bytes, from_start});
  open_[l.storage] = life;
  acquired_ += l.bytes;
  leave_host(life);
}

void Walk::check_acquire(std::uint64_t e) {
  const ScheduleEntry& entry = schedule_.entries[e];
  host_now_ = std::max(host_now_, entry.start);
  const auto text = [&] { return "acquire of storage " + std::to_string(entry.index); };
  const std::uint32_t life = life_for_acquire(entry.index, entry.bytes);
  if (!findings_.expect(life != kNever, e, [&] { return text() + ": it is not live"; })) return;
  if (open_[entry.index] == life) {
    Residency& held = result_.residencies[contents_[life].residency];
    if (held.from_start && !held.active && !held.repeated && entry.bytes == held.bytes) {
      held.repeated = true;  // says again where the storage is at the start
      return;
    }
  }
  if (!findings_.expect(open_[entry.index] == kNever, e,
                        [&] { return text() + ": it has bytes on the device already"; })) {
    return;
  }
  findings_.expect(entry.bytes == facts_.lives[life].bytes, e, [&] {
    return text() + ": expected its size of " + bytes_text(facts_.lives[life].bytes) + ", found " +
           bytes_text(entry.bytes);
  });
  open_residency(life, e, false);
  findings_.expect(acquired_ <= schedule_.budget, e, [&] {
    return text() + ": " + bytes_text(acquired_) + " are acquired, more than the budget of " +
           bytes_text(schedule_.budget);
  });
  if (IterationFigures* figures = iteration()) {
    figures->peak_acquired = std::max(figures->peak_acquired, acquired_);
  }
}

void Walk::check_release(std::uint64_t e) {
  const ScheduleEntry& entry = schedule_.entries[e];
  host_now_ = std::max(host_now_, entry.start);
  const auto text = [&] { return "release of storage " + std::to_string(entry.index); };
  const std::uint32_t life = open_[entry.index];
  if (!findings_.expect(life != kNever, e, [&] { return text() + ": it has no bytes on the device"; }))
    return;
  Content& content = contents_[life];
  Residency& residency = result_.residencies[content.residency];
  findings_.expect(entry.bytes == residency.bytes, e, [&] {
    return text() + ": expected the " + bytes_text(residency.bytes) + " that it acquired, found " +
           bytes_text(entry.bytes);
  });
  residency.released = true;
  content.residency = kNever;
  content.on_device = false;
  content.ready = Nanos{0};
  open_[entry.index] = kNever;
  acquired_ -= residency.bytes;
  const Life& l = facts_.lives[life];
  if (l.death != kNever && l.death <= result_.operators) return;
  // It lives on without device bytes.
  if (findings_.expect(content.host_valid, e, [&] {
        return text() + ": it lives on, but version " + std::to_string(content.version) +
               " is neither on the host nor on its way there";
      })) {
    content.counted_on_host = true;
    only_on_host_ += l.bytes;
    result_.peak_only_on_host = std::max(result_.peak_only_on_host, only_on_host_);
  }
}

void Walk::check_end() {
  if (schedule_.result.outcome != Outcome::ok) return;
  const std::uint64_t whole = schedule_.entries.size();
  findings_.expect(result_.operators == facts_.op_count(), whole, [&] {
    return "operators: a run that is ok issues all " + std::to_string(facts_.op_count()) + ", found " +
           std::to_string(result_.operators);
  });
  for (std::uint32_t life = 0; life < facts_.lives.size(); ++life) {
    if (facts_.lives[life].death == kNever) continue;
    findings_.expect(contents_[life].residency == kNever, whole,
                     [&] { return storage_text(life) + " died but never released its device bytes"; });
  }
}

}  // namespace swaplab::checker
