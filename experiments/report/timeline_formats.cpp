// Timelines as Perfetto protobuf and as Chrome JSON.
#include <algorithm>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "experiments/report/timeline.hpp"

namespace swaplab {
namespace {

// The wire format of protocol buffers: https://protobuf.dev/programming-guides/encoding/
class Message {
 public:
  void varint(std::uint32_t field, std::uint64_t value) {
    raw_varint(std::uint64_t{field} << 3);
    raw_varint(value);
  }
  void fixed64(std::uint32_t field, std::uint64_t value) {
    raw_varint((std::uint64_t{field} << 3) | 1);
    for (int i = 0; i < 8; ++i) text_ += static_cast<char>((value >> (8 * i)) & 0xff);
  }
  void bytes(std::uint32_t field, const std::string& value) {
    raw_varint((std::uint64_t{field} << 3) | 2);
    raw_varint(value.size());
    text_ += value;
  }
  const std::string& text() const { return text_; }

 private:
  void raw_varint(std::uint64_t value) {
    for (; value >= 0x80; value >>= 7) text_ += static_cast<char>((value & 0x7f) | 0x80);
    text_ += static_cast<char>(value);
  }
  std::string text_;
};

// Field numbers of protos/perfetto/trace/*.proto.
namespace field {
constexpr std::uint32_t kTracePacket = 1;
constexpr std::uint32_t kPacketTimestamp = 8, kPacketSequence = 10, kPacketTrackEvent = 11,
                        kPacketSequenceFlags = 13, kPacketTrackDescriptor = 60;
constexpr std::uint32_t kTrackUuid = 1, kTrackName = 2, kTrackProcess = 3, kTrackParent = 5,
                        kTrackCounter = 8, kTrackChildOrdering = 11, kTrackRank = 12;
constexpr std::uint32_t kProcessPid = 1, kProcessName = 6;
constexpr std::uint32_t kCounterUnit = 3, kCounterUnitName = 6;
constexpr std::uint32_t kEventAnnotation = 4, kEventType = 9, kEventTrack = 11, kEventCategory = 22,
                        kEventName = 23, kEventCounter = 30, kEventFlow = 47, kEventFlowEnd = 48;
constexpr std::uint32_t kAnnotationInt = 4, kAnnotationString = 6, kAnnotationName = 10;
}  // namespace field

enum EventType : std::uint64_t { kBegin = 1, kEnd = 2, kInstant = 3, kCounter = 4 };
constexpr std::uint64_t kSequence = 1, kProcessTrack = 1, kFirstTrack = 10, kUnitBytes = 3,
                        kOrderExplicit = 3;
constexpr std::uint64_t kIncrementalStateCleared = 1;

std::string packet(const Message& body) {
  Message outer;
  outer.bytes(field::kTracePacket, body.text());
  return outer.text();
}

std::string descriptor_packet(const Message& descriptor, bool first) {
  Message body;
  body.varint(field::kPacketSequence, kSequence);
  if (first) body.varint(field::kPacketSequenceFlags, kIncrementalStateCleared);
  body.bytes(field::kPacketTrackDescriptor, descriptor.text());
  return packet(body);
}

std::string event_packet(const TimelineEvent& event, EventType type, Nanos time,
                         const std::string& category) {
  Message track_event;
  for (const TimelineArgument& argument : event.arguments) {
    if (type == kEnd) break;
    Message annotation;
    annotation.bytes(field::kAnnotationName, argument.name);
    if (argument.text.empty()) {
      annotation.varint(field::kAnnotationInt, static_cast<std::uint64_t>(argument.number));
    } else {
      annotation.bytes(field::kAnnotationString, argument.text);
    }
    track_event.bytes(field::kEventAnnotation, annotation.text());
  }
  track_event.varint(field::kEventType, type);
  track_event.varint(field::kEventTrack, kFirstTrack + event.track);
  if (type == kCounter) {
    track_event.varint(field::kEventCounter, static_cast<std::uint64_t>(event.value));
  } else if (type != kEnd) {
    track_event.bytes(field::kEventCategory, category);
    track_event.bytes(field::kEventName, event.name);
    for (const std::uint64_t flow : event.flows) track_event.fixed64(field::kEventFlow, flow);
    for (const std::uint64_t flow : event.flow_ends) track_event.fixed64(field::kEventFlowEnd, flow);
  }
  Message body;
  body.varint(field::kPacketTimestamp, static_cast<std::uint64_t>(time.value));
  body.varint(field::kPacketSequence, kSequence);
  body.bytes(field::kPacketTrackEvent, track_event.text());
  return packet(body);
}

// Begins and ends in time order; of one moment first what belongs to the ending slices, then their ends.
struct Moment {
  Nanos time;
  int rank;
  bool begins;
  std::uint32_t event;
};

std::vector<Moment> moments_of(const Timeline& timeline) {
  std::vector<Moment> moments;
  for (std::uint32_t i = 0; i < timeline.events.size(); ++i) {
    const TimelineEvent& event = timeline.events[i];
    moments.push_back({event.start, event.closes_slice ? 0 : 2, true, i});
    if (event.kind == TimelineEvent::Kind::slice) moments.push_back({event.end, 1, false, i});
  }
  std::stable_sort(moments.begin(), moments.end(), [](const Moment& a, const Moment& b) {
    return a.time != b.time ? a.time < b.time : a.rank < b.rank;
  });
  return moments;
}

std::string microseconds(Nanos time) {
  char text[40];
  std::snprintf(text, sizeof text, "%lld.%03lld", static_cast<long long>(time.value / 1000),
                static_cast<long long>(time.value % 1000));
  return text;
}

}  // namespace

std::string perfetto_trace(const Timeline& timeline) {
  std::string out;
  {
    Message process;
    process.varint(field::kProcessPid, 1);
    process.bytes(field::kProcessName, timeline.title);
    Message track;
    track.varint(field::kTrackUuid, kProcessTrack);
    track.bytes(field::kTrackProcess, process.text());
    track.varint(field::kTrackChildOrdering, kOrderExplicit);
    out += descriptor_packet(track, true);
  }
  for (std::uint32_t t = 0; t < timeline.tracks.size(); ++t) {
    Message track;
    track.varint(field::kTrackUuid, kFirstTrack + t);
    track.bytes(field::kTrackName, timeline.tracks[t].name);
    track.varint(field::kTrackParent, kProcessTrack);
    track.varint(field::kTrackRank, t);
    if (!timeline.tracks[t].unit.empty()) {
      Message counter;
      if (timeline.tracks[t].unit == "B") {
        counter.varint(field::kCounterUnit, kUnitBytes);
      } else {
        counter.bytes(field::kCounterUnitName, timeline.tracks[t].unit);
      }
      track.bytes(field::kTrackCounter, counter.text());
    }
    out += descriptor_packet(track, false);
  }
  for (const Moment& moment : moments_of(timeline)) {
    const TimelineEvent& event = timeline.events[moment.event];
    EventType type = moment.begins ? kBegin : kEnd;
    if (event.kind == TimelineEvent::Kind::instant) type = kInstant;
    if (event.kind == TimelineEvent::Kind::counter) type = kCounter;
    out += event_packet(event, type, moment.time, timeline.tracks[event.track].name);
  }
  return out;
}

std::string chrome_trace_json(const Timeline& timeline) {
  using Json = nlohmann::ordered_json;
  // One event a line; times are written by hand, since a double would lose nanoseconds.
  std::string out = "{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n";
  const auto quoted = [](const std::string& text) {
    return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  out +=
      "{\"ph\":\"M\",\"pid\":1,\"name\":\"process_name\",\"args\":{\"name\":" + quoted(timeline.title) + "}}";
  for (std::uint32_t t = 0; t < timeline.tracks.size(); ++t) {
    if (!timeline.tracks[t].unit.empty()) continue;
    const std::string tid = std::to_string(t + 1);
    out += ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":" + tid +
           ",\"name\":\"thread_name\",\"args\":{\"name\":" + quoted(timeline.tracks[t].name) + "}}";
    out += ",\n{\"ph\":\"M\",\"pid\":1,\"tid\":" + tid +
           ",\"name\":\"thread_sort_index\",\"args\":{\"sort_index\":" + tid + "}}";
  }
  for (const TimelineEvent& event : timeline.events) {
    const TimelineTrack& track = timeline.tracks[event.track];
    const std::string place =
        ",\"pid\":1,\"tid\":" + std::to_string(event.track + 1) + ",\"ts\":" + microseconds(event.start);
    if (event.kind == TimelineEvent::Kind::counter) {
      out += ",\n{\"ph\":\"C\"" + place + ",\"name\":" + quoted(track.name) +
             ",\"args\":{\"bytes\":" + std::to_string(event.value) + "}}";
      continue;
    }
    std::string arguments;
    for (const TimelineArgument& argument : event.arguments) {
      arguments += (arguments.empty() ? "" : ",") + quoted(argument.name) + ":" +
                   (argument.text.empty() ? std::to_string(argument.number) : quoted(argument.text));
    }
    out += std::string(",\n{\"ph\":\"") + (event.kind == TimelineEvent::Kind::slice ? "X" : "i") + "\"" +
           place + ",\"cat\":" + quoted(track.name) + ",\"name\":" + quoted(event.name);
    if (event.kind == TimelineEvent::Kind::slice) {
      out += ",\"dur\":" + microseconds(event.end - event.start);
    } else {
      out += ",\"s\":\"t\"";
    }
    out += ",\"args\":{" + arguments + "}}";
    for (const std::uint64_t flow : event.flows) {
      const char* phase = event.kind == TimelineEvent::Kind::instant ? "s" : "t";
      out += std::string(",\n{\"ph\":\"") + phase + "\"" + place +
             ",\"cat\":\"flow\",\"name\":\"flow\",\"id\":" + std::to_string(flow) + "}";
    }
    for (const std::uint64_t flow : event.flow_ends)
      out += ",\n{\"ph\":\"f\",\"bp\":\"e\"" + place +
             ",\"cat\":\"flow\",\"name\":\"flow\",\"id\":" + std::to_string(flow) + "}";
  }
  return out + "\n]}\n";
}

}  // namespace swaplab
