#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <iostream>
#include <nlohmann/json.hpp>

#include "experiments/commands.hpp"
#include "experiments/options.hpp"
#include "experiments/study.hpp"
#include "experiments/sweep/machine_override.hpp"
#include "experiments/text.hpp"
#include "sim/machine_io.hpp"
#include "sim/schedule_io.hpp"
#include "trace/error.hpp"

namespace po = boost::program_options;

namespace swaplab {
namespace {

using Json = nlohmann::ordered_json;

std::string ratio(Nanos a, Nanos b, const char* format) {
  if (b <= Nanos{0}) return "-";
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, format, static_cast<double>(a.value) / static_cast<double>(b.value));
  return buffer;
}

std::string percent_over(Nanos a, Nanos b) {
  if (b <= Nanos{0}) return "-";
  char buffer[32];
  std::snprintf(buffer, sizeof buffer, "%+.1f%%",
                100.0 * (static_cast<double>(a.value) / static_cast<double>(b.value) - 1.0));
  return buffer;
}

std::string fragmentation(const AllocatorFigures& figures) {
  if (figures.reserved_at_peak <= Bytes{0}) return "-";
  char buffer[32];
  const double share =
      static_cast<double>(figures.peak_allocated.value) / static_cast<double>(figures.reserved_at_peak.value);
  std::snprintf(buffer, sizeof buffer, "%.1f%%", 100.0 * (1.0 - share));
  return buffer;
}

struct SteadySums {
  Bytes out{0}, in{0};
  std::array<Nanos, kStallCount> stalls{};
  Nanos stall{0};
};

SteadySums steady_sums(const StudyTrace& trace, const RunResult& result) {
  SteadySums sums;
  for (std::uint32_t i = trace.steady_first; i < trace.steady_end && i < result.iterations.size(); ++i) {
    sums.out += result.iterations[i].bytes_out;
    sums.in += result.iterations[i].bytes_in;
    for (std::size_t s = 0; s < kStallCount; ++s) {
      sums.stalls[s] += result.iterations[i].stalls[s];
      sums.stall += result.iterations[i].stalls[s];
    }
  }
  return sums;
}

void print_tables(const Study& study, const StudyRequest& request, bool chain) {
  std::printf("machine %s: %s\n", request.machine.name.c_str(), request.machine.summary.c_str());
  for (std::size_t t = 0; t < study.traces.size(); ++t) {
    const StudyTrace& trace = study.traces[t];
    const auto steady = static_cast<std::int64_t>(trace.steady_end - trace.steady_first);
    std::printf(
        "\ntrace %s\n  %u operators per iteration, peak %s, largest working set %s, times from the %s\n"
        "  without a budget: %s per iteration (mean of %lld steady iterations)\n\n",
        trace.path.c_str(), trace.operators_per_steady_iteration, human_bytes(trace.peak_bytes).c_str(),
        human_bytes(trace.largest_working_set).c_str(),
        trace.times == TimeSource::trace ? "trace" : "cost model", human_time(trace.unconstrained).c_str(),
        static_cast<long long>(steady));
    TextTable table({"budget", "policy", "outcome", "iter time", "slowdown", "vs bound", "swap-in", "memory",
                     "other stalls", "out/iter", "in/iter", "peak alloc", "peak reserved", "frag"},
                    3);
    std::string notes;
    const std::size_t budgets = request.budgets.size(), policies = request.policies.size();
    const auto add_bound = [&](const StudyBudget& at) {
      if (!at.bound) return;
      const Nanos per = at.bound->steady_total / steady;
      table.add({at.text, "(bound)", at.bound->feasible ? "proven" : "infeasible",
                 at.bound->feasible ? human_time(per) : "-",
                 at.bound->feasible ? ratio(per, trace.unconstrained, "%.3fx") : "-",
                 at.bound->feasible ? "0.0%" : "-"});
      if (!chain) return;
      for (const std::string& line : at.bound->chain) notes += "  " + at.text + " bound: " + line + "\n";
    };
    for (std::size_t i = 0; i < budgets * std::max<std::size_t>(policies, 1); ++i) {
      const std::size_t b = policies == 0 ? i : i / policies;
      if (policies == 0 || i % policies == 0) add_bound(study.budgets[t * budgets + b]);
      if (policies == 0) continue;
      const StudyRow& row = study.rows[t * budgets * policies + i];
      const RunResult& r = row.result;
      if (r.outcome != Outcome::ok) {
        table.add({row.budget_text, row.label, std::string(outcome_name(r.outcome))});
        notes += "  " + row.budget_text + " " + row.label + ": " + r.explanation + "\n";
        continue;
      }
      const SteadySums sums = steady_sums(trace, r);
      const auto stall = [&](Stall s) { return sums.stalls[static_cast<std::size_t>(s)] / steady; };
      const Nanos other = sums.stall / steady - stall(Stall::swap_in) - stall(Stall::memory);
      table.add(
          {row.budget_text, row.label, "ok", human_time(row.steady_total / steady),
           ratio(row.steady_total / steady, trace.unconstrained, "%.3fx"),
           row.bound && row.bound->feasible ? percent_over(row.steady_total, row.bound->steady_total) : "-",
           human_time(stall(Stall::swap_in)), human_time(stall(Stall::memory)), human_time(other),
           human_bytes(sums.out / steady), human_bytes(sums.in / steady),
           human_bytes(r.allocator.peak_allocated), human_bytes(r.allocator.peak_reserved),
           fragmentation(r.allocator)});
    }
    std::fputs(table.text().c_str(), stdout);
    if (!trace.bound_refusal.empty()) std::printf("  no bound: %s\n", trace.bound_refusal.c_str());
    if (!notes.empty()) std::printf("\n%s", notes.c_str());
  }
}

Json result_json(const Study& study, const StudyRow& row) {
  const StudyTrace& trace = study.traces[row.trace];
  const RunResult& r = row.result;
  Json j;
  j["trace"] = trace.path;
  j["policy"] = row.policy;
  j["budget"] = row.budget_text;
  j["budget_bytes"] = row.budget.value;
  j["outcome"] = outcome_name(r.outcome);
  if (!r.explanation.empty()) j["explanation"] = r.explanation;
  if (r.smallest_budget >= Bytes{0}) j["smallest_budget_bytes"] = r.smallest_budget.value;
  j["iter_time_ns"] = Json::array();
  for (const IterationMetrics& it : r.iterations) j["iter_time_ns"].push_back(it.time().value);
  j["steady_total_ns"] = row.steady_total.value;
  if (row.bound) {
    j["bound_feasible"] = row.bound->feasible;
    j["bound_steady_total_ns"] = row.bound->steady_total.value;
    j["bound_chain"] = row.bound->chain;
  }
  Json m;
  const SteadySums sums = steady_sums(trace, r);
  m["steady_iterations"] = trace.steady_end - trace.steady_first;
  m["unconstrained_iter_time_ns"] = trace.unconstrained.value;
  m["bytes_out"] = sums.out.value;
  m["bytes_in"] = sums.in.value;
  for (std::size_t s = 0; s < kStallCount; ++s) {
    m["stall_" + std::string(stall_name(static_cast<Stall>(s))) + "_ns"] = sums.stalls[s].value;
  }
  m["peak_allocated_bytes"] = r.allocator.peak_allocated.value;
  m["peak_reserved_bytes"] = r.allocator.peak_reserved.value;
  m["peak_host_pinned_bytes"] = r.peak_host_pinned.value;
  m["pinning_time_ns"] = r.pinning_time.value;
  m["device_mallocs"] = r.allocator.device_mallocs;
  m["alloc_retries"] = r.allocator.retries;
  m["alloc_ooms"] = r.allocator.ooms;
  m["stitches"] = r.allocator.stitches;
  m["stitched_reuses"] = r.allocator.stitched_reuses;
  m["evictions"] = r.evictions;
  m["make_room_calls"] = r.make_room_calls;
  m["plan_steps"] = r.plan_steps;
  m["plan_steps_skipped"] = r.plan_steps_skipped;
  for (const PolicyMetric& metric : r.policy_metrics) m["policy_" + metric.tag] = metric.value;
  j["metrics"] = std::move(m);
  j["iterations"] = Json::array();
  for (const IterationMetrics& it : r.iterations) {
    Json i;
    i["number"] = it.number;
    i["kind"] = it.kind == IterationKind::train ? "train" : "val";
    i["begin_ns"] = it.begin.value;
    i["end_ns"] = it.end.value;
    i["compute_busy_ns"] = it.compute_busy.value;
    for (std::size_t s = 0; s < kStallCount; ++s) {
      i["stall_" + std::string(stall_name(static_cast<Stall>(s))) + "_ns"] = it.stalls[s].value;
    }
    i["bytes_out"] = it.bytes_out.value;
    i["bytes_in"] = it.bytes_in.value;
    i["passive_in"] = it.passive_in;
    i["peak_allocated_bytes"] = it.peak_allocated.value;
    i["peak_reserved_bytes"] = it.peak_reserved.value;
    j["iterations"].push_back(std::move(i));
  }
  return j;
}

// The bound as an entry of its own, for readers that look it up like a policy.
Json bound_json(const StudyTrace& trace, const StudyBudget& at) {
  Json j;
  j["trace"] = trace.path;
  j["policy"] = "bound";
  j["budget"] = at.text;
  j["budget_bytes"] = at.budget.value;
  j["outcome"] = !at.bound ? "refused" : at.bound->feasible ? "ok" : "infeasible";
  if (!at.bound) j["explanation"] = trace.bound_refusal;
  j["iter_time_ns"] = Json::array();  // the bound is one for all steady iterations together
  if (at.bound) {
    j["steady_total_ns"] = at.bound->steady_total.value;
    j["bound_feasible"] = at.bound->feasible;
    j["bound_steady_total_ns"] = at.bound->steady_total.value;
    j["bound_chain"] = at.bound->chain;
    j["metrics"] = {{"steady_iterations", trace.steady_end - trace.steady_first},
                    {"unconstrained_iter_time_ns", trace.unconstrained.value},
                    {"compute_busy_ns", at.bound->compute.value}};
  }
  return j;
}

// Takes "bound" out of a list of policies; true when it was there.
bool take_bound(std::string& policies) {
  bool found = false;
  std::string rest;
  for (const std::string& part : split_list(policies)) {
    if (part == "bound") {
      if (found) throw Error(ErrorKind::usage, "policy 'bound' is listed twice");
      found = true;
    } else {
      rest += (rest.empty() ? "" : ",") + part;
    }
  }
  if (found) policies = rest;
  return found;
}

// One line for all budgets that the machine does not have.
void warn_of_large_budgets(const Study& study, const StudyRequest& request) {
  std::string list;
  for (std::size_t b = 0; b < study.budgets.size(); ++b) {
    const StudyBudget& at = study.budgets[b];
    if (at.budget <= request.machine.hbm_capacity || at.text == "inf") continue;
    const bool share = at.text.ends_with("x");
    if (!share && b >= request.budgets.size()) continue;  // said for the first trace
    const std::string of =
        study.traces.size() > 1 ? " of " + study.traces[b / request.budgets.size()].path : "";
    list += (list.empty() ? "" : ", ") + at.text + (share ? " (" + human_bytes(at.budget) + of + ")" : "");
  }
  if (!list.empty())
    request.warn("more than the " + human_bytes(request.machine.hbm_capacity) + " of device memory that '" +
                 request.machine.name + "' has, simulated all the same: budget " + list);
}

constexpr const char* kHelp = R"(swaplab run: compare swap policies on recorded traces

Replays each trace under each policy at each budget on a described machine and prints what every
combination costs, how far it is from a proven lower bound, and why it stalled.

examples:
  swaplab run --trace gpt.jsonl.gz --policy none,lru,foresight --budget 0.4x,0.6x,16GiB
  swaplab run --trace a.jsonl.gz,b.jsonl.gz --policy offload-activations:preset=megatron,fallback=lru \
              --budget 0.7x --machine h100-pcie5 --iterations 10 --json
  swaplab run --trace months.swt --policy lru,chameleon --budget 0.5x --bounded-memory

columns; times and bytes are means of one steady iteration:
  budget        device memory that the run may use: a share of the trace's own peak, or bytes
  policy        as given; '(bound)' is the proven bound of that budget, no schedule that only swaps is faster
  outcome       see below; 'proven' for the bound
  iter time     time of an iteration (ns to s)
  slowdown      the same over that of the job without a budget (1.000x: swapping costs nothing)
  vs bound      how far it is above the bound (%); '-': there is none
  swap-in       compute waited for a copy back to the device (time)
  memory        compute waited for room that a copy out still occupied (time)
  other stalls  host work, synchronisation, allocator recovery (time; --json has each)
  out/iter, in/iter   bytes copied to the host and back
  peak alloc    most bytes in use at once; peak reserved: most bytes that the allocator took from the device
  frag          share of the reserved bytes that was not allocated at the peak (%)
Times: 1 ms = 1000 us; bytes: 1 GiB = 1024 MiB.
outcomes: ok; infeasible: one operator needs more than the budget at once, no policy can run it (for `none`: its
peak does not fit); out_of_memory: the policy found nothing to evict, another one may.
Online policies (chameleon, adaptive, static-plan, capuchin-swap) learn for some iterations first: give them
--iterations 20 or more before you judge them.

)";

}  // namespace

int run_command(const Arguments& arguments) {
  po::options_description options("options");
  options.add_options()("help,h", "this text")("trace", po::value<std::vector<std::string>>()->composing(),
                                               "trace files, comma-separated or repeated")(
      "policy", po::value<std::string>(),
      "policies: NAME[:param=value,...][,NAME...], or bound; see 'swaplab policies list'")(
      "budget", po::value<std::string>()->default_value("0.6x"),
      "device memory: 0.5x of the trace's own peak, 16GiB, or inf; comma-separated")(
      "machine", po::value<std::string>()->default_value("h100-pcie5"),
      "name or file; see 'swaplab machines list'")(
      "times", po::value<std::string>(),
      "device times: trace | model (default: trace for GPU recordings, else model)")(
      "iterations", po::value<std::int64_t>(), "continue the recording to this many iterations")(
      "allocator", po::value<std::string>()->default_value("caching"),
      "caching (PyTorch's rules) | stitching (GMLake's) | ideal (counts bytes)")(
      "alloc-conf", po::value<std::string>()->default_value(""),
      "PYTORCH_CUDA_ALLOC_CONF of the caching allocator, or "
      "fragLimit:BYTES,defragLevel:0,... of the stitching one")(
      "set", po::value<std::vector<std::string>>()->composing(),
      "FIGURE=VALUE: change the machine, e.g. links.bandwidth=2x; repeatable")(
      "jobs,j", po::value<unsigned>(), kJobsHelp)(
      "explain-bound", "print the chain of reasons of each bound")("json",
                                                                   "one JSON document instead of tables")(
      "bounded-memory",
      "replay .swt traces of any length window by window: no bound, no policy that needs the future")(
      "schedule", po::value<std::string>(),
      "write the schedule of a single run to this file (.jsonl[.gz|.zst])");
  const po::variables_map values = parse_options(arguments, options, "trace");
  if (values.count("help") != 0) {
    std::cout << kHelp << options;
    return kExitOk;
  }
  StudyRequest request;
  if (values.count("trace") == 0) throw Error(ErrorKind::usage, "run needs --trace FILE");
  if (values.count("policy") == 0)
    throw Error(ErrorKind::usage, "run needs --policy NAME (see 'swaplab policies list')");
  for (const std::string& list : values["trace"].as<std::vector<std::string>>()) {
    for (const std::string& path : split_list(list)) request.traces.push_back(path);
  }
  if (request.traces.empty()) throw Error(ErrorKind::usage, "--trace names no file");
  refuse_repeats("--trace", request.traces);
  std::string policies = values["policy"].as<std::string>();
  const bool bound_asked = take_bound(policies);
  if (!bound_asked || !policies.empty()) request.policies = parse_policies(policies);
  request.budgets = parse_budgets(values["budget"].as<std::string>());
  request.machine = load_machine(values["machine"].as<std::string>());
  request.warn = [](const std::string& text) { std::fprintf(stderr, "warning: %s\n", text.c_str()); };
  if (values.count("set") != 0) {
    for (const std::string& assignment : values["set"].as<std::vector<std::string>>())
      apply_figure_assignment(request.machine, assignment);
  }
  if (values.count("times") != 0) {
    const std::string times = values["times"].as<std::string>();
    if (times != "trace" && times != "model")
      throw Error(ErrorKind::usage, "--times must be trace or model, found '" + times + "'");
    request.times = times == "trace" ? TimeSource::trace : TimeSource::model;
  }
  if (values.count("iterations") != 0) {
    const std::int64_t n = values["iterations"].as<std::int64_t>();
    if (n < 1 || n > 1'000'000)
      throw Error(ErrorKind::usage, "--iterations must be 1 to 1000000, found " + std::to_string(n));
    request.iterations = static_cast<std::uint32_t>(n);
  }
  const std::string allocator = values["allocator"].as<std::string>();
  request.allocator = parse_allocator(allocator);
  const std::string conf = values["alloc-conf"].as<std::string>();
  if (!conf.empty() && allocator == "ideal")
    throw Error(ErrorKind::usage, "--alloc-conf has no effect with --allocator ideal");
  if (request.allocator == AllocatorKind::stitching) {
    request.stitching = parse_stitching_conf(conf);
  } else {
    request.allocator_config = parse_alloc_conf(conf);
    require_supported(request.allocator_config);
  }
  request.jobs = jobs_of(values);
  if (values.count("schedule") != 0) {
    request.schedule_path = values["schedule"].as<std::string>();
    check_ending(request.schedule_path, kScheduleEndings);
    check_output(request.schedule_path, request.traces);
  }
  const bool terminal = ::isatty(STDERR_FILENO) != 0;
  const auto begin = std::chrono::steady_clock::now();
  request.progress = [terminal, begin, last = begin](std::size_t done, std::size_t total) mutable {
    const auto now = std::chrono::steady_clock::now();
    if (now - begin < std::chrono::seconds(1) ||
        (now - last < std::chrono::seconds(terminal ? 0 : 5) && done != total))
      return;
    last = now;
    std::fprintf(stderr, terminal ? "\r%zu of %zu runs%s" : "%zu of %zu runs%s", done, total,
                 done == total || !terminal ? "\n" : "");
  };

  request.bounded_memory = values.count("bounded-memory") != 0;
  if (request.bounded_memory && (bound_asked || values.count("explain-bound") != 0))
    throw Error(ErrorKind::usage, "--bounded-memory: the bound needs the whole trace in memory");
  request.operators = [terminal, last = begin](std::uint64_t done, std::uint64_t total) mutable {
    const auto now = std::chrono::steady_clock::now();
    if (now - last < std::chrono::seconds(terminal ? 1 : 10)) return;
    last = now;
    std::fprintf(stderr, terminal ? "\r%llu of %llu million operators" : "%llu of %llu million operators\n",
                 static_cast<unsigned long long>(done / 1'000'000),
                 static_cast<unsigned long long>(total / 1'000'000));
  };

  const Study study = run_study(request);
  warn_of_large_budgets(study, request);
  if (request.bounded_memory && terminal) std::fputs("\r\033[K", stderr);
  if (values.count("json") != 0) {
    Json document;
    document["schema"] = "swaplab/run@1";
    document["machine"] = request.machine.name;
    document["allocator"] = allocator;
    document["results"] = Json::array();
    const std::size_t budgets = request.budgets.size(), per_budget = request.policies.size();
    for (std::size_t b = 0; b < study.budgets.size(); ++b) {
      if (bound_asked) document["results"].push_back(bound_json(study.traces[b / budgets], study.budgets[b]));
      for (std::size_t p = 0; p < per_budget; ++p)
        document["results"].push_back(result_json(study, study.rows[b * per_budget + p]));
    }
    std::cout << document.dump(1) << '\n';
  } else {
    print_tables(study, request, values.count("explain-bound") != 0);
    std::cout.flush();
    if (terminal) std::fputs("\n(columns and units: swaplab run --help)\n", stderr);
  }
  for (const StudyRow& row : study.rows) {
    if (row.result.outcome == Outcome::policy_error) return kExitPolicy;
  }
  return kExitOk;
}

}  // namespace swaplab
