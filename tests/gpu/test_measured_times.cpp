// Policies that read measured times: on a real device these are the device's, not the trace's.
#include <doctest/doctest.h>

#include "gpu_validate/replay.hpp"
#include "tests/gpu/faulty_accelerator.hpp"
#include "tests/gpu/gpu_cases.hpp"
#include "tests/gpu/stepped_accelerator.hpp"
#include "tests/policy/policy_programs.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

// The simulator charges for API calls and slows copies beside copies; a stepped device does neither.
Machine plain_calls() {
  Machine machine = load_machine("a100-40g-pcie4");
  const HostCosts costs = machine.host;
  machine.host = {};
  machine.host.op_dispatch = costs.op_dispatch;
  machine.host.view_dispatch = costs.view_dispatch;
  machine.host_memory.pin_per_gib = Nanos{0};
  machine.interference = {};
  return machine;
}

Replay stepped(const Program& program, const Machine& machine, const PolicySpec& spec, Bytes budget,
               const test::Stretch& stretch = {}) {
  ReplaySettings settings;
  settings.budget = budget;
  settings.needs = spec.factory->info().needs;
  settings.device.bytes_divisor = 64;
  settings.device.verify_stride = 16;
  const auto policy = spec.factory->make(spec.values);
  return replay_program(program, machine, *policy, settings, [&](const AcceleratorOptions& options) {
    return std::make_unique<test::SteppedAccelerator>(options, stretch);
  });
}

TEST_CASE("a device that keeps the trace's times: policies decide as in the simulator, to the nanosecond") {
  const Machine machine = plain_calls();
  for (const char* trace : {"gpt_small.jsonl.gz", "gpt_varied.jsonl.gz"}) {
    const Program program = test::bundled_program(trace, 8, machine);
    for (const char* text : {"adaptive", "adaptive:planner=background", "chameleon", "static-plan", "lru"}) {
      CAPTURE(trace);
      CAPTURE(text);
      const PolicySpec spec = parse_policies(text)[0];
      const Bytes budget = test::share_of_peak(program, 60);
      const Schedule simulated = test::simulate(program, machine, spec, budget);
      const Replay measured = stepped(program, machine, spec, budget);
      CHECK(measured.result.outcome == Outcome::ok);
      CHECK(measured.integrity.findings == std::vector<std::string>{});
      CHECK(first_difference(simulated, measured.schedule).value_or("") == "");
      bool same_times = true;
      for (std::size_t i = 0; i < std::min(simulated.entries.size(), measured.schedule.entries.size()); ++i) {
        const ScheduleEntry &a = simulated.entries[i], &b = measured.schedule.entries[i];
        if (a.kind == ScheduleKind::op) same_times &= a.end - a.start == b.end - b.start;
      }
      CHECK(same_times);
    }
  }
}

TEST_CASE("one operator is slower on the device: adaptive plans with the time measured there") {
  const Machine machine = plain_calls();
  const Program program = test::bundled_program("gpt_small.jsonl.gz", 8, machine);
  const Nanos longest = *std::max_element(program.device_time.begin(), program.device_time.end());
  const auto slower = [&](Nanos time) { return time == longest ? time * 40 : time; };
  Program truth = program;  // what the device takes
  for (Nanos& time : truth.device_time) time = slower(time);
  const PolicySpec spec = parse_policies("adaptive")[0];
  const Bytes budget = test::share_of_peak(program, 60);
  const Replay measured = stepped(program, machine, spec, budget, slower);
  CHECK(measured.result.outcome == Outcome::ok);
  CHECK(first_difference(test::simulate(truth, machine, spec, budget), measured.schedule).value_or("") == "");
  CHECK(first_difference(test::simulate(program, machine, spec, budget), measured.schedule));
}

// Asks for the time of every operator before `at`, after waiting for the device or without.
class Watcher final : public Policy {
 public:
  Watcher(std::uint32_t at, bool waits) : at_(at), waits_(waits) {}
  void before_op(std::uint32_t op, const View& view, Actions& actions) override {
    if (op != at_) return;
    if (waits_) actions.synchronize();
    for (std::uint32_t i = 0; i < op; ++i) times.push_back(view.measured_time(i));
  }
  void make_room(Bytes, const View&, Actions&) override {}
  std::vector<Nanos> times;

 private:
  const std::uint32_t at_;
  const bool waits_;
};

TEST_CASE(
    "threads: an operator that the device stretches is seen stretched; before it is done, it is unknown") {
  constexpr Nanos kTold{1500}, kTaken{30'000'000};
  constexpr std::uint32_t kSlow = 2, kAt = 5;
  Program program = test::chain(4, 1, 4096);
  program.device_time[kSlow] = kTold;
  const Machine machine = test::plain_machine(1'000'000'000);
  test::Faults faults;
  faults.change_kernel = [&](KernelWork& work) {
    if (work.duration == kTold * 2) work.duration = kTaken;
  };
  ReplaySettings settings;
  settings.budget = kUnlimitedBudget;
  settings.needs = Needs::op_events | Needs::measured_times;
  settings.device.time_scale = 2 * kUnchanged;  // the policy sees times of the trace's scale
  const auto run = [&](Policy& policy) {
    return replay_program(program, machine, policy, settings, [&](const AcceleratorOptions& options) {
      return std::make_unique<test::FaultyAccelerator>(open_host_accelerator(options), faults);
    });
  };
  Watcher watcher(kAt, true);
  CHECK(run(watcher).result.outcome == Outcome::ok);
  REQUIRE(watcher.times.size() == kAt);
  CHECK(watcher.times[kSlow] >= kTaken / 2);  // a thread is woken no earlier than it asked for
  for (const std::uint32_t other : {0U, 1U, 3U, 4U}) CHECK(watcher.times[other] >= Nanos{1000});
  Watcher hasty(kAt, false);
  const Replay refused = run(hasty);
  CHECK(refused.result.outcome == Outcome::policy_error);
  CHECK(refused.result.explanation.find("not known to be done") != std::string::npos);
  CHECK(hasty.times.empty());
}

TEST_CASE("threads: online policies run on measured times, and all data is right") {
  const Machine machine = load_machine("a100-40g-pcie4");
  const Program program =
      test::bundled_program("gpt_small.jsonl.gz", test::kThreadSanitizer ? 0 : 6, machine);
  for (const char* text : {"adaptive", "chameleon"}) {
    CAPTURE(text);
    const PolicySpec spec = parse_policies(text)[0];
    ReplaySettings settings;
    settings.budget = test::share_of_peak(program, 60);
    settings.needs = spec.factory->info().needs;
    settings.device.bytes_divisor = 64;
    settings.device.verify_stride = 16;
    const auto policy = spec.factory->make(spec.values);
    const Replay measured = replay_program(program, machine, *policy, settings, open_host_accelerator);
    CHECK(measured.result.outcome == Outcome::ok);
    CHECK(measured.integrity.findings == std::vector<std::string>{});
    CHECK(measured.integrity.counts.swap_ins > 0);
  }
}

}  // namespace
}  // namespace swaplab
