#include "experiments/progress.hpp"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <string>

namespace swaplab {
namespace {

constexpr std::size_t kBarWidth = 30;

std::string left_text(double seconds) {
  char text[48];
  if (seconds < 100) {
    std::snprintf(text, sizeof text, "%.0f s left", seconds);
  } else if (seconds < 6000) {
    std::snprintf(text, sizeof text, "%.0f min left", seconds / 60);
  } else {
    std::snprintf(text, sizeof text, "%.1f h left", seconds / 3600);
  }
  return text;
}

}  // namespace

ProgressLine::ProgressLine() : terminal_(::isatty(STDERR_FILENO) != 0), begin_(Clock::now()), last_(begin_) {}

void ProgressLine::update(std::size_t done, std::size_t total) {
  const auto now = Clock::now();
  if (!started_) {
    started_ = true;
    before_ = done;
    begin_ = last_ = now;
    return;
  }
  const auto pause = terminal_ ? std::chrono::milliseconds(100) : std::chrono::milliseconds(10'000);
  if (done != total && now - last_ < pause) return;
  if (done == total && !terminal_ && now - begin_ < std::chrono::seconds(2)) return;
  last_ = now;
  const double seconds = std::max(1e-9, std::chrono::duration<double>(now - begin_).count());
  const double rate = static_cast<double>(done - before_) / seconds;
  const std::string left = rate > 0 ? left_text(static_cast<double>(total - done) / rate) : "";
  if (terminal_) {
    const std::size_t filled = total == 0 ? kBarWidth : done * kBarWidth / total;
    std::fprintf(stderr, "\r[%s%s] %zu/%zu  %.1f runs/s  %s   ", std::string(filled, '#').c_str(),
                 std::string(kBarWidth - filled, ' ').c_str(), done, total, rate, left.c_str());
    std::fflush(stderr);
    drawn_ = true;
  } else {
    std::fprintf(stderr, "%zu of %zu runs, %.1f runs/s, %s\n", done, total, rate, left.c_str());
  }
}

void ProgressLine::finish() {
  if (drawn_) std::fputc('\n', stderr);
  drawn_ = false;
}

}  // namespace swaplab
