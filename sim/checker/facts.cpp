#include "sim/checker/facts.hpp"

#include <algorithm>

namespace swaplab::checker {
namespace {

// A GPU run keeps these on the host: see the rules in sim/program.hpp.
std::vector<bool> find_device_storages(const Trace& trace) {
  const auto& table = trace.storages;
  const auto is_cpu = [&](std::size_t s) { return trace.names[table.device[s]] == "cpu"; };
  std::vector<bool> on_device(table.size());
  bool recorded_on_cpu = true;
  for (std::size_t s = 0; s < table.size(); ++s) {
    on_device[s] = !is_cpu(s);
    if (on_device[s]) recorded_on_cpu = false;
  }
  if (recorded_on_cpu) {
    for (std::size_t s = 0; s < table.size(); ++s) {
      const bool step_counter =
          table.cls[s] == StorageClass::optimizer_state && trace.names[table.name[s]].ends_with(".step");
      on_device[s] = !step_counter;
    }
  }
  for (std::uint32_t op = 0; op < trace.ops.size(); ++op) {  // profiler hooks live on the host
    if (trace.op_name(op).substr(0, 9) != "profiler.") continue;
    for (const StorageId s : trace.outputs(op)) on_device[index(s)] = false;
  }
  return on_device;
}

std::vector<IterationRange> cover_operators(const Trace& trace) {
  const auto count = static_cast<std::uint32_t>(trace.ops.size());
  std::vector<IterationRange> ranges;
  for (const Iteration& it : trace.iterations) {
    if (!ranges.empty()) ranges.back().end = it.first_op;
    ranges.push_back({it.number, it.kind, ranges.empty() ? 0 : it.first_op, count});
  }
  if (ranges.empty()) ranges.push_back({0, IterationKind::train, 0, count});
  return ranges;
}

class Deriver {
 public:
  explicit Deriver(const Trace& trace) : trace_(trace), on_device_(find_device_storages(trace)) {
    facts_.iterations = cover_operators(trace);
    now_.assign(trace.storages.size(), kNever);
  }

  Facts run() {
    const auto ops = static_cast<std::uint32_t>(trace_.ops.size());
    facts_.born.resize(ops + 1u);
    facts_.dead.resize(ops + 1u);
    for (std::uint32_t s = 0; s < trace_.storages.size(); ++s) {
      if (is_initial(s)) begin_life(s, trace_.storages.bytes[s], 0, true);
    }
    facts_.use_begin.push_back(0);
    for (std::uint32_t gap = 0; gap <= ops; ++gap) {
      for (const Event& event : trace_.gap(gap)) apply(event, gap);
      if (gap < ops) add_uses(gap);
    }
    index_lives();
    return std::move(facts_);
  }

 private:
  bool is_initial(std::uint32_t s) const {
    if (!on_device_[s] || trace_.storages.external[s] == 0) return false;
    switch (trace_.storages.cls[s]) {
      case StorageClass::parameter:
      case StorageClass::buffer:
      case StorageClass::gradient:
      case StorageClass::optimizer_state:
        return true;
      default:
        return trace_.storages.birth_gap[s] < facts_.iterations.front().end;
    }
  }

  void begin_life(std::uint32_t storage, Bytes bytes, std::uint32_t gap, bool initial) {
    if (bytes <= Bytes{0}) return;
    now_[storage] = static_cast<std::uint32_t>(facts_.lives.size());
    if (!initial) facts_.born[gap].push_back(now_[storage]);
    facts_.lives.push_back({storage, bytes, gap, kNever, initial});
  }

  void end_life(std::uint32_t storage, std::uint32_t gap) {
    if (now_[storage] == kNever) return;
    facts_.lives[now_[storage]].death = gap;
    facts_.dead[gap].push_back(now_[storage]);
    now_[storage] = kNever;
  }

  void apply(const Event& event, std::uint32_t gap) {
    if (event.kind == EventKind::alloc_op || event.kind == EventKind::alloc_external) {
      if (on_device_[event.arg] && !is_initial(event.arg)) {
        begin_life(event.arg, trace_.storages.bytes[event.arg], gap, false);
      }
    } else if (event.kind == EventKind::free) {
      end_life(event.arg, gap);
    } else if (event.kind == EventKind::resize) {
      const Resize& resize = trace_.resizes[event.arg];
      if (!on_device_[index(resize.storage)]) return;
      end_life(index(resize.storage), gap);
      begin_life(index(resize.storage), resize.to, gap, false);
    }
  }

  Use* use_of(StorageId storage) {
    const std::uint32_t life = now_[index(storage)];
    if (life == kNever) return nullptr;  // on the host, or of no bytes
    auto& uses = facts_.uses;
    for (std::size_t i = facts_.use_begin.back(); i < uses.size(); ++i) {
      if (uses[i].life == life) return &uses[i];
    }
    uses.push_back({life});
    return &uses.back();
  }

  void add_uses(std::uint32_t op) {
    if (trace_.signatures.view[index(trace_.ops.signature[op])] == 0) {
      for (const StorageId s : trace_.inputs(op)) {
        if (Use* use = use_of(s)) use->reads = true;
      }
      for (const StorageId s : trace_.written(op)) {
        if (Use* use = use_of(s)) use->writes = true;
      }
      for (const StorageId s : trace_.outputs(op)) {
        Use* use = use_of(s);
        if (use == nullptr) continue;
        const Life& life = facts_.lives[use->life];
        if (life.birth == op && !life.initial) {
          use->writes = true;
          use->creates = !use->reads;
        } else {
          use->reads = true;
        }
      }
    }
    facts_.use_begin.push_back(static_cast<std::uint32_t>(facts_.uses.size()));
  }

  void index_lives() {
    facts_.lives_begin.assign(trace_.storages.size() + 1, 0);
    for (const Life& life : facts_.lives) ++facts_.lives_begin[life.storage + 1];
    for (std::size_t s = 1; s < facts_.lives_begin.size(); ++s) {
      facts_.lives_begin[s] += facts_.lives_begin[s - 1];
    }
    std::vector<std::uint32_t> next(facts_.lives_begin.begin(), facts_.lives_begin.end() - 1);
    facts_.lives_of.resize(facts_.lives.size());
    for (std::uint32_t life = 0; life < facts_.lives.size(); ++life) {
      facts_.lives_of[next[facts_.lives[life].storage]++] = life;
    }
  }

  const Trace& trace_;
  const std::vector<bool> on_device_;
  std::vector<std::uint32_t> now_;  // per storage: its present life
  Facts facts_;
};

}  // namespace

Facts derive_facts(const Trace& trace) {
  return Deriver(trace).run();
}

}  // namespace swaplab::checker
