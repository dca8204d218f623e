// The accounting of measured lanes against the simulated device's own: fed with what a simulated device was
// told and when it did it, it must arrive at the very same figures.
#include <doctest/doctest.h>

#include "gpu_validate/lane_accounting.hpp"
#include "sim/executor.hpp"
#include "tests/gpu/gpu_cases.hpp"

namespace swaplab {
namespace {

class RecordingDevice : public VirtualDevice {
 public:
  RecordingDevice(const Machine& machine, std::uint16_t streams) : VirtualDevice(machine, streams) {
    history.compute_streams = streams;
    history.lanes.resize(streams + 2u);
  }
  void host_spend(Nanos time) { VirtualDevice::host_spend(time); }
  void host_spend(Nanos time, Stall reason) {
    const Nanos begin = host_now();
    VirtualDevice::host_spend(time, reason);
    note_host(begin, reason);
  }
  void host_dispatch(Nanos time) { VirtualDevice::host_spend(time); }
  void host_wait(std::uint16_t lane, Ticket ticket, Stall reason) {
    const Nanos begin = host_now();
    VirtualDevice::host_wait(lane, ticket, reason);
    note_host(begin, reason);
  }
  void host_wait_all(Stall reason) {
    for (std::uint16_t lane = 0; lane < history.lanes.size(); ++lane) host_wait(lane, issued(lane), reason);
  }
  Ticket launch(std::uint16_t stream, Nanos duration, std::uint32_t log, std::uint32_t op,
                std::span<const Access> accesses) {
    const Ticket ticket = VirtualDevice::launch(stream, duration, log, op, accesses);
    history.lanes[stream].push_back({false, 0, ticket, log, op, kNever, host_now(), {}, {}});
    return ticket;
  }
  Ticket copy(Direction direction, Bytes bytes, std::uint32_t log, Slot slot) {
    const Ticket ticket = VirtualDevice::copy(direction, bytes, log, slot);
    history.lanes[copy_lane(direction)].push_back(
        {false, 0, ticket, log, kNever, index(slot), host_now(), {}, {}});
    return ticket;
  }
  void wait(std::uint16_t lane, std::uint16_t on, Ticket ticket) {
    VirtualDevice::wait(lane, on, ticket);
    if (lane != on && ticket != 0) {
      history.lanes[lane].push_back({true, on, ticket, kNever, kNever, kNever, host_now(), {}, {}});
    }
  }
  void end_iteration() {
    std::vector<Ticket> tickets;
    for (std::uint16_t lane = 0; lane < history.compute_streams; ++lane) tickets.push_back(issued(lane));
    history.markers.push_back(tickets);
    VirtualDevice::end_iteration();
  }
  void take_times(const std::vector<ScheduleEntry>& entries) {
    for (auto& lane : history.lanes) {
      for (LaneEvent& event : lane) {
        if (event.is_wait) continue;
        event.begin = entries[event.log].start;
        event.end = entries[event.log].end;
      }
    }
  }
  LaneHistory history;

 private:
  void note_host(Nanos begin, Stall reason) {
    if (host_now() > begin) history.host.push_back({begin, host_now(), reason});
  }
};

void check_same(const Program& program, Machine machine, const std::string& policy_text, Bytes budget) {
  machine.launch_queue_depth = 0;  // its waits are inside the simulated device
  const PolicySpec spec = parse_policies(policy_text)[0];
  RecordingDevice device(machine, program.stream_count);
  CachingMemory<RecordingDevice> memory(device, machine.host, budget, AllocatorConfig{});
  Schedule schedule;
  Executor<RecordingDevice, CachingMemory<RecordingDevice>> executor(program, machine, device, memory, budget,
                                                                     spec.factory->info().needs, &schedule);
  const auto policy = spec.factory->make(spec.values);
  const auto ended = executor.run(*policy);
  device.finish();
  if (ended) return;
  device.take_times(schedule.entries);
  std::vector<StallSlice> stalls;
  const auto snapshots = account_lanes(device.history, &stalls);
  REQUIRE(snapshots.size() == device.snapshots().size());
  Nanos stalled{0};
  for (std::size_t i = 0; i < snapshots.size(); ++i) {
    CAPTURE(i);
    const auto &measured = snapshots[i], &simulated = device.snapshots()[i];
    CHECK(measured.time == simulated.time);
    CHECK(measured.busy == simulated.busy);
    Nanos sum = measured.busy;
    for (std::size_t s = 0; s < kStallCount; ++s) {
      CAPTURE(stall_name(static_cast<Stall>(s)));
      CHECK(measured.stalls[s] == simulated.stalls[s]);
      sum += measured.stalls[s];
    }
    CHECK(sum == measured.time);
    stalled = sum - measured.busy;
  }
  CHECK(stalled > Nanos{0});
}

TEST_CASE("measured accounting equals the simulated device's on its own times" *
          doctest::skip(test::kThreadSanitizer)) {  // has no threads
  const Machine machine = load_machine("a100-40g-pcie4");
  for (const char* trace : {"gpt_small.jsonl.gz", "gpt_varied.jsonl.gz", "moe.jsonl.gz"}) {
    const Program program = test::bundled_program(trace, 0, machine);
    for (const char* policy : {"lru", "next-use", "foresight", "offload-activations:fallback=lru"}) {
      for (const std::int64_t percent : {45, 60, 80}) {
        CAPTURE(trace);
        CAPTURE(policy);
        CAPTURE(percent);
        check_same(program, machine, policy, test::share_of_peak(program, percent));
      }
    }
  }
}

TEST_CASE("a wait for work that was never issued is an error") {
  LaneHistory history;
  history.lanes.resize(3);
  history.lanes[0].push_back({true, 2, 1, kNever, kNever, kNever, {}, {}, {}});
  CHECK_THROWS_AS(account_lanes(history, nullptr), Error);
}

}  // namespace
}  // namespace swaplab
