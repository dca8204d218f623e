// Programs built by hand for tests and benchmarks of the bound.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

#include "sim/program.hpp"

namespace swaplab::test {

// Small deterministic generator: the same numbers with every standard library.
class Dice {
 public:
  explicit Dice(std::uint64_t seed) : state_(seed * 0x9e3779b97f4a7c15U + 1) {}
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9e3779b97f4a7c15U);
    z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9U;
    z = (z ^ (z >> 27)) * 0x94d049bb133111ebU;
    return z ^ (z >> 31);
  }
  // Uniform enough in [low, high].
  std::int64_t in(std::int64_t low, std::int64_t high) {
    return low + static_cast<std::int64_t>(next() % static_cast<std::uint64_t>(high - low + 1));
  }
  bool chance(std::int64_t percent) { return in(1, 100) <= percent; }

 private:
  std::uint64_t state_;
};

class ProgramBuilder {
 public:
  struct Use {
    std::uint32_t slot;
    int flags;
  };

  ProgramBuilder() {
    p_.access_begin.push_back(0);
    p_.gap_begin.push_back(0);
    std::vector<std::uint64_t> offsets{0, 0};
    p_.names = StringTable(Column<std::uint64_t>(offsets), Column<char>(std::vector<char>{}));
  }

  std::uint32_t storage(std::int64_t bytes, bool initial = false) {
    p_.bytes.push_back(Bytes{bytes});
    p_.cls.push_back(StorageClass::unknown);
    p_.home_stream.push_back(0);
    p_.initial.push_back(initial ? 1 : 0);
    p_.birth.push_back(initial ? 0 : kNever);
    p_.death.push_back(kNever);
    p_.origin.push_back(StorageId{p_.slot_count() - 1});
    p_.slot_name.push_back(NameId{0});
    return p_.slot_count() - 1;
  }

  void op(std::int64_t time, const std::vector<Use>& uses, std::uint16_t stream = 0) {
    const std::uint32_t op = p_.op_count();
    for (const Use& use : uses) {
      p_.accesses.push_back({Slot{use.slot}, static_cast<std::uint8_t>(use.flags)});
      if (p_.birth[use.slot] == kNever) {
        p_.birth[use.slot] = op;
        p_.gap_events.push_back({Slot{use.slot}, false});
      }
    }
    p_.access_begin.push_back(static_cast<std::uint32_t>(p_.accesses.size()));
    p_.gap_begin.push_back(static_cast<std::uint32_t>(p_.gap_events.size()));
    p_.device_time.push_back(Nanos{time});
    p_.host_time.push_back(Nanos{0});
    p_.op_flags.push_back(uses.empty() ? 0 : kKernel);
    p_.stream.push_back(stream);
    p_.stream_count = std::max<std::uint16_t>(p_.stream_count, static_cast<std::uint16_t>(stream + 1));
    p_.phase.push_back(Phase::unknown);
    p_.name.push_back(NameId{0});
    p_.signature.push_back(SigId{0});
  }

  // Closes an iteration behind the last operator.
  void end_iteration() {
    const std::uint32_t first = p_.iterations.empty() ? 0 : p_.iterations.back().end_op;
    const auto number = static_cast<std::int64_t>(p_.iterations.size());
    p_.iterations.push_back({number, IterationKind::train, false, first, p_.op_count()});
  }

  std::uint32_t op_count() const { return p_.op_count(); }

  Program finish() {
    p_.gap_begin.push_back(static_cast<std::uint32_t>(p_.gap_events.size()));
    const auto count = static_cast<std::uint32_t>(p_.iterations.size());
    p_.steady_first = count >= 2 ? 1 : 0;
    p_.steady_end = count >= 4 ? count - 1 : count;
    return std::move(p_);
  }

 private:
  Program p_;
};

// A training run in miniature: per iteration `layers` x `per_layer` forward operators that save an activation
// each, the backward operators that read them in reverse and write gradients, and an optimizer step over
// parameters and one state each. Sizes and times vary by layer. Gradients die with the step.
inline Program training_program(int layers, int per_layer, int iterations, std::int64_t activation_bytes,
                                std::int64_t op_time, std::uint64_t seed) {
  Dice dice(seed);
  ProgramBuilder b;
  std::vector<std::uint32_t> parameter, state;
  std::vector<std::int64_t> bytes, time;
  for (int l = 0; l < layers; ++l) {
    bytes.push_back(activation_bytes * dice.in(50, 150) / 100);
    time.push_back(op_time * dice.in(50, 150) / 100);
    parameter.push_back(b.storage(bytes.back() / 8 + 1, true));
    state.push_back(b.storage(bytes.back() / 4 + 1, true));
  }
  for (int it = 0; it < iterations; ++it) {
    std::uint32_t previous = b.storage(activation_bytes);
    std::vector<std::vector<std::uint32_t>> saved(static_cast<std::size_t>(layers));
    b.op(op_time, {{previous, kWrite | kCreate}});
    for (std::size_t l = 0; l < saved.size(); ++l) {
      for (int k = 0; k < per_layer; ++k) {
        const std::uint32_t out = b.storage(bytes[l]);
        b.op(time[l], {{previous, kRead}, {parameter[l], kRead}, {out, kWrite | kCreate}});
        saved[l].push_back(previous);
        previous = out;
      }
    }
    std::vector<std::uint32_t> gradient;
    for (std::size_t l = saved.size(); l-- > 0;) {
      gradient.push_back(b.storage(bytes[l] / 8 + 1));
      for (std::size_t k = saved[l].size(); k-- > 0;) {
        const std::uint32_t out = b.storage(bytes[l]);
        const int flags = k + 1 == saved[l].size() ? kWrite | kCreate : kRead | kWrite;
        b.op(2 * time[l], {{previous, kRead},
                           {saved[l][k], kRead},
                           {parameter[l], kRead},
                           {gradient.back(), flags},
                           {out, kWrite | kCreate}});
        previous = out;
      }
    }
    for (std::size_t l = 0; l < saved.size(); ++l) {
      b.op(op_time / 4 + 1, {{parameter[l], kRead | kWrite},
                             {state[l], kRead | kWrite},
                             {gradient[saved.size() - 1 - l], kRead}});
    }
    b.end_iteration();
  }
  return b.finish();
}

struct TinyOptions {
  int max_storages = 6, max_ops = 9;
  std::int64_t max_bytes = 6, max_time = 8;
  std::int64_t max_streams = 1;
  std::int64_t max_host_time = 0;  // above 0, some operators synchronize, too
};

// A random program small enough for exhaustive search. Unused storages are possible, as in real traces.
inline Program tiny_program(Dice& dice, TinyOptions options = {}) {
  ProgramBuilder b;
  const auto storages = dice.in(2, options.max_storages);
  const auto ops = dice.in(3, options.max_ops);
  std::vector<std::uint8_t> known;
  for (std::int64_t s = 0; s < storages; ++s) {
    const bool initial = dice.chance(30);
    b.storage(dice.in(1, options.max_bytes), initial);
    known.push_back(initial ? 1 : 0);
  }
  // Half of them run forward and back over the storages like a training step, half are without order.
  const bool folded = dice.chance(50);
  for (std::int64_t k = 0; k < ops; ++k) {
    std::vector<ProgramBuilder::Use> uses;
    const auto use = [&](std::uint32_t slot) {
      for (const auto& u : uses) {
        if (u.slot == slot) return;
      }
      int flags = kRead;
      if (known[slot] == 0 && !dice.chance(10)) {
        flags = kWrite | kCreate;
      } else if (dice.chance(25)) {
        flags = dice.chance(10) ? kWrite : kRead | kWrite;
      }
      known[slot] = 1;
      uses.push_back({slot, flags});
    };
    if (folded) {
      const auto position = k < (ops + 1) / 2 ? k : ops - 1 - k;
      use(static_cast<std::uint32_t>(position % storages));
      if (dice.chance(30)) use(static_cast<std::uint32_t>((position + 1) % storages));
    }
    const auto extra = folded ? dice.in(0, 1) : dice.in(1, 2);
    for (std::int64_t e = 0; e < extra; ++e) use(static_cast<std::uint32_t>(dice.in(0, storages - 1)));
    // Rarely an operator without accesses (a view) or of no duration.
    if (dice.chance(4)) uses.clear();
    const std::int64_t time = uses.empty() || dice.chance(5) ? 0 : dice.in(1, options.max_time);
    b.op(time, uses,
         options.max_streams == 1 ? std::uint16_t{0}
                                  : static_cast<std::uint16_t>(dice.in(0, options.max_streams - 1)));
  }
  b.end_iteration();
  Program program = b.finish();
  if (options.max_host_time == 0) return program;
  for (std::uint32_t op = 0; op < program.op_count(); ++op) {
    program.host_time[op] = Nanos{dice.in(0, options.max_host_time)};
    if (dice.chance(25)) program.op_flags[op] |= kSync;
  }
  return program;
}

}  // namespace swaplab::test
