// Planted races: each must be seen, and the report must name storage, operator and decision. Copies are
// stretched to milliseconds, so that work which does not wait is certain to come at the wrong time.
#include <doctest/doctest.h>

#include "gpu_validate/replay.hpp"
#include "tests/gpu/faulty_accelerator.hpp"
#include "tests/gpu/gpu_cases.hpp"
#include "tests/policy/policy_programs.hpp"

namespace swaplab {
namespace {

constexpr std::int64_t kSize = 1 << 20;
constexpr std::uint16_t kCompute = 0, kOut = 1, kIn = 2;

// Weights and activations of four layers, forward and backward: at half the memory everything swaps.
Program layers() {
  test::ProgramWriter w;
  std::vector<Slot> weights, activations;
  for (int layer = 0; layer < 4; ++layer) weights.push_back(w.initial(kSize));
  const Slot input = w.initial(kSize);
  for (int iteration = 0; iteration < 3; ++iteration) {
    Slot previous = input;
    activations.clear();
    for (const Slot weight : weights) {
      const Slot out = w.allocate(kSize);
      w.op(Phase::forward, {previous, weight}, {out});
      activations.push_back(out);
      previous = out;
    }
    for (std::size_t layer = weights.size(); layer-- > 0;) {
      w.op(Phase::backward, {activations[layer]}, {weights[layer]});
      w.free(activations[layer]);
    }
    w.end_iteration();
  }
  return w.finish();
}

struct FaultyRun {
  Replay replay;
  std::size_t planted;
};

FaultyRun run(test::Faults& faults) {
  const Program program = layers();
  const Machine machine = test::plain_machine(200'000'000);  // 1 MiB in 5 ms
  const PolicySpec spec = parse_policies("lru")[0];
  ReplaySettings settings;
  settings.budget = Bytes{6 * kSize};
  settings.needs = spec.factory->info().needs;
  const auto policy = spec.factory->make(spec.values);
  Replay replay = replay_program(program, machine, *policy, settings, [&](const AcceleratorOptions& options) {
    return std::make_unique<test::FaultyAccelerator>(open_host_accelerator(options), faults);
  });
  return {std::move(replay), faults.planted};
}

void check_caught(const FaultyRun& outcome, const char* words) {
  CHECK(outcome.planted > 0);
  CHECK_FALSE(outcome.replay.integrity.ok());
  REQUIRE(!outcome.replay.integrity.findings.empty());
  const std::string& first = outcome.replay.integrity.findings[0];
  CAPTURE(first);
  CHECK(first.find("storage ") == 0);
  CHECK(first.find("schedule entry ") != std::string::npos);
  CHECK(first.find(words) != std::string::npos);
}

TEST_CASE("without a fault all data are right, and copies take their time") {
  test::Faults none;
  const FaultyRun outcome = run(none);
  CHECK(outcome.replay.result.outcome == Outcome::ok);
  CHECK(outcome.replay.integrity.ok());
  CHECK(outcome.replay.integrity.counts.swap_ins > 3);
  for (const ScheduleEntry& entry : outcome.replay.schedule.entries) {
    if (entry.kind == ScheduleKind::copy_in) CHECK(entry.end - entry.start >= Nanos{5'000'000});
  }
}

TEST_CASE("missing wait: kernels that do not wait for swap-ins" * doctest::skip(test::kThreadSanitizer)) {
  test::Faults faults;
  faults.drop_wait = [](std::uint16_t lane, std::uint16_t on, Ticket) {
    return lane == kCompute && on == kIn;
  };
  check_caught(run(faults), "operator ");
}

TEST_CASE("early release: device bytes are reused while their copy out still runs" *
          doctest::skip(test::kThreadSanitizer)) {
  test::Faults faults;
  faults.drop_wait = [](std::uint16_t lane, std::uint16_t on, Ticket) { return lane != kOut && on == kOut; };
  check_caught(run(faults), "version ");
}

TEST_CASE("a copy out that does not wait for the kernel that writes its storage" *
          doctest::skip(test::kThreadSanitizer)) {
  test::Faults faults;
  faults.drop_wait = [](std::uint16_t lane, std::uint16_t on, Ticket) {
    return lane == kOut && on == kCompute;
  };
  faults.change_copy = [](CopyWork& copy) {
    if (copy.direction == Direction::device_to_host) copy.at_least = Nanos{0};
  };
  check_caught(run(faults), "its swap-in");
}

TEST_CASE("skipped copies, either way") {
  for (const Direction direction : {Direction::device_to_host, Direction::host_to_device}) {
    test::Faults faults;
    int count = 0;
    faults.skip_copy = [&](const CopyWork& copy) { return copy.direction == direction && count++ == 0; };
    check_caught(run(faults), "needs version ");
  }
}

TEST_CASE("a copy to the wrong place") {
  test::Faults faults;
  faults.change_copy = [&](CopyWork& copy) {
    if (copy.direction != Direction::host_to_device) return;
    ++faults.planted;
    copy.device += 64;
    copy.bytes -= 64;
    copy.expected = 0;  // only the kernel looks
  };
  check_caught(run(faults), "operator ");
}

}  // namespace
}  // namespace swaplab
