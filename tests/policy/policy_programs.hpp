// Programs written operator by operator, with phases, and a device without costs of its own.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <random>
#include <string>
#include <vector>

#include "policy/registry.hpp"
#include "sim/run.hpp"

namespace swaplab::test {

// One compute stream, free host calls, `rate` bytes per second each way.
inline Machine plain_machine(std::int64_t rate) {
  Machine machine;
  machine.name = "plain";
  machine.hbm_capacity = Bytes{std::int64_t{1} << 40};
  machine.launch_queue_depth = 0;
  machine.host_memory.capacity = Bytes{std::int64_t{1} << 40};
  machine.host_memory.round_to_power_of_two = false;
  machine.pinned = {TransferTable({{Bytes{0}, Nanos{0}}}, rate), TransferTable({{Bytes{0}, Nanos{0}}}, rate)};
  machine.pageable = machine.pinned;
  return machine;
}

class ProgramWriter {
 public:
  ProgramWriter() {
    program_.names = StringTable(Column<std::uint64_t>(std::vector<std::uint64_t>{0, 0}), Column<char>());
    program_.access_begin.push_back(0);
    program_.gap_begin.push_back(0);
  }
  Slot initial(std::int64_t bytes, StorageClass cls = StorageClass::parameter) {
    return add(bytes, cls, true);
  }
  Slot allocate(std::int64_t bytes, StorageClass cls = StorageClass::unknown) {
    const Slot slot = add(bytes, cls, false);
    program_.gap_events.push_back({slot, false});
    return slot;
  }
  void free(Slot slot) {
    program_.gap_events.push_back({slot, true});
    program_.death[index(slot)] = program_.op_count();
    live_ -= program_.bytes[index(slot)].value;
  }
  // A kernel of 1 us that reads and writes distinct storages. Returns its number.
  std::uint32_t op(Phase phase, const std::vector<Slot>& reads, const std::vector<Slot>& writes) {
    Program& p = program_;
    const std::uint32_t number = p.op_count();
    std::int64_t working_set = 0;
    for (const Slot slot : reads) p.accesses.push_back({slot, kRead});
    for (const Slot slot : writes) {
      const bool fresh = p.initial[index(slot)] == 0 && p.birth[index(slot)] == number;
      p.accesses.push_back({slot, static_cast<std::uint8_t>(fresh ? kWrite | kCreate : kWrite)});
    }
    for (std::size_t i = p.access_begin.back(); i < p.accesses.size(); ++i) {
      working_set += p.bytes[index(p.accesses[i].slot)].value;
    }
    if (working_set > p.largest_working_set.value) {
      p.largest_working_set = Bytes{working_set};
      p.largest_working_set_op = number;
    }
    p.gap_begin.push_back(static_cast<std::uint32_t>(p.gap_events.size()));
    p.access_begin.push_back(static_cast<std::uint32_t>(p.accesses.size()));
    p.device_time.push_back(Nanos{1000});
    p.host_time.push_back(Nanos{0});
    p.op_flags.push_back(kKernel);
    p.stream.push_back(0);
    p.phase.push_back(phase);
    p.name.push_back(NameId{});
    p.signature.push_back(SigId{});
    return number;
  }
  void end_iteration(IterationKind kind = IterationKind::train) {
    auto& list = program_.iterations;
    const std::uint32_t first = list.empty() ? 0 : list.back().end_op;
    list.push_back({static_cast<std::int64_t>(list.size()), kind, false, first, program_.op_count()});
  }
  Program finish() {
    program_.gap_begin.push_back(static_cast<std::uint32_t>(program_.gap_events.size()));
    if (program_.iterations.empty()) end_iteration();
    program_.steady_first = 0;
    program_.steady_end = static_cast<std::uint32_t>(program_.iterations.size());
    program_.peak_bytes = Bytes{peak_};
    return program_;
  }

 private:
  Slot add(std::int64_t bytes, StorageClass cls, bool is_initial) {
    Program& p = program_;
    const Slot slot{p.slot_count()};
    p.origin.push_back(StorageId{p.slot_count()});
    p.bytes.push_back(Bytes{bytes});
    p.cls.push_back(cls);
    p.home_stream.push_back(0);
    p.initial.push_back(is_initial ? 1 : 0);
    p.birth.push_back(is_initial ? 0 : p.op_count());
    p.death.push_back(kNever);
    p.slot_name.push_back(NameId{});
    live_ += bytes;
    peak_ = std::max(peak_, live_);
    return slot;
  }
  Program program_;
  std::int64_t live_ = 0, peak_ = 0;
};

// A chain of `layers`: activation i is made by forward operator i and used last by backward operator i;
// operators between them read only the parameter. Slot 0 is the parameter, slot 1 + i activation i.
inline Program chain(std::uint32_t layers, std::uint32_t micro_batches, std::int64_t activation_bytes) {
  ProgramWriter w;
  const Slot weight = w.initial(64);
  for (std::uint32_t m = 0; m < micro_batches; ++m) {
    std::vector<Slot> saved;
    for (std::uint32_t i = 0; i < layers; ++i) {
      saved.push_back(w.allocate(activation_bytes));
      w.op(Phase::forward, {weight}, {saved.back()});
    }
    for (std::uint32_t i = layers; i-- > 0;) {
      w.op(Phase::backward, {weight, saved[i]}, {});
      w.free(saved[i]);
    }
  }
  w.op(Phase::optimizer, {}, {weight});
  return w.finish();
}

// Random operators over a changing set of live storages of random sizes, some of them empty.
inline Program random_program(std::uint32_t seed, std::uint32_t operators) {
  std::mt19937 random(seed);
  const auto draw = [&](std::uint32_t count) { return static_cast<std::uint32_t>(random() % count); };
  ProgramWriter w;
  std::vector<Slot> live;
  for (std::uint32_t i = 0; i < 3; ++i) live.push_back(w.initial(512 * (1 + draw(20))));
  for (std::uint32_t i = 0; i < operators; ++i) {
    std::vector<Slot> reads, writes;
    while (live.size() > 4 && draw(3) == 0) {
      const std::uint32_t which = draw(static_cast<std::uint32_t>(live.size()));
      w.free(live[which]);
      live.erase(live.begin() + which);
    }
    for (std::uint32_t k = 0; k < 1 + draw(3); ++k) {
      const Slot slot = live[draw(static_cast<std::uint32_t>(live.size()))];
      if (std::find(reads.begin(), reads.end(), slot) == reads.end()) reads.push_back(slot);
    }
    if (draw(4) == 0) {
      writes.push_back(reads.back());
      reads.pop_back();
    }
    if (draw(3) != 0 || live.size() < 4) {
      live.push_back(w.allocate(draw(10) == 0 ? 0 : 512 * static_cast<std::int64_t>(1 + draw(40))));
      writes.push_back(live.back());
    }
    const auto phase = i < operators / 2 ? Phase::forward : Phase::backward;
    w.op(phase, reads, writes);
  }
  return w.finish();
}

// Runs a policy as users name it.
inline RunResult run_policy(const std::string& text, const Program& program, const Machine& machine,
                            Bytes budget, AllocatorKind allocator = AllocatorKind::ideal,
                            Schedule* schedule = nullptr) {
  const auto specs = parse_policies(text);
  const auto policy = specs.at(0).factory->make(specs[0].values);
  RunOptions options;
  options.budget = budget;
  options.allocator = allocator;
  options.needs = specs[0].factory->info().needs;
  options.schedule = schedule;
  return run_program(program, machine, *policy, options);
}

}  // namespace swaplab::test
