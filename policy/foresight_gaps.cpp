#include "policy/foresight_gaps.hpp"

#include <algorithm>
#include <map>
#include <utility>

namespace swaplab::foresight {
namespace {

class Hash {
 public:
  void add(std::uint64_t value) {
    state_ = (state_ ^ value) * 0x9E3779B97F4A7C15ull;
    state_ ^= state_ >> 29;
  }
  std::uint64_t value() const { return state_; }

 private:
  std::uint64_t state_ = 0x243F6A8885A308D3ull;
};

std::uint64_t iteration_hash(const Program& program, const ProgramIteration& iteration) {
  Hash hash;
  for (std::uint32_t op = iteration.first_op; op < iteration.end_op; ++op) {
    hash.add(static_cast<std::uint64_t>(program.device_time[op].value));
    for (const Access& access : program.accesses_of(op)) {
      hash.add(static_cast<std::uint64_t>(program.bytes[index(access.slot)].value) * 8 + access.flags);
    }
    for (const GapEvent& event : program.gap(op)) {
      hash.add(static_cast<std::uint64_t>(program.bytes[index(event.slot)].value) * 2 +
               (event.is_free ? 1 : 0));
    }
  }
  return hash.value();
}

void classify_iterations(const Program& program, GapTable& table) {
  std::map<std::uint64_t, std::uint32_t> classes;
  for (const ProgramIteration& iteration : program.iterations) {
    const auto next = static_cast<std::uint32_t>(classes.size());
    table.iteration_class.push_back(classes.emplace(iteration_hash(program, iteration), next).first->second);
  }
}

// A decision repeats when both the iteration that opens the gap and the one after it are alike.
void number_keys(const Program& program, GapTable& table) {
  std::map<std::pair<std::uint32_t, std::uint32_t>, std::uint32_t> first_key;
  table.key.resize(program.accesses.size());
  for (std::size_t i = 0; i < program.iterations.size(); ++i) {
    const ProgramIteration& iteration = program.iterations[i];
    const std::uint32_t follower = i + 1 < program.iterations.size() ? table.iteration_class[i + 1] : kNever;
    const std::uint32_t begin = program.access_begin[iteration.first_op];
    const std::uint32_t end = program.access_begin[iteration.end_op];
    const auto [it, fresh] =
        first_key.emplace(std::pair{table.iteration_class[i], follower}, table.key_count);
    if (fresh) table.key_count += end - begin;
    for (std::uint32_t a = begin; a < end; ++a) table.key[a] = it->second + (a - begin);
  }
}

void profile_live_bytes(const Program& program, Bytes granularity, GapTable& table) {
  std::int64_t live = 0;
  for (std::uint32_t s = 0; s < program.slot_count(); ++s) {
    if (program.initial[s] != 0) live += rounded(program.bytes[s], granularity);
  }
  table.live.resize(program.op_count());
  table.surge.resize(program.op_count());
  for (std::uint32_t op = 0; op < program.op_count(); ++op) {
    std::int64_t highest = 0;
    for (const GapEvent& event : program.gap(op)) {
      const std::int64_t bytes = rounded(program.bytes[index(event.slot)], granularity);
      live += event.is_free ? -bytes : bytes;
      if (!event.is_free) highest = std::max(highest, live);
    }
    table.live[op] = live;
    table.surge[op] = std::max<std::int64_t>(0, highest - live);
  }
}

}  // namespace

GapTable find_gaps(const Program& program, Bytes granularity) {
  GapTable table;
  table.first_use.assign(program.slot_count(), kNever);
  table.next.resize(program.accesses.size());
  for (std::uint32_t op = program.op_count(); op-- > 0;) {
    for (std::uint32_t a = program.access_begin[op]; a < program.access_begin[op + 1]; ++a) {
      std::uint32_t& following = table.first_use[index(program.accesses[a].slot)];
      table.next[a] = following;
      following = op;
    }
  }
  classify_iterations(program, table);
  number_keys(program, table);
  profile_live_bytes(program, granularity, table);
  return table;
}

}  // namespace swaplab::foresight
