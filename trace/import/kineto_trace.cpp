#include "trace/import/kineto_trace.hpp"

#include <algorithm>
#include <optional>
#include <set>
#include <tuple>

#include "trace/builder.hpp"
#include "trace/import/kineto_report.hpp"
#include "trace/import/shapes.hpp"
#include "trace/import/streams.hpp"

namespace swaplab::kineto {
namespace {

// Blocks of PyTorch's CUDA allocator are multiples of 512 B; the CPU's are as long as asked for.
std::int64_t block_bytes(std::int64_t bytes, bool on_device) {
  return on_device ? (std::max<std::int64_t>(bytes, 1) + 511) / 512 * 512 : bytes;
}

class Emission {
 public:
  Emission(const Events& events, const Storages& storages, const Drafts& drafts)
      : e_(events), s_(storages), d_(drafts) {}

  const EmissionCounts& counts() const { return counts_; }

  Trace emit() {
    TraceBuilder b;
    TraceHeader header;
    header.source = "import-kineto";
    header.device = "cuda";
    b.set_header(header);
    ids_.resize(s_.lifetimes.size());
    std::optional<StorageId> baseline;
    for (std::uint32_t i = 0; i < s_.lifetimes.size(); ++i) {
      if (s_.lifetimes[i].birth == kNoIndex) born(b, i, true);
    }
    if (s_.baseline > 0) {
      const MemoryEvent& first = e_.memory[s_.rows.front()];
      baseline = b.alloc(Bytes{s_.baseline}, device_name(first.device_type, first.device), true);
      b.tag(*baseline, StorageClass::unknown, "baseline");
    }
    for (const std::uint32_t i : d_.freed_before) dead(b, i);
    std::map<std::uint32_t, std::int64_t> busy;
    for (const Draft& d : d_.operators) {
      for (const auto& [stream, time] : d.by_stream) busy[stream] += time;
    }
    const auto streams = stream_numbers(busy);
    std::size_t step = 0;
    bool inside = false;
    const auto mark = [&](bool begin, std::int64_t number, std::int64_t time) {
      b.mark(begin ? MarkKind::iter_begin : MarkKind::iter_end, begin ? "train" : "", number,
             Nanos{std::max<std::int64_t>(time, -1)});
      inside = begin;
      counts_.iterations += begin ? 1 : 0;
    };
    std::vector<StorageId> in, out, written;
    std::int64_t clock = d_.operators.front().ts;
    if (d_.steps.empty()) mark(true, 0, -1);
    for (const Draft& d : d_.operators) {
      while (step < d_.steps.size() && d.ts >= d_.steps[step].end) {
        if (inside) mark(false, d_.steps[step].number, d_.steps[step].end);
        ++step;
      }
      if (!inside && step < d_.steps.size() && d.ts >= d_.steps[step].begin)
        mark(true, d_.steps[step].number, d_.steps[step].begin);
      const ShapedInputs& inputs = shapes(d);
      in.clear();
      out.clear();
      written.clear();
      if (!s_.rows.empty()) find_inputs(inputs, in);
      const std::string_view name =
          d.name == kNoIndex ? std::string_view() : std::string_view(e_.texts[d.name]);
      if (!in.empty() && name.size() > 1 && name.back() == '_') {
        written.push_back(in.front());
        ++counts_.writes;
      }
      if (baseline) in.push_back(*baseline);
      for (const std::uint32_t i : d.born) out.push_back(born(b, i, false));
      TraceBuilder::Op op;
      const bool view = !e_.device.empty() && d.device_events == 0 && d.born.empty() && d.op != kNoIndex;
      op.signature = signature(b, d, inputs, view);
      op.phase = d.phase;
      op.sync = d.sync;
      if (!e_.device.empty()) op.device_time = Nanos{d.device_time};
      if (!d.by_stream.empty()) {
        op.stream = streams.at(busiest_stream(d.by_stream));
        counts_.several_streams += d.by_stream.size() > 1 ? 1 : 0;
      }
      op.host_gap = Nanos{std::max<std::int64_t>(d.ts - clock, 0)};
      op.host_time = Nanos{std::max<std::int64_t>(d.end - std::max(clock, d.ts) - d.wait, 0)};
      clock = std::max(clock, d.end);
      op.in = in;
      op.out = out;
      op.written = written;
      b.op(op);
      for (const std::uint32_t i : d.freed) dead(b, i);
    }
    if (inside) mark(false, d_.steps.empty() ? 0 : d_.steps[step].number, -1);
    return b.finish();
  }

 private:
  const ShapedInputs& shapes(const Draft& d) {
    static const ShapedInputs none;
    if (d.op == kNoIndex || e_.ops[d.op].dims == 0) return none;
    const auto key = std::pair(e_.ops[d.op].dims, e_.ops[d.op].types);
    const auto [it, inserted] = shapes_.try_emplace(key);
    if (inserted) it->second = shaped_inputs(e_.texts[key.first], e_.texts[key.second]);
    return it->second;
  }

  StorageId born(TraceBuilder& b, std::uint32_t storage, bool external) {
    const Lifetime& l = s_.lifetimes[storage];
    const StorageId id = b.alloc(Bytes{l.bytes}, device_name(l.device_type, l.device), external);
    ids_[storage] = id;
    by_size_[l.bytes].insert(index(id));
    return id;
  }
  void dead(TraceBuilder& b, std::uint32_t storage) {
    b.free(ids_[storage]);
    by_size_[s_.lifetimes[storage].bytes].erase(index(ids_[storage]));
  }

  // The live storages that the tensor inputs can be: of each size the newest first.
  void find_inputs(const ShapedInputs& inputs, std::vector<StorageId>& into) {
    const bool on_device = !s_.lifetimes.empty() && s_.lifetimes[0].device_type != 0;
    taken_.clear();
    for (const std::int64_t bytes : inputs.tensor_bytes) {
      if (bytes == 0) continue;
      ++counts_.tensor_inputs;
      const auto same = by_size_.find(block_bytes(bytes, on_device));
      if (same == by_size_.end()) continue;
      auto& next = taken_.try_emplace(same->first, same->second.rbegin()).first->second;
      if (next == same->second.rend()) continue;
      into.push_back(StorageId{*next++});
      ++counts_.matched_inputs;
    }
  }

  SigId signature(TraceBuilder& b, const Draft& d, const ShapedInputs& inputs, bool view) {
    const auto key = std::tuple(d.name, d.op == kNoIndex ? 0 : e_.ops[d.op].dims,
                                d.op == kNoIndex ? 0 : e_.ops[d.op].types, view, d.scratch);
    const auto [it, inserted] = signatures_.try_emplace(key);
    if (inserted) {
      TraceBuilder::Signature s;
      s.name = d.name == kNoIndex ? std::string_view("memory::alloc") : std::string_view(e_.texts[d.name]);
      s.detail = inputs.detail;
      if (view) s.read = s.written = Bytes{0};
      if (!s_.rows.empty()) s.scratch = Bytes{d.scratch};
      s.view = view;
      it->second = b.add_signature(s);
    }
    return it->second;
  }

  const Events& e_;
  const Storages& s_;
  const Drafts& d_;
  EmissionCounts counts_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, ShapedInputs> shapes_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, bool, std::int64_t>, SigId> signatures_;
  std::vector<StorageId> ids_;
  std::unordered_map<std::int64_t, std::set<std::uint32_t>> by_size_;  // live storages of the trace, by birth
  std::map<std::int64_t, std::set<std::uint32_t>::const_reverse_iterator> taken_;
};

}  // namespace

ImportResult import_events(const Events& events) {
  const Nesting nesting = nest(events);
  const Storages storages = match_memory(events);
  const Drafts drafts = draft_operators(events, nesting, storages);
  ImportResult result;
  Emission emission(events, storages, drafts);
  if (!drafts.operators.empty()) result.trace = emission.emit();
  report_events(events, result.report);
  report_operators({events, nesting, storages, drafts, emission.counts()}, result.report);
  return result;
}

}  // namespace swaplab::kineto
