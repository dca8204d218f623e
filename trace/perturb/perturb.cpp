#include "trace/perturb/perturb.hpp"

#include <algorithm>
#include <charconv>

#include "trace/error.hpp"
#include "trace/named_registry.hpp"

namespace swaplab {
namespace {

// Filled by the registration objects of kinds/, before main; constant afterwards.
NamedRegistry<PerturbationKind>& registered() {
  static NamedRegistry<PerturbationKind> registry("perturbation", "perturbations");
  return registry;
}

std::string parameters_line(const PerturbationKind& kind) {
  const auto rows = kind.describe();
  std::string text = "; parameters:";
  if (rows.empty()) return text + " none";
  for (const auto& row : rows) text += " " + row.name + " (" + row.range + ") = " + row.value + ",";
  text.pop_back();
  return text;
}

}  // namespace

void register_perturbation(const PerturbationKind* kind) {
  registered().add(kind);
}

std::vector<const PerturbationKind*> perturbation_list() {
  return registered().list();
}

void fail_field(const PerturbationKind& kind, std::string_view name, std::string_view value,
                const std::string& expected) {
  const std::string what = "perturbation '" + std::string(kind.info().name) + "'";
  if (!expected.empty()) {
    throw Error(ErrorKind::usage, what + ": '" + std::string(name) + "=" + std::string(value) +
                                      "': " + expected + parameters_line(kind));
  }
  std::vector<std::string> names;
  for (const auto& row : kind.describe()) names.push_back(row.name);
  throw Error(ErrorKind::usage, what + " has no parameter '" + std::string(name) + "'" +
                                    did_you_mean(name, names) + parameters_line(kind));
}

// ---- parameter types

std::string parse_count(std::string_view text, std::int64_t low, std::int64_t high, std::int64_t& into) {
  std::int64_t value = 0;
  const auto [rest, code] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (code != std::errc() || rest != text.data() + text.size() || value < low || value > high)
    return "expected an integer in " + std::to_string(low) + ".." + std::to_string(high);
  into = value;
  return "";
}

std::string share_text(std::int64_t ppm) {
  std::string text = (ppm < 0 ? "-" : "") + std::to_string(std::abs(ppm) / 1'000'000);
  std::string decimals = std::to_string(1'000'000 + std::abs(ppm) % 1'000'000).substr(1);
  decimals.erase(decimals.find_last_not_of('0') + 1);
  return decimals.empty() ? text : text + "." + decimals;
}

std::string parse_share(std::string_view text, std::int64_t low, std::int64_t high, std::int64_t& into) {
  const std::string expected =
      "expected a fraction in " + share_text(low) + ".." + share_text(high) + ", e.g. 0.25 or 25%";
  const bool negative = text.starts_with('-');
  if (negative) text.remove_prefix(1);
  const bool percent = text.ends_with('%');
  if (percent) text.remove_suffix(1);
  if (text.empty() || text.front() == '.' || text.back() == '.' || text.size() > 16) return expected;
  std::int64_t unit = percent ? 10'000 : 1'000'000, value = 0;
  bool point = false;
  for (const char c : text) {
    if (c == '.' && !point) {
      point = true;
      continue;
    }
    if (c < '0' || c > '9') return expected;
    if (point && unit == 1 && c != '0') return expected + " (too many decimals)";
    if (point && unit == 1) continue;
    if (point) unit /= 10;
    value = point ? value + (c - '0') * unit : value * 10 + (c - '0') * unit;
    if (value > 1'000'000'000'000) return expected;
  }
  if (negative) value = -value;
  if (value < low || value > high) return expected;
  into = value;
  return "";
}

// ---- schedules

IterationSchedule IterationSchedule::parse(std::string_view text) {
  const auto fail = [&]() -> IterationSchedule {
    throw Error(ErrorKind::usage, "schedule '@" + std::string(text) +
                                      "': expected iteration numbers (@3, @5-9, @1,4-6), @every=N, "
                                      "@rate=0.1 or @all");
  };
  IterationSchedule schedule;
  if (text == "all") {
    schedule.all_ = true;
    return schedule;
  }
  if (text.starts_with("every=")) {
    return parse_count(text.substr(6), 1, 1'000'000'000, schedule.every_).empty() ? schedule : fail();
  }
  if (text.starts_with("rate=")) {
    return parse_share(text.substr(5), 0, 1'000'000, schedule.rate_ppm_).empty() ? schedule : fail();
  }
  std::string_view rest = text;
  for (;;) {
    const auto comma = rest.find(',');
    const std::string_view part = rest.substr(0, comma);
    const auto dash = part.find('-');
    std::int64_t first = 0, last = 0;
    if (!parse_count(part.substr(0, dash), 0, 1'000'000'000, first).empty()) return fail();
    last = first;
    if (dash != std::string_view::npos &&
        !parse_count(part.substr(dash + 1), first, 1'000'000'000, last).empty())
      return fail();
    schedule.ranges_.emplace_back(first, last);
    if (comma == std::string_view::npos) return schedule;
    rest.remove_prefix(comma + 1);
  }
}

bool IterationSchedule::includes(std::int64_t number, std::int64_t ordinal, Random& random) const {
  if (all_) return true;
  if (every_ > 0) return ordinal % every_ == every_ - 1;
  if (rate_ppm_ >= 0) return random.chance(rate_ppm_);
  return std::any_of(ranges_.begin(), ranges_.end(),
                     [&](const auto& r) { return number >= r.first && number <= r.second; });
}

PerturbationRequest parse_perturbation(std::string_view text) {
  PerturbationRequest request;
  request.text = text;
  const auto at = text.rfind('@');
  request.schedule = IterationSchedule::parse(at == std::string_view::npos ? "all" : text.substr(at + 1));
  text = text.substr(0, at);
  const auto colon = text.find(':');
  request.kind = &registered().find(text.substr(0, colon));
  while (colon != std::string_view::npos) {
    text.remove_prefix(request.values.empty() ? colon + 1 : 0);
    const auto comma = text.find(',');
    const std::string_view part = text.substr(0, comma);
    const auto equals = part.find('=');
    if (equals == std::string_view::npos || equals == 0) {
      throw Error(ErrorKind::usage,
                  "'" + request.text + "': expected parameter=value, found '" + std::string(part) + "'");
    }
    const std::string name(part.substr(0, equals));
    for (const auto& [other, value] : request.values) {
      if (other == name)
        throw Error(ErrorKind::usage, "'" + request.text + "': '" + name + "' is given twice");
    }
    request.values.emplace_back(name, part.substr(equals + 1));
    if (comma == std::string_view::npos) break;
    text.remove_prefix(comma + 1);
  }
  request.kind->make(request.values);  // checks them
  return request;
}

// ---- application

namespace {

void check_numbers(const EditableTrace& edit, const PerturbationRequest& request) {
  for (const auto& range : request.schedule.ranges()) {
    const std::int64_t first = range.first, last = range.second;
    const bool found = std::any_of(
        edit.iterations.begin(), edit.iterations.end(),
        [&](const EditIteration& i) { return !i.inserted && i.number >= first && i.number <= last; });
    if (found) continue;
    throw Error(ErrorKind::usage, "'" + request.text + "': the trace has no iteration " +
                                      std::to_string(first) +
                                      (last > first ? "-" + std::to_string(last) : "") + "; it has " +
                                      std::to_string(edit.iterations.front().number) + " to " +
                                      std::to_string(edit.iterations.back().number));
  }
}

}  // namespace

Trace perturb_trace(const Trace& trace, const std::vector<PerturbationRequest>& requests, std::uint64_t seed,
                    PerturbationReport* report) {
  EditableTrace edit(trace);
  for (std::size_t r = 0; r < requests.size(); ++r) {
    const PerturbationRequest& request = requests[r];
    check_numbers(edit, request);
    const auto perturbation = request.kind->make(request.values);
    std::vector<std::size_t> chosen;
    std::int64_t ordinal = 0;
    for (std::size_t i = 0; i < edit.iterations.size(); ++i) {
      if (!perturbation->applies(edit.iterations[i])) continue;
      Random random(seed, 2 * r, static_cast<std::uint64_t>(edit.iterations[i].number));
      if (request.schedule.includes(edit.iterations[i].number, ordinal++, random)) chosen.push_back(i);
    }
    PerturbationReport::Applied applied{request.text, static_cast<std::uint32_t>(chosen.size()), 0};
    // From the end, so that an inserted iteration moves none that is still to come.
    for (std::size_t c = chosen.size(); c-- > 0;) {
      Random random(seed, 2 * r + 1, static_cast<std::uint64_t>(edit.iterations[chosen[c]].number));
      const std::size_t before = edit.change_count();
      perturbation->apply(edit, chosen[c], random);
      if (edit.change_count() > before) ++applied.changed;
    }
    if (report != nullptr) report->applied.push_back(std::move(applied));
  }
  Trace result = edit.build();
  if (report != nullptr) report->marks = perturbation_marks(result.header);
  return result;
}

}  // namespace swaplab
