#include "sim/schedule_io.hpp"

#include <array>
#include <charconv>
#include <limits>
#include <nlohmann/json.hpp>
#include <vector>

#include "trace/byte_source.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kSchema = "swaplab/schedule@1";
constexpr std::array<std::string_view, 5> kKindNames{"op", "out", "in", "acquire", "release"};
constexpr std::array<std::string_view, 2> kTimeNames{"trace", "model"};
constexpr std::array<std::string_view, 2> kIterationKinds{"train", "validation"};
constexpr std::size_t kOutcomeCount = 5;

// ---- writing

void append(std::string& text, std::int64_t value) {
  std::array<char, 24> digits;
  const auto end = std::to_chars(digits.data(), digits.data() + digits.size(), value).ptr;
  text.append(digits.data(), end);
}

void append_entry(std::string& text, const ScheduleEntry& entry) {
  text += "[\"";
  text += kKindNames[static_cast<std::size_t>(entry.kind)];
  text += "\",";
  append(text, entry.index);
  text += ',';
  append(text, entry.kind == ScheduleKind::op ? entry.stream : entry.bytes.value);
  text += ',';
  append(text, entry.start.value);
  if (entry.kind != ScheduleKind::acquire && entry.kind != ScheduleKind::release) {
    text += ',';
    append(text, entry.end.value);
  }
  text += "]\n";
}

Json to_json(const std::vector<StorageId>& storages) {
  Json list = Json::array();
  for (const StorageId s : storages) list.push_back(index(s));
  return list;
}

Json to_json(const IterationMetrics& it) {
  Json stalls = Json::object();
  for (std::size_t s = 0; s < kStallCount; ++s) {
    stalls[std::string(stall_name(static_cast<Stall>(s)))] = it.stalls[s].value;
  }
  return {{"number", it.number},
          {"kind", kIterationKinds[static_cast<std::size_t>(it.kind)]},
          {"begin_ns", it.begin.value},
          {"end_ns", it.end.value},
          {"compute_busy_ns", it.compute_busy.value},
          {"stalls_ns", std::move(stalls)},
          {"bytes_out", it.bytes_out.value},
          {"bytes_in", it.bytes_in.value},
          {"copies_out", it.copies_out},
          {"copies_in", it.copies_in},
          {"passive_in", it.passive_in},
          {"peak_allocated_bytes", it.peak_allocated.value},
          {"peak_reserved_bytes", it.peak_reserved.value}};
}

Json to_json(const RunResult& result) {
  const AllocatorFigures& a = result.allocator;
  Json iterations = Json::array(), policy_metrics = Json::array();
  for (const IterationMetrics& it : result.iterations) iterations.push_back(to_json(it));
  for (const PolicyMetric& m : result.policy_metrics) {
    policy_metrics.push_back(
        {{"tag", m.tag}, {"unit", m.unit}, {"description", m.description}, {"value", m.value}});
  }
  return {{"outcome", outcome_name(result.outcome)},
          {"explanation", result.explanation},
          {"smallest_budget_bytes", result.smallest_budget.value},
          {"iterations", std::move(iterations)},
          {"allocator",
           {{"peak_allocated_bytes", a.peak_allocated.value},
            {"peak_reserved_bytes", a.peak_reserved.value},
            {"reserved_at_peak_bytes", a.reserved_at_peak.value},
            {"device_mallocs", a.device_mallocs},
            {"device_frees", a.device_frees},
            {"retries", a.retries},
            {"ooms", a.ooms}}},
          {"peak_host_pinned_bytes", result.peak_host_pinned.value},
          {"plan_steps", result.plan_steps},
          {"plan_steps_skipped", result.plan_steps_skipped},
          {"evictions", result.evictions},
          {"make_room_calls", result.make_room_calls},
          {"policy_metrics", std::move(policy_metrics)}};
}

// ---- reading

// One place in the file; every complaint names it.
struct Place {
  const std::string& file;
  std::uint64_t line;
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::input, file + ":" + std::to_string(line) + ": " + what);
  }
};

template <class Integer>
Integer integer(const Json& value, const Place& place, const std::string& what) {
  bool fits = value.is_number_integer();
  if (fits && value.is_number_unsigned()) {
    fits = value.get<std::uint64_t>() <= std::numeric_limits<Integer>::max();
  } else if (fits) {
    const auto number = value.get<std::int64_t>();
    fits = std::numeric_limits<Integer>::is_signed
               ? number >= static_cast<std::int64_t>(std::numeric_limits<Integer>::min())
               : number >= 0;
  }
  if (!fits) {
    place.fail(what + ": expected an integer from " + std::to_string(std::numeric_limits<Integer>::min()) +
               " to " + std::to_string(std::numeric_limits<Integer>::max()) + ", found " +
               value.dump(-1, ' ', false, Json::error_handler_t::replace).substr(0, 60));
  }
  return value.get<Integer>();
}

// The fields of one object; all must be there and no others.
class Fields {
 public:
  Fields(const Json& object, const Place& place, std::string what)
      : object_(object), place_(place), what_(std::move(what)) {
    if (!object.is_object()) place.fail(what_ + ": expected an object");
  }
  const Json& take(const std::string& key) {
    const auto it = object_.find(key);
    if (it == object_.end()) place_.fail(what_ + ": field '" + key + "' is missing");
    ++taken_;
    return *it;
  }
  template <class Integer>
  Integer number(const std::string& key) {
    return integer<Integer>(take(key), place_, what_ + "." + key);
  }
  Bytes bytes(const std::string& key) { return Bytes{number<std::int64_t>(key)}; }
  Nanos nanos(const std::string& key) { return Nanos{number<std::int64_t>(key)}; }
  std::string text(const std::string& key) {
    const Json& value = take(key);
    if (!value.is_string()) place_.fail(what_ + "." + key + ": expected text");
    return value.get<std::string>();
  }
  const Json& list(const std::string& key) {
    const Json& value = take(key);
    if (!value.is_array()) place_.fail(what_ + "." + key + ": expected an array");
    return value;
  }
  template <class Names>
  std::size_t one_of(const std::string& key, const Names& names) {
    const std::string value = text(key);
    std::string expected;
    for (std::size_t i = 0; i < names.size(); ++i) {
      if (names[i] == value) return i;
      expected += (i == 0 ? "'" : ", '") + std::string(names[i]) + "'";
    }
    place_.fail(what_ + "." + key + ": expected one of " + expected + ", found '" + value.substr(0, 60) +
                "'");
  }
  void done() const {
    if (taken_ != object_.size()) place_.fail(what_ + ": has unknown fields");
  }

 private:
  const Json& object_;
  const Place& place_;
  std::string what_;
  std::size_t taken_ = 0;
};

std::vector<StorageId> storage_list(const Json& list, const Place& place, const std::string& what) {
  std::vector<StorageId> storages;
  storages.reserve(list.size());
  for (const Json& s : list) storages.push_back(StorageId{integer<std::uint32_t>(s, place, what)});
  return storages;
}

void read_header(const Json& json, const Place& place, Schedule& schedule) {
  if (!json.is_object() || !json.contains("schema")) {
    place.fail("not a schedule file: expected a header with \"schema\":\"" + std::string(kSchema) + "\"");
  }
  Fields fields(json, place, "header");
  const std::string schema = fields.text("schema");
  if (schema != kSchema) {
    place.fail("schema '" + schema.substr(0, 60) + "' is not supported, expected '" + std::string(kSchema) +
               "'");
  }
  schedule.trace_path = fields.text("trace");
  schedule.trace_hash = fields.number<std::uint64_t>("trace_hash");
  schedule.iterations = fields.number<std::uint32_t>("iterations");
  schedule.times = static_cast<TimeSource>(fields.one_of("times", kTimeNames));
  schedule.policy = fields.text("policy");
  schedule.allocator = fields.text("allocator");
  schedule.budget = fields.bytes("budget_bytes");
  schedule.initial_device = storage_list(fields.list("initial_device"), place, "header.initial_device");
  schedule.initial_host = storage_list(fields.list("initial_host"), place, "header.initial_host");
  schedule.machine_json = fields.text("machine");
  fields.done();
}

ScheduleEntry read_entry(const Json& json, const Place& place) {
  if (json.empty() || !json[0].is_string()) place.fail("entry: expected an array that starts with its kind");
  const auto& name = json[0].get_ref<const std::string&>();
  std::size_t kind = 0;
  while (kind < kKindNames.size() && kKindNames[kind] != name) ++kind;
  if (kind == kKindNames.size()) {
    place.fail("entry kind '" + name.substr(0, 60) +
               "' is unknown, expected op, out, in, acquire or release");
  }
  ScheduleEntry entry{};
  entry.kind = static_cast<ScheduleKind>(kind);
  const bool instant = entry.kind == ScheduleKind::acquire || entry.kind == ScheduleKind::release;
  const std::size_t size = instant ? 4 : 5;
  if (json.size() != size) {
    place.fail("'" + name + "' entry: expected " + std::to_string(size) + " elements, found " +
               std::to_string(json.size()));
  }
  entry.index = integer<std::uint32_t>(json[1], place, "entry id");
  if (entry.kind == ScheduleKind::op) {
    entry.stream = integer<std::uint16_t>(json[2], place, "entry stream");
  } else {
    entry.bytes = Bytes{integer<std::int64_t>(json[2], place, "entry bytes")};
  }
  entry.start = Nanos{integer<std::int64_t>(json[3], place, "entry start")};
  entry.end = instant ? entry.start : Nanos{integer<std::int64_t>(json[4], place, "entry end")};
  return entry;
}

IterationMetrics read_iteration(const Json& json, const Place& place) {
  Fields fields(json, place, "result.iterations");
  IterationMetrics it;
  it.number = fields.number<std::int64_t>("number");
  it.kind = static_cast<IterationKind>(fields.one_of("kind", kIterationKinds));
  it.begin = fields.nanos("begin_ns");
  it.end = fields.nanos("end_ns");
  it.compute_busy = fields.nanos("compute_busy_ns");
  Fields stalls(fields.take("stalls_ns"), place, "result.iterations.stalls_ns");
  for (std::size_t s = 0; s < kStallCount; ++s) {
    it.stalls[s] = stalls.nanos(std::string(stall_name(static_cast<Stall>(s))));
  }
  stalls.done();
  it.bytes_out = fields.bytes("bytes_out");
  it.bytes_in = fields.bytes("bytes_in");
  it.copies_out = fields.number<std::uint32_t>("copies_out");
  it.copies_in = fields.number<std::uint32_t>("copies_in");
  it.passive_in = fields.number<std::uint32_t>("passive_in");
  it.peak_allocated = fields.bytes("peak_allocated_bytes");
  it.peak_reserved = fields.bytes("peak_reserved_bytes");
  fields.done();
  return it;
}

RunResult read_result(const Json& json, const Place& place) {
  std::vector<std::string_view> outcomes;
  for (std::size_t i = 0; i < kOutcomeCount; ++i) outcomes.push_back(outcome_name(static_cast<Outcome>(i)));
  Fields fields(json, place, "result");
  RunResult result;
  result.outcome = static_cast<Outcome>(fields.one_of("outcome", outcomes));
  result.explanation = fields.text("explanation");
  result.smallest_budget = fields.bytes("smallest_budget_bytes");
  for (const Json& it : fields.list("iterations")) result.iterations.push_back(read_iteration(it, place));
  Fields allocator(fields.take("allocator"), place, "result.allocator");
  result.allocator.peak_allocated = allocator.bytes("peak_allocated_bytes");
  result.allocator.peak_reserved = allocator.bytes("peak_reserved_bytes");
  result.allocator.reserved_at_peak = allocator.bytes("reserved_at_peak_bytes");
  result.allocator.device_mallocs = allocator.number<std::int64_t>("device_mallocs");
  result.allocator.device_frees = allocator.number<std::int64_t>("device_frees");
  result.allocator.retries = allocator.number<std::int64_t>("retries");
  result.allocator.ooms = allocator.number<std::int64_t>("ooms");
  allocator.done();
  result.peak_host_pinned = fields.bytes("peak_host_pinned_bytes");
  result.plan_steps = fields.number<std::uint64_t>("plan_steps");
  result.plan_steps_skipped = fields.number<std::uint64_t>("plan_steps_skipped");
  result.evictions = fields.number<std::uint64_t>("evictions");
  result.make_room_calls = fields.number<std::uint64_t>("make_room_calls");
  for (const Json& metric : fields.list("policy_metrics")) {
    Fields m(metric, place, "result.policy_metrics");
    result.policy_metrics.push_back(
        {m.text("tag"), m.text("unit"), m.text("description"), m.number<std::int64_t>("value")});
    m.done();
  }
  fields.done();
  return result;
}

}  // namespace

std::string schedule_text(const Schedule& schedule) {
  // Text that is not UTF-8 (a file name may be anything) is written with replacement characters.
  const auto line = [](const Json& json) {
    return json.dump(-1, ' ', false, Json::error_handler_t::replace) + "\n";
  };
  std::string text = line({{"schema", kSchema},
                           {"trace", schedule.trace_path},
                           {"trace_hash", schedule.trace_hash},
                           {"iterations", schedule.iterations},
                           {"times", kTimeNames[static_cast<std::size_t>(schedule.times)]},
                           {"policy", schedule.policy},
                           {"allocator", schedule.allocator},
                           {"budget_bytes", schedule.budget.value},
                           {"initial_device", to_json(schedule.initial_device)},
                           {"initial_host", to_json(schedule.initial_host)},
                           {"machine", schedule.machine_json}});
  for (const ScheduleEntry& entry : schedule.entries) append_entry(text, entry);
  text += line({{"end", schedule.entries.size()}, {"result", to_json(schedule.result)}});
  return text;
}

Schedule parse_schedule(std::string_view text, const std::string& name) {
  Schedule schedule;
  Place place{name, 1};
  if (text.empty()) place.fail("empty file, expected a schedule header");
  bool ended = false;
  for (; !text.empty(); ++place.line) {
    const std::size_t newline = text.find('\n');
    if (newline == std::string_view::npos && place.line > 1) {
      place.fail("truncated schedule: the line is not complete");
    }
    const std::string_view line = text.substr(0, newline);
    text.remove_prefix(newline == std::string_view::npos ? text.size() : newline + 1);
    if (ended) place.fail("nothing may follow the end line");
    const Json json = Json::parse(line, nullptr, false);
    if (json.is_discarded()) {
      place.fail(place.line == 1
                     ? "not a schedule file: the first line is not JSON"
                     : "expected one JSON value, found '" + std::string(line.substr(0, 60)) + "'");
    }
    if (place.line == 1) {
      read_header(json, place, schedule);
    } else if (json.is_array()) {
      schedule.entries.push_back(read_entry(json, place));
    } else {
      Fields fields(json, place, "end line");
      const auto count = fields.number<std::uint64_t>("end");
      if (count != schedule.entries.size()) {
        place.fail("the end line counts " + std::to_string(count) + " entries, the file has " +
                   std::to_string(schedule.entries.size()));
      }
      schedule.result = read_result(fields.take("result"), place);
      fields.done();
      ended = true;
    }
  }
  if (!ended) {
    place.fail("truncated schedule: no end line after " + std::to_string(schedule.entries.size()) +
               " entries");
  }
  return schedule;
}

void write_schedule(const Schedule& schedule, const std::string& path) {
  write_file_atomically(path, compress_for(path, schedule_text(schedule)));
}

Schedule read_schedule(const std::string& path) {
  const auto source = open_byte_source(path);
  std::string text;
  std::vector<char> chunk(std::size_t{1} << 18);
  while (const std::size_t got = source->read(chunk.data(), chunk.size())) text.append(chunk.data(), got);
  return parse_schedule(text, path);
}

}  // namespace swaplab
