#include "trace/import/kineto_link.hpp"

#include <algorithm>

#include "trace/import/kineto_nesting.hpp"
#include "trace/import/sum.hpp"

namespace swaplab::kineto {
namespace {

constexpr std::size_t kGram = 6;    // names in a row that vote for a place
constexpr std::size_t kReach = 64;  // operators that one side may have and the other not, at one place

struct Unit {
  std::string_view name;
  std::int64_t ts, host_time, device_time = 0;
  std::uint64_t record;
};

// The profile's operators in program order, with the device time that each launched; device work that no
// operator launched follows by its own time.
std::vector<Unit> units_of(const Events& e) {
  const Nesting n = nest(e);
  std::vector<std::uint32_t> unit_of(e.ops.size(), kNoIndex);
  std::vector<Unit> units;
  const auto add = [&](std::uint32_t op) {
    unit_of[op] = static_cast<std::uint32_t>(units.size());
    units.push_back({e.texts[e.ops[op].name], e.ops[op].ts, e.ops[op].dur, 0, e.ops[op].record});
  };
  for (std::uint32_t i = 0; i < e.ops.size(); ++i) {
    if (n.unit[i] == i && is_dispatched(e.texts[e.ops[i].name])) add(i);
  }
  for (std::size_t i = 0; i < e.device.size(); ++i) {
    const DeviceEvent& d = e.device[i];
    if (n.device_op[i] == kNoIndex) {
      units.push_back({e.texts[d.name], d.ts, 0, d.dur, kNoId});
      continue;
    }
    const std::uint32_t unit = n.unit[n.device_op[i]];
    if (unit_of[unit] == kNoIndex) add(unit);
    add_checked(units[unit_of[unit]].device_time, d.dur);
  }
  std::stable_sort(units.begin(), units.end(), [](const Unit& a, const Unit& b) { return a.ts < b.ts; });
  return units;
}

std::uint64_t gram(std::span<const std::string_view> names) {
  std::uint64_t hash = 1469598103934665603u;
  for (const std::string_view name : names) {
    for (const char c : name) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211u;
    hash = (hash ^ 0xffu) * 1099511628211u;
  }
  return hash;
}

// Where in `there` the names `here` begin: the offset that most runs of kGram names vote for.
std::int64_t best_offset(std::span<const std::string_view> here, std::span<const std::string_view> there) {
  std::unordered_map<std::uint64_t, std::vector<std::uint32_t>> places;
  for (std::size_t i = 0; i + kGram <= here.size(); ++i) {
    auto& list = places[gram(here.subspan(i, kGram))];
    if (list.size() < 16) list.push_back(static_cast<std::uint32_t>(i));
  }
  std::map<std::int64_t, std::int64_t> votes;
  for (std::size_t j = 0; j + kGram <= there.size(); ++j) {
    const auto found = places.find(gram(there.subspan(j, kGram)));
    if (found == places.end()) continue;
    for (const std::uint32_t i : found->second) ++votes[static_cast<std::int64_t>(j) - i];
  }
  std::int64_t best = 0, most = 0;
  for (const auto& [offset, count] : votes) {
    if (count > most) {
      most = count;
      best = offset;
    }
  }
  return best;
}

}  // namespace

Link link_operators(const Events& events, std::span<const std::string_view> names,
                    std::span<const std::uint64_t> records) {
  Link link;
  link.device_time.assign(names.size(), -1);
  link.host_time.assign(names.size(), -1);
  const std::vector<Unit> units = units_of(events);
  for (const Unit& u : units) add_checked(link.total, u.device_time);
  std::vector<std::uint32_t> match(units.size(), kNoIndex);  // operator
  const auto take = [&](std::size_t unit, std::size_t op) {
    match[unit] = static_cast<std::uint32_t>(op);
    link.device_time[op] = units[unit].device_time;
    link.host_time[op] = units[unit].host_time;
    link.linked += units[unit].device_time;
    ++link.matched;
  };
  std::unordered_map<std::uint64_t, std::size_t> by_record;
  for (std::size_t i = 0; i < names.size(); ++i) {
    if (records[i] != 0) by_record.try_emplace(records[i], i);
  }
  for (std::size_t j = 0; j < units.size(); ++j) {
    const auto found = by_record.find(units[j].record);
    if (units[j].record == kNoId || found == by_record.end() || link.device_time[found->second] >= 0 ||
        names[found->second] != units[j].name)
      continue;
    take(j, found->second);
    ++link.by_record;
  }
  if (link.by_record == 0) {
    std::vector<std::string_view> there;
    there.reserve(units.size());
    for (const Unit& u : units) there.push_back(u.name);
    const std::int64_t offset = best_offset(names, there);
    std::size_t i = static_cast<std::size_t>(std::max<std::int64_t>(-offset, 0));
    std::size_t j = static_cast<std::size_t>(std::max<std::int64_t>(offset, 0));
    // Both sides step together; where they differ, the nearest place where two names in a row agree again.
    const auto agree = [&](std::size_t a, std::size_t b) {
      if (a >= names.size() || b >= there.size() || names[a] != there[b]) return false;
      return a + 1 >= names.size() || b + 1 >= there.size() || names[a + 1] == there[b + 1];
    };
    while (i < names.size() && j < there.size()) {
      if (names[i] == there[j]) {
        take(j++, i++);
        continue;
      }
      bool found = false;
      for (std::size_t sum = 1; sum <= kReach && !found; ++sum) {
        for (std::size_t a = 0; a <= sum && !found; ++a) {
          if (!agree(i + a, j + sum - a)) continue;
          i += a;
          j += sum - a;
          found = true;
        }
      }
      if (!found) {
        ++i;
        ++j;
      }
    }
  }
  // Device work between the first and the last linked unit stays in the trace, before the next operator.
  std::size_t first = units.size(), last = 0;
  for (std::size_t j = 0; j < units.size(); ++j) {
    if (match[j] == kNoIndex) continue;
    first = std::min(first, j);
    last = j;
  }
  // A profile of about the same extent belongs to the trace as a whole.
  if (units.size() <= names.size() + names.size() / 2 + kReach) {
    first = 0;
    last = units.empty() ? 0 : units.size() - 1;
  }
  std::size_t next = 0;
  for (std::size_t j = first; j < units.size() && j <= last; ++j) {
    if (match[j] != kNoIndex) {
      next = std::max<std::size_t>(next, match[j] + 1);
    } else if (units[j].device_time > 0) {
      link.unclaimed.push_back({next, units[j].name, units[j].device_time});
      link.unclaimed_time += units[j].device_time;
    }
  }
  return link;
}

}  // namespace swaplab::kineto
