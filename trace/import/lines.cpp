#include "trace/import/lines.hpp"

#include <cstring>

#include "trace/error.hpp"

namespace swaplab {
namespace {

constexpr std::size_t kPadding = 64;
constexpr std::size_t kMaxLine = std::size_t{64} << 20;

}  // namespace

Lines::Lines(const ImportInput& input)
    : source_(input.open()), name_(input.name()), buffer_((std::size_t{1} << 18) + kPadding) {}

void Lines::fail_at(std::uint64_t line, const std::string& what) const {
  throw Error(ErrorKind::input, name_ + ":" + std::to_string(line) + ": " + what);
}

bool Lines::next(std::string_view& line) {
  std::size_t searched = begin_;
  for (;;) {
    const void* found =
        searched < end_ ? std::memchr(buffer_.data() + searched, '\n', end_ - searched) : nullptr;
    if (found != nullptr || at_end_) {
      if (found == nullptr && begin_ == end_) return false;
      const std::size_t stop =
          found != nullptr ? static_cast<std::size_t>(static_cast<const char*>(found) - buffer_.data())
                           : end_;
      line = {buffer_.data() + begin_, stop - begin_};
      begin_ = found != nullptr ? stop + 1 : end_;
      ++number_;
      if (number_ == 1 && line.substr(0, 3) == "\xef\xbb\xbf") line.remove_prefix(3);
      if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
      return true;
    }
    searched = end_ - begin_;
    std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
    if (end_ > kMaxLine) {
      ++number_;
      fail("a line of more than 64 MiB");
    }
    if (buffer_.size() - kPadding - end_ < buffer_.size() / 4) buffer_.resize(buffer_.size() * 2);
    const std::size_t count = source_->read(buffer_.data() + end_, buffer_.size() - kPadding - end_);
    end_ += count;
    at_end_ = count == 0;
  }
}

}  // namespace swaplab
