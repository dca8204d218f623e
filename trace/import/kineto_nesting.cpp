#include "trace/import/kineto_nesting.hpp"

#include <algorithm>

namespace swaplab::kineto {
namespace {

enum class Item : std::uint8_t { op, launch, memory };
struct Entry {
  std::uint32_t thread;
  Item item;
  std::uint32_t row;
  std::int64_t ts, dur;
  std::int64_t order;
};

std::vector<Entry> entries(const Events& e) {
  std::vector<Entry> all;
  all.reserve(e.ops.size() + e.launches.size() + e.memory.size());
  const auto row = [](std::size_t i) { return static_cast<std::uint32_t>(i); };
  for (std::size_t i = 0; i < e.ops.size(); ++i)
    all.push_back({e.ops[i].thread, Item::op, row(i), e.ops[i].ts, e.ops[i].dur, 0});
  for (std::size_t i = 0; i < e.launches.size(); ++i)
    all.push_back({e.launches[i].thread, Item::launch, row(i), e.launches[i].ts, 0, 0});
  for (std::size_t i = 0; i < e.memory.size(); ++i)
    all.push_back({e.memory[i].thread, Item::memory, row(i), e.memory[i].ts, 0, e.memory[i].order});
  std::sort(all.begin(), all.end(), [](const Entry& a, const Entry& b) {
    if (a.thread != b.thread) return a.thread < b.thread;
    if (a.ts != b.ts) return a.ts < b.ts;
    if (a.item != b.item) return a.item < b.item;
    if (a.dur != b.dur) return a.dur > b.dur;
    if (a.order != b.order) return a.order < b.order;
    return a.row < b.row;
  });
  return all;
}

// Device events to launches by correlation, to operators by the launch or by External id.
void link_device(const Events& e, Nesting& n) {
  std::unordered_map<std::uint64_t, std::uint32_t> launch_of, op_of;
  launch_of.reserve(e.launches.size());
  for (std::size_t i = 0; i < e.launches.size(); ++i) {
    if (e.launches[i].correlation != kNoId)
      launch_of.try_emplace(e.launches[i].correlation, static_cast<std::uint32_t>(i));
  }
  for (std::size_t i = 0; i < e.ops.size(); ++i) {
    if (e.ops[i].external != kNoId) op_of.try_emplace(e.ops[i].external, static_cast<std::uint32_t>(i));
  }
  n.device_launch.assign(e.device.size(), kNoIndex);
  n.device_op.assign(e.device.size(), kNoIndex);
  for (std::size_t i = 0; i < e.device.size(); ++i) {
    const DeviceEvent& d = e.device[i];
    if (const auto found = launch_of.find(d.correlation);
        d.correlation != kNoId && found != launch_of.end()) {
      n.device_launch[i] = found->second;
      n.device_op[i] = n.launch_op[found->second];
      if (n.device_op[i] != kNoIndex) continue;
    }
    // In traces of 2022 and 2023 a kernel's External id repeats its correlation and names no operator.
    const auto by_external = op_of.find(d.external);
    const bool usable = d.external != kNoId && d.external != d.correlation && by_external != op_of.end() &&
                        e.ops[by_external->second].ts <= d.ts + d.dur;
    if (usable) {
      n.device_op[i] = by_external->second;
      n.by_external += n.device_launch[i] == kNoIndex ? 1 : 0;
    } else if (n.device_launch[i] == kNoIndex) {
      ++n.without_launch;
    }
  }
}

}  // namespace

bool is_dispatched(std::string_view name) {
  if (name.find("::") == std::string_view::npos) return false;
  return name.rfind("autograd::", 0) != 0 && name.rfind("torch::autograd::", 0) != 0;
}

Nesting nest(const Events& e) {
  Nesting n;
  n.parent.assign(e.ops.size(), kNoIndex);
  n.unit.assign(e.ops.size(), kNoIndex);
  n.launch_op.assign(e.launches.size(), kNoIndex);
  n.memory_op.assign(e.memory.size(), kNoIndex);
  struct Open {
    std::uint32_t op;
    std::int64_t end;
  };
  std::vector<Open> stack;
  std::vector<std::uint8_t> dispatched(e.ops.size(), 0);
  std::uint32_t thread = kNoIndex;
  for (const Entry& entry : entries(e)) {
    if (entry.thread != thread) stack.clear();
    thread = entry.thread;
    if (entry.item != Item::op) {
      while (!stack.empty() && stack.back().end < entry.ts) stack.pop_back();
      const std::uint32_t around = stack.empty() ? kNoIndex : stack.back().op;
      (entry.item == Item::launch ? n.launch_op : n.memory_op)[entry.row] = around;
      continue;
    }
    while (!stack.empty() && stack.back().end <= entry.ts) stack.pop_back();
    std::int64_t end = entry.ts + entry.dur;
    const std::uint32_t row = entry.row;
    if (!stack.empty()) {
      n.parent[row] = stack.back().op;
      if (end > stack.back().end) {
        ++n.clamped;
        end = stack.back().end;
      }
    }
    const std::uint32_t parent = n.parent[row];
    if (parent != kNoIndex && dispatched[n.unit[parent]] != 0) {
      n.unit[row] = n.unit[parent];
    } else {
      n.unit[row] = row;
    }
    dispatched[row] = is_dispatched(e.texts[e.ops[row].name]) ? 1 : 0;
    stack.push_back({row, end});
  }
  link_device(e, n);
  return n;
}

}  // namespace swaplab::kineto
