// Straight lines and polylines by least squares: all that needs linear algebra.
#include <Eigen/Dense>
#include <algorithm>
#include <boost/math/distributions/students_t.hpp>
#include <cmath>
#include <utility>
#include <vector>

#include "gpu_validate/calibrate/robust.hpp"
#include "trace/error.hpp"

namespace swaplab {
namespace {

constexpr double kNormal = 1.4826;      // deviation of a normal distribution over its MAD
constexpr double kHuber = 1.345;        // 95 % efficiency at the normal distribution
constexpr double kBisquare = 4.685;     // likewise
constexpr std::size_t kOwnSpread = 8;   // samples from which a group's own spread is trusted
constexpr std::size_t kNeighbours = 2;  // sizes on either side whose spread counts, too
constexpr int kMostSteps = 60;

// One sample, divided by the spread expected of it: y = a * intercept + b * slope + noise of unit size.
struct Row {
  double a, b, y;
};

double middle(std::vector<double> values) {
  const auto half = values.begin() + static_cast<std::ptrdiff_t>(values.size() / 2);
  std::nth_element(values.begin(), half, values.end());
  if (values.size() % 2 != 0) return *half;
  return (*half + *std::max_element(values.begin(), half)) / 2;
}

// Spread of every group: its own, or for small groups the usual spread relative to the time.
std::vector<double> spreads(std::span<const SampleGroup> groups, const std::vector<double>& medians) {
  std::vector<double> own(groups.size()), shares;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    own[g] = kNormal * static_cast<double>(median_absolute_deviation(groups[g].samples).value);
    if (groups[g].samples.size() >= 3) shares.push_back(own[g] / medians[g]);
  }
  const double usual = shares.empty() ? 0 : middle(shares);
  // Spreads of a few samples scatter; neighbouring sizes are alike.
  const std::vector<double> raw = own;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const std::size_t first = g < kNeighbours ? 0 : g - kNeighbours;
    const std::size_t last = std::min(g + kNeighbours, groups.size() - 1);
    std::vector<double> near;
    for (std::size_t i = first; i <= last; ++i)
      if (groups[i].samples.size() >= 3) near.push_back(raw[i] / medians[i]);
    if (!near.empty()) own[g] = middle(std::move(near)) * medians[g];
  }
  // Published tables have one value per size and no spread: all errors are relative then.
  for (std::size_t g = 0; g < groups.size(); ++g) {
    if (usual == 0) {
      own[g] = medians[g];
      continue;
    }
    const double expected = usual * medians[g];
    if (groups[g].samples.size() < kOwnSpread) own[g] = expected;
    // A clock's resolution can make a group look exact; that must not give it all the weight.
    own[g] = std::max({own[g], expected / 10, 0.3});
  }
  return own;
}

class Fit {
 public:
  Fit(std::vector<Row> rows, double x_scale) : rows_(std::move(rows)), x_scale_(x_scale) {}

  void start_from(const Fit& other) { beta_ = other.beta_; }

  // Least squares with the weights of `weight(standardised residual)`.
  template <class Weight>
  void solve(const Weight& weight) {
    Eigen::Matrix2d normal = Eigen::Matrix2d::Zero();
    Eigen::Vector2d right = Eigen::Vector2d::Zero();
    for (const Row& row : rows_) {
      const double w = weight(residual(row) / scale_);
      normal(0, 0) += w * row.a * row.a;
      normal(0, 1) += w * row.a * row.b;
      normal(1, 1) += w * row.b * row.b;
      right(0) += w * row.a * row.y;
      right(1) += w * row.b * row.y;
    }
    normal(1, 0) = normal(0, 1);
    beta_ = normal.fullPivLu().solve(right);
  }

  template <class Weight>
  void iterate(const Weight& weight, bool rescale) {
    for (int step = 0; step < kMostSteps; ++step) {
      const Eigen::Vector2d before = beta_;
      if (rescale) estimate_scale();
      solve(weight);
      if ((beta_ - before).norm() <= 1e-12 * beta_.norm()) break;
    }
  }

  void estimate_scale() {
    std::vector<double> sizes;
    sizes.reserve(rows_.size());
    for (const Row& row : rows_) sizes.push_back(std::fabs(residual(row)));
    scale_ = std::max(kNormal * middle(std::move(sizes)), 1e-9);
  }

  LineFit result(double confidence) const {
    LineFit fit;
    fit.samples = rows_.size();
    // Sandwich form: holds although the groups' spreads are estimates themselves.
    Eigen::Matrix2d bread = Eigen::Matrix2d::Zero(), meat = Eigen::Matrix2d::Zero();
    for (const Row& row : rows_) {
      const double u = residual(row) / scale_;
      const double t = u / kBisquare;
      if (std::fabs(t) >= 1) {
        ++fit.rejected;
        continue;
      }
      const double psi = u * (1 - t * t) * (1 - t * t);
      const Eigen::Vector2d x(row.a, row.b);
      bread += (1 - t * t) * (1 - 5 * t * t) * x * x.transpose();
      meat += psi * psi * x * x.transpose();
    }
    fit.intercept.value = beta_(0);
    fit.slope.value = beta_(1) / x_scale_;
    fit.intercept.low = fit.intercept.high = fit.intercept.value;
    fit.slope.low = fit.slope.high = fit.slope.value;
    const auto n = static_cast<double>(rows_.size());
    if (rows_.size() <= 2 || bread.determinant() <= 0) return fit;
    const Eigen::Matrix2d inverse = bread.inverse();
    const Eigen::Matrix2d covariance = scale_ * scale_ * n / (n - 2) * inverse * meat * inverse;
    const double t = boost::math::quantile(boost::math::students_t(n - 2), 0.5 + confidence / 2);
    const double a = t * std::sqrt(covariance(0, 0)), b = t * std::sqrt(covariance(1, 1)) / x_scale_;
    fit.intercept.low -= a;
    fit.intercept.high += a;
    fit.slope.low -= b;
    fit.slope.high += b;
    return fit;
  }

 private:
  double residual(const Row& row) const { return row.y - row.a * beta_(0) - row.b * beta_(1); }

  std::vector<Row> rows_;
  double x_scale_;  // x is divided by it, so that both columns are of like size
  Eigen::Vector2d beta_ = Eigen::Vector2d::Zero();
  double scale_ = 1;
};

double huber(double u) {
  const double size = std::fabs(u);
  return size <= kHuber ? 1 : kHuber / size;
}

double bisquare(double u) {
  const double t = u / kBisquare;
  return std::fabs(t) >= 1 ? 0 : (1 - t * t) * (1 - t * t);
}

}  // namespace

LineFit fit_line(std::span<const SampleGroup> groups, double confidence) {
  bool two = false;
  std::vector<double> medians;
  std::int64_t largest = 0;
  for (const SampleGroup& group : groups) {
    two |= group.x != groups.front().x;
    largest = std::max(largest, group.x);
    medians.push_back(std::max(1.0, static_cast<double>(median(group.samples).value)));
  }
  if (!two) throw Error(ErrorKind::input, "a line needs times at two different sizes at least");
  const std::vector<double> spread = spreads(groups, medians);
  const auto x_scale = static_cast<double>(largest);
  std::vector<Row> rows, starting;
  for (std::size_t g = 0; g < groups.size(); ++g) {
    const double a = 1 / spread[g], b = static_cast<double>(groups[g].x) / x_scale / spread[g];
    starting.push_back({a, b, medians[g] / spread[g]});
    for (const Nanos t : groups[g].samples) rows.push_back({a, b, static_cast<double>(t.value) / spread[g]});
  }
  Fit fit(std::move(rows), x_scale), start(std::move(starting), x_scale);
  start.solve([](double) { return 1.0; });  // through the medians: no outlier can lead it astray
  fit.start_from(start);
  fit.iterate(huber, true);
  fit.estimate_scale();
  fit.iterate(bisquare, false);
  return fit.result(confidence);
}

std::vector<double> fit_polyline(std::span<const double> xs, std::span<const double> ys,
                                 std::span<const std::size_t> knots) {
  const auto count = static_cast<Eigen::Index>(knots.size());
  Eigen::MatrixXd normal = Eigen::MatrixXd::Zero(count, count);
  Eigen::VectorXd right = Eigen::VectorXd::Zero(count);
  std::size_t segment = 0;
  for (std::size_t i = 0; i < xs.size(); ++i) {
    while (segment + 2 < knots.size() && i > knots[segment + 1]) ++segment;
    const double left = xs[knots[segment]], width = xs[knots[segment + 1]] - left;
    const double share = (xs[i] - left) / width, weight = 1 / (ys[i] * ys[i]);
    const auto k = static_cast<Eigen::Index>(segment);
    normal(k, k) += weight * (1 - share) * (1 - share);
    normal(k, k + 1) += weight * share * (1 - share);
    normal(k + 1, k) += weight * share * (1 - share);
    normal(k + 1, k + 1) += weight * share * share;
    right(k) += weight * (1 - share) * ys[i];
    right(k + 1) += weight * share * ys[i];
  }
  // Every knot is a point, so the matrix is positive definite.
  const Eigen::VectorXd heights = normal.ldlt().solve(right);
  return {heights.data(), heights.data() + heights.size()};
}

}  // namespace swaplab
