// Where JSON text is wrong, and mending what can be mended without guessing.
#include <cstring>

#include "trace/import/json_elements.hpp"

namespace swaplab {
namespace {

bool is_space(char c) {
  return c == ' ' || c == '\n' || c == '\r' || c == '\t';
}
bool is_digit(char c) {
  return c >= '0' && c <= '9';
}
bool is_hex(char c) {
  return is_digit(c) || (c >= 'a' && c <= 'f') || (c >= 'A' && c <= 'F');
}

// Bytes of the UTF-8 sequence at `at`; 0 when it is none.
std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) {
    return at + i < text.size() ? static_cast<unsigned char>(text[at + i]) : 0u;
  };
  const auto tail = [&](std::size_t i) { return (byte(i) & 0xc0u) == 0x80u; };
  const unsigned lead = byte(0);
  if (lead < 0x80) return 1;
  if (lead >= 0xc2 && lead <= 0xdf) return tail(1) ? 2 : 0;
  if (lead >= 0xe0 && lead <= 0xef) {
    if (!tail(1) || !tail(2)) return 0;
    if (lead == 0xe0 && byte(1) < 0xa0) return 0;
    if (lead == 0xed && byte(1) > 0x9f) return 0;  // surrogates
    return 3;
  }
  if (lead >= 0xf0 && lead <= 0xf4) {
    if (!tail(1) || !tail(2) || !tail(3)) return 0;
    if (lead == 0xf0 && byte(1) < 0x90) return 0;
    if (lead == 0xf4 && byte(1) > 0x8f) return 0;
    return 4;
  }
  return 0;
}

// Bytes of a valid escape at `at` (a backslash); 0 when it is none.
std::size_t escape_length(std::string_view text, std::size_t at) {
  if (at + 1 >= text.size()) return 0;
  const char c = text[at + 1];
  if (c == '\0') return 0;
  if (std::strchr("\"\\/bfnrt", c) != nullptr) return 2;
  if (c != 'u' || at + 5 >= text.size()) return 0;
  for (std::size_t i = 2; i < 6; ++i) {
    if (!is_hex(text[at + i])) return 0;
  }
  return 6;
}

class Checker {
 public:
  Checker(std::string_view text, std::uint64_t offset) : text_(text), offset_(offset) {}

  std::string run() {
    if (!value()) return fault_;
    while (!stack_.empty()) {
      space();
      const char close = stack_.back() ? '}' : ']';
      if (at() == close) {
        ++pos_;
        stack_.pop_back();
        continue;
      }
      if (at() != ',') return expected(std::string("',' or '") + close + "'");
      ++pos_;
      space();
      if (stack_.back() && !key()) return fault_;
      if (!value()) return fault_;
    }
    space();
    if (pos_ != text_.size()) return expected("the end of the value");
    return "";
  }

 private:
  char at() const { return pos_ < text_.size() ? text_[pos_] : '\0'; }
  void space() {
    while (pos_ < text_.size() && is_space(text_[pos_])) ++pos_;
  }
  std::string expected(const std::string& what) {
    fault_ = "byte " + std::to_string(offset_ + pos_) + ": expected " + what + ", found ";
    if (pos_ >= text_.size()) return fault_ += "the end";
    std::string near;
    for (std::size_t i = pos_; i < text_.size() && i < pos_ + 12; ++i) {
      const auto c = static_cast<unsigned char>(text_[i]);
      near += c >= 0x20 && c < 0x7f ? static_cast<char>(c) : '?';
    }
    return fault_ += "'" + near + "'";
  }
  bool no(const std::string& what) {
    expected(what);
    return false;
  }
  bool string() {  // at the opening quote
    ++pos_;
    while (pos_ < text_.size()) {
      const char c = text_[pos_];
      if (c == '"') {
        ++pos_;
        return true;
      }
      if (static_cast<unsigned char>(c) < 0x20) return no("an escape instead of a raw control character");
      const std::size_t step = c == '\\' ? escape_length(text_, pos_) : utf8_length(text_, pos_);
      if (step == 0)
        return no(c == '\\' ? "a valid escape (\\\" \\\\ \\/ \\b \\f \\n \\r \\t \\uXXXX)" : "valid UTF-8");
      pos_ += step;
    }
    return no("the closing quote of a string");
  }
  bool key() {
    if (at() != '"') return no("a key in quotes");
    if (!string()) return false;
    space();
    if (at() != ':') return no("':' after a key");
    ++pos_;
    return true;
  }
  bool number() {
    if (at() == '-') ++pos_;
    if (!is_digit(at())) return no("a value");
    if (at() == '0') {
      ++pos_;
    } else {
      while (is_digit(at())) ++pos_;
    }
    if (at() == '.') {
      ++pos_;
      if (!is_digit(at())) return no("a digit");
      while (is_digit(at())) ++pos_;
    }
    if (at() == 'e' || at() == 'E') {
      ++pos_;
      if (at() == '+' || at() == '-') ++pos_;
      if (!is_digit(at())) return no("a digit");
      while (is_digit(at())) ++pos_;
    }
    return true;
  }
  // A scalar, an empty container, or the way down to the first scalar of a container.
  bool value() {
    for (;;) {
      space();
      const char c = at();
      if (c == '"') return string();
      if (c == '{' || c == '[') {
        ++pos_;
        space();
        if (at() == (c == '{' ? '}' : ']')) {
          ++pos_;
          return true;
        }
        stack_.push_back(c == '{');
        if (c == '{' && !key()) return false;
        continue;
      }
      for (const std::string_view word : {"true", "false", "null"}) {
        if (text_.substr(pos_, word.size()) == word) {
          pos_ += word.size();
          return true;
        }
      }
      return number();
    }
  }

  std::string_view text_;
  std::uint64_t offset_;
  std::size_t pos_ = 0;
  std::vector<bool> stack_;  // open containers; true: an object
  std::string fault_;
};

// Copies one string with its quotes; `at` is its opening quote. False when it does not end.
bool mend_string(std::string_view text, std::size_t& at, std::string& out, JsonRepairs& repairs) {
  std::size_t end = at + 1;
  bool bad_escape = false;
  while (end < text.size() && text[end] != '"') {
    if (text[end] == '\\') {
      bad_escape |= escape_length(text, end) == 0;
      ++end;
    }
    ++end;
  }
  if (end >= text.size()) return false;
  // A writer that leaves an impossible escape does not escape backslashes at all.
  repairs.backslashes += bad_escape ? 1 : 0;
  out += '"';
  for (std::size_t i = at + 1; i < end;) {
    const auto c = static_cast<unsigned char>(text[i]);
    if (c == '\\') {
      if (bad_escape && text[i + 1] != '"') {
        out += "\\\\";
        ++i;
      } else {
        out.append(text, i, 2);
        i += 2;
      }
      continue;
    }
    if (c < 0x20) {
      static constexpr char digits[] = "0123456789abcdef";
      out += "\\u00";
      out += digits[c >> 4];
      out += digits[c & 15];
      ++repairs.control_characters;
      ++i;
      continue;
    }
    const std::size_t length = utf8_length(text, i);
    if (length == 0) {
      out += "\xef\xbf\xbd";
      ++repairs.utf8;
      ++i;
    } else {
      out.append(text, i, length);
      i += length;
    }
  }
  out += '"';
  at = end + 1;
  return true;
}

}  // namespace

std::string json_error(std::string_view text, std::uint64_t offset) {
  return Checker(text, offset).run();
}

std::string repair_json(std::string_view text, JsonRepairs& repairs) {
  std::string out;
  out.reserve(text.size() + kJsonPadding + 64);
  JsonRepairs made;
  static constexpr std::string_view words[] = {"-Infinity", "Infinity", "-inf", "inf", "-nan", "nan", "NaN"};
  for (std::size_t at = 0; at < text.size();) {
    if (text[at] == '"') {
      if (!mend_string(text, at, out, made)) return "";
      continue;
    }
    const char before = out.empty() ? ' ' : out.back();
    bool replaced = false;
    if (is_space(before) || before == ':' || before == ',' || before == '[') {
      for (const std::string_view word : words) {
        if (text.substr(at, word.size()) != word) continue;
        out += "null";
        at += word.size();
        ++made.non_finite;
        replaced = true;
        break;
      }
    }
    if (!replaced) out += text[at++];
  }
  if (!json_error(out, 0).empty()) return "";
  repairs.non_finite += made.non_finite;
  repairs.control_characters += made.control_characters;
  repairs.backslashes += made.backslashes;
  repairs.utf8 += made.utf8;
  out.append(kJsonPadding, '\0');
  return out;
}

}  // namespace swaplab
