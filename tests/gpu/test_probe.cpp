// The time limit is shared among the quantities; on the host device every sample is a time that can be.
#include <doctest/doctest.h>

#include <algorithm>
#include <map>
#include <set>

#include "gpu_validate/calibrate/plausible.hpp"
#include "gpu_validate/calibrate/robust.hpp"
#include "gpu_validate/probe.hpp"
#include "tests/gpu/gpu_cases.hpp"

namespace swaplab {
namespace {

// A device on a clock of its own: what one sample takes is told.
struct Stage {
  Nanos now{0};
  std::function<Nanos(const std::string& quantity, std::int64_t x)> cost;
};

class StagedHardware final : public Hardware {
 public:
  explicit StagedHardware(Stage& stage) : stage_(stage) { info_.kind = "host"; }
  const AcceleratorInfo& info() const override { return info_; }
  std::unique_ptr<Accelerator> open(const AcceleratorOptions&) override { return nullptr; }
  std::unique_ptr<ProbeDevice> open_probe() override { return std::make_unique<Device>(stage_); }
  std::int64_t reserve_percent(MemoryMode) const override { return 100; }

 private:
  class Device final : public ProbeDevice {
   public:
    explicit Device(Stage& stage) : stage_(stage) {}
    bool prepare(std::string_view quantity, std::int64_t x) override {
      cost_ = stage_.cost(std::string(quantity), x);
      return cost_ > Nanos{0};
    }
    Nanos sample() override {
      stage_.now += cost_;
      return cost_;
    }

   private:
    Stage& stage_;
    Nanos cost_{0};
  };
  Stage& stage_;
  AcceleratorInfo info_;
};

ProbeResult probe(Stage& stage, Nanos limit) {
  StagedHardware hardware(stage);
  ProbeOptions options;
  options.limit = limit;
  options.date = "2026-11-30";
  options.clock = [&stage] { return stage.now; };
  return probe_device(hardware, options);
}

std::map<std::string, std::size_t> samples_of(const ProbeResult& result) {
  std::map<std::string, std::size_t> counts;
  for (const MeasuredSeries& one : result.measurements.series) counts[one.quantity] += one.samples.size();
  return counts;
}

constexpr Nanos kMs{1'000'000};

TEST_CASE("a slow quantity takes its own share of the limit and nothing from the others") {
  Stage stage;
  // Copies from the device crawl: 1 s for the largest, by bytes.
  stage.cost = [](const std::string& quantity, std::int64_t x) {
    return quantity == "copy_d2h_pinned" ? std::max(kMs, Nanos{x}) : kMs;
  };
  const Nanos limit = kMs * 8000;
  const ProbeResult result = probe(stage, limit);
  CHECK(stage.now <= limit);
  const auto counts = samples_of(result);
  StagedHardware hardware(stage);
  std::set<std::string> asked;
  for (const ProbePoint& p : probe_points({}, *hardware.open_probe())) asked.insert(p.quantity);
  CHECK(counts.size() == asked.size());
  // The share is limit / quantities = 200 ms or so.
  REQUIRE(result.left_out.size() == 1);
  CHECK(result.left_out[0].quantity == "copy_d2h_pinned");
  CHECK(result.left_out[0].of == 11);
  CHECK(result.left_out[0].points >= 2);  // 256 MiB and 1 GiB
  CHECK(result.left_out[0].points <= 4);
  for (const auto& taken : counts) {
    CAPTURE(taken.first);
    if (taken.first != "copy_d2h_pinned") CHECK(taken.second >= 50);
  }
}

TEST_CASE("what one quantity leaves over goes to the later ones") {
  Stage stage;
  std::int64_t quantities = 0, sizes = 0;  // sizes: of the last one
  std::string last;
  {
    StagedHardware hardware(stage);
    for (const ProbePoint& p : probe_points({}, *hardware.open_probe())) {
      if (p.quantity != last) ++quantities, sizes = 0;
      last = p.quantity;
      ++sizes;
    }
  }
  stage.cost = [&](const std::string& quantity, std::int64_t) {
    return quantity == last ? kMs * 40 : Nanos{1};
  };
  // An equal share of the limit would be enough for 3 samples of each size of the last quantity.
  const ProbeResult result = probe(stage, kMs * 40 * 3 * sizes * quantities);
  CHECK(result.left_out.empty());
  CHECK(samples_of(result).at(last) >= static_cast<std::size_t>(sizes) * 50);
}

TEST_CASE("a limit that is too short for anything still gives every quantity its smallest size") {
  Stage stage;
  stage.cost = [](const std::string&, std::int64_t) { return kMs * 100; };
  const ProbeResult result = probe(stage, kMs);
  CHECK(result.unsupported.empty());
  for (const auto& [quantity, count] : samples_of(result)) CHECK(count == 2);
  // Quantities of one size have nothing to leave out.
  for (const LeftOut& one : result.left_out) CHECK(one.points == one.of - 1);
  CHECK(result.left_out.size() > 10);
}

TEST_CASE("host device: within a short limit every quantity is sampled, and no sample is impossible" *
          doctest::skip(test::kThreadSanitizer)) {  // everything takes too long there
  const std::unique_ptr<Hardware> hardware = open_host_hardware();
  ProbeOptions options;
  options.limit = kMs * 3000;
  options.date = "2026-11-30";
  const ProbeResult result = probe_device(*hardware, options);
  const auto counts = samples_of(result);
  std::set<std::string> asked;
  for (const ProbePoint& p : probe_points(options, *hardware->open_probe())) asked.insert(p.quantity);
  CHECK(counts.size() + result.unsupported.size() == asked.size());
  for (const auto& taken : counts) {
    CAPTURE(taken.first);
    CHECK(taken.second >= 2);
  }
  std::vector<ExcludedSamples> excluded;
  plausible(result.measurements, excluded);
  for (const ExcludedSamples& e : excluded) MESSAGE(e.text());
  CHECK(excluded.empty());
  // Waking a thread takes far longer than the clock's own time.
  const auto latency = result.measurements.of("launch_latency");
  REQUIRE(latency.size() == 1);
  CHECK(*std::min_element(latency[0]->samples.begin(), latency[0]->samples.end()) >= Nanos{100});
  CHECK(median(result.measurements.of("host_event_query")[0]->samples) < Nanos{20'000});
}

}  // namespace
}  // namespace swaplab
