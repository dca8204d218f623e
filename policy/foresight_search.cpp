#include "policy/foresight_search.hpp"

#include <algorithm>
#include <functional>
#include <initializer_list>
#include <optional>
#include <vector>

#include "policy/foresight_follow.hpp"
#include "policy/foresight_gaps.hpp"
#include "policy/foresight_layout.hpp"
#include "policy/foresight_select.hpp"
#include "policy/foresight_study.hpp"

namespace swaplab::foresight {
namespace {

// Iterations that are replayed to judge a plan, and those of them that count.
struct Horizon {
  std::uint32_t end, first_counted, end_counted;
};

Horizon whole_program(const Program& program) {
  return {static_cast<std::uint32_t>(program.iterations.size()), program.steady_first, program.steady_end};
}

// Long runs of one iteration repeat themselves: the third and fourth stand for all.
Horizon choose_horizon(const Program& program, const GapTable& gaps) {
  const auto& cls = gaps.iteration_class;
  const bool repeats =
      cls.size() > 4 && std::all_of(cls.begin() + 2, cls.end(), [&](std::uint32_t c) { return c == cls[1]; });
  return repeats ? Horizon{4, 2, 4} : whole_program(program);
}

struct Score {
  std::uint64_t broken = 0;  // times that room was short
  std::int64_t time = 0;
  std::size_t steps = 0;
  auto operator<=>(const Score&) const = default;
};

class Random {  // splitmix64
 public:
  std::uint64_t next() {
    std::uint64_t z = (state_ += 0x9E3779B97F4A7C15ull);
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ull;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBull;
    return z ^ (z >> 31);
  }
  std::size_t below(std::size_t n) { return static_cast<std::size_t>(next() % n); }

 private:
  std::uint64_t state_ = 1;
};

class Search {
 public:
  Search(const Program& program, const Machine& machine, const Placement& placement,
         const SearchOptions& options)
      : program_(program),
        machine_(machine),
        placement_(placement),
        options_(options),
        study_(program, machine, placement, options.budget, Bytes{options.allocator == nullptr ? 1 : 512}) {
    horizon_ = choose_horizon(program, study_.gaps);
    wishes_.assign(study_.gaps.key_count, Wish::free);
  }

  SearchResult run() {
    best_ = judge(rules_, wishes_);
    const Score first = best_->score;
    if (!unconstrained()) {
      // The places matter more than single decisions when bytes are not all alike.
      const std::int64_t all = options_.effort * 1'000'000;
      allowance_ = options_.allocator == nullptr ? all / 2 : all / 8;
      tune_rules();
      tune_wishes();
      allowance_ = all;
    }
    return finish(first);
  }

 private:
  struct Judged {
    Score score;
    Selection selection;
  };

  // Nothing has to leave, so there is nothing to search for.
  bool unconstrained() const { return best_->selection.plan.steps.empty(); }

  std::uint32_t end_op(const Horizon& horizon) const { return program_.iterations[horizon.end - 1].end_op; }
  std::int64_t work(const Horizon& horizon) const {
    return static_cast<std::int64_t>(program_.access_begin[end_op(horizon)]) + end_op(horizon);
  }
  bool exhausted() const { return spent_ >= allowance_; }

  Judged judge(const Rules& rules, const std::vector<Wish>& wishes) { return judge(rules, wishes, horizon_); }
  Judged judge(const Rules& rules, const std::vector<Wish>& wishes, const Horizon& horizon) {
    spent_ += work(horizon);
    ++evaluations_;
    Judged result;
    result.selection = select(study_.problem, rules, wishes, end_op(horizon));
    const ModelResult model = replay(program_, machine_, result.selection.plan, placement_, study_.sizes,
                                     options_.budget, end_op(horizon), false);
    const auto end_of = [&](std::uint32_t count) { return count == 0 ? 0 : model.iteration_end[count - 1]; };
    result.score.broken = model.overdrafts + result.selection.hopeless;
    result.score.time = end_of(horizon.end_counted) - end_of(horizon.first_counted);
    result.score.steps = result.selection.plan.steps.size();
    return result;
  }

  bool try_rules(const Rules& rules) {
    if (exhausted()) return false;
    Judged judged = judge(rules, wishes_);
    if (!(judged.score < best_->score)) return false;
    best_ = std::move(judged);
    rules_ = rules;
    return true;
  }

  // One rule at a time, round after round, until none helps.
  void tune_rules() {
    const std::int64_t budget = options_.budget.value;
    bool better = true;
    for (int round = 0; better && round < 3; ++round) {
      better = false;
      const auto vary = [&](auto member, auto values) {
        const Rules base = rules_;
        for (const auto value : values) {
          Rules rules = base;
          rules.*member = value;
          if (!(rules == base)) better |= try_rules(rules);
        }
      };
      using List = std::vector<std::int64_t>;
      vary(&Rules::by_length, std::vector<int>{0, 1});
      vary(&Rules::size_power, List{0, 1, 2, 4});
      vary(&Rules::cost_weight, List{0, 1, 2, 4, 8});
      vary(&Rules::in_order, std::vector<int>{1, 0});
      vary(&Rules::trim, std::vector<int>{1, 0});
      vary(&Rules::early_copy_out, std::vector<int>{1, 0});
      vary(&Rules::min_bytes, List{0, budget / 10000, budget / 1000, budget / 200});
      vary(&Rules::slack, List{0, budget / 200, budget / 50, budget / 20, budget / 10});
    }
  }

  // Single decisions: make one gap swap, or keep its storage, and let the rules repair the rest.
  void tune_wishes() {
    Random random;
    std::vector<std::uint32_t> swappable = keys_worth_trying();
    if (swappable.empty()) return;
    while (!exhausted()) {
      const auto& swapped = best_->selection.swapped_keys;
      const bool keep = !swapped.empty() && random.below(2) == 0;
      const std::uint32_t key =
          keep ? swapped[random.below(swapped.size())] : swappable[random.below(swappable.size())];
      const Wish before = wishes_[key];
      const bool is_swapped = std::binary_search(swapped.begin(), swapped.end(), key);
      const Wish wanted = is_swapped ? Wish::keep : Wish::swap;
      wishes_[key] = before == Wish::free || random.below(2) == 0 ? wanted : Wish::free;
      if (wishes_[key] == before) {
        spent_ += 1000;  // so that a search without moves ends
        continue;
      }
      Judged judged = judge(rules_, wishes_);
      if (judged.score <= best_->score) {
        best_ = std::move(judged);
      } else {
        wishes_[key] = before;
      }
    }
  }

  // Keys of the counted iterations whose gap is open where the memory is short, larger ones more often.
  std::vector<std::uint32_t> keys_worth_trying() const {
    std::vector<std::uint32_t> keys;
    const std::uint32_t begin = program_.iterations[horizon_.first_counted].first_op;
    const std::uint32_t end = program_.iterations[horizon_.end_counted - 1].end_op;
    std::vector<std::uint32_t> short_before(program_.op_count() + 1, 0);
    for (std::uint32_t op = 0; op < program_.op_count(); ++op) {
      const bool is_short = study_.gaps.live[op] + study_.gaps.surge[op] > options_.budget.value;
      short_before[op + 1] = short_before[op] + (is_short ? 1 : 0);
    }
    for (std::uint32_t op = begin; op < end; ++op) {
      for (std::uint32_t a = program_.access_begin[op]; a < program_.access_begin[op + 1]; ++a) {
        const std::uint32_t next = study_.gaps.next[a];
        if (next == kNever || next == op + 1 || short_before[next] == short_before[op + 1]) continue;
        const std::int64_t bytes = study_.sizes[index(program_.accesses[a].slot)];
        const std::int64_t share = bytes * 1000 / options_.budget.value;
        const std::int64_t copies =
            std::clamp<std::int64_t>(share, bytes * 20000 >= options_.budget.value ? 1 : 0, 8);
        keys.insert(keys.end(), static_cast<std::size_t>(copies), study_.gaps.key[a]);
      }
    }
    return keys;
  }

  // Plans the whole program; plain next use remains the answer where it turns out better there.
  SearchResult finish(const Score& first) {
    SearchResult result;
    result.first_guess = Nanos{first.time};
    const Horizon all = whole_program(program_);
    Judged whole = horizon_.end == all.end ? std::move(*best_) : judge(rules_, wishes_, all);
    if (horizon_.end != all.end) {
      Judged plain = judge(Rules{}, std::vector<Wish>(wishes_.size(), Wish::free), all);
      result.first_guess = Nanos{plain.score.time};
      if (plain.score < whole.score) whole = std::move(plain);
    }
    if (options_.allocator != nullptr && tight()) {
      without_places_ = whole.score.time;
      lay_out(whole.selection.plan, result);
      return result;
    }
    result.plan = std::move(whole.selection.plan);
    result.hopeless = whole.selection.hopeless;
    result.expected = Nanos{whole.score.time};
    result.evaluations = evaluations_;
    return result;
  }

  // Bytes in pieces can matter: the budget is not far above what lives at once.
  bool tight() const {
    std::int64_t highest = 0;
    for (std::uint32_t op = 0; op < program_.op_count(); ++op) {
      highest = std::max(highest, study_.gaps.live[op] + study_.gaps.surge[op]);
    }
    return options_.budget.value < 2 * highest;
  }

  // ---- With the caching allocator: plans are laid out and tried on the executor itself.

  bool good_enough() const { return laid_out_time_ && *laid_out_time_ <= without_places_; }

  // Time of `plan` on the executor; the fastest so far becomes the answer.
  std::int64_t consider(Plan&& plan, std::uint32_t repairs, std::int64_t margin, SearchResult& result) {
    const std::int64_t time = measure(plan);
    if (laid_out_time_ && *laid_out_time_ <= time) return time;
    laid_out_time_ = time;
    result.plan = std::move(plan);
    result.margin = margin;
    result.repairs = repairs;
    result.expected = Nanos{time};
    return time;
  }

  struct Followed {
    std::optional<std::int64_t> time;
    Rules rules;
    std::int64_t margin = 0;
  };

  // Both the plan as it is and the one that fits the allocator's places.
  bool try_followed(const Rules& rules, std::int64_t margin, Followed& best, SearchResult& result) {
    if (best.time && (exhausted() || good_enough())) return false;
    Rules with_margin = rules;
    with_margin.slack = std::max(rules.slack, options_.budget.value / 1000 * margin);
    Judged judged = judge(with_margin, wishes_, whole_program(program_));
    const ModelResult model = replay(program_, machine_, judged.selection.plan, placement_, study_.sizes,
                                     options_.budget, program_.op_count(), true);
    LayoutResult fitted = fit_to_allocator(study_.problem, judged.selection.plan, model.op_end, LayoutRules{},
                                           *options_.allocator, options_.budget);
    spent_ += 5 * work(whole_program(program_));  // two runs and the walk
    std::int64_t time = consider(std::move(fitted.plan), fitted.repairs, margin, result);
    time = std::min(time, consider(std::move(judged.selection.plan), 0, margin, result));
    if (best.time && *best.time <= time) return false;
    best = {time, rules, margin};
    return true;
  }

  void lay_out(const Plan& without_places, SearchResult& result) {
    Followed best;
    if (options_.margin >= 0) {
      try_followed(rules_, options_.margin, best, result);
    } else {
      for (const std::int64_t margin : {40, 0, 80, 20, 160}) try_followed(rules_, margin, best, result);
      sweep(without_places, result);
    }
    // Where a sweep is faster, following a plan more cleverly will not catch up.
    if (*best.time == *laid_out_time_) vary_followed(best, result);
    result.evaluations = evaluations_;
  }

  void vary_followed(Followed& best, SearchResult& result) {
    bool better = true;
    while (better && !exhausted() && !good_enough()) {
      better = false;
      const auto vary = [&](auto member, auto value) {
        Rules rules = best.rules;
        rules.*member = value;
        if (!(rules == best.rules)) better |= try_followed(rules, best.margin, best, result);
      };
      vary(&Rules::in_order, !best.rules.in_order);
      vary(&Rules::min_bytes, options_.budget.value / 1000);
      vary(&Rules::size_power, best.rules.size_power == 0 ? std::int64_t{1} : std::int64_t{0});
      vary(&Rules::by_length, !best.rules.by_length);
      vary(&Rules::cost_weight, best.rules.cost_weight == 0 ? std::int64_t{2} : std::int64_t{0});
      vary(&Rules::size_power, std::int64_t{4});
      vary(&Rules::trim, !best.rules.trim);
      vary(&Rules::early_copy_out, !best.rules.early_copy_out);
      if (options_.margin >= 0) continue;
      for (const std::int64_t step : {-10, 10, 30, -20}) {
        const std::int64_t margin = best.margin + step;
        if (margin >= 0) better |= try_followed(best.rules, margin, best, result);
      }
    }
  }

  // Sweeps through the allocator's memory: one rule at a time until none helps.
  void sweep(const Plan& preferred, SearchResult& result) {
    const ModelResult model = replay(program_, machine_, preferred, placement_, study_.sizes, options_.budget,
                                     program_.op_count(), true);
    LayoutRules best;
    best.sweep = true;
    std::optional<std::int64_t> best_time;
    std::vector<LayoutRules> tried;
    bool better = true;
    const auto attempt = [&](const LayoutRules& rules) {
      if (best_time && (exhausted() || good_enough())) return;
      if (std::find(tried.begin(), tried.end(), rules) != tried.end()) return;
      tried.push_back(rules);
      ++evaluations_;
      spent_ += 3 * work(whole_program(program_));  // a run and the walk
      LayoutResult laid = fit_to_allocator(study_.problem, preferred, model.op_end, rules,
                                           *options_.allocator, options_.budget);
      const std::int64_t time = consider(std::move(laid.plan), laid.repairs, 0, result);
      if (best_time && *best_time <= time) return;
      best_time = time;
      best = rules;
      better = true;
    };
    const auto vary = [&](auto member, std::initializer_list<int> values) {
      const LayoutRules base = best;
      for (const int value : values) {
        LayoutRules rules = base;
        rules.*member = value;
        attempt(rules);
      }
    };
    for (const auto& [near, states_first] : {std::pair{2, true}, std::pair{2, false}, std::pair{1, true}}) {
      LayoutRules rules = best;
      rules.near = near;
      rules.states_first = states_first;
      attempt(rules);
    }
    // Only where it is ahead of following a plan is it worth more work.
    while (better && *best_time == *laid_out_time_ && !exhausted() && !good_enough()) {
      better = false;
      vary(&LayoutRules::near, {1, 3, 2, 0});
      vary(&LayoutRules::stray, {0, 6, 1, 12, 2});
      vary(&LayoutRules::reserve, {20, 80, 40});
      vary(&LayoutRules::states_first, {0, 1});
    }
  }

  // On the executor, ns; huge when the run does not end well.
  std::int64_t measure(const Plan& plan) const {
    const auto time = steady_time(program_, machine_, plan, options_.budget, *options_.allocator);
    return time ? time->value : std::int64_t{1} << 62;
  }

  const Program& program_;
  const Machine& machine_;
  const Placement& placement_;
  const SearchOptions& options_;
  const Study study_;
  Horizon horizon_{};
  Rules rules_;
  std::vector<Wish> wishes_;
  std::optional<Judged> best_;
  std::int64_t spent_ = 0, allowance_ = 0;     // accesses and operators replayed
  std::int64_t without_places_ = 0;            // time that the best plan takes where only bytes count
  std::optional<std::int64_t> laid_out_time_;  // of the fastest plan on the executor
  std::uint64_t evaluations_ = 0;
};

}  // namespace

SearchResult search_plan(const Program& program, const Machine& machine, const Placement& placement,
                         const SearchOptions& options) {
  return Search(program, machine, placement, options).run();
}

}  // namespace swaplab::foresight
