#include "experiments/report/timeline.hpp"

#include <algorithm>
#include <map>

#include "trace/error.hpp"

namespace swaplab {
namespace {

struct Builder {
  const Program& program;
  const Schedule& schedule;
  Timeline timeline;
  std::uint32_t host = 0, first_stream = 0, out = 0, in = 0, stall = 0, device_bytes = 0, out_bytes = 0,
                in_bytes = 0;
  std::vector<std::uint32_t> slot_of;                       // of the trace's storage
  std::map<std::int64_t, std::uint32_t> out_ends, in_ends;  // end time -> entry of the copy

  std::uint32_t add_track(std::string name, std::string unit = "") {
    timeline.tracks.push_back({std::move(name), std::move(unit)});
    return static_cast<std::uint32_t>(timeline.tracks.size() - 1);
  }

  std::string storage_name(std::uint32_t storage) const {
    if (storage < slot_of.size() && slot_of[storage] != kNever) {
      const std::string name(program.names[program.slot_name[slot_of[storage]]]);
      if (!name.empty()) return name;
    }
    return "storage " + std::to_string(storage);
  }

  TimelineEvent& add(TimelineEvent::Kind kind, std::uint32_t track, Nanos start, Nanos end,
                     std::string name) {
    TimelineEvent event;
    event.kind = kind;
    event.track = track;
    event.start = start;
    event.end = end;
    event.name = std::move(name);
    timeline.events.push_back(std::move(event));
    return timeline.events.back();
  }

  void add_tracks() {
    host = add_track("host decisions");
    for (std::uint16_t s = 0; s < program.stream_count; ++s) {
      const std::uint32_t track = add_track("compute stream " + std::to_string(s));
      if (s == 0) first_stream = track;
    }
    out = add_track("copies to the host (D2H)");
    in = add_track("copies to the device (H2D)");
    stall = add_track("stalls");
    device_bytes = add_track("device bytes (program order)", "B");
    out_bytes = add_track("bytes copied to the host", "B");
    in_bytes = add_track("bytes copied to the device", "B");
  }

  void add_entries() {
    Bytes on_device{0}, to_host{0}, to_device{0};
    for (const StorageId s : schedule.initial_device) on_device += program.bytes[slot_of.at(index(s))];
    add(TimelineEvent::Kind::counter, device_bytes, Nanos{0}, Nanos{0}, "").value = on_device.value;
    std::vector<std::uint8_t> acquired(slot_of.size(), 0);
    for (const StorageId s : schedule.initial_device) acquired[index(s)] = 1;
    for (std::uint32_t e = 0; e < schedule.entries.size(); ++e) {
      const ScheduleEntry& entry = schedule.entries[e];
      switch (entry.kind) {
        case ScheduleKind::op: {
          if (entry.end == entry.start) break;
          TimelineEvent& event = add(TimelineEvent::Kind::slice, first_stream + entry.stream, entry.start,
                                     entry.end, std::string(program.names[program.name[entry.index]]));
          event.arguments = {{"operator", entry.index, ""}, {"issued_ns", schedule.issued[e].value, ""}};
          break;
        }
        case ScheduleKind::copy_out:
        case ScheduleKind::copy_in: {
          const bool leaves = entry.kind == ScheduleKind::copy_out;
          const std::string name = storage_name(entry.index);
          TimelineEvent& decision = add(TimelineEvent::Kind::instant, host, schedule.issued[e],
                                        schedule.issued[e], (leaves ? "copy out " : "bring back ") + name);
          decision.arguments = {{"storage", entry.index, ""}, {"bytes", entry.bytes.value, ""}};
          decision.flows = {e + 1ULL};
          TimelineEvent& copy =
              add(TimelineEvent::Kind::slice, leaves ? out : in, entry.start, entry.end, name);
          copy.arguments = {{"storage", entry.index, ""},
                            {"bytes", entry.bytes.value, ""},
                            {"queued_ns", (entry.start - schedule.issued[e]).value, ""}};
          copy.flows = {e + 1ULL};
          (leaves ? out_ends : in_ends)[entry.end.value] = e;
          break;
        }
        case ScheduleKind::acquire:
          if (entry.index < acquired.size() && acquired[entry.index] != 0)
            break;  // it was there from the start
          if (entry.index < acquired.size()) acquired[entry.index] = 1;
          on_device += entry.bytes;
          add(TimelineEvent::Kind::counter, device_bytes, entry.start, entry.start, "").value =
              on_device.value;
          break;
        case ScheduleKind::release:
          if (entry.index < acquired.size()) acquired[entry.index] = 0;
          on_device -= entry.bytes;
          add(TimelineEvent::Kind::counter, device_bytes, entry.start, entry.start, "").value =
              on_device.value;
          break;
      }
    }
    for (const auto& [end, e] : out_ends) {
      to_host += schedule.entries[e].bytes;
      add(TimelineEvent::Kind::counter, out_bytes, Nanos{end}, Nanos{end}, "").value = to_host.value;
    }
    for (const auto& [end, e] : in_ends) {
      to_device += schedule.entries[e].bytes;
      add(TimelineEvent::Kind::counter, in_bytes, Nanos{end}, Nanos{end}, "").value = to_device.value;
    }
  }

  void add_stalls() {
    for (const StallSlice& slice : schedule.stalls) {
      TimelineEvent& event = add(TimelineEvent::Kind::slice, stall, slice.start, slice.end,
                                 std::string(stall_name(slice.stall)));
      if (slice.entry != kNever) {
        const ScheduleEntry& op = schedule.entries[slice.entry];
        event.arguments = {{"operator", op.index, ""},
                           {"waits_to_run", 0, std::string(program.names[program.name[op.index]])}};
      }
      // What it waited for ended when it ended.
      const auto& ends = slice.stall == Stall::swap_in ? in_ends : out_ends;
      if (slice.stall != Stall::swap_in && slice.stall != Stall::memory) continue;
      const auto at = ends.find(slice.end.value);
      if (at == ends.end()) continue;
      const std::string name = storage_name(schedule.entries[at->second].index);
      event.arguments.push_back({"waits_for", 0, name});
      // The stall often begins before its copy does, and flows run forward in time: so its end is marked.
      TimelineEvent& end = add(TimelineEvent::Kind::instant, stall, slice.end, slice.end,
                               name + (slice.stall == Stall::swap_in ? " is back" : " has left"));
      end.closes_slice = true;
      end.flow_ends = {at->second + 1ULL};
    }
  }
};

}  // namespace

Timeline make_timeline(const Program& program, const Schedule& schedule, const std::string& title) {
  if (schedule.issued.size() != schedule.entries.size())
    throw Error(ErrorKind::invariant, "the schedule was not recorded for a timeline");
  Builder builder{program, schedule, {}, 0, 0, 0, 0, 0, 0, 0, 0, {}, {}, {}};
  builder.timeline.title = title;
  std::uint32_t storages = 0;
  for (const StorageId s : program.origin) storages = std::max(storages, index(s) + 1);
  builder.slot_of.assign(storages, kNever);
  for (std::uint32_t slot = program.slot_count(); slot-- > 0;)
    builder.slot_of[index(program.origin[slot])] = slot;
  builder.add_tracks();
  builder.add_entries();
  builder.add_stalls();
  std::stable_sort(builder.timeline.events.begin(), builder.timeline.events.end(),
                   [](const TimelineEvent& a, const TimelineEvent& b) { return a.start < b.start; });
  return std::move(builder.timeline);
}

ByteCurve device_byte_curve(const Program& program, const Schedule& schedule, std::size_t points) {
  const Timeline timeline = make_timeline(program, schedule, "");
  std::uint32_t track = 0;
  while (timeline.tracks[track].name != "device bytes (program order)") ++track;
  std::vector<const TimelineEvent*> values;
  for (const TimelineEvent& event : timeline.events) {
    if (event.track == track) values.push_back(&event);
  }
  ByteCurve curve;
  const std::size_t per =
      std::max<std::size_t>(1, (values.size() + points - 1) / std::max<std::size_t>(1, points));
  for (std::size_t i = 0; i < values.size(); i += per) {
    const auto* largest = values[i];
    for (std::size_t j = i; j < std::min(values.size(), i + per); ++j) {
      if (values[j]->value > largest->value) largest = values[j];
    }
    curve.time_ns.push_back(largest->start.value);
    curve.bytes.push_back(largest->value);
  }
  return curve;
}

}  // namespace swaplab
