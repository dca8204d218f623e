#include "trace/import/kineto_report.hpp"

#include <algorithm>

#include "trace/human.hpp"
#include "trace/import/wording.hpp"

namespace swaplab::kineto {
namespace {

class Reporting {
 public:
  explicit Reporting(const ImportSteps& steps)
      : e_(steps.events), n_(steps.nesting), s_(steps.storages), d_(steps.drafts), c_(steps.counts) {}

  void finish(ImportReport& r) const {
    r.add_found("trace_operators", static_cast<std::int64_t>(d_.operators.size()));
    r.add_found("iterations", c_.iterations);
    r.add_found("device_time_ns", d_.device_time);
    if (!s_.rows.empty()) report_storages(s_, r);
    const auto total = static_cast<std::int64_t>(e_.device.size());
    r.derive("operators", d_.dispatched,
             "the outermost dispatched operator (\"aten::linear\") of each call is one operator");
    r.derive("wrappers with work of their own", d_.wrappers,
             "launches or allocations that no dispatched operator encloses count for the annotation or node "
             "around them");
    r.derive("kernels to operators", total - n_.without_launch - n_.by_external,
             "by correlation to the runtime call, by thread and time to the operator");
    r.derive("kernels to operators by External id", n_.by_external, "no runtime call has their correlation");
    r.derive("operators from launches alone", d_.launches_alone,
             "no operator encloses the runtime call; named by the kernel");
    r.derive("operators from kernels alone", n_.without_launch,
             "neither launch nor operator in the file; placed by their device time");
    r.derive("operators from allocations alone", d_.allocations_alone, "no operator encloses the allocation");
    r.derive("backward operators", d_.backward - d_.unnamed_backward,
             "an operator around them is a backward node");
    r.derive("backward operators by flow or thread", d_.unnamed_backward,
             "a flow from a forward operator ends at them, or they name the forward thread");
    r.derive("phases from annotations", d_.annotated,
             "Optimizer.step, Optimizer.zero_grad and the DataLoader on the same thread");
    r.derive("operators on several streams", c_.several_streams,
             "the stream of most of their device time is kept");
    r.derive("host waits", d_.syncs, "synchronising runtime calls; their duration is not host time");
    r.derive("scratch storages", d_.scratch_storages,
             "allocated and freed inside one operator: scratch bytes of its signature");
    r.derive("ends clamped", n_.clamped,
             "the operator ends after the one around it (times cut to microseconds)");
    std::int64_t overlapping = 0;
    const std::int64_t overlap = kernel_overlap(overlapping);
    r.derive("kernels that overlap the next on their stream", overlapping,
             exact_time(Nanos{overlap}) + " in all; durations are kept as they are");
    if (s_.baseline > 0)
      r.derive("baseline storage", 1,
               "Total Allocated before the first event, less what is itemised: one storage that every "
               "operator reads, so it never leaves");
    if (c_.iterations == 1 && d_.steps.empty())
      r.derive("iterations", 1, "no ProfilerStep: the whole profile is one iteration");
    r.drop("steps that overlap another", d_.overlapping_steps, "the earlier ProfilerStep is kept");
    const bool reads = c_.matched_inputs > 0;
    if (reads) {
      r.add_found("tensor_inputs", c_.tensor_inputs);
      r.derive("storages read", c_.matched_inputs,
               "of " + std::to_string(c_.tensor_inputs) +
                   " tensor inputs: by shape and type the newest live storage of that size; the others are "
                   "older than the profile");
      r.derive("storages written", c_.writes,
               "operators named with a final underscore write their first input");
    }
    conclude(r, reads);
  }

 private:
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

  void conclude(ImportReport& r, bool reads) const {
    const bool times = !e_.device.empty();
    if (d_.operators.empty()) {
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
    if (d_.backward == 0) r.missing.push_back("a backward pass");
    if (d_.steps.empty()) r.missing.push_back("ProfilerStep marks");
    // Inputs that are older than the profile count to the baseline, whose bytes must be known then.
    const bool covered = s_.baseline >= 0 || c_.matched_inputs * 10 >= c_.tensor_inputs * 9;
    const std::string matched =
        std::to_string(c_.matched_inputs) + " of " + counted(c_.tensor_inputs, "tensor input");
    if (times && reads && covered) {
      r.study = StudyKind::full;
      r.study_reason =
          "operators, lifetimes and times are measured; what an operator reads is derived from shapes (" +
          matched + " matched)";
      if (s_.baseline > 0) {
        r.study_reason += "; the baseline, " + human_bytes(Bytes{s_.baseline}) + " of a peak of " +
                          human_bytes(Bytes{s_.peak}) + ", cannot move";
      }
      if (d_.backward == 0) r.study_reason += kForwardOnly;
    } else if (!s_.rows.empty()) {
      r.study = StudyKind::memory_only;
      r.study_reason = times && reads
                           ? "only " + matched +
                                 " matched: the others are older than the profile, and the file does not "
                                 "say how many bytes lived then"
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
  const Nesting& n_;
  const Storages& s_;
  const Drafts& d_;
  const EmissionCounts& c_;
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
  r.add_found("collective_bytes", e.collective_bytes);
  for (const auto& [name, count] : e.collective_kernels) r.add_found("collective kernels " + name, count);
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

void report_operators(const ImportSteps& steps, ImportReport& report) {
  Reporting(steps).finish(report);
}

}  // namespace swaplab::kineto
