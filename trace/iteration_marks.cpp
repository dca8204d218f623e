#include "trace/iteration_marks.hpp"

#include <string>

#include "trace/error.hpp"

namespace swaplab {
namespace {

constexpr std::string_view kNames[] = {"iter_begin", "iter_end", "micro_begin",
                                       "micro_end",  "phase",    "step_skipped"};

[[noreturn]] void fail(const std::string& message) {
  throw Error(ErrorKind::input, message);
}

}  // namespace

std::string_view mark_name(MarkKind kind) {
  return kind == MarkKind::other ? std::string_view() : kNames[static_cast<std::size_t>(kind)];
}

void IterationMarks::add(MarkKind kind, std::string_view text, std::int64_t number, std::uint32_t gap) {
  const bool has_text = kind == MarkKind::iter_begin || kind == MarkKind::phase || kind == MarkKind::other;
  if (!has_text && !text.empty())
    fail("a '" + std::string(mark_name(kind)) + "' mark has no text, found '" + std::string(text) + "'");
  switch (kind) {
    case MarkKind::iter_begin: {
      if (in_iteration_) {
        fail("iteration " + std::to_string(number) + " begins inside iteration " +
             std::to_string(iterations_.back().number));
      }
      if (number < 0) fail("'iter_begin' needs an iteration number >= 0");
      if (!iterations_.empty() && number <= iterations_.back().number) {
        fail("iteration " + std::to_string(number) + " begins after iteration " +
             std::to_string(iterations_.back().number) + "; numbers must increase");
      }
      if (text != "train" && text != "val")
        fail("iteration kind '" + std::string(text) + "', expected \"train\" or \"val\"");
      const auto iteration_kind = text == "val" ? IterationKind::validation : IterationKind::train;
      iterations_.push_back({number, iteration_kind, false, gap, gap});
      in_iteration_ = true;
      break;
    }
    case MarkKind::iter_end:
      if (!in_iteration_) fail("iteration " + std::to_string(number) + " ends, but none is open");
      if (number >= 0 && number != iterations_.back().number) {
        fail("iteration " + std::to_string(number) + " ends inside iteration " +
             std::to_string(iterations_.back().number));
      }
      if (in_micro_)
        fail("iteration " + std::to_string(iterations_.back().number) + " ends inside a micro-batch");
      iterations_.back().end_op = gap;
      in_iteration_ = false;
      break;
    case MarkKind::micro_begin:
      if (in_micro_) fail("micro-batch " + std::to_string(number) + " begins inside another one");
      in_micro_ = true;
      break;
    case MarkKind::micro_end:
      if (!in_micro_) fail("micro-batch " + std::to_string(number) + " ends, but none is open");
      in_micro_ = false;
      break;
    case MarkKind::step_skipped:
      if (in_iteration_) iterations_.back().step_skipped = true;
      break;
    case MarkKind::phase:
      break;
    case MarkKind::other:
      for (const std::string_view known : kNames) {
        if (text == known) fail("a mark of kind 'other' cannot be called '" + std::string(text) + "'");
      }
      break;
  }
}

void IterationMarks::finish() const {
  if (in_iteration_) fail("the trace ends inside iteration " + std::to_string(iterations_.back().number));
  if (in_micro_) fail("the trace ends inside a micro-batch");
}

}  // namespace swaplab
