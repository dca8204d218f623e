#include "experiments/validate/validation_html.hpp"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>
#include <map>

#include "experiments/report/report_files.hpp"
#include "experiments/stats/comparison_text.hpp"
#include "experiments/text.hpp"

namespace swaplab {
namespace {

std::string escaped(const std::string& text) {
  std::string out;
  for (const char c : text) {
    if (c == '&') {
      out += "&amp;";
    } else if (c == '<') {
      out += "&lt;";
    } else if (c == '>') {
      out += "&gt;";
    } else if (c == '"') {
      out += "&quot;";
    } else {
      out += c;
    }
  }
  return out;
}

std::string formatted(const char* format, double value) {
  char buffer[48];
  std::snprintf(buffer, sizeof buffer, format, value);
  return buffer;
}
std::string percent(double share) {
  return formatted("%.2f %%", 100 * share);
}
std::string signed_percent(double share) {
  return formatted("%+.2f %%", 100 * share);
}

// ---- the scatter

constexpr double kWidth = 760, kHeight = 560, kLeft = 78, kRight = 16, kTop = 14, kBottom = 52;
constexpr std::array<const char*, 10> kColors = {"#0b63b5", "#d1495b", "#2a9d5c", "#a05195", "#e08a00",
                                                 "#008b8b", "#8d6e63", "#5c6bc0", "#c2185b", "#6b8e23"};

class Scatter {
 public:
  Scatter(const std::vector<ValidationPoint>& points, double tolerance)
      : points_(points), tolerance_(tolerance) {
    double low = 1e300, high = 0;
    for (const ValidationPoint& p : points) {
      for (const Nanos t : {p.measured, p.simulated}) {
        low = std::min(low, static_cast<double>(t.value));
        high = std::max(high, static_cast<double>(t.value));
      }
      if (color_of_.emplace(p.policy, color_of_.size()).second) policies_.push_back(p.policy);
    }
    // Both axes alike, so that the diagonal is one.
    low_ = low / 1.15;
    high_ = high * 1.15;
  }

  std::string svg() const {
    std::string out = "<svg viewBox=\"0 0 " + number(kWidth) + " " + number(kHeight) +
                      "\" role=\"img\" aria-label=\"simulated over measured iteration time\">\n";
    for (const double tick : ticks()) {
      out += line(x(tick), kTop, x(tick), kHeight - kBottom, "class=\"axis\"");
      out += line(kLeft, y(tick), kWidth - kRight, y(tick), "class=\"axis\"");
      const std::string label = human_time(Nanos{static_cast<std::int64_t>(std::llround(tick))});
      out += text(x(tick), kHeight - kBottom + 18, "middle", tick_text(label));
      out += text(kLeft - 8, y(tick) + 4, "end", tick_text(label));
    }
    const char* dashed = R"~(stroke="var(--soft)" stroke-dasharray="5 4" fill="none")~";
    out += line(x(low_), y(low_), x(high_), y(high_), R"~(stroke="var(--fg)" stroke-width="1.2")~");
    const double up = 1 + tolerance_, down = 1 - tolerance_;
    out += line(x(low_), y(low_ * up), x(high_ / up), y(high_), dashed);
    out += line(x(low_ / down), y(low_), x(high_), y(high_ * down), dashed);
    for (const ValidationPoint& p : points_) {
      const auto mx = static_cast<double>(p.measured.value), sy = static_cast<double>(p.simulated.value);
      const std::string title = short_trace(p.trace) + ", " + p.policy + " at " + p.budget + ": measured " +
                                human_time(p.measured) + ", simulated " + human_time(p.simulated) + " (" +
                                signed_percent(p.error()) + ")";
      const bool outside = std::fabs(p.error()) > tolerance_;
      out += "<circle class=\"mark\" cx=\"" + number(x(mx)) + "\" cy=\"" + number(y(sy)) + "\" r=\"" +
             (outside ? "6" : "4.5") + "\" fill=\"" + color(p.policy) + "\"" +
             (outside ? " style=\"stroke:var(--bad);stroke-width:2\"" : "") + "><title>" + escaped(title) +
             "</title></circle>\n";
    }
    out += text(kLeft + (kWidth - kLeft - kRight) / 2, kHeight - 10, "middle", "measured iteration time");
    out += "<text transform=\"translate(16 " + number(kTop + (kHeight - kTop - kBottom) / 2) +
           ") rotate(-90)\" text-anchor=\"middle\">simulated iteration time</text>\n</svg>\n";
    return out;
  }

  std::string legend() const {
    std::string out = "<div class=\"legend\">";
    for (const std::string& policy : policies_)
      out += "<span><i style=\"background:" + color(policy) + "\"></i>" + escaped(policy) + "</span>";
    return out + "</div>\n";
  }

 private:
  static std::string number(double value) { return formatted("%.1f", value); }
  static std::string tick_text(std::string label) {
    // "100.0 us" -> "100 us"
    for (const char* zeros : {".00 ", ".0 "})
      if (const std::size_t at = label.find(zeros); at != std::string::npos)
        label.erase(at, std::string(zeros).size() - 1);
    return label;
  }
  static std::string line(double x1, double y1, double x2, double y2, const std::string& style) {
    return "<line x1=\"" + number(x1) + "\" y1=\"" + number(y1) + "\" x2=\"" + number(x2) + "\" y2=\"" +
           number(y2) + "\" " + style + "/>\n";
  }
  static std::string text(double at_x, double at_y, const char* anchor, const std::string& content) {
    return "<text class=\"soft\" x=\"" + number(at_x) + "\" y=\"" + number(at_y) + "\" text-anchor=\"" +
           anchor + "\">" + escaped(content) + "</text>\n";
  }
  double part(double value) const { return std::log(value / low_) / std::log(high_ / low_); }
  double x(double value) const { return kLeft + part(value) * (kWidth - kLeft - kRight); }
  double y(double value) const { return kHeight - kBottom - part(value) * (kHeight - kTop - kBottom); }
  std::string color(const std::string& policy) const {
    return kColors[color_of_.at(policy) % kColors.size()];
  }
  // 1, 2, 5 per decade; only 1 when there are many decades.
  std::vector<double> ticks() const {
    std::vector<double> all;
    const bool many = std::log10(high_ / low_) > 3;
    for (double decade = 1; decade < 1e19; decade *= 10)
      for (const double step : {1.0, 2.0, 3.0, 5.0, 7.0}) {
        const bool shown = step == 1 || (!many && step != 3 && step != 7) || high_ / low_ < 4;
        if (shown && decade * step >= low_ && decade * step <= high_) all.push_back(decade * step);
      }
    return all;
  }

  const std::vector<ValidationPoint>& points_;
  double tolerance_;
  double low_ = 1, high_ = 10;
  std::map<std::string, std::size_t> color_of_;
  std::vector<std::string> policies_;
};

// ---- tables

std::string cell(const std::string& text, bool left = false) {
  return std::string(left ? "<td class=\"text\">" : "<td>") + escaped(text) + "</td>";
}

std::string head(std::initializer_list<const char*> names, std::size_t left) {
  std::string out = "<div class=\"scroll\"><table><thead><tr>";
  std::size_t i = 0;
  for (const char* name : names)
    out += std::string(i++ < left ? "<th class=\"text\">" : "<th>") + name + "</th>";
  return out + "</tr></thead><tbody>\n";
}
constexpr const char* kTableEnd = "</tbody></table></div>\n";

std::string section(const char* id, const char* title) {
  return std::string("<section id=\"") + id + "\"><h2>" + title + "</h2>\n";
}

std::string checks_html(const Validation& v) {
  std::string out = section("verdict", "Verdict") + "<p class=\"verdict\">" +
                    (v.held() ? "Within every stated tolerance." : "Beyond a stated tolerance.") +
                    "</p>\n<div class=\"cards\">";
  for (const Check& c : v.checks) {
    const bool is_count = c.limit == "none", is_tau = c.limit.starts_with("at least");
    const std::string value = !c.value   ? "nothing to judge"
                              : is_count ? formatted("%.0f", *c.value)
                              : is_tau   ? formatted("%.3f", *c.value)
                                         : percent(*c.value);
    out += "<div class=\"card\">" + escaped(c.name) + "<br><b>" + value + "</b><br><span class=\"" +
           (!c.value ? "SAME"
            : c.held ? "BETTER"
                     : "WORSE") +
           "\">" +
           (!c.value ? "not judged"
            : c.held ? "holds"
                     : "does not hold") +
           "</span> <span class=\"soft\">(" + escaped(c.limit) + ")</span></div>\n";
  }
  return out + "</div></section>\n";
}

std::string errors_html(const Validation& v) {
  std::string out =
      section("errors", "Errors") + head({"figure", "points", "MAPE", "mean", "p95", "largest"}, 1);
  const auto row = [&](const char* name, const ErrorSummary& s) {
    if (s.count == 0) return;
    out += "<tr>" + cell(name, true) + cell(std::to_string(s.count)) + cell(percent(s.mape)) +
           cell(signed_percent(s.signed_mean)) + cell(percent(s.p95)) + cell(percent(s.largest)) + "</tr>\n";
  };
  row("iteration time of runs", v.runs);
  row("single iterations", v.iterations);
  row("peak of reserved memory", v.peaks);
  return out + kTableEnd + "<p class=\"soft\">Simulated over measured, minus 1.</p></section>\n";
}

std::string cells_html(const Validation& v) {
  std::string out = section("ranking", "Ranking of policies");
  if (v.cells.empty()) return out + "<p>No trace and budget has two policies.</p></section>\n";
  out += "<p class=\"soft\">Differences inside the measurement's noise are ties.</p>\n" +
         head({"trace and budget", "model's choice", "fastest measured", "regret", "tau-b", "policies",
               "tied pairs measured", "simulated"},
              3);
  for (const ValidationCell& c : v.cells)
    out += "<tr>" + cell(c.name, true) + cell(c.chosen, true) + cell(c.best, true) + cell(percent(c.regret)) +
           cell(c.tau ? formatted("%.3f", *c.tau) : std::string("all tied")) +
           cell(std::to_string(c.policies)) +
           cell(std::to_string(c.measured_ties) + " of " + std::to_string(c.pairs)) +
           cell(std::to_string(c.simulated_ties) + " of " + std::to_string(c.pairs)) + "</tr>\n";
  return out + kTableEnd + "</section>\n";
}

std::string stalls_html(const Validation& v) {
  std::string out = section("stalls", "Stall classes");
  if (v.stalls.empty()) return out + "<p>The measured runs do not state them.</p></section>\n";
  out += head({"class", "measured", "simulated", "mean difference", "mean of its absolute"}, 1);
  for (const StallSummary& s : v.stalls)
    out += "<tr>" + cell(s.name, true) + cell(percent(s.measured_share)) + cell(percent(s.simulated_share)) +
           cell(signed_percent(s.mean_difference)) + cell(percent(s.mean_absolute_difference)) + "</tr>\n";
  return out + kTableEnd +
         "<p class=\"soft\">Shares of the measured iteration, mean over runs; "
         "differences are simulated less measured.</p></section>\n";
}

std::string points_html(const Validation& v) {
  std::vector<const ValidationPoint*> points;
  points.reserve(v.points.size());
  for (const ValidationPoint& p : v.points) points.push_back(&p);
  std::stable_sort(points.begin(), points.end(), [](const auto* a, const auto* b) {
    return std::fabs(a->error()) > std::fabs(b->error());
  });
  std::string out =
      section("points", "Every point, largest error first") +
      head({"trace", "budget", "policy", "measured", "noise", "repeats", "simulated", "error", "decisions"},
           3);
  for (const ValidationPoint* p : points)
    out += "<tr>" + cell(short_trace(p->trace), true) + cell(p->budget, true) + cell(p->policy, true) +
           cell(human_time(p->measured)) +
           cell(p->repeats < 2 ? std::string("-")
                               : percent(p->noise_ns / static_cast<double>(p->measured.value))) +
           cell(std::to_string(p->repeats)) + cell(human_time(p->simulated)) +
           cell(signed_percent(p->error())) + cell(p->decisions_differ ? "differ" : "same") + "</tr>\n";
  return out + kTableEnd + "</section>\n";
}

std::string dropped_html(const Validation& v) {
  std::string out = section("dropped", "Dropped points");
  if (v.dropped.empty()) return out + "<p>None.</p></section>\n";
  out += head({"run", "why"}, 2);
  for (const DroppedPoint& d : v.dropped)
    out += "<tr>" + cell(d.what, true) + "<td class=\"wide\">" + escaped(d.reason) + "</td></tr>\n";
  return out + kTableEnd + "</section>\n";
}

}  // namespace

std::string validation_html(const Validation& v, const Tolerances& tolerances, const ValidationTitle& title) {
  const Scatter scatter(v.points, tolerances.iteration);
  std::string out =
      "<!doctype html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n"
      "<meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n"
      "<meta http-equiv=\"Content-Security-Policy\" content=\"default-src 'none'; style-src 'unsafe-inline'; "
      "img-src data:\">\n<link rel=\"icon\" href=\"data:,\">\n<title>" +
      escaped(title.title) + "</title>\n<style>\n" + kReportCss + "</style>\n</head>\n<body>\n<main>\n<h1>" +
      escaped(title.title) + "</h1>\n<p class=\"soft\">" + escaped(title.subtitle) + "</p>\n" +
      "<nav><a href=\"#verdict\">verdict</a><a href=\"#scatter\">scatter</a><a href=\"#errors\">errors</a>"
      "<a href=\"#ranking\">ranking</a><a href=\"#stalls\">stalls</a><a href=\"#points\">points</a>"
      "<a href=\"#dropped\">dropped</a></nav>\n";
  out += checks_html(v);
  out += section("scatter", "Simulated against measured") + "<p class=\"soft\">" +
         std::to_string(v.points.size()) + " points, " + std::to_string(v.dropped.size()) +
         " dropped. On the line the model is exact; dashed: the tolerance of " +
         formatted("%g", 100 * tolerances.iteration) + " %. Points beyond it have a red rim.</p>\n" +
         scatter.svg() + scatter.legend() + "</section>\n";
  out += errors_html(v) + cells_html(v) + stalls_html(v) + points_html(v) + dropped_html(v);
  if (!title.command.empty()) out += "<h2>Command</h2><pre>" + escaped(title.command) + "</pre>\n";
  return out + "</main>\n</body>\n</html>\n";
}

}  // namespace swaplab
