// Mixture-of-experts layer: token-choice routing with seeded, uneven expert loads.
#pragma once

#include <vector>

#include "trace/synth/module.hpp"

namespace swaplab::synth {

// Tokens that each of `experts` receives when `tokens` x `top_k` are routed: shares drift from step to step
// and are `imbalance_percent` uneven (0: equal). The sum is exact, no expert gets more than `tokens`.
std::vector<std::int64_t> route_tokens(std::int64_t tokens, std::int64_t experts, std::int64_t top_k,
                                       std::int64_t imbalance_percent, std::uint64_t seed,
                                       std::uint64_t step);

class Experts {
 public:
  Experts() = default;
  Experts(Context& c, const std::string& name, std::uint64_t layer);
  // Hidden state of the layer; adds its balancing loss to `balance`.
  Tensor forward(Context& c, Tensor x, std::vector<Tensor>& balance) const;

 private:
  struct Routed {
    Tensor token, slot;
  };
  static Routed routed_to(Context& c, const Tensor& chosen, std::size_t e, std::int64_t rows);
  static Tensor shares(Context& c, const Tensor& weights, const Routed& routed);
  // Rows that each expert of the whole model gets from `rank`'s tokens.
  std::vector<std::int64_t> loads(const Context& c, std::int64_t tokens, std::int64_t rank) const;
  Tensor run_locally(Context& c, const Tensor& flat, const Tensor& weights, const Tensor& chosen) const;
  Tensor run_across_ranks(Context& c, const Tensor& flat, const Tensor& weights, const Tensor& chosen) const;
  Linear router_;
  std::vector<Mlp> experts_;
  std::uint64_t layer_ = 0;
};

}  // namespace swaplab::synth
