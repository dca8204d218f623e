#include "trace/import/kineto_trace.hpp"

#include <algorithm>
#include <charconv>
#include <tuple>

#include "trace/builder.hpp"
#include "trace/import/kineto_nesting.hpp"
#include "trace/import/kineto_storages.hpp"
#include "trace/import/shapes.hpp"

namespace swaplab::kineto {
namespace {

// What becomes one operator of the trace.
struct Draft {
  std::int64_t ts, end;
  std::uint32_t thread, name, op;  // op: kNoIndex when no CPU operator stands behind it
  std::int64_t device_time = 0, wait = 0, device_events = 0;
  std::map<std::uint32_t, std::int64_t> by_stream{};
  Phase phase = Phase::unknown;
  SyncKind sync = SyncKind::none;
  std::vector<std::uint32_t> born{}, freed{};  // lifetimes, freed: after the operator
  std::int64_t scratch_now = 0, scratch = 0;
};

struct Window {
  std::int64_t begin, end;
  std::uint32_t thread;
  Phase phase;
  std::int64_t number;
};

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// Blocks of PyTorch's CUDA allocator are multiples of 512 B; the CPU's are as long as asked for.
std::int64_t block_bytes(std::int64_t bytes, bool on_device) {
  return on_device ? (std::max<std::int64_t>(bytes, 1) + 511) / 512 * 512 : bytes;
}

class Assembly {
 public:
  explicit Assembly(const Events& events) : e_(events), n_(nest(events)), s_(match_memory(events)) {}

  ImportResult run() {
    ImportResult result;
    report_events(e_, result.report);
    draft_operators();
    draft_device_work();
    draft_memory();
    order();
    place_storages();
    phases();
    iterations();
    if (!drafts_.empty()) result.trace = emit();
    finish(result.report);
    return result;
  }

 private:
  std::uint32_t add_draft(std::int64_t ts, std::int64_t dur, std::uint32_t thread, std::uint32_t name,
                          std::uint32_t op) {
    drafts_.push_back({ts, ts + dur, thread, name, op});
    return static_cast<std::uint32_t>(drafts_.size() - 1);
  }
  // The draft of the operator that stands for `op`; made here when it is a wrapper with work of its own.
  std::uint32_t draft_of(std::uint32_t op, std::int64_t ts, std::int64_t dur) {
    const std::uint32_t unit = n_.unit[op];
    std::uint32_t& draft = draft_of_unit_[unit];
    if (draft == kNoIndex) {
      draft = add_draft(ts, dur, e_.ops[unit].thread, e_.ops[unit].name, unit);
      ++wrappers_;
    }
    return draft;
  }

  void draft_operators() {
    draft_of_unit_.assign(e_.ops.size(), kNoIndex);
    for (std::uint32_t i = 0; i < e_.ops.size(); ++i) {
      const CpuOp& op = e_.ops[i];
      if (n_.unit[i] == i && is_dispatched(e_.texts[op.name]))
        draft_of_unit_[i] = add_draft(op.ts, op.dur, op.thread, op.name, i);
    }
    dispatched_ = static_cast<std::int64_t>(drafts_.size());
  }

  void draft_device_work() {
    std::vector<std::uint32_t> draft_of_launch(e_.launches.size(), kNoIndex);
    for (std::uint32_t i = 0; i < e_.device.size(); ++i) {
      const DeviceEvent& d = e_.device[i];
      std::uint32_t draft = kNoIndex;
      const std::uint32_t launch = n_.device_launch[i];
      if (n_.device_op[i] != kNoIndex) {
        const CpuOp& op = e_.ops[n_.device_op[i]];
        draft = launch == kNoIndex
                    ? draft_of(n_.device_op[i], op.ts, op.dur)
                    : draft_of(n_.device_op[i], e_.launches[launch].ts, e_.launches[launch].dur);
      } else if (launch != kNoIndex) {
        std::uint32_t& own = draft_of_launch[launch];
        if (own == kNoIndex) {
          own = add_draft(e_.launches[launch].ts, e_.launches[launch].dur, e_.launches[launch].thread, d.name,
                          kNoIndex);
          ++launches_alone_;
        }
        draft = own;
      } else {
        draft = add_draft(d.ts, 0, kNoIndex, d.name, kNoIndex);
      }
      drafts_[draft].device_time += d.dur;
      drafts_[draft].by_stream[d.stream] += d.dur;
      ++drafts_[draft].device_events;
      device_time_ += d.dur;
    }
    for (std::uint32_t i = 0; i < e_.launches.size(); ++i) {
      const Launch& launch = e_.launches[i];
      const std::string& name = e_.texts[launch.name];
      if (!has(name, "Synchronize") || n_.launch_op[i] == kNoIndex) continue;
      const std::uint32_t draft = draft_of(n_.launch_op[i], launch.ts, launch.dur);
      const std::string& op = e_.texts[drafts_[draft].name];
      drafts_[draft].wait += launch.dur;
      drafts_[draft].sync =
          has(op, "item") || has(op, "_local_scalar_dense") ? SyncKind::item
          : has(op, "copy") || has(op, "::to")              ? SyncKind::d2h
          : has(op, "nonzero") || has(op, "unique") || has(op, "masked_select") || has(op, "index")
              ? SyncKind::shape
              : SyncKind::explicit_sync;
      ++syncs_;
    }
  }

  void draft_memory() {
    draft_of_row_.assign(e_.memory.size(), kNoIndex);
    const std::uint32_t name = kNoIndex;
    for (const std::uint32_t row : s_.rows) {
      const MemoryEvent& m = e_.memory[row];
      const std::uint32_t op = n_.memory_op[row];
      if (op != kNoIndex && (m.bytes > 0 || draft_of_unit_[n_.unit[op]] != kNoIndex)) {
        draft_of_row_[row] = draft_of(op, m.ts, 0);
      } else if (m.bytes > 0) {
        draft_of_row_[row] = add_draft(m.ts, 0, m.thread, name, kNoIndex);
        ++allocations_alone_;
      }
    }
  }

  // Program order; every number of a draft changes with it.
  void order() {
    std::vector<std::uint32_t> by_time(drafts_.size()), place(drafts_.size());
    for (std::uint32_t i = 0; i < by_time.size(); ++i) by_time[i] = i;
    std::stable_sort(by_time.begin(), by_time.end(),
                     [&](std::uint32_t a, std::uint32_t b) { return drafts_[a].ts < drafts_[b].ts; });
    std::vector<Draft> sorted;
    sorted.reserve(drafts_.size());
    for (std::uint32_t i = 0; i < by_time.size(); ++i) {
      place[by_time[i]] = i;
      sorted.push_back(std::move(drafts_[by_time[i]]));
    }
    drafts_ = std::move(sorted);
    for (std::uint32_t& draft : draft_of_row_) {
      if (draft != kNoIndex) draft = place[draft];
    }
  }

  // The last operator that begins at or before `ts`; kNoIndex when there is none.
  std::uint32_t last_before(std::int64_t ts) const {
    const auto after = std::upper_bound(drafts_.begin(), drafts_.end(), ts,
                                        [](std::int64_t t, const Draft& d) { return t < d.ts; });
    return after == drafts_.begin() ? kNoIndex : static_cast<std::uint32_t>(after - drafts_.begin() - 1);
  }

  void place_storages() {
    birth_.assign(s_.lifetimes.size(), kNoIndex);
    scratch_.assign(s_.lifetimes.size(), 0);
    std::vector<std::uint32_t> storage_of_birth(e_.memory.size(), kNoIndex),
        storage_of_death(e_.memory.size(), kNoIndex);
    for (std::uint32_t i = 0; i < s_.lifetimes.size(); ++i) {
      const Lifetime& l = s_.lifetimes[i];
      if (l.birth != kNoIndex) birth_[i] = draft_of_row_[l.birth];
      if (l.death != kNoIndex) {
        const std::uint32_t owner = draft_of_row_[l.death];
        scratch_[i] = l.birth != kNoIndex && owner == birth_[i] && e_.memory[l.death].bytes < 0 ? 1 : 0;
      }
      if (scratch_[i] != 0) {
        storage_of_birth[l.birth] = storage_of_death[l.death] = i;
        continue;
      }
      if (l.birth != kNoIndex) drafts_[birth_[i]].born.push_back(i);
      if (l.death == kNoIndex) continue;
      const std::uint32_t owner = draft_of_row_[l.death];
      std::uint32_t after =
          owner != kNoIndex && e_.memory[l.death].bytes < 0 ? owner : last_before(e_.memory[l.death].ts);
      if (l.birth != kNoIndex) after = after == kNoIndex ? birth_[i] : std::max(after, birth_[i]);
      if (after == kNoIndex) {
        freed_before_.push_back(i);
      } else {
        drafts_[after].freed.push_back(i);
      }
    }
    for (const std::uint32_t row : s_.rows) {
      const std::uint32_t storage = e_.memory[row].bytes > 0 ? storage_of_birth[row] : storage_of_death[row];
      if (storage == kNoIndex) continue;
      Draft& draft = drafts_[birth_[storage]];
      draft.scratch_now +=
          e_.memory[row].bytes > 0 ? s_.lifetimes[storage].bytes : -s_.lifetimes[storage].bytes;
      draft.scratch = std::max(draft.scratch, draft.scratch_now);
      scratch_storages_ += e_.memory[row].bytes > 0 ? 1 : 0;
    }
  }

  bool is_backward(std::uint32_t op) const {
    for (; op != kNoIndex; op = n_.parent[op]) {
      const std::string& name = e_.texts[e_.ops[op].name];
      if (has(name, "Backward") || name.rfind("autograd::engine::evaluate_function", 0) == 0) return true;
    }
    return false;
  }

  void phases() {
    std::vector<Window> windows;
    for (const Annotation& a : e_.annotations) {
      const std::string& name = e_.texts[a.name];
      const Phase phase = name.rfind("Optimizer.step", 0) == 0          ? Phase::optimizer
                          : name.rfind("Optimizer.zero_grad", 0) == 0   ? Phase::zero_grad
                          : name.rfind("enumerate(DataLoader)", 0) == 0 ? Phase::data
                                                                        : Phase::unknown;
      if (phase != Phase::unknown) windows.push_back({a.ts, a.ts + a.dur, a.thread, phase, 0});
    }
    std::sort(windows.begin(), windows.end(), [](const Window& a, const Window& b) {
      return std::tie(a.thread, a.begin, a.end) < std::tie(b.thread, b.begin, b.end);
    });
    for (Draft& d : drafts_) {
      if (d.op != kNoIndex && is_backward(d.op)) {
        d.phase = Phase::backward;
        ++backward_;
        continue;
      }
      auto after =
          std::upper_bound(windows.begin(), windows.end(), std::pair(d.thread, d.ts),
                           [](const auto& at, const Window& w) { return at < std::pair(w.thread, w.begin); });
      if (after != windows.begin() && (--after)->thread == d.thread && d.ts <= after->end) {
        d.phase = after->phase;
        ++annotated_;
      }
    }
    if (backward_ == 0) return;
    for (Draft& d : drafts_) {
      if (d.phase == Phase::unknown) d.phase = Phase::forward;
    }
  }

  void iterations() {
    static constexpr std::string_view prefix = "ProfilerStep";
    for (const Annotation& a : e_.annotations) {
      const std::string_view name = e_.texts[a.name];
      if (name.rfind(prefix, 0) != 0) continue;
      std::int64_t number = static_cast<std::int64_t>(steps_.size());
      const auto digits = name.find_first_of("0123456789");
      if (digits != std::string_view::npos) {
        std::int64_t value = 0;
        const auto [end, error] = std::from_chars(name.data() + digits, name.data() + name.size(), value);
        if (error == std::errc()) number = value;
      }
      steps_.push_back({a.ts, a.ts + a.dur, a.thread, Phase::unknown, number});
    }
    std::sort(steps_.begin(), steps_.end(), [](const Window& a, const Window& b) {
      return std::tie(a.begin, a.number) < std::tie(b.begin, b.number);
    });
    for (std::size_t i = 1; i < steps_.size();) {
      if (steps_[i].begin < steps_[i - 1].end) {
        steps_.erase(steps_.begin() + static_cast<std::ptrdiff_t>(i));
        ++overlapping_steps_;
      } else {
        ++i;
      }
    }
  }

  // Streams by number of the trace: the busiest is 0.
  std::vector<std::uint16_t> stream_numbers() {
    std::vector<std::pair<std::int64_t, std::uint32_t>> busy(e_.streams);
    for (std::uint32_t i = 0; i < e_.streams; ++i) busy[i] = {0, i};
    for (const Draft& d : drafts_) {
      for (const auto& [stream, time] : d.by_stream) busy[stream].first -= time;
    }
    std::sort(busy.begin(), busy.end());
    std::vector<std::uint16_t> number(e_.streams);
    for (std::size_t i = 0; i < busy.size(); ++i)
      number[busy[i].second] = static_cast<std::uint16_t>(std::min<std::size_t>(i, kMaxStreams - 1));
    return number;
  }

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
    by_size_[l.bytes].push_back(storage);
    return id;
  }
  void dead(TraceBuilder& b, std::uint32_t storage) {
    b.free(ids_[storage]);
    auto& same = by_size_[s_.lifetimes[storage].bytes];
    same.erase(std::find(same.rbegin(), same.rend(), storage).base() - 1);
  }

  // The live storages that the tensor inputs can be: of each size the newest first.
  void find_inputs(const ShapedInputs& inputs, std::vector<StorageId>& into) {
    const bool on_device = !s_.lifetimes.empty() && s_.lifetimes[0].device_type != 0;
    taken_.clear();
    for (const std::int64_t bytes : inputs.tensor_bytes) {
      if (bytes == 0) continue;
      ++tensor_inputs_;
      const auto same = by_size_.find(block_bytes(bytes, on_device));
      if (same == by_size_.end()) continue;
      std::size_t& taken = taken_[same->first];
      if (taken >= same->second.size()) continue;
      into.push_back(ids_[same->second[same->second.size() - 1 - taken++]]);
      ++matched_inputs_;
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
    for (const std::uint32_t i : freed_before_) dead(b, i);
    const std::vector<std::uint16_t> streams = stream_numbers();
    std::size_t step = 0;
    bool inside = false;
    const auto mark = [&](bool begin, std::int64_t number, std::int64_t time) {
      b.mark(begin ? MarkKind::iter_begin : MarkKind::iter_end, begin ? "train" : "", number,
             Nanos{std::max<std::int64_t>(time, -1)});
      inside = begin;
      iterations_ += begin ? 1 : 0;
    };
    std::vector<StorageId> in, out, written;
    std::int64_t clock = drafts_.front().ts;
    if (steps_.empty()) mark(true, 0, -1);
    for (const Draft& d : drafts_) {
      while (step < steps_.size() && d.ts >= steps_[step].end) {
        if (inside) mark(false, steps_[step].number, steps_[step].end);
        ++step;
      }
      if (!inside && step < steps_.size() && d.ts >= steps_[step].begin)
        mark(true, steps_[step].number, steps_[step].begin);
      const ShapedInputs& inputs = shapes(d);
      in.clear();
      out.clear();
      written.clear();
      if (!s_.rows.empty()) find_inputs(inputs, in);
      const std::string_view name =
          d.name == kNoIndex ? std::string_view() : std::string_view(e_.texts[d.name]);
      if (!in.empty() && name.size() > 1 && name.back() == '_') {
        written.push_back(in.front());
        ++writes_;
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
        const auto most = std::max_element(d.by_stream.begin(), d.by_stream.end(),
                                           [](const auto& x, const auto& y) { return x.second < y.second; });
        op.stream = streams[most->first];
        several_streams_ += d.by_stream.size() > 1 ? 1 : 0;
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
    if (inside) mark(false, steps_.empty() ? 0 : steps_[step].number, -1);
    return b.finish();
  }

  std::int64_t kernel_overlap(std::int64_t& count) const {
    std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> spans(e_.streams);
    for (const DeviceEvent& d : e_.device) spans[d.stream].emplace_back(d.ts, d.ts + d.dur);
    std::int64_t overlap = 0;
    for (auto& stream : spans) {
      std::sort(stream.begin(), stream.end());
      for (std::size_t i = 1; i < stream.size(); ++i) {
        const std::int64_t excess = stream[i - 1].second - stream[i].first;
        if (excess <= 0) continue;
        ++count;
        overlap += excess;
      }
    }
    return overlap;
  }

  void finish(ImportReport& r) {
    r.add_found("trace_operators", static_cast<std::int64_t>(drafts_.size()));
    r.add_found("iterations", iterations_);
    r.add_found("device_time_ns", device_time_);
    if (!s_.rows.empty()) report_storages(s_, r);
    const auto total = static_cast<std::int64_t>(e_.device.size());
    r.derive("operators", dispatched_,
             "the outermost dispatched operator (\"aten::linear\") of each call is one operator");
    r.derive("wrappers with work of their own", wrappers_,
             "launches or allocations that no dispatched operator encloses count for the annotation or node "
             "around them");
    r.derive("kernels to operators", total - n_.without_launch - n_.by_external,
             "by correlation to the runtime call, by thread and time to the operator");
    r.derive("kernels to operators by External id", n_.by_external, "no runtime call has their correlation");
    r.derive("operators from launches alone", launches_alone_,
             "no operator encloses the runtime call; named by the kernel");
    r.derive("operators from kernels alone", n_.without_launch,
             "neither launch nor operator in the file; placed by their device time");
    r.derive("operators from allocations alone", allocations_alone_, "no operator encloses the allocation");
    r.derive("backward operators", backward_, "an operator around them is a backward node");
    r.derive("phases from annotations", annotated_,
             "Optimizer.step, Optimizer.zero_grad and the DataLoader on the same thread");
    r.derive("operators on several streams", several_streams_,
             "the stream of most of their device time is kept");
    r.derive("host waits", syncs_, "synchronising runtime calls; their duration is not host time");
    r.derive("scratch storages", scratch_storages_,
             "allocated and freed inside one operator: scratch bytes of its signature");
    r.derive("ends clamped", n_.clamped,
             "the operator ends after the one around it (times cut to microseconds)");
    std::int64_t overlapping = 0;
    const std::int64_t overlap = kernel_overlap(overlapping);
    r.derive("kernels that overlap the next on their stream", overlapping,
             std::to_string(overlap) + " ns in all; durations are kept as they are");
    if (s_.baseline > 0)
      r.derive("baseline storage", 1,
               "Total Allocated before the first event, less what is itemised: one storage that every "
               "operator reads, so it never leaves");
    if (iterations_ == 1 && steps_.empty())
      r.derive("iterations", 1, "no ProfilerStep: the whole profile is one iteration");
    r.drop("steps that overlap another", overlapping_steps_, "the earlier ProfilerStep is kept");
    const bool reads = matched_inputs_ > 0;
    if (reads) {
      r.add_found("tensor_inputs", tensor_inputs_);
      r.derive("storages read", matched_inputs_,
               "of " + std::to_string(tensor_inputs_) +
                   " tensor inputs: by shape and type the newest live storage of that size; the others are "
                   "older than the profile");
      r.derive("storages written", writes_,
               "operators named with a final underscore write their first input");
    }
    conclude(r, reads);
  }

  void conclude(ImportReport& r, bool reads) const {
    const bool times = !e_.device.empty();
    if (drafts_.empty()) {
      r.study = StudyKind::none;
      r.study_reason = "the file holds no operators, kernels or memory events";
      const auto tensorflow = e_.by_category.find("Op");
      if (tensorflow != e_.by_category.end() && tensorflow->second > 0)
        r.study_reason = "a TensorFlow timeline: its operators carry no sizes and no kernels";
      if (e_.slices > 0) r.study_reason += " of PyTorch's profiler, only begin/end slices of another program";
      r.missing = {"operators", "kernels", "memory events"};
      return;
    }
    if (e_.ops.empty()) r.missing.push_back("operators (GPU-only profile)");
    if (!times) r.missing.push_back("kernels and their times");
    if (s_.rows.empty()) r.missing.push_back("storages (profile_memory was off)");
    if (e_.with_shapes == 0) r.missing.push_back("shapes (record_shapes was off)");
    if (!s_.rows.empty() && !s_.addressed) r.missing.push_back("addresses of the memory events (old schema)");
    if (!reads && !s_.rows.empty()) r.missing.push_back("which storages an operator reads");
    if (backward_ == 0) r.missing.push_back("a backward pass");
    if (steps_.empty()) r.missing.push_back("ProfilerStep marks");
    // Inputs that are older than the profile count to the baseline, whose bytes must be known then.
    const bool covered = s_.baseline >= 0 || matched_inputs_ * 10 >= tensor_inputs_ * 9;
    if (times && reads && covered) {
      r.study = StudyKind::full;
      r.study_reason =
          "operators, lifetimes and times are measured; what an operator reads is derived from shapes";
    } else if (!s_.rows.empty()) {
      r.study = StudyKind::memory_only;
      r.study_reason = times && reads
                           ? "many inputs are older than the profile, whose bytes are not in the file"
                       : times ? "lifetimes and times, but not which storages an operator reads"
                               : "lifetimes, but no device times";
    } else if (times) {
      r.study = StudyKind::times_only;
      r.study_reason = "operators and device times, but no storages";
    } else {
      r.study = StudyKind::none;
      r.study_reason = "host operators without kernels and without storages";
    }
  }

  const Events& e_;
  const Nesting n_;
  const Storages s_;
  std::vector<Draft> drafts_;
  std::vector<std::uint32_t> draft_of_unit_, draft_of_row_, birth_, freed_before_;
  std::vector<std::uint8_t> scratch_;
  std::vector<Window> steps_;
  std::map<std::pair<std::uint32_t, std::uint32_t>, ShapedInputs> shapes_;
  std::map<std::tuple<std::uint32_t, std::uint32_t, std::uint32_t, bool, std::int64_t>, SigId> signatures_;
  std::vector<StorageId> ids_;
  std::unordered_map<std::int64_t, std::vector<std::uint32_t>> by_size_;
  std::map<std::int64_t, std::size_t> taken_;
  std::int64_t dispatched_ = 0, wrappers_ = 0, launches_alone_ = 0, allocations_alone_ = 0, device_time_ = 0;
  std::int64_t syncs_ = 0, backward_ = 0, annotated_ = 0, several_streams_ = 0, scratch_storages_ = 0;
  std::int64_t iterations_ = 0, overlapping_steps_ = 0, tensor_inputs_ = 0, matched_inputs_ = 0, writes_ = 0;
};

}  // namespace

void report_events(const Events& e, ImportReport& r) {
  r.version = e.version_text;
  r.add_found("events", e.total);
  r.add_found("operators", static_cast<std::int64_t>(e.ops.size()));
  std::int64_t kernels = 0, copies = 0, sets = 0;
  for (const DeviceEvent& d : e.device) {
    kernels += d.work == DeviceWork::kernel ? 1 : 0;
    copies += d.work == DeviceWork::copy ? 1 : 0;
    sets += d.work == DeviceWork::set ? 1 : 0;
  }
  r.add_found("kernels", kernels);
  r.add_found("device_copies", copies);
  r.add_found("device_sets", sets);
  r.add_found("runtime_calls", static_cast<std::int64_t>(e.launches.size()));
  r.add_found("memory_events", static_cast<std::int64_t>(e.memory.size()));
  r.add_found("annotations", static_cast<std::int64_t>(e.annotations.size()));
  r.add_found("python_frames", e.python_frames);
  r.add_found("flow_events", e.flows);
  r.add_found("collectives", e.collectives);
  r.add_found("events_with_shapes", e.with_shapes);
  r.add_found("events_named_backward", e.named_backward);
  r.add_found("threads", e.threads);
  r.add_found("streams", e.streams);
  for (const auto& [phase, count] : e.by_phase) r.add_found("phase " + phase, count);
  for (const auto& [category, count] : e.by_category) r.add_found("category " + category, count);
  r.drop("events with a negative duration", e.negative_durations, "the record was never finished");
  r.drop("kernels at time 0 for 0 ns", e.zero_kernels, "the record was never filled in");
  r.drop("events without usable numbers", e.bad_times,
         "time, duration or bytes are absent or beyond what 64 bits hold");
  r.drop("slices without an end", e.unclosed_slices, "a B event without its E");
  r.drop("ends without a slice", e.unopened_slices, "an E event without its B");
  r.repair("non-finite numbers", e.repairs.non_finite, "inf and nan read as absent");
  r.repair("control characters in texts", e.repairs.control_characters, "escaped");
  r.repair("texts with impossible escapes", e.repairs.backslashes, "their backslashes taken literally");
  r.repair("bytes that are not UTF-8", e.repairs.utf8, "replaced by U+FFFD");
  r.derive("digits below 1 ns", e.cut_times, "cut off");
}

ImportResult import_events(const Events& events) {
  return Assembly(events).run();
}

}  // namespace swaplab::kineto
