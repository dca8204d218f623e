#include "trace/import/kineto_storages.hpp"

#include <algorithm>
#include <numeric>
#include <tuple>

#include "trace/import/sum.hpp"

namespace swaplab::kineto {
namespace {

// Block key: device and address, or device and size where the schema has no addresses.
using Key = std::tuple<std::int32_t, std::int32_t, std::uint64_t>;

std::int64_t magnitude(std::int64_t bytes) {
  return bytes < 0 ? -std::max(bytes, -std::numeric_limits<std::int64_t>::max()) : bytes;
}

}  // namespace

std::string device_name(std::int32_t type, std::int32_t device) {
  if (type == 0) return "cpu";
  // Device types of PyTorch: 1 is CUDA, 6 is HIP, which PyTorch itself calls cuda.
  const std::string kind = type == 1 || type == 6 ? "cuda" : "device" + std::to_string(type);
  return kind + ":" + std::to_string(std::max(device, 0));
}

Storages match_memory(const Events& events) {
  Storages s;
  const auto& memory = events.memory;
  const bool on_device =
      std::any_of(memory.begin(), memory.end(), [](const auto& m) { return m.device_type != 0; });
  for (std::size_t i = 0; i < memory.size(); ++i) {
    if ((memory[i].device_type != 0) != on_device) {
      ++s.other_device_events;
    } else if (memory[i].bytes != 0) {
      s.rows.push_back(static_cast<std::uint32_t>(i));
    }
  }
  std::sort(s.rows.begin(), s.rows.end(), [&](std::uint32_t a, std::uint32_t b) {
    return std::tie(memory[a].ts, memory[a].order, a) < std::tie(memory[b].ts, memory[b].order, b);
  });
  s.addressed = !s.rows.empty() && std::all_of(s.rows.begin(), s.rows.end(),
                                               [&](std::uint32_t r) { return memory[r].address != kNoId; });
  std::map<Key, std::vector<std::uint32_t>> live;  // the newest last
  std::int64_t now = 0, from_before = 0;
  for (const std::uint32_t row : s.rows) {
    const MemoryEvent& m = memory[row];
    const std::int64_t bytes = magnitude(m.bytes);
    auto& blocks =
        live[{m.device_type, m.device, s.addressed ? m.address : static_cast<std::uint64_t>(bytes)}];
    if (m.bytes > 0) {
      ++s.allocations;
      add_checked(s.allocated_bytes, bytes);
      add_checked(now, bytes);
      if (s.addressed && !blocks.empty()) {  // its free is lost; it cannot live on under the new block
        ++s.repeated_allocations;
        s.lifetimes[blocks.back()].death = row;
        now -= s.lifetimes[blocks.back()].bytes;
        blocks.pop_back();
      }
      blocks.push_back(static_cast<std::uint32_t>(s.lifetimes.size()));
      s.lifetimes.push_back({bytes, row, kNoIndex, m.device_type, m.device});
    } else {
      ++s.frees;
      if (blocks.empty()) {
        ++s.unmatched_frees;
        add_checked(from_before, bytes);
        s.lifetimes.push_back({bytes, kNoIndex, row, m.device_type, m.device});
      } else {
        s.lifetimes[blocks.back()].death = row;
        now -= s.lifetimes[blocks.back()].bytes;
        blocks.pop_back();
      }
    }
    s.peak = std::max(s.peak, m.total_allocated >= 0 ? m.total_allocated : now);
  }
  for (const Lifetime& l : s.lifetimes) s.left_live += l.birth != kNoIndex && l.death == kNoIndex ? 1 : 0;
  // Each device states its own total; its first event gives what lived before.
  std::map<std::pair<std::int32_t, std::int32_t>, bool> seen;
  std::int64_t before = 0;
  bool known = false;
  for (const std::uint32_t row : s.rows) {
    const MemoryEvent& m = memory[row];
    if (m.total_allocated < 0 || !seen.try_emplace({m.device_type, m.device}, true).second) continue;
    add_checked(before, std::max<std::int64_t>(m.total_allocated - m.bytes, 0));
    known = true;
  }
  if (known) s.baseline = std::max<std::int64_t>(before - from_before, 0);
  return s;
}

void report_storages(const Storages& s, ImportReport& report) {
  report.add_found("storages", static_cast<std::int64_t>(s.lifetimes.size()));
  report.add_found("allocations", s.allocations);
  report.add_found("frees", s.frees);
  report.add_found("allocated_bytes", s.allocated_bytes);
  if (s.peak >= 0) report.add_found("peak_bytes", s.peak);
  report.add_found("live_at_end", s.left_live);
  report.baseline = Bytes{s.baseline};
  const auto paired = s.frees - s.unmatched_frees;
  report.derive("storage identity", paired,
                s.addressed
                    ? "an allocation and the next free of the same address are one storage"
                    : "the events have no addresses: a free ends the newest live storage of its size");
  report.derive("storages from before", s.unmatched_frees,
                "freed here, allocated before the profile began: they live from its start");
  report.drop("allocations of a live address", s.repeated_allocations,
              "the free between is not in the file; the older storage ends there");
  report.drop("host memory events", s.other_device_events, "a swap study moves device memory");
}

}  // namespace swaplab::kineto
