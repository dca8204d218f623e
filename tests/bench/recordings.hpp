// The recording that several benchmarks replay, read once per process.
#pragma once

#include <cstdint>
#include <map>

#include "tests/support/shared.hpp"
#include "trace/extend.hpp"
#include "trace/io.hpp"

namespace swaplab {

// GPT-2 medium, continued to so many iterations.
inline const Trace& gpt2_medium(std::uint32_t iterations) {
  static const Trace recorded = read_trace(test::source_path("configs/traces/gpt2_medium.jsonl.gz"));
  static std::map<std::uint32_t, Trace> extended;
  const auto found = extended.find(iterations);
  return found != extended.end()
             ? found->second
             : extended.emplace(iterations, extend_iterations(recorded, iterations)).first->second;
}

}  // namespace swaplab
