#include "trace/import/pickle.hpp"

#include <optional>
#include <unordered_map>

#include "trace/error.hpp"
#include "trace/import/decimal.hpp"

namespace swaplab {

// A value takes about 55 bytes of memory and can be one byte of a file. A snapshot has one for every 13
// bytes.
constexpr std::size_t kMaxValues = std::size_t{1} << 25;

class Pickle::Machine {
 public:
  Machine(Pickle& p, const std::string& name) : p_(p), name_(name) {}

  void run() {
    while (step()) {
    }
  }

 private:
  [[noreturn]] void fail(const std::string& what) const {
    throw Error(ErrorKind::input, name_ + ": byte " + std::to_string(opcode_at_) + ": " + what);
  }
  std::string_view take(std::uint64_t count) {
    if (count > p_.bytes_.size() - at_)
      fail("the pickle ends inside an operand of " + std::to_string(count) + " B");
    const std::string_view part = p_.bytes_.substr(at_, count);
    at_ += count;
    return part;
  }
  std::uint64_t little(std::size_t count) {
    const std::string_view part = take(count);
    std::uint64_t value = 0;
    for (std::size_t i = count; i-- > 0;) value = value << 8 | static_cast<unsigned char>(part[i]);
    return value;
  }
  std::string_view line() {
    const auto end = p_.bytes_.find('\n', at_);
    if (end == std::string_view::npos) fail("the pickle ends inside a line");
    const std::string_view text = p_.bytes_.substr(at_, end - at_);
    at_ = end + 1;
    return text;
  }

  void push_node(PickleKind kind, std::uint64_t value = 0, std::uint64_t length = 0) {
    if (p_.nodes_.size() >= kMaxValues) fail("more than 2^25 values");
    stack_.push_back(static_cast<PickleId>(p_.nodes_.size()));
    p_.nodes_.push_back({kind, value, length});
  }
  void push_integer(std::int64_t value) { push_node(PickleKind::integer, static_cast<std::uint64_t>(value)); }
  void push_text(std::uint64_t length) {
    const std::uint64_t start = at_;
    take(length);
    push_node(PickleKind::text, start, length);
  }
  void push_container(PickleKind kind, std::vector<PickleId> items) {
    p_.items_.push_back(std::move(items));
    push_node(kind, p_.items_.size() - 1);
  }
  PickleId pop() {
    if (stack_.size() <= floor()) fail("the stack is empty");
    const PickleId id = stack_.back();
    stack_.pop_back();
    return id;
  }
  std::size_t floor() const { return marks_.empty() ? 0 : marks_.back(); }
  // What was pushed since the last mark.
  std::vector<PickleId> pop_mark() {
    if (marks_.empty()) fail("there is no mark on the stack");
    const auto first = stack_.begin() + static_cast<std::ptrdiff_t>(marks_.back());
    std::vector<PickleId> items(first, stack_.end());
    stack_.erase(first, stack_.end());
    marks_.pop_back();
    return items;
  }
  std::vector<PickleId>& top_items(PickleKind kind, const char* what) {
    if (stack_.size() <= floor() || p_.kind(stack_.back()) != kind)
      fail(std::string("expected ") + what + " on the stack");
    return p_.items_[p_.nodes_[stack_.back()].value];
  }
  void append(std::vector<PickleId>& into, const std::vector<PickleId>& items) {
    into.insert(into.end(), items.begin(), items.end());
  }
  void set_items(const std::vector<PickleId>& items) {
    if (items.size() % 2 != 0) fail("a dict gets a key without a value");
    append(top_items(PickleKind::dict, "a dict"), items);
  }
  void tuple(std::size_t count) {
    std::vector<PickleId> items(count);
    for (std::size_t i = count; i-- > 0;) items[i] = pop();
    push_container(PickleKind::tuple, std::move(items));
  }
  void memoize(std::uint64_t key) {
    if (stack_.size() <= floor()) fail("nothing on the stack to remember");
    memo_[key] = stack_.back();
  }
  void recall(std::uint64_t key) {
    const auto found = memo_.find(key);
    if (found == memo_.end()) fail("nothing is remembered as " + std::to_string(key));
    stack_.push_back(found->second);
  }
  std::uint64_t memo_line() {
    const auto key = unsigned_integer(line());
    if (!key) fail("expected a number");
    return *key;
  }
  // Two's complement, little endian, of any length.
  void wide(std::uint64_t length) {
    const std::string_view part = take(length);
    if (part.empty()) return push_integer(0);
    const bool negative = (static_cast<unsigned char>(part.back()) & 0x80u) != 0;
    std::uint64_t value = negative ? ~std::uint64_t{0} : 0;
    for (std::size_t i = part.size(); i-- > 0;) {
      const auto byte = static_cast<unsigned char>(part[i]);
      if (i >= 8 && byte != (negative ? 0xffu : 0u)) return push_node(PickleKind::wide_integer);
      value = value << 8 | byte;
    }
    const bool fits = (static_cast<std::int64_t>(value) < 0) == negative;
    push_node(fits ? PickleKind::integer : PickleKind::wide_integer, value);
  }
  void number_line(std::string_view text) {
    if (text == "00" || text == "01") return push_node(PickleKind::boolean, text == "01" ? 1 : 0);
    if (!text.empty() && text.back() == 'L') text.remove_suffix(1);
    const auto value = scaled_decimal(text, 0);
    if (!value) return push_node(PickleKind::wide_integer);
    push_integer(*value);
  }

  bool step() {
    opcode_at_ = at_;
    if (at_ >= p_.bytes_.size()) fail("the pickle ends without STOP");
    const char opcode = p_.bytes_[at_++];
    switch (opcode) {
      case '\x80':  // PROTO
        if (const std::uint64_t version = little(1); version > 5)
          fail("pickle protocol " + std::to_string(version) + ", expected at most 5");
        break;
      case '\x95':  // FRAME: a hint for readers of files
        little(8);
        break;
      case '.':
        if (at_ != p_.bytes_.size())
          fail("expected the end of the file after STOP, found " + std::to_string(p_.bytes_.size() - at_) +
               " B more");
        p_.root_ = pop();
        return false;
      case '(':
        marks_.push_back(stack_.size());
        break;
      case '0':
        if (stack_.size() <= floor() && !marks_.empty()) {
          marks_.pop_back();
        } else {
          pop();
        }
        break;
      case '1':
        pop_mark();
        break;
      case '2': {
        const PickleId top = pop();
        stack_.push_back(top);
        stack_.push_back(top);
        break;
      }
      case 'N':
        push_node(PickleKind::none);
        break;
      case '\x88':
        push_node(PickleKind::boolean, 1);
        break;
      case '\x89':
        push_node(PickleKind::boolean, 0);
        break;
      case 'I':
      case 'L':
        number_line(line());
        break;
      case 'J':
        push_integer(static_cast<std::int32_t>(static_cast<std::uint32_t>(little(4))));
        break;
      case 'K':
        push_integer(static_cast<std::int64_t>(little(1)));
        break;
      case 'M':
        push_integer(static_cast<std::int64_t>(little(2)));
        break;
      case '\x8a':
        wide(little(1));
        break;
      case '\x8b':
        wide(little(4));
        break;
      case 'F':
        line();
        push_node(PickleKind::real);
        break;
      case 'G':
        take(8);
        push_node(PickleKind::real);
        break;
      case 'S':
      case 'V': {
        const std::uint64_t start = at_;
        push_node(PickleKind::text, start, line().size());
        break;
      }
      case 'U':     // SHORT_BINSTRING
      case 'C':     // SHORT_BINBYTES
      case '\x8c':  // SHORT_BINUNICODE
        push_text(little(1));
        break;
      case 'T':  // BINSTRING
      case 'B':  // BINBYTES
      case 'X':  // BINUNICODE
        push_text(little(4));
        break;
      case '\x8d':  // BINUNICODE8
      case '\x8e':  // BINBYTES8
      case '\x96':  // BYTEARRAY8
        push_text(little(8));
        break;
      case ']':
        push_container(PickleKind::list, {});
        break;
      case '}':
        push_container(PickleKind::dict, {});
        break;
      case ')':
        push_container(PickleKind::tuple, {});
        break;
      case '\x8f':  // EMPTY_SET
        push_container(PickleKind::list, {});
        break;
      case 'l':
      case '\x91':  // FROZENSET
        push_container(PickleKind::list, pop_mark());
        break;
      case 't':
        push_container(PickleKind::tuple, pop_mark());
        break;
      case 'd': {
        auto items = pop_mark();
        if (items.size() % 2 != 0) fail("a dict gets a key without a value");
        push_container(PickleKind::dict, std::move(items));
        break;
      }
      case '\x85':
      case '\x86':
      case '\x87':
        tuple(static_cast<std::size_t>(static_cast<unsigned char>(opcode)) - 0x84);
        break;
      case 'a': {
        const PickleId item = pop();
        top_items(PickleKind::list, "a list").push_back(item);
        break;
      }
      case 'e':
      case '\x90': {  // ADDITEMS
        const auto items = pop_mark();
        append(top_items(PickleKind::list, "a list"), items);
        break;
      }
      case 's': {
        const PickleId value = pop(), key = pop();
        set_items({key, value});
        break;
      }
      case 'u': {
        const auto items = pop_mark();
        set_items(items);
        break;
      }
      case '\x94':
        memoize(memo_.size());
        break;
      case 'q':
        memoize(little(1));
        break;
      case 'r':
        memoize(little(4));
        break;
      case 'p':
        memoize(memo_line());
        break;
      case 'h':
        recall(little(1));
        break;
      case 'j':
        recall(little(4));
        break;
      case 'g':
        recall(memo_line());
        break;
      case 'c':
      case '\x93':
        fail(
            "the pickle names a Python object (GLOBAL); a memory snapshot holds plain values only, and "
            "nothing is executed here");
      case 'R':
      case 'i':
      case 'o':
      case '\x81':
      case '\x92':
      case 'b':
        fail(
            "the pickle asks for a call (REDUCE, BUILD or the like); a memory snapshot holds plain values "
            "only, and nothing is executed here");
      default:
        fail("unknown or refused pickle opcode " + std::to_string(static_cast<unsigned char>(opcode)));
    }
    return true;
  }

  Pickle& p_;
  const std::string& name_;
  std::uint64_t at_ = 0, opcode_at_ = 0;
  std::vector<PickleId> stack_;
  std::vector<std::size_t> marks_;
  std::unordered_map<std::uint64_t, PickleId> memo_;
};

Pickle::Pickle(std::string_view bytes, const std::string& name) : bytes_(bytes) {
  Machine(*this, name).run();
}

std::size_t Pickle::size(PickleId id) const {
  const PickleKind k = kind(id);
  const bool container = k == PickleKind::list || k == PickleKind::tuple || k == PickleKind::dict;
  return container ? items_[nodes_[id].value].size() : 0;
}

PickleId Pickle::find(PickleId dict, std::string_view key) const {
  if (kind(dict) != PickleKind::dict) return kNoPickle;
  const auto& items = items_[nodes_[dict].value];
  for (std::size_t i = items.size(); i >= 2; i -= 2) {
    if (kind(items[i - 2]) == PickleKind::text && text(items[i - 2]) == key) return items[i - 1];
  }
  return kNoPickle;
}

std::int64_t Pickle::integer(PickleId id, std::int64_t absent) const {
  const PickleKind k = kind(id);
  if (k != PickleKind::integer && k != PickleKind::boolean) return absent;
  return static_cast<std::int64_t>(nodes_[id].value);
}

std::string_view Pickle::text(PickleId id) const {
  if (kind(id) != PickleKind::text) return {};
  return bytes_.substr(nodes_[id].value, nodes_[id].length);
}

}  // namespace swaplab
