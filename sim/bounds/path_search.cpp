#include "sim/bounds/path_search.hpp"

#include <algorithm>
#include <optional>

namespace swaplab {
namespace {

constexpr std::int64_t kNanosPerSecond = 1'000'000'000;

// How much of one direction's full rate each full rate of the other costs it, ppm, rounded down: with
// i + k o <= 1 for the shares i and o of the full rates at which the directions run at any time. Together
// they reach (f_o, f_i), alone (1, 0) and (0, 1); so k = (1 - f_i) / f_o, but not more than time-sharing: 1.
Ppm slowdown_of(Ppm own_beside_other, Ppm other_beside_own) {
  if (own_beside_other >= kUnchanged) return 0;
  if (other_beside_own <= kUnchanged - own_beside_other) return kUnchanged;
  return (kUnchanged - own_beside_other) * kUnchanged / other_beside_own;
}

}  // namespace

class PathSearch::OpenGaps {
 public:
  OpenGaps(const PathSearch& search, std::uint32_t count)
      : search_(search), by_version_(count + 1, 0), by_begin_(count + 1, 0) {}

  // Goes on to point q. Points are visited in ascending order, none left out.
  void advance(std::uint32_t q) {
    const auto& ranges = search_.ranges_;
    const auto& by_end = search_.by_end_;
    for (; next_open_ < ranges.size() && ranges[next_open_].begin == q; ++next_open_) {
      change(ranges[next_open_], ranges[next_open_].bytes);
    }
    for (; next_close_ < by_end.size() && ranges[by_end[next_close_]].end == q; ++next_close_) {
      change(ranges[by_end[next_close_]], -ranges[by_end[next_close_]].bytes);
    }
  }
  std::int64_t all_versions() const { return all_versions_; }
  std::int64_t all_begins() const { return all_begins_; }
  std::int64_t by_version(std::uint32_t p) const { return by_version_[p]; }
  std::int64_t by_begin(std::uint32_t p) const { return by_begin_[p]; }

 private:
  void change(const PathRange& range, std::int64_t bytes) {
    if (range.version != kNoVersion) {
      by_version_[range.version] += bytes;
      all_versions_ += bytes;
    }
    by_begin_[range.from] += bytes;
    all_begins_ += bytes;
  }
  const PathSearch& search_;
  std::vector<std::int64_t> by_version_, by_begin_;
  std::int64_t all_versions_ = 0, all_begins_ = 0;
  std::size_t next_open_ = 0, next_close_ = 0;
};

PathSearch::PathSearch(std::span<const PathPoint> points, std::span<const PathRange> ranges,
                       std::span<const std::uint32_t> by_end, const HostPath& host, const SwapRates& rates,
                       std::int32_t edge_span, Bytes budget)
    : points_(points), ranges_(ranges), by_end_(by_end), host_(host), rates_(rates), edge_span_(edge_span) {
  excess_.reserve(points.size());
  for (const PathPoint& point : points) {
    excess_.push_back(std::max<std::int64_t>(0, (point.required - budget).value));
  }
}

// Longest paths from point `first` to those before `end`; entry i is of point first + i.
LongestPath PathSearch::search(std::uint32_t first, std::uint32_t end, const Weights& weights,
                               std::span<const Shared> shared, bool plain) const {
  const auto link = [](Ppm weight, std::int64_t rate) {
    return weight == kUnchanged ? Link{kNanosPerSecond, rate}
                                : Link{kNanosPerSecond * weight, Wide{rate} * kUnchanged};
  };
  const Link out = link(weights.out, rates_.out), in = link(weights.in, rates_.in);
  // What bytes beside kernels cost these, on top of their own time.
  const Link slow_out = link(kUnchanged - rates_.kernel_beside_out, rates_.out);
  const Link slow_in = link(kUnchanged - rates_.kernel_beside_in, rates_.in);
  const bool out_slows = plain && rates_.kernel_beside_out < kUnchanged;
  const bool in_slows = plain && rates_.kernel_beside_in < kUnchanged;
  const std::int64_t most_in = in_slows ? slow_in.time(*std::max_element(excess_.begin(), excess_.end())) : 0;
  LongestPath result;
  result.longest.assign(end - first, 0);
  result.steps.resize(end - first);
  auto& longest = result.longest;
  OpenGaps open(*this, static_cast<std::uint32_t>(points_.size()));
  for (std::uint32_t q = 0; q <= first; ++q) open.advance(q);
  std::uint32_t low = first;               // of the points within the edge span of q
  std::optional<std::int64_t> host_clock;  // less what the host has spent
  std::uint32_t host_from = first;
  std::size_t next_step = 0;
  for (std::uint32_t q = first + 1; q < end; ++q) {
    open.advance(q);
    while (points_[q].op - points_[low].op > edge_span_ && low + 1 < q) ++low;
    const std::int64_t compute = (points_[q].time - points_[q - 1].time).value;
    std::int64_t best = longest[q - 1 - first] +
                        (weights.compute == kUnchanged
                             ? compute
                             : static_cast<std::int64_t>(Wide{compute} * weights.compute / kUnchanged));
    PathStep step{q - 1, ChainKind::compute, 0, 0};
    // Kernels slowed down by `bytes`: longest[p] less the time before p never falls with p, so once the most
    // that bytes can add is too little, it is for all points before.
    const auto slowed = [&](std::uint32_t p, std::int64_t bytes, const Link& slow, std::int64_t most,
                            bool& tried, ChainKind kind) {
      const std::int64_t alone = longest[p - first] + (points_[q].time - points_[p].time).value;
      tried = alone + most > best;
      if (!tried || bytes <= 0 || !slow.exceeds(bytes, best - alone)) return;
      best = alone + slow.time(bytes);
      step = {p, kind, bytes, 0};
    };
    if (const std::int64_t away = excess_[q]; away > 0 && weights.out > 0) {
      std::int64_t y = open.all_versions() - open.by_version(q);
      bool slow = out_slows;
      const std::int64_t most = slow ? slow_out.time(away) : 0;
      for (std::uint32_t p = q; p-- > low;) {
        const std::int64_t bytes = away - y;
        if (bytes > 0 && out.exceeds(bytes, best - longest[p - first])) {
          best = longest[p - first] + out.time(bytes);
          step = {p, ChainKind::out, bytes, 0};
        }
        if (slow) slowed(p, bytes, slow_out, most, slow, ChainKind::slowed_by_out);
        y -= open.by_version(p);
      }
    }
    if (weights.in > 0) {
      std::int64_t x = open.all_begins() - open.by_begin(q);
      bool slow = in_slows;
      for (std::uint32_t p = q; p-- > low;) {
        const std::int64_t bytes = excess_[p] - x;
        if (bytes > 0 && in.exceeds(bytes, best - longest[p - first])) {
          best = longest[p - first] + in.time(bytes);
          step = {p, ChainKind::in, bytes, 0};
        }
        if (slow) slowed(p, bytes, slow_in, most_in, slow, ChainKind::slowed_by_in);
        x -= open.by_begin(p);
      }
    }
    for (const Shared& edges : shared) {
      if (edges.start < first || edges.start >= q || q - edges.start > edges.time.size()) continue;
      const std::uint32_t i = q - edges.start - 1;
      if (longest[edges.start - first] + edges.time[i] <= best) continue;
      best = longest[edges.start - first] + edges.time[i];
      step = {edges.start, ChainKind::shared, edges.out[i], edges.in[i]};
    }
    for (; plain && next_step < host_.steps.size() && host_.steps[next_step].to <= q; ++next_step) {
      const HostPath::Step& from = host_.steps[next_step];
      const std::int64_t clock = longest[from.from - first] + from.offset;
      if (host_clock && clock <= *host_clock) continue;
      host_clock = clock;
      host_from = from.from;
    }
    if (host_clock && !points_[q].end && *host_clock + host_.spent[q] > best) {
      best = *host_clock + host_.spent[q];
      step = {host_from, ChainKind::host, 0, 0};
    }
    longest[q - first] = best;
    result.steps[q - first] = step;
  }
  return result;
}

std::uint32_t PathSearch::span_end(std::uint32_t first) const {
  std::uint32_t end = first + 1;
  while (end < points_.size() && points_[end].op - points_[first].op <= edge_span_) ++end;
  return end;
}

// Shared edges from `start`. The bytes of one direction count over the whole edge at `slowdown`; within it, a
// path on which the other direction counts in full and everything else by what is left.
PathSearch::Shared PathSearch::share(std::uint32_t start, bool whole_out, Ppm slowdown) const {
  const std::uint32_t end = span_end(start);
  const Ppm kernel = whole_out ? rates_.kernel_beside_out : rates_.kernel_beside_in;
  const Ppm rest = kUnchanged - slowdown;
  Weights weights{std::min(kUnchanged, rest * kUnchanged / kernel), rest, rest};
  (whole_out ? weights.in : weights.out) = kUnchanged;
  const LongestPath inner = search(start, end, weights, {}, false);
  const ChainKind full = whole_out ? ChainKind::in : ChainKind::out;
  const Link whole{kNanosPerSecond * slowdown, Wide{whole_out ? rates_.out : rates_.in} * kUnchanged};

  Shared result{start, {}, {}, {}};
  std::vector<std::int64_t> full_bytes(end - start, 0);  // on the inner path to each point
  OpenGaps open(*this, static_cast<std::uint32_t>(points_.size()));
  for (std::uint32_t q = 0; q <= start; ++q) open.advance(q);
  for (std::uint32_t q = start + 1; q < end; ++q) {
    open.advance(q);
    const PathStep& step = inner.steps[q - start];
    full_bytes[q - start] = full_bytes[step.from - start] + (step.kind == full ? step.bytes : 0);
    std::int64_t forced = whole_out ? excess_[q] : excess_[start];
    if (forced > 0) {
      for (std::uint32_t p = 0; p <= start; ++p) forced -= whole_out ? open.by_version(p) : open.by_begin(p);
    }
    forced = std::max<std::int64_t>(forced, 0);
    result.time.push_back(inner.longest[q - start] + whole.time(forced));
    result.out.push_back(whole_out ? forced : full_bytes[q - start]);
    result.in.push_back(whole_out ? full_bytes[q - start] : forced);
  }
  return result;
}

// From where the plain path moves bytes in the direction that the other one slows down.
std::vector<PathSearch::Shared> PathSearch::shared_edges(const LongestPath& plain) const {
  const Ppm in_slows = slowdown_of(rates_.in_beside_out, rates_.out_beside_in);
  const Ppm out_slows = slowdown_of(rates_.out_beside_in, rates_.in_beside_out);
  std::vector<Shared> result;
  if (in_slows == 0 && out_slows == 0) return result;
  for (auto q = static_cast<std::uint32_t>(points_.size()) - 1; q > 0; q = plain.steps[q].from) {
    const PathStep& step = plain.steps[q];
    const bool in = step.kind == ChainKind::in || step.kind == ChainKind::slowed_by_in;
    const bool out = step.kind == ChainKind::out || step.kind == ChainKind::slowed_by_out;
    if (in && in_slows > 0) result.push_back(share(step.from, true, in_slows));
    if (out && out_slows > 0) result.push_back(share(step.from, false, out_slows));
  }
  return result;
}

LongestPath PathSearch::run() const {
  const auto n = static_cast<std::uint32_t>(points_.size());
  LongestPath plain = search(0, n, {}, {}, true);
  const std::vector<Shared> shared = shared_edges(plain);
  return shared.empty() ? plain : search(0, n, {}, shared, true);
}

}  // namespace swaplab
