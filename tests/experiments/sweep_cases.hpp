// Small sweeps over bundled recordings, in folders of their own.
#pragma once

#include <unistd.h>

#include <filesystem>
#include <string>

#include "experiments/sweep/sweep_session.hpp"
#include "tests/support/shared.hpp"

namespace swaplab::test {

// A folder that is removed at the end.
class TemporaryFolder {
 public:
  explicit TemporaryFolder(const std::string& name)
      : path_(
            (std::filesystem::temp_directory_path() / ("swaplab-" + name + "-" + std::to_string(::getpid())))
                .string()) {
    std::filesystem::remove_all(path_);
    std::filesystem::create_directories(path_);
  }
  ~TemporaryFolder() {
    std::error_code ignored;
    std::filesystem::remove_all(path_, ignored);
  }
  TemporaryFolder(const TemporaryFolder&) = delete;
  TemporaryFolder& operator=(const TemporaryFolder&) = delete;
  const std::string& path() const { return path_; }

 private:
  std::string path_;
};

inline std::string bundled_trace(const std::string& name) {
  return source_path("configs/traces/" + name + ".jsonl.gz");
}

// 2 traces x 4 budgets x 3 policies, some of which do not fit.
inline std::string small_sweep_text() {
  return "schema: swaplab/sweep@1\nname: small\nbounds: no\nparameters:\n  trace: {values: [" +
         bundled_trace("gpt_small") + ", " + bundled_trace("resnet50_b256") +
         "]}\n  budget: {values: [0.1x, 0.5x, 0.7x, 0.9x]}\n  policy: {values: [none, lru, size]}\n"
         "  machine: a100-40g-pcie4\nbaseline: lru\n";
}

inline SweepPlan plan_of(const std::string& text, const std::vector<std::string>& overrides = {}) {
  ConfigNode root = parse_config_text(text, "test.yaml");
  for (const std::string& assignment : overrides) apply_config_override(root, assignment);
  return make_plan(parse_sweep_config(root, "test.yaml"), false);
}

}  // namespace swaplab::test
