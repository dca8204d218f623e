#include "experiments/sweep/machine_override.hpp"

#include <algorithm>

#include "policy/policy.hpp"
#include "sim/machine_figures.hpp"
#include "sim/wide_math.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

constexpr Ppm kLargestFactor = 1'000 * kUnchanged;

bool is_factor(const std::string& text) {
  return text.size() > 1 && text.back() == 'x' && text.find_first_not_of("0123456789.") == text.size() - 1;
}

std::string parse_factor(const std::string& text, Ppm& factor) {
  return parse_fraction(std::string_view(text).substr(0, text.size() - 1), 1, kLargestFactor, factor);
}

const MachineFigure* scalar_figure(std::string_view path) {
  for (const MachineFigure& figure : machine_figures()) {
    if (path.size() == figure.section.size() + 1 + figure.key.size() && path.starts_with(figure.section) &&
        path.ends_with(figure.key) && path[figure.section.size()] == '.')
      return &figure;
  }
  return nullptr;
}

std::int64_t scaled(std::int64_t value, Ppm factor) {
  return static_cast<std::int64_t>(static_cast<Wide>(value) * factor / kUnchanged);
}

// "links.h2d.bandwidth" -> the tables concerned and which figure of them.
struct LinkFigure {
  std::vector<std::size_t> directions;
  bool bandwidth = false;
};
bool parse_link(std::string_view path, LinkFigure& link) {
  if (!path.starts_with("links.")) return false;
  path.remove_prefix(6);
  link.directions = {0, 1};
  if (path.starts_with("d2h.") || path.starts_with("h2d.")) {
    link.directions = {path.starts_with("d2h.") ? std::size_t{0} : std::size_t{1}};
    path.remove_prefix(4);
  }
  link.bandwidth = path == "bandwidth";
  return link.bandwidth || path == "latency";
}

TransferTable with_bandwidth(const TransferTable& table, std::int64_t rate) {
  std::vector<TransferPoint> points(table.points().begin(), table.points().end());
  const bool described = points.size() > 1 || (!points.empty() && points[0].bytes > Bytes{0});
  if (described) {
    for (TransferPoint& point : points) {
      if (point.bytes > Bytes{0})
        point.time = Nanos{ceil_mul_div(point.time.value, table.bytes_per_second(), rate)};
    }
    // A latency point keeps its time; the table must not fall.
    for (std::size_t i = 1; i < points.size(); ++i)
      points[i].time = std::max(points[i].time, points[i - 1].time);
  }
  return {std::move(points), rate};
}

TransferTable with_latency(const TransferTable& table, std::int64_t latency) {
  std::vector<TransferPoint> points(table.points().begin(), table.points().end());
  const Nanos before = points.empty() ? Nanos{0} : points[0].time;
  if (points.empty()) points.push_back({Bytes{0}, Nanos{0}});
  // The first point is the time of the smallest copy; all of them shift with it.
  for (TransferPoint& point : points) {
    point.time = std::max(point.bytes > Bytes{0} ? Nanos{1} : Nanos{0}, point.time + Nanos{latency} - before);
  }
  for (std::size_t i = 1; i < points.size(); ++i)
    points[i].time = std::max(points[i].time, points[i - 1].time);
  if (points.size() == 1 && points[0].bytes == Bytes{0} && points[0].time == Nanos{0}) points.clear();
  return {std::move(points), table.bytes_per_second()};
}

std::int64_t link_value(const TransferTable& table, bool bandwidth) {
  if (bandwidth) return table.bytes_per_second();
  return table.points().empty() ? 0 : table.points()[0].time.value;
}

void set_value(Machine& machine, const std::string& path,
               const std::function<std::int64_t(std::int64_t)>& next) {
  LinkFigure link;
  if (parse_link(path, link)) {
    for (const std::size_t d : link.directions) {
      TransferTable& table = machine.pinned[d];
      const std::int64_t value = next(link_value(table, link.bandwidth));
      table = link.bandwidth ? with_bandwidth(table, std::max<std::int64_t>(1, value))
                             : with_latency(table, value);
    }
    return;
  }
  const MachineFigure* figure = scalar_figure(path);
  if (figure == nullptr) throw Error(ErrorKind::usage, "unknown machine figure '" + path + "'");
  std::int64_t value = next(figure->field(machine));
  if (figure->range != Range::non_negative) value = std::max<std::int64_t>(1, value);
  if (figure->range == Range::fraction) value = std::min<std::int64_t>(kUnchanged, value);
  figure->field(machine) = value;
}

}  // namespace

const std::vector<OverridableFigure>& overridable_figures() {
  static const std::vector<OverridableFigure> figures = [] {
    std::vector<OverridableFigure> list;
    for (const MachineFigure& figure : machine_figures())
      list.push_back({std::string(figure.section) + "." + std::string(figure.key), figure.dimension});
    for (const char* place : {"links.", "links.d2h.", "links.h2d."}) {
      list.push_back({std::string(place) + "bandwidth", Dimension::bandwidth});
      list.push_back({std::string(place) + "latency", Dimension::duration});
    }
    return list;
  }();
  return figures;
}

const OverridableFigure& find_figure(std::string_view path) {
  std::vector<std::string> names;
  for (const OverridableFigure& figure : overridable_figures()) {
    if (figure.path == path) return figure;
    names.push_back(figure.path);
  }
  throw Error(ErrorKind::usage,
              "a machine has no figure '" + std::string(path) + "'" + did_you_mean(path, names));
}

std::string check_figure_text(const OverridableFigure& figure, const std::string& text) {
  if (is_factor(text) && figure.dimension != Dimension::share) {
    Ppm factor = 0;
    return parse_factor(text, factor);
  }
  const ParsedQuantity parsed = parse_quantity(text, figure.dimension);
  if (!parsed.problem.empty()) return parsed.problem + "; or a factor of the machine's own value, e.g. 1.5x";
  const MachineFigure* scalar = scalar_figure(figure.path);
  const bool positive =
      scalar != nullptr ? scalar->range != Range::non_negative : figure.dimension == Dimension::bandwidth;
  if (positive && parsed.value == 0) return "must be above 0";
  if (scalar != nullptr && scalar->range == Range::fraction && parsed.value > kUnchanged)
    return "is above 100 %";
  return "";
}

void override_figure(Machine& machine, const std::string& path, const std::string& text) {
  const OverridableFigure& figure = find_figure(path);
  const std::string problem = check_figure_text(figure, text);
  if (!problem.empty()) throw Error(ErrorKind::usage, "machine." + path + ": '" + text + "': " + problem);
  if (is_factor(text) && figure.dimension != Dimension::share) {
    Ppm factor = kUnchanged;
    parse_factor(text, factor);
    scale_figure(machine, path, factor);
    return;
  }
  const std::int64_t value = parse_quantity(text, figure.dimension).value;
  set_value(machine, path, [value](std::int64_t) { return value; });
}

void apply_figure_assignment(Machine& machine, const std::string& assignment) {
  const std::size_t equals = assignment.find('=');
  if (equals == std::string::npos)
    throw Error(ErrorKind::usage,
                "--set '" + assignment + "': expected FIGURE=VALUE, e.g. links.bandwidth=2x");
  override_figure(machine, assignment.substr(0, equals), assignment.substr(equals + 1));
}

void scale_figure(Machine& machine, const std::string& path, Ppm factor) {
  set_value(machine, path, [factor](std::int64_t value) { return scaled(value, factor); });
}

std::string figure_text(std::int64_t value, Dimension dimension) {
  struct Unit {
    const char* name;
    std::int64_t factor;
  };
  static constexpr Unit sizes[] = {{"TiB", std::int64_t{1} << 40},
                                   {"GiB", std::int64_t{1} << 30},
                                   {"MiB", std::int64_t{1} << 20},
                                   {"KiB", 1024},
                                   {"B", 1}};
  static constexpr Unit times[] = {{"s", 1'000'000'000}, {"ms", 1'000'000}, {"us", 1'000}, {"ns", 1}};
  static constexpr Unit rates[] = {
      {"TB/s", 1'000'000'000'000}, {"GB/s", 1'000'000'000}, {"MB/s", 1'000'000}, {"kB/s", 1'000}, {"B/s", 1}};
  static constexpr Unit flops[] = {{"TFLOP/s", 1'000'000'000'000}, {"GFLOP/s", 1'000'000'000}, {"FLOP/s", 1}};
  static constexpr Unit shares[] = {{"%", 10'000}};
  static constexpr Unit counts[] = {{"kernels", 1}};
  std::span<const Unit> units;
  switch (dimension) {
    case Dimension::size:
      units = sizes;
      break;
    case Dimension::duration:
      units = times;
      break;
    case Dimension::bandwidth:
      units = rates;
      break;
    case Dimension::flop_rate:
      units = flops;
      break;
    case Dimension::share:
      units = shares;
      break;
    case Dimension::kernels:
      units = counts;
      break;
  }
  for (const Unit& unit : units) {
    // At most three decimals, and never below one unit unless it is the smallest.
    if (value < unit.factor && &unit != &units.back()) continue;
    const Wide thousandths = static_cast<Wide>(value) * 1000;
    if (thousandths % unit.factor != 0) {
      if (&unit != &units.back()) continue;
    }
    const auto milli = static_cast<std::int64_t>(thousandths / unit.factor);
    std::string text = std::to_string(milli / 1000);
    if (milli % 1000 != 0) {
      std::string digits = std::to_string(1000 + milli % 1000).substr(1);
      digits.erase(digits.find_last_not_of('0') + 1);
      text += "." + digits;
    }
    return text + unit.name;
  }
  return std::to_string(value);
}

}  // namespace swaplab
