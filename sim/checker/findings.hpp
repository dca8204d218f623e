// Collects what the checker finds.
#pragma once

#include <string>
#include <utility>

#include "sim/schedule_checker.hpp"

namespace swaplab::checker {

class Findings {
 public:
  static constexpr std::size_t kKept = 100;

  // One comparison; `message` (a callable that gives the text) is asked only when it fails.
  template <class Message>
  bool expect(bool holds, std::uint64_t entry, Message&& message) {
    ++check_.rules_checked;
    if (!holds) add(entry, std::forward<Message>(message)());
    return holds;
  }
  ScheduleCheck& check() { return check_; }

 private:
  void add(std::uint64_t entry, std::string message) {
    ++check_.finding_count;
    if (check_.findings.size() < kKept) check_.findings.push_back({entry, std::move(message)});
  }
  ScheduleCheck check_;
};

inline std::string ns(Nanos time) {
  return std::to_string(time.value) + " ns";
}
inline std::string bytes_text(Bytes bytes) {
  return std::to_string(bytes.value) + " B";
}

}  // namespace swaplab::checker
