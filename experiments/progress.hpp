// Progress on standard error: a bar with rate and time left on a terminal, plain lines otherwise.
#pragma once

#include <chrono>
#include <cstddef>

namespace swaplab {

class ProgressLine {
 public:
  ProgressLine();
  // `done` of `total`; the first call tells what was done before.
  void update(std::size_t done, std::size_t total);
  void finish();

 private:
  using Clock = std::chrono::steady_clock;
  bool terminal_;
  bool started_ = false, drawn_ = false;
  std::size_t before_ = 0;
  Clock::time_point begin_, last_;
};

}  // namespace swaplab
