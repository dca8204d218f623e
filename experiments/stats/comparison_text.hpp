// Comparisons as text, Markdown, LaTeX and JSON.
#pragma once

#include <string>
#include <vector>

#include "experiments/stats/comparison.hpp"

namespace swaplab {

struct ComparisonTextOptions {
  bool pairs = false;     // every pair
  std::size_t worst = 3;  // pairs to name
};

std::string comparison_text(const std::vector<Comparison>& comparisons, const CompareOptions& options,
                            const ComparisonTextOptions& text);
std::string comparison_markdown(const std::vector<Comparison>& comparisons, const CompareOptions& options);
// A tabular with booktabs rules; needs \usepackage{booktabs}.
std::string comparison_latex(const std::vector<Comparison>& comparisons, const CompareOptions& options);
std::string comparison_json(const std::vector<Comparison>& comparisons, const CompareOptions& options);
std::string sensitivity_text(const Sensitivity& sensitivity);
std::string sensitivity_json(const Sensitivity& sensitivity);

// "gpt_small" of "configs/traces/gpt_small.jsonl.gz".
std::string short_trace(const std::string& trace);

}  // namespace swaplab
