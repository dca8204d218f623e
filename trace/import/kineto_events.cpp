#include "trace/import/kineto_events.hpp"

#include <simdjson.h>

#include <algorithm>
#include <cstdlib>

#include "trace/error.hpp"
#include "trace/import/decimal.hpp"
#include "trace/import/kineto_raw.hpp"

namespace swaplab::kineto {
namespace {

namespace ondemand = simdjson::ondemand;
// What a profile can hold; sums of larger values could overflow.
constexpr std::int64_t kMaxTime = std::int64_t{1} << 62;      // ns
constexpr std::int64_t kMaxDuration = std::int64_t{1} << 53;  // ns, 104 days
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 50;
static_assert(simdjson::SIMDJSON_PADDING <= kJsonPadding);

std::string_view trimmed(std::string_view token) {
  while (!token.empty() &&
         (token.back() == ' ' || token.back() == '\n' || token.back() == '\r' || token.back() == '\t'))
    token.remove_suffix(1);
  return token;
}

// The raw text of a scalar; a string without its quotes.
void scalar(ondemand::value value, std::string& into) {
  std::string_view token = trimmed(value.raw_json_token());
  if (token.size() >= 2 && token.front() == '"') {
    into = std::string_view(value.get_string());
    return;
  }
  into = token;
}

bool is_non_finite(std::string_view token) {
  const char c = token.empty() ? '\0' : token[0];
  if (c == 'i' || c == 'I' || c == 'N') return true;
  if (token.size() < 2) return false;
  return (c == 'n' && token[1] == 'a') || (c == '-' && (token[1] < '0' || token[1] > '9'));
}

class Reader {
 public:
  Reader(std::string name, Events& events) : name_(std::move(name)), events_(events) {}

  void event(std::string_view text, std::uint64_t offset) {
    ++events_.total;
    if (!parse(text)) {
      JsonRepairs& repairs = events_.repairs;
      const std::string mended = repair_json(text, repairs);
      if (mended.empty() || !parse(std::string_view(mended).substr(0, mended.size() - kJsonPadding)))
        throw Error(ErrorKind::input, name_ + ": " + fault(text, offset));
    } else if (raw_.non_finite != 0) {
      // Such a word may also hide a real fault: only a text that can be mended is accepted.
      if (repair_json(text, events_.repairs).empty())
        throw Error(ErrorKind::input, name_ + ": " + fault(text, offset));
    }
    take();
  }

  void finish() {
    for (const auto& [thread, open] : open_slices_) events_.unclosed_slices += open;
    events_.threads = static_cast<std::uint32_t>(threads_.size());
    events_.streams = static_cast<std::uint32_t>(streams_.size());
  }

 private:
  static std::string fault(std::string_view text, std::uint64_t offset) {
    const std::string found = json_error(text, offset);
    return found.empty() ? "byte " + std::to_string(offset) + ": expected an event object" : found;
  }

  bool parse(std::string_view text) {
    raw_.clear();
    try {
      auto document = parser_.iterate(
          simdjson::padded_string_view(text.data(), text.size(), text.size() + simdjson::SIMDJSON_PADDING));
      for (auto field : document.get_object()) {
        const std::string_view key = field.unescaped_key();
        ondemand::value value = field.value();
        if (key == "args") {
          raw_.has_args = true;
          if (value.type() == ondemand::json_type::object) arguments(value.get_object());
        } else if (std::string* into = member(key)) {
          scalar(value, *into);
          raw_.has_cat |= into == &raw_.cat;
          raw_.has_ts |= into == &raw_.ts;
        }
      }
    } catch (const simdjson::simdjson_error&) {
      return false;
    }
    return true;
  }

  std::string* member(std::string_view key) {
    switch (key.size()) {
      case 2:
        if (key == "ph") return &raw_.ph;
        if (key == "ts") return &raw_.ts;
        if (key == "id") return &raw_.id;
        return nullptr;
      case 3:
        if (key == "cat") return &raw_.cat;
        if (key == "pid") return &raw_.pid;
        if (key == "tid") return &raw_.tid;
        if (key == "dur") return &raw_.dur;
        return nullptr;
      case 4:
        return key == "name" ? &raw_.name : nullptr;
      default:
        return nullptr;
    }
  }

  void arguments(ondemand::object object) {
    for (auto field : object) {
      const std::string_view key = field.unescaped_key();
      ondemand::value value = field.value();
      if (std::string* into = argument(key)) {
        if (into == &raw_.dims || into == &raw_.types) {
          *into = std::string_view(simdjson::to_json_string(value));
        } else {
          scalar(value, *into);
        }
        continue;
      }
      if (is_non_finite(value.raw_json_token())) ++raw_.non_finite;
    }
  }

  std::string* argument(std::string_view key) {
    switch (key.size()) {
      case 4:
        return key == "Addr" ? &raw_.address : nullptr;
      case 5:
        return key == "Bytes" ? &raw_.bytes : key == "dtype" ? &raw_.dtype : nullptr;
      case 6:
        if (key == "stream") return &raw_.stream;
        if (key == "device") return &raw_.device;
        if (key == "Ev Idx") return &raw_.index;
        return nullptr;
      case 9:
        return key == "Device Id" ? &raw_.device_id : nullptr;
      case 10:
        return key == "Input Dims" || key == "Input dims" ? &raw_.dims
               : key == "Input type"                      ? &raw_.types
                                                          : nullptr;
      case 11:
        if (key == "correlation") return &raw_.correlation;
        if (key == "External id" || key == "external id") return &raw_.external;
        if (key == "Device Type") return &raw_.device_type;
        return nullptr;
      case 13:
        return key == "Fwd thread id"   ? &raw_.forward_thread
               : key == "In msg nelems" ? &raw_.message
                                        : nullptr;
      case 15:
        if (key == "Sequence number") return &raw_.sequence;
        if (key == "Total Allocated") return &raw_.total;
        if (key == "Collective name") return &raw_.collective;
        return nullptr;
      case 18:
        return key == "Record function id" ? &raw_.record : nullptr;
      default:
        return nullptr;
    }
  }

  std::int64_t nanos(const std::string& text) {
    bool cut = false;
    const auto value = scaled_decimal(text, 3, &cut);
    events_.cut_times += cut ? 1 : 0;
    if (!value) {
      time_ok_ = false;
      return 0;
    }
    return *value;
  }
  static std::int64_t number(const std::string& text, std::int64_t absent) {
    return text.empty() ? absent : scaled_decimal(text, 0).value_or(absent);
  }
  // Ids beyond 64 bits, negative ones and words get a number of their own, away from the real ones.
  std::uint64_t id(const std::string& text) {
    if (text.empty()) return kNoId;
    const auto value = unsigned_integer(text);
    if (value && *value < (std::uint64_t{1} << 63)) return *value;
    return (std::uint64_t{1} << 63) + events_.texts.intern("id:" + text);
  }
  std::uint32_t thread() {
    key_.assign(raw_.pid).append("/").append(raw_.tid);
    return threads_.try_emplace(key_, static_cast<std::uint32_t>(threads_.size())).first->second;
  }
  std::uint32_t stream() {
    key_.assign(raw_.device.empty() ? raw_.pid : raw_.device).append("/");
    key_.append(raw_.stream.empty() ? raw_.tid : raw_.stream);
    return streams_.try_emplace(key_, static_cast<std::uint32_t>(streams_.size())).first->second;
  }

  void take() {
    ++events_.by_phase[raw_.ph.empty() ? "None" : raw_.ph];
    ++events_.by_category[raw_.has_cat ? raw_.cat : "None"];
    if (raw_.dims.size() > 0) ++events_.with_shapes;
    if (!raw_.collective.empty()) collective();
    if (raw_.ph == "X") return complete();
    if (raw_.ph == "i" || raw_.ph == "I") return instant();
    if (raw_.ph == "s" || raw_.ph == "f" || raw_.ph == "t") ++events_.flows;
    if (raw_.ph == "f" && (raw_.cat == "fwdbwd" || raw_.cat == "forward_backward")) {
      time_ok_ = true;
      const std::int64_t ts = nanos(raw_.ts);
      if (time_ok_) events_.backward_flows.emplace_back(thread(), ts);
    }
    if (raw_.ph == "B") {
      ++open_slices_[raw_.pid + "/" + raw_.tid];
      ++events_.slices;
    }
    if (raw_.ph == "E") {
      std::int64_t& open = open_slices_[raw_.pid + "/" + raw_.tid];
      if (open == 0) ++events_.unopened_slices;
      if (open > 0) --open;
    }
  }

  // Metadata of NCCL; the bytes are those of the kernels, which repeat what the operator around them says.
  void collective() {
    ++events_.collectives;
    if (kind() != Kind::kernel) return;
    ++events_.collective_kernels[raw_.collective];
    static constexpr std::pair<std::string_view, std::int64_t> sizes[] = {
        {"Byte", 1},  {"Char", 1}, {"Bool", 1},  {"Half", 2}, {"BFloat16", 2},
        {"Short", 2}, {"Int", 4},  {"Float", 4}, {"Long", 8}, {"Double", 8}};
    for (const auto& [name, bytes] : sizes) {
      if (raw_.dtype == name)
        events_.collective_bytes =
            std::min(events_.collective_bytes +
                         std::clamp<std::int64_t>(number(raw_.message, 0), 0, kMaxBytes / 8) * bytes,
                     std::int64_t{1} << 60);
    }
  }

  enum class Kind : std::uint8_t { other, op, runtime, kernel, copy, set, annotation, python };
  Kind kind() const {
    const std::string& c = raw_.cat;
    if (c == "cpu_op" || c == "Operator" || c == "operator") return Kind::op;
    if (c == "kernel" || c == "Kernel") return Kind::kernel;
    if (c == "gpu_memcpy" || c == "Memcpy") return Kind::copy;
    if (c == "gpu_memset" || c == "Memset") return Kind::set;
    if (c == "cuda_runtime" || c == "Runtime" || c == "cuda_driver" || c == "hip_runtime" ||
        c == "hip_driver" || c == "mtia_runtime" || c == "privateuse1_runtime")
      return Kind::runtime;
    if (c == "user_annotation") return Kind::annotation;
    if (c == "python_function") return Kind::python;
    // Before Kineto the autograd profiler had no categories; the process said which side an event is on.
    if (!raw_.has_cat && raw_.pid == "CUDA functions") return Kind::kernel;
    if (!raw_.has_cat) return Kind::op;
    return Kind::other;
  }

  void complete() {
    std::string& name = raw_.name;
    if (name.find("ackward") != std::string::npos) ++events_.named_backward;
    const Kind what = kind();
    if (what == Kind::python) ++events_.python_frames;
    if (what == Kind::other || what == Kind::python) return;
    if (raw_.ts.empty() || raw_.dur.empty()) {
      ++events_.bad_times;
      return;
    }
    time_ok_ = true;
    const std::int64_t ts = nanos(raw_.ts), dur = nanos(raw_.dur);
    if (!time_ok_ || std::abs(ts) > kMaxTime || dur > kMaxDuration) {
      ++events_.bad_times;
      return;
    }
    if (dur < 0) {
      ++events_.negative_durations;
      return;
    }
    const std::uint32_t text = events_.texts.intern(name);
    switch (what) {
      case Kind::op: {
        if (name.rfind("ProfilerStep", 0) == 0 || name.rfind("Optimizer.", 0) == 0 ||
            name.rfind("enumerate(DataLoader)", 0) == 0) {
          events_.annotations.push_back({ts, dur, thread(), text});
          return;
        }
        CpuOp op{ts, dur, thread(), text};
        op.dims = events_.texts.intern(raw_.dims);
        op.types = events_.texts.intern(raw_.types);
        op.external = id(raw_.external);
        op.record = id(raw_.record);
        op.sequence = number(raw_.sequence, -1);
        op.on_backward_thread = number(raw_.forward_thread, 0) > 0;
        events_.ops.push_back(op);
        return;
      }
      case Kind::runtime:
        events_.launches.push_back({ts, dur, thread(), text, id(raw_.correlation), id(raw_.external)});
        return;
      case Kind::annotation:
        events_.annotations.push_back({ts, dur, thread(), text});
        return;
      default:
        if (ts == 0 && dur == 0) {  // a record that was never filled in
          ++events_.zero_kernels;
          return;
        }
        events_.device.push_back({ts, dur, text, stream(), id(raw_.correlation), id(raw_.external),
                                  what == Kind::kernel ? DeviceWork::kernel
                                  : what == Kind::copy ? DeviceWork::copy
                                                       : DeviceWork::set});
    }
  }

  void instant() {
    if (raw_.name != "[memory]" || raw_.bytes.empty()) return;
    time_ok_ = true;
    const std::int64_t ts = nanos(raw_.ts);
    const auto bytes = scaled_decimal(raw_.bytes, 0);
    if (!time_ok_ || std::abs(ts) > kMaxTime || !bytes || std::abs(*bytes) > kMaxBytes) {
      ++events_.bad_times;
      return;
    }
    MemoryEvent event{ts, *bytes, thread()};
    event.device_type =
        static_cast<std::int32_t>(std::clamp<std::int64_t>(number(raw_.device_type, 0), -1, 1 << 20));
    event.device =
        static_cast<std::int32_t>(std::clamp<std::int64_t>(number(raw_.device_id, -1), -1, 1 << 20));
    event.address = id(raw_.address);
    event.total_allocated = std::clamp<std::int64_t>(number(raw_.total, -1), -1, kMaxBytes);
    event.order = number(raw_.index, events_.total);
    events_.memory.push_back(event);
  }

  std::string name_, key_;
  Events& events_;
  Raw raw_;
  ondemand::parser parser_;
  bool time_ok_ = true;
  std::unordered_map<std::string, std::uint32_t> threads_, streams_;
  std::map<std::string, std::int64_t> open_slices_;
};

}  // namespace

std::uint32_t Texts::intern(std::string_view text) {
  if (const auto found = ids_.find(text); found != ids_.end()) return found->second;
  const auto [it, inserted] = ids_.emplace(text, static_cast<std::uint32_t>(texts_.size()));
  texts_.push_back(&it->first);
  return it->second;
}

Events read_events(const ImportInput& input) {
  Events events;
  Reader reader(input.name(), events);
  const auto source = input.open();
  static constexpr std::string_view arrays[] = {"", "traceEvents"};
  JsonVisitor visitor;
  visitor.element = [&](std::string_view key, std::string_view text, std::uint64_t offset) {
    events.bare_array |= key.empty();
    reader.event(text, offset);
  };
  visitor.member = [&](std::string_view key, std::string_view text) {
    if (key == "schemaVersion") events.schema = std::string(text);
  };
  read_json_elements(*source, input.name(), arrays, visitor);
  reader.finish();
  events.version_text = events.bare_array       ? "bare array"
                        : events.schema.empty() ? "no schemaVersion"
                                                : "schemaVersion " + events.schema;
  return events;
}

}  // namespace swaplab::kineto
