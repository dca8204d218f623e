#include "experiments/machine_diff.hpp"

#include <array>
#include <cstdio>
#include <utility>

#include "experiments/text.hpp"
#include "sim/machine_figures.hpp"

namespace swaplab {
namespace {

std::string with_digits(double value, int digits, const char* unit) {
  char buffer[64];
  std::snprintf(buffer, sizeof buffer, "%.*f %s", digits, value, unit);
  return buffer;
}

FigureSource source_of(const Machine& machine, const std::string& path) {
  for (const FigureSource& s : machine.sources)
    if (s.figure == path) return s;
  return {path, "", ""};
}

class Comparer {
 public:
  Comparer(const Machine& a, const Machine& b) : a_(a), b_(b) {}

  MachineDiff run() {
    for (const MachineFigure& f : machine_figures()) {
      const std::string path = std::string(f.section) + "." + std::string(f.key);
      const bool unlimited = f.may_be_unlimited && (f.field(a_) == unlimited_value(f.dimension) ||
                                                    f.field(b_) == unlimited_value(f.dimension));
      compare(path, path, std::string(base_unit_suffix(f.dimension)), f.field(a_), f.field(b_), unlimited);
    }
    const std::string rounding = "host_memory.round_to_power_of_two";
    compare(rounding, rounding, "yes or no", a_.host_memory.round_to_power_of_two ? 1 : 0,
            b_.host_memory.round_to_power_of_two ? 1 : 0, true);
    for (std::size_t c = 0; c < kOpClassCount; ++c) {
      const std::string path = "efficiency." + std::string(op_class_name(static_cast<OpClass>(c)));
      compare(path + ".compute", path, "ppm", a_.efficiency[c].compute, b_.efficiency[c].compute, false);
      compare(path + ".memory", path, "ppm", a_.efficiency[c].memory, b_.efficiency[c].memory, false);
    }
    for (const bool pinned : {true, false})
      for (const std::size_t d : {0u, 1u})
        compare_links((pinned ? "links." : "pageable_links.") + std::string(d == 0 ? "d2h" : "h2d"),
                      pinned ? a_.pinned[d] : a_.pageable[d], pinned ? b_.pinned[d] : b_.pageable[d]);
    return std::move(diff_);
  }

 private:
  void compare(const std::string& figure, const std::string& path, const std::string& unit, std::int64_t a,
               std::int64_t b, bool no_ratio) {
    FigureSource from_a = source_of(a_, path), from_b = source_of(b_, path);
    if (a == b) {
      ++diff_.equal;
      if (from_a.status != from_b.status || from_a.source != from_b.source) ++diff_.equal_other_source;
      return;
    }
    MachineDifference d{figure, unit, a, b, std::move(from_a), std::move(from_b), std::nullopt};
    if (a != 0 && !no_ratio) d.change = static_cast<double>(b) / static_cast<double>(a) - 1;
    diff_.differences.push_back(std::move(d));
  }

  static bool is_line(const TransferTable& t) {
    return t.points().empty() || (t.points().size() == 1 && t.points()[0].bytes == Bytes{0});
  }
  static std::int64_t latency(const TransferTable& t) {
    return t.points().empty() ? 0 : t.points()[0].time.value;
  }

  void compare_links(const std::string& path, const TransferTable& a, const TransferTable& b) {
    compare(path + ".bandwidth", path + ".bandwidth", "bytes_per_s", a.bytes_per_second(),
            b.bytes_per_second(), false);
    if (is_line(a) && is_line(b))
      compare(path + ".latency", path + ".latency", "ns", latency(a), latency(b), false);
    const auto shape = [&](const TransferTable& t) { return path + (is_line(t) ? ".latency" : ".table"); };
    for (std::int64_t size = 4096; size <= std::int64_t{1} << 30; size *= 16) {
      const Nanos time_a = a.time(Bytes{size}), time_b = b.time(Bytes{size});
      if (time_a == time_b) continue;
      diff_.differences.push_back(
          {path + ".time[" + human_bytes(Bytes{size}) + "]", "ns", time_a.value, time_b.value,
           source_of(a_, shape(a)), source_of(b_, shape(b)),
           static_cast<double>(time_b.value) / static_cast<double>(time_a.value) - 1});
    }
  }

  Machine a_, b_;  // copies: the table of figures gives out references
  MachineDiff diff_;
};

}  // namespace

MachineDiff diff_machines(const Machine& a, const Machine& b) {
  return Comparer(a, b).run();
}

std::string human_figure(std::int64_t value, const std::string& unit) {
  const auto number = static_cast<double>(value);
  // More digits than human_time: intervals are narrow.
  if (unit == "ns" && value >= 1'000 && value < 10'000) return with_digits(number / 1e3, 3, "us");
  if (unit == "ns" && value >= 10'000 && value < 1'000'000) return with_digits(number / 1e3, 2, "us");
  if (unit == "ns") return human_time(Nanos{value});
  if (unit == "bytes") return value >= kUnlimitedBytes ? "unlimited" : human_bytes(Bytes{value});
  if (unit == "bytes_per_s") return with_digits(number / 1e9, 2, "GB/s");
  if (unit == "flop_per_s") return with_digits(number / 1e12, 1, "TFLOP/s");
  if (unit == "ppm") return with_digits(number / 1e4, 1, "%");
  if (unit == "kernels") return value == 0 ? "unlimited" : std::to_string(value) + " kernels";
  if (unit == "yes or no") return value == 0 ? "no" : "yes";
  return std::to_string(value) + " " + unit;
}

}  // namespace swaplab
