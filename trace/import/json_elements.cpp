#include "trace/import/json_elements.hpp"

#include <algorithm>
#include <cstring>

#include "trace/error.hpp"

namespace swaplab {
namespace {

constexpr std::size_t kChunk = std::size_t{256} << 10;
constexpr std::size_t kMaxMember = std::size_t{1} << 20;

enum Class : std::uint8_t { other, quote, open, close };
constexpr auto kClasses = [] {
  std::array<std::uint8_t, 256> table{};
  table['"'] = quote;
  table['{'] = table['['] = open;
  table['}'] = table[']'] = close;
  return table;
}();

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}

std::string shown(char c) {
  const auto byte = static_cast<unsigned char>(c);
  if (byte >= 0x20 && byte < 0x7f) return std::string("'") + c + "'";
  static constexpr char digits[] = "0123456789abcdef";
  return std::string("byte 0x") + digits[byte >> 4] + digits[byte & 15];
}

// A sliding window over the file. Everything before `keep` may be forgotten on a refill.
class Scanner {
 public:
  Scanner(ByteSource& source, std::string name)
      : source_(source), name_(std::move(name)), buffer_(kChunk + kJsonPadding) {}

  std::uint64_t offset() const { return base_ + pos_; }
  // The next byte that is no space, or 0 at the end of the file.
  char peek() {
    for (;;) {
      while (pos_ < end_ && is_space(buffer_[pos_])) ++pos_;
      if (pos_ < end_) return buffer_[pos_] == '\0' ? '\x01' : buffer_[pos_];
      begin_ = pos_;
      if (!refill()) return '\0';
    }
  }
  void skip(char expected, const char* what) {
    const char c = peek();
    if (c != expected) fail(what, c);
    ++pos_;
  }
  [[noreturn]] void fail(const std::string& expected, char found) {
    throw Error(ErrorKind::input, name_ + ": byte " + std::to_string(offset()) + ": expected " + expected +
                                      ", found " + (found == '\0' ? "the end of the file" : shown(found)));
  }
  // One value, brackets and quotes matched. Bytes beyond `limit` are dropped when `drop`, else an error.
  // Returns its text, or its first byte when bytes were dropped.
  std::string_view value(std::size_t limit, bool drop) {
    const char first = peek();
    if (first == '\0') fail("a value", first);
    begin_ = pos_;
    limit_ = limit;
    drop_ = drop;
    dropped_ = false;
    start_ = offset();
    if (kClasses[static_cast<unsigned char>(first)] == open) {
      container();
    } else if (first == '"') {
      ++pos_;
      string();
    } else {
      scalar();
    }
    if (dropped_) {
      single_.assign(1, first);
      single_.resize(1 + kJsonPadding);
      return std::string_view(single_).substr(0, 1);
    }
    return {buffer_.data() + begin_, pos_ - begin_};
  }
  std::uint64_t value_offset() const { return start_; }

 private:
  bool more() {
    if (pos_ < end_) return true;
    return refill();
  }
  bool refill() {
    if (dropped_) begin_ = pos_;
    if (pos_ - begin_ > limit_) {
      if (!drop_) too_long();
      dropped_ = true;
      begin_ = pos_;
    }
    if (begin_ != 0) {
      std::memmove(buffer_.data(), buffer_.data() + begin_, end_ - begin_);
      base_ += begin_;
      pos_ -= begin_;
      end_ -= begin_;
      begin_ = 0;
    }
    if (buffer_.size() - kJsonPadding - end_ < kChunk / 2) buffer_.resize(buffer_.size() * 2);
    const std::size_t count = source_.read(buffer_.data() + end_, buffer_.size() - kJsonPadding - end_);
    end_ += count;
    return count != 0;
  }
  [[noreturn]] void too_long() {
    const std::string fault = json_error({buffer_.data() + begin_, pos_ - begin_}, start_);
    throw Error(ErrorKind::input,
                name_ + ": " +
                    (fault.empty() ? "byte " + std::to_string(start_) + ": a value of more than " +
                                         std::to_string(limit_) + " B"
                                   : fault));
  }
  // The file ends inside the value that began at start_: say what is wrong first, or what is missing.
  [[noreturn]] void ends_inside() {
    std::string fault = dropped_ ? "" : json_error({buffer_.data() + begin_, pos_ - begin_}, start_);
    if (fault.empty())
      fault = "byte " + std::to_string(offset()) + ": the file ends inside the value that begins at byte " +
              std::to_string(start_);
    throw Error(ErrorKind::input, name_ + ": " + fault);
  }
  void string() {  // after the opening quote
    for (;;) {
      if (pos_ == end_ && !refill()) ends_inside();
      const char c = buffer_[pos_++];
      if (c == '"') return;
      if (c == '\\') {
        if (!more()) ends_inside();
        ++pos_;
      }
    }
  }
  void container() {
    std::size_t depth = 0;
    for (;;) {
      if (pos_ == end_ && !refill()) ends_inside();
      switch (kClasses[static_cast<unsigned char>(buffer_[pos_++])]) {
        case quote:
          string();
          break;
        case open:
          ++depth;
          break;
        case close:
          if (--depth == 0) return;
          break;
        default:
          break;
      }
    }
  }
  void scalar() {
    while (more() && !is_space(buffer_[pos_]) && buffer_[pos_] != ',' && buffer_[pos_] != ']' &&
           buffer_[pos_] != '}')
      ++pos_;
    if (pos_ == begin_) fail("a value", buffer_[pos_]);
  }

  ByteSource& source_;
  std::string name_;
  std::vector<char> buffer_;
  std::string single_;
  std::size_t begin_ = 0, pos_ = 0, end_ = 0, limit_ = kMaxMember;
  std::uint64_t base_ = 0, start_ = 0;
  bool drop_ = true, dropped_ = false;
};

void read_array(Scanner& in, std::string_view key, const JsonVisitor& visitor) {
  in.skip('[', "'[' of an array of events");
  if (in.peek() == ']') return in.skip(']', "']'");
  for (;;) {
    const std::string_view text = in.value(kMaxJsonElement, false);
    visitor.element(key, text, in.value_offset());
    const char next = in.peek();
    if (next == ']') return in.skip(']', "']'");
    in.skip(',', "',' or ']' after an event");
  }
}

}  // namespace

void read_json_elements(ByteSource& source, const std::string& name, std::span<const std::string_view> arrays,
                        const JsonVisitor& visitor) {
  Scanner in(source, name);
  const auto wanted = [&](std::string_view key) {
    return std::find(arrays.begin(), arrays.end(), key) != arrays.end();
  };
  // A byte order mark is no part of JSON, but some writers put one.
  if (in.peek() == '\xef') {
    in.skip('\xef', "a byte order mark");
    in.skip('\xbb', "a byte order mark");
    in.skip('\xbf', "a byte order mark");
  }
  const char first = in.peek();
  if (first == '[' && wanted("")) {
    read_array(in, "", visitor);
  } else {
    in.skip('{', wanted("") ? "'{' or '['" : "'{'");
    std::string key;
    if (in.peek() == '}') {
      in.skip('}', "'}'");
    } else {
      for (;;) {
        if (const char c = in.peek(); c != '"') in.fail("a key in quotes", c);
        const std::string_view quoted = in.value(kMaxMember, false);
        if (const std::string fault = json_error(quoted, in.value_offset()); !fault.empty())
          throw Error(ErrorKind::input, name + ": " + fault);
        key.assign(quoted.substr(1, quoted.size() - 2));
        in.skip(':', "':' after a key");
        if (wanted(key) && in.peek() == '[') {
          read_array(in, key, visitor);
        } else {
          const std::string_view text = in.value(kMaxMember, true);
          visitor.member(key, text);
        }
        if (in.peek() == '}') {
          in.skip('}', "'}'");
          break;
        }
        in.skip(',', "',' or '}' after a value");
      }
    }
  }
  if (const char c = in.peek(); c != '\0') in.fail("the end of the file", c);
}

}  // namespace swaplab
