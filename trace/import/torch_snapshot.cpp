#include "trace/import/torch_snapshot.hpp"

#include <algorithm>

#include "trace/error.hpp"
#include "trace/import/pickle.hpp"

namespace swaplab {
namespace {

constexpr std::uint64_t kMaxFile = std::uint64_t{1} << 30;
constexpr std::int64_t kMaxBytes = std::int64_t{1} << 50;
constexpr std::int64_t kMaxTime = std::int64_t{1} << 52;  // us: in ns it still fits

SnapshotAction action_of(std::string_view name) {
  static constexpr std::string_view names[] = {"alloc",         "free_requested", "free_completed",
                                               "segment_alloc", "segment_free",   "segment_map",
                                               "segment_unmap", "snapshot",       "oom"};
  const auto* found = std::find(std::begin(names), std::end(names), name);
  return static_cast<SnapshotAction>(found - std::begin(names));
}

class Reader {
 public:
  // A value may be shared by many containers, so a small pickle could stand for endless events: no real
  // one has more of them than bytes.
  Reader(const Pickle& p, std::string name, std::size_t bytes)
      : p_(p), name_(std::move(name)), budget_(bytes) {}

  TorchSnapshot run() {
    const PickleId root = p_.root();
    const PickleId traces = p_.find(root, "device_traces"), segments = p_.find(root, "segments");
    // torch.cuda.memory_snapshot() alone is the list of segments.
    const bool list_only = p_.kind(root) == PickleKind::list;
    if (!list_only && p_.kind(segments) != PickleKind::list)
      throw Error(ErrorKind::input,
                  name_ + ": a pickle, but no memory snapshot: expected a dict with a list 'segments'");
    this->segments(list_only ? root : segments);
    for (std::size_t d = 0; d < p_.size(traces); ++d) {
      spend(1);
      out_.devices.emplace_back();
      const PickleId list = p_.item(traces, d);
      for (std::size_t i = 0; i < p_.size(list); ++i) event(p_.item(list, i), out_.devices.back());
    }
    settings(p_.find(root, "allocator_settings"));
    annotations(p_.find(root, "external_annotations"));
    return std::move(out_);
  }

 private:
  std::int64_t number(PickleId dict, std::string_view key, std::int64_t absent = -1) const {
    return p_.integer(p_.find(dict, key), absent);
  }

  void spend(std::size_t amount) {
    if (amount > budget_)
      throw Error(ErrorKind::input, name_ + ": more events and blocks than its bytes can hold");
    budget_ -= amount;
  }

  void event(PickleId e, std::vector<SnapshotEvent>& into) {
    spend(1 + p_.size(e));
    const std::string_view action = p_.text(p_.find(e, "action"));
    if (action.empty()) {
      ++out_.rejected;
      return;
    }
    ++out_.actions[std::string(action)];
    SnapshotEvent event{action_of(action), 0, 0, 0, -1};
    // 'oom' has device_free instead of an address.
    event.address = static_cast<std::uint64_t>(number(e, "addr", 0));
    event.bytes = number(e, "size", -1);
    event.stream = static_cast<std::uint64_t>(number(e, "stream", 0));
    event.time_us = number(e, "time_us");
    const bool of_memory = event.action <= SnapshotAction::segment_unmap;
    if (of_memory &&
        (number(e, "addr") <= 0 || event.bytes < 0 || event.bytes > kMaxBytes || event.time_us > kMaxTime)) {
      ++out_.rejected;
      return;
    }
    out_.has_times |= event.time_us >= 0;
    into.push_back(event);
  }

  void segments(PickleId list) {
    for (std::size_t i = 0; i < p_.size(list); ++i) {
      const PickleId s = p_.item(list, i);
      spend(1 + p_.size(s));
      if (p_.kind(s) != PickleKind::dict || number(s, "total_size") < 0)
        throw Error(ErrorKind::input, name_ + ": segment " + std::to_string(i) +
                                          ": expected a dict with an integer 'total_size'");
      SnapshotSegment segment{number(s, "device", 0),
                              static_cast<std::uint64_t>(number(s, "address", 0)),
                              number(s, "total_size"),
                              static_cast<std::uint64_t>(number(s, "stream", 0)),
                              p_.text(p_.find(s, "segment_type")) == "large",
                              number(s, "is_expandable", 0) == 1,
                              {}};
      const PickleId blocks = p_.find(s, "blocks");
      std::uint64_t next = segment.address;  // PyTorch 2.0 gives blocks without addresses
      for (std::size_t b = 0; b < p_.size(blocks); ++b) {
        const PickleId block = p_.item(blocks, b);
        spend(1 + p_.size(block));
        const std::int64_t bytes = number(block, "size");
        if (bytes < 0 || bytes > kMaxBytes)
          throw Error(ErrorKind::input, name_ + ": segment " + std::to_string(i) + ", block " +
                                            std::to_string(b) + ": expected an integer 'size'");
        const std::string_view state = p_.text(p_.find(block, "state"));
        const std::int64_t address = number(block, "address", 0);
        if (address != 0) next = static_cast<std::uint64_t>(address);
        segment.blocks.push_back(
            {next, bytes, number(block, "requested_size"), state.substr(0, 6) == "active"});
        next += static_cast<std::uint64_t>(bytes);
      }
      out_.segments.push_back(std::move(segment));
    }
  }

  void settings(PickleId s) {
    out_.has_settings = p_.kind(s) == PickleKind::dict;
    out_.conf = std::string(p_.text(p_.find(s, "PYTORCH_CUDA_ALLOC_CONF")));
    out_.expandable_segments = number(s, "expandable_segments", 0) == 1;
    out_.max_split_bytes = number(s, "max_split_size");
  }

  void annotations(PickleId list) {
    for (std::size_t i = 0; i < p_.size(list); ++i) {
      const PickleId a = p_.item(list, i);
      spend(1 + p_.size(a));
      const std::int64_t time = number(a, "time_us");
      if (time < 0 || time > kMaxTime) continue;
      out_.annotations.push_back({std::string(p_.text(p_.find(a, "name"))),
                                  p_.text(p_.find(a, "stage")) == "START", number(a, "device", 0), time});
    }
  }

  const Pickle& p_;
  std::string name_;
  std::size_t budget_;
  TorchSnapshot out_;
};

}  // namespace

TorchSnapshot read_torch_snapshot(const ImportInput& input) {
  const std::string bytes = input.read_all(kMaxFile);
  const Pickle pickle(bytes, input.name());
  return Reader(pickle, input.name(), bytes.size()).run();
}

}  // namespace swaplab
