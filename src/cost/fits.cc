#include "cost/fits.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/check.h"

namespace epl {
namespace {

// Where a size lies between the sizes of a grid, and how much its time grows behind the last one.
struct GridPlace {
  size_t lower = 0;
  size_t upper = 0;
  double part = 0;
  double beyond = 1;
};

GridPlace place_in(const std::vector<int64_t>& sizes, int64_t size) {
  GridPlace place;
  if (size <= sizes.front()) return place;
  if (size >= sizes.back()) {
    place.lower = place.upper = sizes.size() - 1;
    place.beyond = static_cast<double>(size) / static_cast<double>(sizes.back());
    return place;
  }
  place.upper =
      static_cast<size_t>(std::upper_bound(sizes.begin(), sizes.end(), size) - sizes.begin());
  place.lower = place.upper - 1;
  const auto low = static_cast<double>(sizes[place.lower]);
  const auto high = static_cast<double>(sizes[place.upper]);
  place.part = std::log(static_cast<double>(size) / low) / std::log(high / low);
  return place;
}

double worst_of(const std::vector<PlanePoint>& points, double a, double b) {
  double worst = 0;
  for (const PlanePoint& point : points) {
    worst = std::max(worst, std::abs((a * point.x + b * point.y) / point.seconds - 1));
  }
  return worst;
}

// The one number that fits best where the other is 0.
double fit_alone(const std::vector<PlanePoint>& points, double PlanePoint::*property) {
  double products = 0, squares = 0;
  for (const PlanePoint& point : points) {
    const double ratio = point.*property / point.seconds;
    products += ratio;
    squares += ratio * ratio;
  }
  return squares > 0 ? products / squares : 0;
}

}  // namespace

PlaneFit fit_plane(const std::vector<PlanePoint>& points) {
  double xx = 0, xy = 0, yy = 0, x = 0, y = 0;
  for (const PlanePoint& point : points) {
    EPL_ASSERT(point.seconds > 0 && point.x >= 0 && point.y >= 0, "times and works are positive");
    const double u = point.x / point.seconds;
    const double v = point.y / point.seconds;
    xx += u * u, xy += u * v, yy += v * v, x += u, y += v;
  }
  PlaneFit fit;
  const double determinant = xx * yy - xy * xy;
  // Below this the two properties are one to what a double can tell.
  if (determinant > 1e-12 * xx * yy) {
    fit.a = (x * yy - y * xy) / determinant;
    fit.b = (y * xx - x * xy) / determinant;
  }
  if (fit.a <= 0 || fit.b <= 0) {
    const double alone_a = fit_alone(points, &PlanePoint::x);
    const double alone_b = fit_alone(points, &PlanePoint::y);
    const bool take_a = worst_of(points, alone_a, 0) <= worst_of(points, 0, alone_b);
    fit.a = take_a ? alone_a : 0;
    fit.b = take_a ? 0 : alone_b;
  }
  fit.error = worst_of(points, fit.a, fit.b);
  return fit;
}

LineFit fit_line(const std::vector<TimePoint>& points) {
  std::vector<PlanePoint> plane;
  for (const TimePoint& point : points) plane.push_back({1, point.size, point.seconds});
  const PlaneFit fit = fit_plane(plane);
  return {fit.a, fit.b, static_cast<int64_t>(points.size()), fit.error};
}

std::vector<TimePoint> rising_curve(std::vector<TimePoint> points) {
  std::sort(points.begin(), points.end(), [](const TimePoint& a, const TimePoint& b) {
    return a.size != b.size ? a.size < b.size : a.seconds < b.seconds;
  });
  std::vector<TimePoint> curve;
  double longest = 0;
  for (const TimePoint& point : points) {
    longest = std::max(longest, point.seconds);
    if (!curve.empty() && curve.back().size == point.size) {
      curve.back().seconds = longest;
    } else {
      curve.push_back({point.size, longest});
    }
  }
  return curve;
}

double seconds_on(const std::vector<TimePoint>& curve, double size) {
  EPL_ASSERT(!curve.empty(), "a curve has points");
  if (size <= curve.front().size) return curve.front().seconds;
  if (size >= curve.back().size) return curve.back().seconds * (size / curve.back().size);
  const auto above =
      std::upper_bound(curve.begin(), curve.end(), size,
                       [](double wanted, const TimePoint& point) { return wanted < point.size; });
  const TimePoint& high = *above;
  const TimePoint& low = *(above - 1);
  if (low.size <= 0) return low.seconds + (high.seconds - low.seconds) * size / high.size;
  const double part = std::log(size / low.size) / std::log(high.size / low.size);
  return low.seconds * std::pow(high.seconds / low.seconds, part);
}

double ProductGrid::seconds_of(int64_t rows, int64_t columns, int64_t inner) const {
  const GridPlace a = place_in(m, rows);
  const GridPlace b = place_in(n, columns);
  const GridPlace c = place_in(k, inner);
  const auto at = [&](size_t i, size_t j, size_t l) {
    return std::log(seconds[(i * n.size() + j) * k.size() + l]);
  };
  const auto along_k = [&](size_t i, size_t j) {
    return (1 - c.part) * at(i, j, c.lower) + c.part * at(i, j, c.upper);
  };
  const auto along_n = [&](size_t i) {
    return (1 - b.part) * along_k(i, b.lower) + b.part * along_k(i, b.upper);
  };
  const double logarithm = (1 - a.part) * along_n(a.lower) + a.part * along_n(a.upper);
  return std::exp(logarithm) * a.beyond * b.beyond * c.beyond;
}

void ProductGrid::make_rising() {
  for (size_t i = 0; i < m.size(); ++i) {
    for (size_t j = 0; j < n.size(); ++j) {
      for (size_t l = 0; l < k.size(); ++l) {
        const auto at = [&](size_t x, size_t y, size_t z) -> double& {
          return seconds[(x * n.size() + y) * k.size() + z];
        };
        double& mine = at(i, j, l);
        if (i > 0) mine = std::max(mine, at(i - 1, j, l));
        if (j > 0) mine = std::max(mine, at(i, j - 1, l));
        if (l > 0) mine = std::max(mine, at(i, j, l - 1));
      }
    }
  }
}

}  // namespace epl
