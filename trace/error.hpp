// Errors that a user can act on.
#pragma once

#include <span>
#include <stdexcept>
#include <string>
#include <string_view>

namespace swaplab {

// Classes map to the exit codes of the command line (README, "Exit codes").
enum class ErrorKind {
  usage,      // wrong option, unknown name, contradictory request
  input,      // unreadable, malformed or inconsistent file
  output,     // cannot write
  policy,     // a policy did something illegal
  invariant,  // the simulator or the checker found its own accounting broken
};

// One clear sentence: what, where (file, line or byte), what was expected.
class Error : public std::runtime_error {
 public:
  Error(ErrorKind kind, const std::string& message) : std::runtime_error(message), kind_(kind) {}
  ErrorKind kind() const { return kind_; }

 private:
  ErrorKind kind_;
};

// The candidate with the smallest edit distance to `name`, or empty when none is near
// (distance > max(2, length/3)). For "did you mean".
std::string nearest_name(std::string_view name, std::span<const std::string> candidates);

// " (did you mean 'x'?)" or empty.
std::string did_you_mean(std::string_view name, std::span<const std::string> candidates);

}  // namespace swaplab
