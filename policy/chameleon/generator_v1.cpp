// Steps 7 to 13 of v1: candidates, coverage, score, rounds, placement, free points.
#include <algorithm>
#include <cmath>
#include <numeric>
#include <optional>

#include "policy/chameleon/need_tree.hpp"
#include "policy/chameleon/stages.hpp"

namespace swaplab::chameleon {
namespace {

struct Uses {
  std::uint32_t count = 0;  // distinct operators
  std::uint32_t last_op = kNever;
  std::int64_t last_forward = -1, first_backward = -1;
  bool in_optimizer = false, first_in_optimizer = false;
};

std::vector<Uses> collect_uses(const IterationProfile& p) {
  std::vector<Uses> uses(p.storages.size());
  for (std::uint32_t op = 0; op < p.op_count(); ++op) {
    for (const std::uint32_t tensor : p.tensors_of(op)) {
      Uses& u = uses[tensor];
      if (u.last_op == op) continue;
      u.last_op = op;
      const bool optimizer = p.type[op] == StageType::optimizer;
      if (u.count++ == 0) u.first_in_optimizer = optimizer;
      if (optimizer) u.in_optimizer = true;
      if (p.type[op] == StageType::forward) u.last_forward = op;
      if (p.type[op] == StageType::backward && u.first_backward < 0) u.first_backward = op;
    }
  }
  return uses;
}

class GeneratorV1 {
 public:
  GeneratorV1(const IterationProfile& profile, const GeneratorParams& params, SwapPlan& plan)
      : p_(profile), params_(params), plan_(plan), needs_(plan.needs) {
    for (std::uint32_t s = 0; s < plan.stages.size(); ++s) {
      const Stage& stage = plan.stages[s];
      if (first_forward_ == kNever && stage.type == StageType::forward) first_forward_ = s;
      if (stage.type == StageType::optimizer) optimizer_ = s;
    }
  }

  void run() {
    find_candidates();
    score();
    select();
    for (std::uint32_t i = 0; i < plan_.needs.size(); ++i) plan_.needs_left[i] = Bytes{needs_.at(i)};
    plan_.reached = plan_.needs.empty() || needs_.maximum() <= 0;
    free_points();
    plan_.emitted.resize(plan_.selected.size());
    std::iota(plan_.emitted.begin(), plan_.emitted.end(), 0U);
    std::stable_sort(plan_.emitted.begin(), plan_.emitted.end(), [&](std::uint32_t a, std::uint32_t b) {
      return earlier(plan_.selected[a], plan_.selected[b]);
    });
  }

 private:
  // A candidate in the order of the rounds.
  struct Ranked {
    std::uint32_t begin, end;  // its coverage
    std::uint32_t candidate;
    bool late;  // known to cause delay
  };

  void find_candidates() {
    const std::vector<Uses> uses = collect_uses(p_);
    for (std::uint32_t t = 0; t < p_.storages.size(); ++t) {
      const ProfiledTensor& tensor = p_.storages[t];
      const Uses& u = uses[t];
      if (u.count < 2 || tensor.kind == TensorKind::shared || tensor.bytes < params_.tensor_size_filter)
        continue;
      if (tensor.kind == TensorKind::optimizer) {
        if (!u.first_in_optimizer || first_forward_ == kNever) continue;
        plan_.candidates.push_back({t, true, -1, -1, first_forward_, optimizer_, {}, 0});
      } else {
        if (u.in_optimizer || u.last_forward < 0 || u.first_backward < 0) continue;
        plan_.candidates.push_back({t,
                                    false,
                                    u.last_forward,
                                    u.first_backward,
                                    plan_.stage_of[static_cast<std::size_t>(u.last_forward)],
                                    plan_.stage_of[static_cast<std::size_t>(u.first_backward)],
                                    {},
                                    0});
      }
    }
    for (Candidate& c : plan_.candidates) {
      c.coverage = covered(c.out_stage, c.in_stage);
      out_s_.push_back(transfer_seconds(p_.storages[c.tensor].bytes, params_.d2h_mib_per_s));
      in_s_.push_back(transfer_seconds(p_.storages[c.tensor].bytes, params_.h2d_mib_per_s));
    }
  }

  // Entries between the start of the stage after the swap-out and the start of the swap-in stage.
  Coverage covered(std::uint32_t out_stage, std::uint32_t in_stage) const {
    const auto& needs = plan_.needs;
    if (needs.empty() || out_stage + 1 >= plan_.stages.size()) return {};
    const std::uint32_t from = plan_.stages[out_stage + 1].first_op, to = plan_.stages[in_stage].first_op;
    if (from >= needs.back().op || to <= needs.front().op) return {};
    const auto position = [&](std::uint32_t op) {
      const auto at =
          std::lower_bound(needs.begin(), needs.end(), op,
                           [](const NeedEntry& entry, std::uint32_t value) { return entry.op < value; });
      return static_cast<std::uint32_t>(at - needs.begin());
    };
    const Coverage range{position(from), position(to)};
    return range.begin < range.end ? range : Coverage{};
  }

  void score() {
    auto& candidates = plan_.candidates;
    if (candidates.empty()) return;
    std::vector<double> roots;
    roots.reserve(candidates.size());
    std::uint32_t low = kNever, high = 0;
    for (const Candidate& c : candidates) {
      roots.push_back(cube_root(static_cast<double>(p_.storages[c.tensor].bytes.value)));
      low = std::min(low, c.coverage.count());
      high = std::max(high, c.coverage.count());
    }
    const auto [small, large] = std::minmax_element(roots.begin(), roots.end());
    const double coverage_span = std::max(0.001, static_cast<double>(high - low));
    const double root_span = std::max(0.001, *large - *small);
    for (std::size_t i = 0; i < candidates.size(); ++i) {
      candidates[i].score =
          (candidates[i].coverage.count() - low) / coverage_span +
          static_cast<double>(params_.size_coverage_weight) * ((roots[i] - *small) / root_span);
    }
  }

  void select() {
    if (plan_.needs.empty()) return;
    // Scores are never recomputed, so one order serves all rounds.
    std::vector<Ranked> order;
    for (std::uint32_t c = 0; c < plan_.candidates.size(); ++c) {
      const Coverage& range = plan_.candidates[c].coverage;
      if (range.count() > 0) order.push_back({range.begin, range.end, c, false});
    }
    std::sort(order.begin(), order.end(), [&](const Ranked& a, const Ranked& b) {
      const Candidate &x = plan_.candidates[a.candidate], &y = plan_.candidates[b.candidate];
      if (x.score != y.score) return x.score > y.score;
      if (x.coverage.begin != y.coverage.begin) return x.coverage.begin < y.coverage.begin;
      return x.tensor < y.tensor;
    });
    struct Range {
      std::uint32_t begin, end;
    };
    std::vector<Range> ranges;
    for (const Peak& peak : plan_.peaks) {
      if (peak.first_need_op < 0) {
        ranges.push_back({0, 0});
        continue;
      }
      const auto position = [&](std::int64_t op) {
        return static_cast<std::uint32_t>(
            std::lower_bound(plan_.needs.begin(), plan_.needs.end(), op,
                             [](const NeedEntry& entry, std::int64_t value) { return entry.op < value; }) -
            plan_.needs.begin());
      };
      ranges.push_back({position(peak.first_need_op), position(peak.last_need_op + 1)});
    }
    std::vector<Ranked*> covering;
    while (needs_.maximum() > 0) {
      // The worst entry over all peaks, met or not: entries outside every peak keep the loop going, as in
      // the public code. A peak without entries counts as need 0 and, when that is the worst, ends it.
      std::optional<NeedTree::Maximum> worst;
      for (const Range& range : ranges) {
        const NeedTree::Maximum m = range.begin < range.end ? needs_.first_maximum(range.begin, range.end)
                                                            : NeedTree::Maximum{kNever, 0};
        if (!worst || m.need > worst->need) worst = m;
      }
      if (!worst || worst->entry == kNever) break;
      covering.clear();
      for (Ranked& c : order) {
        if (c.begin <= worst->entry && worst->entry < c.end) covering.push_back(&c);
      }
      if (covering.empty()) break;
      round(*worst, covering);
      std::erase_if(order, [&](const Ranked& c) { return taken_[c.candidate] != 0; });
    }
  }

  void round(const NeedTree::Maximum& worst, const std::vector<Ranked*>& covering) {
    taken_.resize(plan_.candidates.size(), 0);
    const std::size_t first = plan_.selected.size();
    // The budgets stay as they are during this walk: picks may delay jointly.
    std::int64_t rest = worst.need;
    for (Ranked* c : covering) {
      if (c->late) continue;
      c->late = delays(c->candidate);  // budgets only shrink: for good
      if (c->late) continue;
      take(c->candidate, false);
      rest -= p_.storages[plan_.candidates[c->candidate].tensor].bytes.value;
      if (rest <= 0) break;
    }
    const bool with_delay = plan_.selected.size() == first;
    if (with_delay) take(covering.front()->candidate, true);
    for (std::size_t i = first; i < plan_.selected.size(); ++i) place(plan_.selected[i]);
    for (std::size_t i = first; i < plan_.selected.size(); ++i) {
      Selection& s = plan_.selected[i];
      s.coverage = covered(s.out_stage, s.in_stage);
      needs_.add(s.coverage.begin, s.coverage.end, -p_.storages[s.tensor].bytes.value);
    }
    plan_.rounds.push_back({plan_.needs[worst.entry].op, Bytes{worst.need},
                            static_cast<std::uint32_t>(covering.size()),
                            static_cast<std::uint32_t>(plan_.selected.size() - first), with_delay});
  }

  bool delays(std::uint32_t candidate) const {
    const Candidate& c = plan_.candidates[candidate];
    return plan_.stages[c.out_stage].left_s - out_s_[candidate] < 0 ||
           plan_.stages[c.in_stage - 1].left_s - in_s_[candidate] < 0;
  }

  void take(std::uint32_t candidate, bool delayed) {
    const Candidate& c = plan_.candidates[candidate];
    taken_[candidate] = 1;
    plan_.selected.push_back({candidate,
                              c.tensor,
                              c.optimizer,
                              c.out_op,
                              c.in_op,
                              static_cast<std::uint32_t>(plan_.rounds.size()),
                              delayed,
                              c.out_stage,
                              c.in_stage,
                              c.in_stage,
                              0,
                              0,
                              {}});
  }

  // One budget per stage serves both directions.
  void place(Selection& s) {
    const double in_time = in_s_[s.candidate];
    plan_.stages[s.out_stage].left_s -= out_s_[s.candidate];
    s.in_stage = s.in_stage_use - 1;
    if (s.delayed) {
      const std::vector<double> cumulative = cumulative_left();
      for (std::uint32_t j = s.in_stage_use - 1; j > s.out_stage; --j) {
        if (cumulative[j] > in_time) {
          s.in_stage = j;
          break;
        }
      }
    }
    plan_.stages[s.in_stage].left_s -= in_time;
  }

  // Deficits carry forward, surpluses do not.
  std::vector<double> cumulative_left() const {
    std::vector<double> cumulative;
    cumulative.reserve(plan_.stages.size());
    double carried = 0;
    for (const Stage& stage : plan_.stages) {
      cumulative.push_back(std::min(0.0, carried) + stage.left_s);
      carried = cumulative.back();
    }
    return cumulative;
  }

  std::int64_t out_op(const Selection& s) const {
    return s.optimizer ? plan_.stages[first_forward_].first_op : s.out_op;
  }
  bool earlier(const Selection& a, const Selection& b) const {
    if (out_op(a) != out_op(b)) return out_op(a) < out_op(b);
    return p_.storages[a.tensor].bytes > p_.storages[b.tensor].bytes;
  }

  // Walks the copies of each stage in order and places the points where bytes and bookkeeping are freed.
  void free_points() {
    const auto n = static_cast<std::int64_t>(plan_.stages.size());
    struct Entry {
      std::uint32_t selection;
      bool out;
    };
    std::vector<std::vector<Entry>> entries(plan_.stages.size());
    for (std::uint32_t i = 0; i < plan_.selected.size(); ++i) {
      entries[plan_.selected[i].out_stage].push_back({i, true});
      entries[plan_.selected[i].in_stage].push_back({i, false});
    }
    const std::vector<double> cumulative = cumulative_left();
    // End times ascend, so the first stage that ends after t is found by bisection.
    const auto delayed_stage = [&](double t, std::int64_t delay, std::int64_t otherwise) {
      const auto at = std::partition_point(plan_.stages.begin(), plan_.stages.end(),
                                           [&](const Stage& stage) { return !(t < stage.end_s); });
      const std::int64_t j = at - plan_.stages.begin();
      return static_cast<std::uint32_t>(j < n - delay ? j + delay : otherwise);
    };
    for (std::size_t i = 0; i < plan_.stages.size(); ++i) {
      auto& here = entries[i];
      std::stable_sort(here.begin(), here.end(), [&](const Entry& a, const Entry& b) {
        return earlier(plan_.selected[a.selection], plan_.selected[b.selection]);
      });
      double t = plan_.stages[i].start_s - cumulative[i] + plan_.stages[i].left_s;
      for (const Entry& entry : here) {
        Selection& s = plan_.selected[entry.selection];
        t += entry.out ? out_s_[s.candidate] : in_s_[s.candidate];
        if (entry.out) {
          s.free_stage = delayed_stage(t, params_.free_stage_delay, s.in_stage);
        } else {
          s.in_free_stage = delayed_stage(t, params_.swap_in_free_stage_delay, s.in_stage + 1);
        }
      }
    }
  }

  const IterationProfile& p_;
  const GeneratorParams& params_;
  SwapPlan& plan_;
  NeedTree needs_;
  std::vector<double> out_s_, in_s_;  // per candidate: seconds of its copies
  std::vector<std::uint8_t> taken_;   // per candidate
  std::uint32_t first_forward_ = kNever, optimizer_ = 0;
};

}  // namespace

double transfer_seconds(Bytes bytes, std::int64_t mib_per_s) {
  return static_cast<double>(bytes.value) / 1024 / 1024 / static_cast<double>(mib_per_s);
}

double cube_root(double value) {
  if (value <= 0) return 0;
  int exponent = 0;
  const double fraction = std::frexp(value, &exponent);  // exact
  double x = std::ldexp(fraction, exponent / 3);         // within a factor of 4 of the root
  for (int i = 0; i < 200; ++i) {
    const double next = (2 * x + value / (x * x)) / 3;
    if (next == x) break;
    const bool settled = next > x ? next - x < x * 1e-15 : x - next < x * 1e-15;
    x = next;
    if (settled) break;
  }
  return x;
}

void generate_v1(const IterationProfile& profile, const GeneratorParams& params, SwapPlan& plan) {
  GeneratorV1(profile, params, plan).run();
}

}  // namespace swaplab::chameleon
