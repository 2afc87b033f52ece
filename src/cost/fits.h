// Fits of measured times, all of them so made that more work never takes less time.
//
//   const LineFit line = fit_line({{1e3, 3e-6}, {1e6, 4e-5}});   // seconds = first + each * size
//   line.seconds_of(5e5);
#pragma once

#include <cstdint>
#include <utility>
#include <vector>

namespace epl {

struct TimePoint {
  double size = 0;
  double seconds = 0;
};

struct LineFit {
  double first = 0;  // seconds of no work at all
  double each = 0;   // seconds of a unit of work
  int64_t points = 0;
  double error = 0;  // the largest relative error among the points

  double seconds_of(double size) const { return first + each * size; }
};

// The line with the least squares of *relative* errors: small works count as much as large ones.
// Neither number is negative: where the best line would have one, it is 0 and the other is fitted
// alone. No points: all is 0.
LineFit fit_line(const std::vector<TimePoint>& points);

// seconds = a * x + b * y, in the same way. For costs that two properties of a work make up.
struct PlaneFit {
  double a = 0;
  double b = 0;
  double error = 0;
};
struct PlanePoint {
  double x = 0;
  double y = 0;
  double seconds = 0;
};
PlaneFit fit_plane(const std::vector<PlanePoint>& points);

// In order of size, and so that time never falls: a work that was timed shorter than a smaller one,
// as noise makes it, gets the time of that.
std::vector<TimePoint> rising_curve(std::vector<TimePoint> points);

// On a rising curve: logarithms are interpolated; below the first point its time holds, behind the
// last one time grows with the size.
double seconds_on(const std::vector<TimePoint>& curve, double size);

// Times of products [m, k] by [k, n] over a grid of sizes.
struct ProductGrid {
  std::vector<int64_t> m, n, k;  // rising
  std::vector<double> seconds;   // of m[i], n[j], k[l] at (i * n.size() + j) * k.size() + l

  bool empty() const { return seconds.empty(); }
  // Logarithms interpolated in all three; outside of the grid as seconds_on().
  double seconds_of(int64_t rows, int64_t columns, int64_t inner) const;
  // No point takes less time than a smaller one.
  void make_rising();
};

}  // namespace epl
