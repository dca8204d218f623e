#include "gpu_validate/calibrate/measurements.hpp"

#include <algorithm>
#include <charconv>
#include <nlohmann/json.hpp>
#include <set>
#include <utility>

#include "trace/byte_source.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view kFormat = "swaplab-measurements";
constexpr std::int64_t kLongest = std::int64_t{1} << 61;

std::vector<MeasuredQuantity> make_quantities() {
  std::vector<MeasuredQuantity> all;
  const auto add = [&](std::string name, std::string meaning, std::initializer_list<XUnit> units) {
    MeasuredQuantity q{std::move(name), std::move(meaning), false, false, false, false};
    for (const XUnit unit : units) {
      q.bytes |= unit == XUnit::bytes;
      q.flop |= unit == XUnit::flop;
      q.work |= unit == XUnit::work;
      q.call |= unit == XUnit::call;
    }
    all.push_back(std::move(q));
  };
  const auto bytes = {XUnit::bytes}, work = {XUnit::work}, flop = {XUnit::flop}, call = {XUnit::call};
  const auto sized = {XUnit::bytes, XUnit::call};
  for (const std::string d : {"h2d", "d2h"}) {
    const std::string copy = "copy_" + d;
    add(copy + "_pinned", "one copy from or to pinned host memory", bytes);
    add(copy + "_pageable", "one copy from or to pageable host memory", bytes);
    add(copy + "_duplex", "that copy while the other direction is busy throughout", bytes);
    for (const std::string kernel : {"compute", "memory"})
      add(copy + "_beside_" + kernel, "that copy while a " + kernel + "-bound kernel runs throughout", bytes);
  }
  add("copy_d2d", "copy within the device (reads and writes x bytes)", bytes);
  add("copy_p2p_I_J", "copy from device I to device J", bytes);
  add("allreduce_N", "all-reduce of x bytes over N devices", bytes);
  for (const std::string kernel : {"compute", "memory"}) {
    add("kernel_" + kernel, "a " + kernel + "-bound kernel alone", work);
    for (const std::string beside : {"h2d", "d2h", "both"})
      add("kernel_" + kernel + "_beside_" + beside,
          "the same kernel while copies (" + beside + ") run throughout", work);
  }
  add("kernel_empty", "the shortest kernel on the device", call);
  add("launch_latency", "from the end of a launch call to the start of its kernel on an idle stream", call);
  add("host_launch", "host time of a kernel launch", call);
  add("host_copy_submit", "host time to submit an asynchronous pinned copy", sized);
  add("host_event_record", "host time of an event record", call);
  add("host_event_query", "host time of an event query", call);
  add("host_event_wait", "host time to make a stream wait for an event", call);
  add("host_synchronize", "host time to synchronise with a stream that is already idle", call);
  for (const std::string call_name : {"malloc", "free", "malloc_async", "free_async"})
    add("host_" + call_name, "host time of device " + call_name, sized);
  add("vmm_reserve", "host time to reserve an address range of x bytes", sized);
  add("vmm_map", "host time to create and map one handle of x bytes", bytes);
  add("vmm_unmap", "host time to unmap and release one handle of x bytes", bytes);
  add("pin", "host time to pin x bytes", bytes);
  for (const std::string type : {"fp32", "tf32", "bf16", "fp16", "fp64"})
    add("gemm_" + type, "a " + type + " matrix product of x FLOP", flop);
  add("stream_copy", "a kernel that moves x bytes in device memory, read and written bytes counted", bytes);
  return all;
}

// "copy_p2p_3_0" -> "copy_p2p_I_J", "allreduce_8" -> "allreduce_N"; others unchanged.
std::string general_name(std::string_view name) {
  const auto numbers = [](std::string_view rest, int wanted) {
    int found = 0;
    while (!rest.empty()) {
      if (rest.front() != '_') return false;
      rest.remove_prefix(1);
      const std::size_t digits = std::min(rest.find_first_not_of("0123456789"), rest.size());
      if (digits == 0 || digits > 4) return false;
      rest.remove_prefix(digits);
      ++found;
    }
    return found == wanted;
  };
  if (name.starts_with("copy_p2p") && numbers(name.substr(8), 2)) return "copy_p2p_I_J";
  if (name.starts_with("allreduce") && numbers(name.substr(9), 1)) return "allreduce_N";
  return std::string(name);
}

bool is_date(std::string_view text) {
  if (text.size() != 10 || text[4] != '-' || text[7] != '-') return false;
  for (const std::size_t i : {0u, 1u, 2u, 3u, 5u, 6u, 8u, 9u})
    if (text[i] < '0' || text[i] > '9') return false;
  const int month = (text[5] - '0') * 10 + (text[6] - '0'), day = (text[8] - '0') * 10 + (text[9] - '0');
  return month >= 1 && month <= 12 && day >= 1 && day <= 31;
}

std::size_t line_at(std::string_view text, std::size_t at) {
  return 1 + static_cast<std::size_t>(
                 std::count(text.begin(), text.begin() + static_cast<std::ptrdiff_t>(at), '\n'));
}

// The line on which each element of the root object's list "series" begins. `text` is valid JSON.
std::vector<std::size_t> series_lines(std::string_view text) {
  std::vector<std::size_t> lines;
  std::size_t line = 1, depth = 0;
  std::string_view key;  // latest text in the root object
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if (c == '\n') ++line;
    if (c == '"') {
      const std::size_t from = ++i;
      while (text[i] != '"') i += text[i] == '\\' ? 2u : 1u;
      if (depth == 1) key = text.substr(from, i - from);
    } else if (c == '{' || c == '[') {
      if (c == '{' && depth == 2 && key == "series") lines.push_back(line);
      ++depth;
    } else if (c == '}' || c == ']') {
      --depth;
    }
  }
  return lines;
}

class Reader {
 public:
  explicit Reader(std::string file) : file_(std::move(file)) {}

  Measurements read(std::string_view text) {
    const Json root = parsed(text);
    lines_ = series_lines(text);
    object(root, "", {"format", "version", "device", "series"});
    if (this->text(root, "", "format") != kFormat)
      fail("/format", "expected \"" + std::string(kFormat) + "\"");
    if (integer(root, "", "version", 0) != 1) fail("/version", "is not supported; expected 1");
    Measurements m;
    m.file = file_;
    read_device(root.at("device"), m.device);
    const Json& list = root.at("series");
    if (!list.is_array()) fail("/series", "expected a list");
    std::set<std::pair<std::string, std::int64_t>> seen;
    for (std::size_t i = 0; i < list.size(); ++i) {
      const std::string at = "/series/" + std::to_string(i);
      MeasuredSeries one = series(list[i], at);
      one.line = lines_.at(i);
      if (!seen.emplace(one.quantity, one.x).second)
        fail(at, one.quantity + " at x = " + std::to_string(one.x) + " was given before");
      m.series.push_back(std::move(one));
    }
    return m;
  }

  [[noreturn]] void fail(const std::string& pointer, const std::string& message) const {
    constexpr std::string_view list = "/series/";
    std::string line;
    std::size_t number = 0;
    if (pointer.starts_with(list) &&
        std::from_chars(pointer.data() + list.size(), pointer.data() + pointer.size(), number).ec ==
            std::errc{} &&
        number < lines_.size())
      line = std::to_string(lines_[number]) + ":";
    throw Error(ErrorKind::input,
                file_ + ":" + line + " " + (pointer.empty() ? "/" : pointer) + ": " + message);
  }

 private:
  Json parsed(std::string_view text) const {
    // The parser keeps the last of two equal keys; that would hide a mistake.
    std::vector<std::set<std::string>> keys;
    const auto watch = [&](int, Json::parse_event_t event, Json& value) {
      if (event == Json::parse_event_t::object_start) keys.emplace_back();
      if (event == Json::parse_event_t::object_end) keys.pop_back();
      if (event == Json::parse_event_t::key && !keys.back().insert(value.get<std::string>()).second)
        throw Error(ErrorKind::input,
                    file_ + ": the key \"" + value.get<std::string>() + "\" is given twice");
      return true;
    };
    try {
      return Json::parse(text.begin(), text.end(), watch);
    } catch (const Json::parse_error& error) {
      // The parser's byte is the last one that it looked at, from 1.
      const std::size_t at = std::min<std::size_t>(std::max<std::size_t>(error.byte, 1) - 1, text.size());
      const std::string_view rest = text.substr(at);
      const std::string found(rest.substr(0, std::min<std::size_t>(rest.find_first_of(",]} \t\r\n", 1), 20)));
      throw Error(ErrorKind::input, file_ + ":" + std::to_string(line_at(text, at)) + ": byte " +
                                        std::to_string(at + 1) + ": expected JSON of a " +
                                        std::string(kFormat) + " file, found " +
                                        (rest.empty() ? "the end" : "'" + found + "'"));
    }
  }

  // The value as it stands in the file, cut short.
  static std::string found(const Json& value) {
    const std::string text = value.dump(-1, ' ', false, Json::error_handler_t::replace);
    return ", found " + (text.size() <= 40 ? text : text.substr(0, 40) + "...");
  }

  void object(const Json& j, const std::string& at, const std::vector<std::string>& keys) const {
    if (!j.is_object()) fail(at, "expected an object");
    for (const auto& [key, value] : j.items())
      if (std::find(keys.begin(), keys.end(), key) == keys.end())
        fail(at + "/" + key, "unknown key" + did_you_mean(key, keys));
    for (const std::string& key : keys)
      if (!j.contains(key)) fail(at, "missing key \"" + key + "\"");
  }

  std::string text(const Json& j, const std::string& at, const char* key) const {
    const Json& value = j.at(key);
    if (!value.is_string() || value.get_ref<const std::string&>().empty())
      fail(at + "/" + key, "expected a text that is not empty" + found(value));
    return value.get<std::string>();
  }

  std::int64_t integer(const Json& value, const std::string& at, std::int64_t least) const {
    const bool fits = value.is_number_unsigned() ? value.get<std::uint64_t>() <= std::uint64_t{kLongest}
                                                 : value.is_number_integer();
    if (!fits || value.get<std::int64_t>() < least)
      fail(at, "expected an integer from " + std::to_string(least) + " to 2^61" + found(value));
    return value.get<std::int64_t>();
  }
  std::int64_t integer(const Json& j, const std::string& at, const char* key, std::int64_t least) const {
    return integer(j.at(key), at + "/" + key, least);
  }

  void read_device(const Json& j, MeasuredDevice& device) const {
    const std::string at = "/device";
    object(j, at, {"name", "driver", "runtime", "date", "kind"});
    device.name = text(j, at, "name");
    device.driver = text(j, at, "driver");
    device.runtime = text(j, at, "runtime");
    device.date = text(j, at, "date");
    device.kind = text(j, at, "kind");
    if (!is_date(device.date)) fail(at + "/date", "expected YYYY-MM-DD");
    if (device.kind != "cuda" && device.kind != "host") fail(at + "/kind", R"(expected "cuda" or "host")");
  }

  MeasuredSeries series(const Json& j, const std::string& at) const {
    object(j, at, {"quantity", "x", "x_unit", "samples_ns"});
    MeasuredSeries one;
    one.quantity = text(j, at, "quantity");
    const std::optional<MeasuredQuantity> quantity = find_quantity(one.quantity);
    if (!quantity) {
      std::vector<std::string> names;
      for (const MeasuredQuantity& q : measured_quantities()) names.push_back(q.name);
      fail(at + "/quantity",
           "no quantity is called '" + one.quantity + "'" + did_you_mean(one.quantity, names));
    }
    one.unit = unit(text(j, at, "x_unit"), *quantity, at + "/x_unit");
    one.x = integer(j, at, "x", 1);
    if (one.unit == XUnit::call && one.x != 1) fail(at + "/x", "expected 1, since x_unit is \"call\"");
    const Json& samples = j.at("samples_ns");
    if (!samples.is_array() || samples.empty())
      fail(at + "/samples_ns", "expected a list of at least one time" + found(samples));
    one.samples.reserve(samples.size());
    for (std::size_t i = 0; i < samples.size(); ++i)
      one.samples.push_back(Nanos{integer(samples[i], at + "/samples_ns/" + std::to_string(i), 0)});
    return one;
  }

  XUnit unit(const std::string& name, const MeasuredQuantity& quantity, const std::string& at) const {
    std::string allowed;
    for (const XUnit unit : {XUnit::bytes, XUnit::flop, XUnit::work, XUnit::call}) {
      if (!quantity.allows(unit)) continue;
      if (name == x_unit_name(unit)) return unit;
      allowed += (allowed.empty() ? "\"" : " or \"") + std::string(x_unit_name(unit)) + "\"";
    }
    fail(at, "\"" + name + "\" is not a unit of " + quantity.name + "; expected " + allowed);
  }

  std::string file_;
  std::vector<std::size_t> lines_;  // of the series
};

}  // namespace

std::string_view x_unit_name(XUnit unit) {
  constexpr std::string_view names[] = {"bytes", "flop", "work", "call"};
  return names[static_cast<std::size_t>(unit)];
}

bool MeasuredQuantity::allows(XUnit unit) const {
  return (unit == XUnit::bytes && bytes) || (unit == XUnit::flop && flop) || (unit == XUnit::work && work) ||
         (unit == XUnit::call && call);
}

const std::vector<MeasuredQuantity>& measured_quantities() {
  static const std::vector<MeasuredQuantity> all = make_quantities();
  return all;
}

std::optional<MeasuredQuantity> find_quantity(std::string_view name) {
  const std::string general = general_name(name);
  for (const MeasuredQuantity& q : measured_quantities())
    if (q.name == general && (general != name || (name != "copy_p2p_I_J" && name != "allreduce_N"))) return q;
  return std::nullopt;
}

std::vector<const MeasuredSeries*> Measurements::of(std::string_view quantity) const {
  std::vector<const MeasuredSeries*> found;
  for (const MeasuredSeries& one : series)
    if (one.quantity == quantity) found.push_back(&one);
  std::stable_sort(found.begin(), found.end(), [](const auto* a, const auto* b) { return a->x < b->x; });
  return found;
}

Measurements parse_measurements(std::string_view text, const std::string& file) {
  return Reader(file).read(text);
}

std::string read_input_text(const std::string& path) {
  std::string text;
  const auto source = open_byte_source(path);
  for (std::size_t got = 1; got > 0;) {
    constexpr std::size_t kStep = 1 << 16;
    const std::size_t before = text.size();
    text.resize(before + kStep);
    got = source->read(text.data() + before, kStep);
    text.resize(before + got);
  }
  return text;
}

Measurements read_measurements(const std::string& path) {
  return parse_measurements(read_input_text(path), path);
}

std::string measurements_json(const Measurements& measurements) {
  const auto quoted = [](std::string_view text) {
    return Json(text).dump(-1, ' ', false, Json::error_handler_t::replace);
  };
  const MeasuredDevice& d = measurements.device;
  std::string out = "{\"format\": \"" + std::string(kFormat) +
                    "\", \"version\": 1,\n \"device\": {\"name\": " + quoted(d.name) +
                    ", \"driver\": " + quoted(d.driver) + ", \"runtime\": " + quoted(d.runtime) +
                    ", \"date\": " + quoted(d.date) + ", \"kind\": " + quoted(d.kind) + "},\n \"series\": [";
  const char* separator = "\n  ";
  for (const MeasuredSeries& one : measurements.series) {
    out += separator;
    separator = ",\n  ";
    out += "{\"quantity\": " + quoted(one.quantity) + ", \"x\": " + std::to_string(one.x) +
           ", \"x_unit\": " + quoted(x_unit_name(one.unit)) + ", \"samples_ns\": [";
    for (std::size_t i = 0; i < one.samples.size(); ++i)
      out += (i == 0 ? "" : ", ") + std::to_string(one.samples[i].value);
    out += "]}";
  }
  return out + "]}\n";
}

void write_measurements(const std::string& path, const Measurements& measurements) {
  std::string text = measurements_json(measurements);
  parse_measurements(text, path);
  write_file_atomically(path, compress_for(path, std::move(text)));
}

}  // namespace swaplab
