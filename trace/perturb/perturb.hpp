// Controlled changes of a trace, by name, with a schedule and a seed.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "trace/perturb/marks.hpp"
#include "trace/perturb/perturbation.hpp"

namespace swaplab {

// Which iterations: "3", "5-9", several with commas, "every=4" (the 4th, 8th, ... of those that the kind
// applies to), "rate=0.1" (each with that probability), "all" (default).
class IterationSchedule {
 public:
  // Throws Error(usage) naming the text.
  static IterationSchedule parse(std::string_view text);
  // `ordinal` counts the iterations that the kind applies to, from 0.
  bool includes(std::int64_t number, std::int64_t ordinal, Random& random) const;
  // A number of the schedule that is no iteration of the trace is an error; these are the numbers.
  const std::vector<std::pair<std::int64_t, std::int64_t>>& ranges() const { return ranges_; }

 private:
  bool all_ = false;
  std::int64_t every_ = 0, rate_ppm_ = -1;
  std::vector<std::pair<std::int64_t, std::int64_t>> ranges_;  // both ends among them
};

struct PerturbationRequest {
  const PerturbationKind* kind = nullptr;
  PerturbationKind::Values values;
  IterationSchedule schedule;
  std::string text;  // as typed
};

// All kinds, by name. Throws Error(invariant) when a name was registered twice.
std::vector<const PerturbationKind*> perturbation_list();
// "kind:param=value,param=value@schedule". Parameters are checked here. Throws Error(usage).
PerturbationRequest parse_perturbation(std::string_view text);

struct PerturbationReport {
  struct Applied {
    std::string text;
    std::uint32_t scheduled = 0;  // iterations
    std::uint32_t changed = 0;    // of them, where something was changed
  };
  std::vector<Applied> applied;
  std::vector<PerturbationMark> marks;  // all that the result's header holds
};

// Applies the requests in their order, each to the outcome of those before it; iteration numbers are
// those of `trace`. Equal input, requests and seed give equal output; nothing changed gives the input.
// Throws Error(usage) for a schedule that names absent iterations and for requests that cannot be met.
Trace perturb_trace(const Trace& trace, const std::vector<PerturbationRequest>& requests, std::uint64_t seed,
                    PerturbationReport* report = nullptr);

}  // namespace swaplab
