#include "policy/registry.hpp"

#include <algorithm>
#include <charconv>
#include <limits>

#include "sim/wide_math.hpp"
#include "trace/error.hpp"
#include "trace/named_registry.hpp"

namespace swaplab {
namespace {

// Filled by the constructors of the policies' registration objects, before main; constant afterwards.
NamedRegistry<PolicyFactory>& registered() {
  static NamedRegistry<PolicyFactory> registry("policy", "policies");
  return registry;
}

std::string help_line(const PolicyFactory& factory) {
  std::string text = "; parameters:";
  const auto rows = factory.describe();
  if (rows.empty()) return text + " none";
  for (const auto& row : rows) text += " " + row.name + " (" + row.range + ") = " + row.value + ",";
  text.pop_back();
  return text;
}

}  // namespace

void register_policy(const PolicyFactory* factory) {
  registered().add(factory);
}

std::vector<const PolicyFactory*> policy_list() {
  return registered().list();
}

const PolicyFactory& find_policy(std::string_view name) {
  return registered().find(name);
}

void fail_parameter(const PolicyFactory& factory, std::string_view name, std::string_view value,
                    const std::string& expected) {
  const std::string policy(factory.info().name);
  if (!expected.empty()) {
    throw Error(ErrorKind::usage, "policy '" + policy + "': '" + std::string(name) + "=" +
                                      std::string(value) + "': " + expected + help_line(factory));
  }
  std::vector<std::string> names;
  for (const auto& row : factory.describe()) names.push_back(row.name);
  throw Error(ErrorKind::usage, "policy '" + policy + "' has no parameter '" + std::string(name) + "'" +
                                    did_you_mean(name, names) + help_line(factory));
}

std::string PolicySpec::text() const {
  const std::string resolved = factory->resolve(values);
  return std::string(factory->info().name) + (resolved.empty() ? "" : ":" + resolved);
}

std::vector<PolicySpec> parse_policies(std::string_view text) {
  std::vector<PolicySpec> specs;
  const auto add_value = [&](std::string_view part) {
    const auto equals = part.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      throw Error(ErrorKind::usage, "policy parameter '" + std::string(part) + "': expected name=value");
    }
    const std::string name(part.substr(0, equals));
    for (const auto& [other, value] : specs.back().values) {
      if (other == name) throw Error(ErrorKind::usage, "policy parameter '" + name + "' is given twice");
    }
    specs.back().values.emplace_back(name, part.substr(equals + 1));
  };
  while (true) {
    const auto comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const auto colon = part.find(':');
    if (part.empty()) throw Error(ErrorKind::usage, "empty policy name");
    if (colon == std::string_view::npos && part.find('=') != std::string_view::npos) {
      if (specs.empty()) {
        throw Error(ErrorKind::usage,
                    "policy parameter '" + std::string(part) + "' stands before any policy");
      }
      add_value(part);
    } else {
      specs.push_back({&find_policy(part.substr(0, colon)), {}});
      if (colon != std::string_view::npos) add_value(part.substr(colon + 1));
    }
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  std::vector<std::string> texts;
  for (const PolicySpec& spec : specs) {
    texts.push_back(spec.text());  // checks the values
    if (std::find(texts.begin(), texts.end() - 1, texts.back()) != texts.end() - 1) {
      throw Error(ErrorKind::usage, "policy '" + texts.back() + "' is listed twice");
    }
  }
  return specs;
}

// ---- parameter types

std::string parse_integer(std::string_view text, std::int64_t low, std::int64_t high, std::int64_t& into) {
  std::int64_t value = 0;
  const auto [rest, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || rest != text.data() + text.size() || value < low || value > high) {
    return "expected an integer in " + std::to_string(low) + ".." + std::to_string(high);
  }
  into = value;
  return "";
}

std::string parse_bytes(std::string_view text, Bytes& into) {
  static constexpr std::pair<std::string_view, std::int64_t> units[] = {{"KiB", std::int64_t{1} << 10},
                                                                        {"MiB", std::int64_t{1} << 20},
                                                                        {"GiB", std::int64_t{1} << 30},
                                                                        {"kB", 1'000},
                                                                        {"MB", 1'000'000},
                                                                        {"GB", 1'000'000'000},
                                                                        {"B", 1}};
  const std::string expected = "expected bytes with a unit (B, kB, MB, GB, KiB, MiB, GiB), e.g. 16MiB";
  const auto digits = text.find_first_not_of("0123456789.");
  if (digits == 0 || digits == std::string_view::npos) return expected;
  std::int64_t factor = 0;
  for (const auto& [name, f] : units) {
    if (text.substr(digits) == name) factor = f;
  }
  if (factor == 0) return expected;
  // Decimal digits in integers: 0.4 GiB is floor(4 * 2^30 / 10).
  Wide number = 0, scale = 1;
  bool point = false;
  for (const char c : text.substr(0, digits)) {
    if (c == '.') {
      if (point) return expected;
      point = true;
      continue;
    }
    number = number * 10 + (c - '0');
    if (point) scale *= 10;
    if (number > (Wide{1} << 62) || scale > 1'000'000'000'000) return expected + " (too many digits)";
  }
  const Wide bytes = number * factor / scale;
  if (bytes > (Wide{1} << 62)) return expected + " (too large)";
  into = Bytes{static_cast<std::int64_t>(bytes)};
  return "";
}

std::string format_bytes_exact(Bytes bytes) {
  static constexpr std::pair<const char*, int> units[] = {{"GiB", 30}, {"MiB", 20}, {"KiB", 10}};
  for (const auto& [name, shift] : units) {
    if (bytes.value != 0 && bytes.value % (std::int64_t{1} << shift) == 0) {
      return std::to_string(bytes.value >> shift) + name;
    }
  }
  return std::to_string(bytes.value) + "B";
}

std::string parse_fraction(std::string_view text, Ppm low, Ppm high, Ppm& into) {
  const std::string expected =
      "expected a fraction in " + format_fraction(low) + ".." + format_fraction(high) + ", e.g. 0.25 or 25%";
  const bool percent = text.ends_with('%');
  if (percent) text.remove_suffix(1);
  Ppm value = 0, unit = percent ? kUnchanged / 100 : kUnchanged;
  bool point = false;
  if (text.empty() || text.front() == '.' || text.back() == '.') return expected;
  for (const char c : text) {
    if (c == '.') {
      if (point) return expected;
      point = true;
      continue;
    }
    if (c < '0' || c > '9') return expected;
    // Digits below a millionth must be zeros.
    if (point && unit == 1 && c != '0') return expected + " (at most six decimals)";
    if (point && unit == 1) continue;
    if (point) unit /= 10;
    value = point ? value + (c - '0') * unit : value * 10 + (c - '0') * unit;
    if (value > high) return expected;
  }
  if (value < low) return expected;
  into = value;
  return "";
}

std::string format_fraction(Ppm ppm) {
  std::string text = std::to_string(ppm / kUnchanged);
  if (ppm % kUnchanged == 0) return text;
  std::string digits = std::to_string(kUnchanged + ppm % kUnchanged).substr(1);
  digits.erase(digits.find_last_not_of('0') + 1);
  return text + "." + digits;
}

// ---- victim selection

void evict_by_score(Bytes shortfall, const View& view, Actions& actions,
                    const std::function<std::int64_t(Slot)>& score) {
  std::vector<std::pair<std::int64_t, Slot>> heap;
  for (Slot s = view.oldest(); s != kNoSlot; s = view.newer(s)) {
    if (view.size(s) == Bytes{0} || !view.evictable(s)) continue;  // nothing to gain
    const std::int64_t value = score(s);
    if (value >= 0) heap.emplace_back(value, s);
  }
  // Largest score first; of equals the earlier born.
  const auto less = [&view](const auto& a, const auto& b) {
    return a.first != b.first ? a.first < b.first : view.birth_rank(a.second) > view.birth_rank(b.second);
  };
  std::make_heap(heap.begin(), heap.end(), less);
  while (shortfall > Bytes{0} && !heap.empty()) {
    std::pop_heap(heap.begin(), heap.end(), less);
    const Slot victim = heap.back().second;
    heap.pop_back();
    shortfall -= view.size(victim);
    actions.evict(victim);
  }
}

void evict_oldest(Bytes shortfall, const View& view, Actions& actions, Bytes min_bytes) {
  Slot s = view.oldest();
  while (shortfall > Bytes{0} && s != kNoSlot) {
    const Slot next = view.newer(s);
    if (view.size(s) > Bytes{0} && view.size(s) >= min_bytes && view.evictable(s)) {
      shortfall -= view.size(s);
      actions.evict(s);
    }
    s = next;
  }
}

}  // namespace swaplab
