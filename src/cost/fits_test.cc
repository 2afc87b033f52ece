#include "cost/fits.h"

#include <gtest/gtest.h>

#include <cmath>
#include <random>

namespace epl {
namespace {

TEST(Fits, GiveBackTheLineThatTimesWereMadeOf) {
  std::mt19937 random(3);
  std::uniform_real_distribution<double> logarithm(-2, 2);
  for (int round = 0; round < 200; ++round) {
    const double first = 1e-5 * std::pow(10, logarithm(random));
    const double each = 1e-10 * std::pow(10, logarithm(random));
    std::vector<TimePoint> points;
    for (double size = 1e2; size < 1e9; size *= 4) points.push_back({size, first + each * size});
    const LineFit line = fit_line(points);
    EXPECT_NEAR(line.first / first, 1, 1e-6);
    EXPECT_NEAR(line.each / each, 1, 1e-6);
    EXPECT_LT(line.error, 1e-6);
  }
}

TEST(Fits, AreNearUnderNoiseAndTellTheirError) {
  std::mt19937 random(4);
  std::uniform_real_distribution<double> noise(0.9, 1.1);
  std::vector<TimePoint> points;
  for (double size = 1e2; size < 1e9; size *= 1.3) {
    points.push_back({size, (2e-6 + 5e-11 * size) * noise(random)});
  }
  const LineFit line = fit_line(points);
  EXPECT_NEAR(line.first / 2e-6, 1, 0.05);
  EXPECT_NEAR(line.each / 5e-11, 1, 0.05);
  EXPECT_GT(line.error, 0.03);
  EXPECT_LT(line.error, 0.2);
}

TEST(Fits, AreNeverNegative) {
  const LineFit falling = fit_line({{1, 10}, {2, 5}, {4, 1}});
  EXPECT_GE(falling.first, 0);
  EXPECT_GE(falling.each, 0);
  const LineFit through_zero = fit_line({{1, 0.5}, {2, 2}, {4, 8}});
  EXPECT_EQ(through_zero.first, 0);
  EXPECT_GT(through_zero.each, 0);
  const LineFit none = fit_line({});
  EXPECT_EQ(none.seconds_of(7), 0);
  const LineFit one = fit_line({{8, 4}});
  EXPECT_DOUBLE_EQ(one.seconds_of(8), 4);
}

TEST(Fits, CurvesRiseThroughTheirPoints) {
  const std::vector<TimePoint> curve = rising_curve({{100, 4}, {1, 2}, {10, 1}, {100, 5}});
  ASSERT_EQ(curve.size(), 3u);
  EXPECT_DOUBLE_EQ(seconds_on(curve, 1), 2);
  EXPECT_DOUBLE_EQ(seconds_on(curve, 10), 2);  // noise had made it shorter
  EXPECT_DOUBLE_EQ(seconds_on(curve, 100), 5);
  EXPECT_DOUBLE_EQ(seconds_on(curve, 0), 2);
  EXPECT_DOUBLE_EQ(seconds_on(curve, 400), 20);
  EXPECT_NEAR(seconds_on(curve, std::sqrt(1000.0)), std::sqrt(10.0), 1e-12);
  double before = 0;
  for (double size = 0.1; size < 1e4; size *= 1.01) {
    EXPECT_GE(seconds_on(curve, size), before);
    before = seconds_on(curve, size);
  }
}

ProductGrid made_grid() {
  ProductGrid grid;
  grid.m = {1, 8, 64};
  grid.n = {2, 32};
  grid.k = {4, 16, 256};
  for (const int64_t m : grid.m) {
    for (const int64_t n : grid.n) {
      for (const int64_t k : grid.k) {
        grid.seconds.push_back(1e-9 * static_cast<double>(m * n * k));
      }
    }
  }
  return grid;
}

TEST(Fits, GridsAreExactWhereTimeIsAPowerOfSizes) {
  const ProductGrid grid = made_grid();
  for (const int64_t m : {1, 3, 8, 50, 64, 640}) {
    for (const int64_t n : {2, 5, 32, 64}) {
      for (const int64_t k : {4, 7, 100, 256, 1000}) {
        EXPECT_NEAR(grid.seconds_of(m, n, k) / (1e-9 * static_cast<double>(m * n * k)), 1, 1e-12);
      }
    }
  }
  EXPECT_DOUBLE_EQ(grid.seconds_of(1, 1, 1), grid.seconds_of(1, 2, 4));  // below the grid
}

TEST(Fits, GridsRiseInEverySizeWhateverWasMeasured) {
  std::mt19937 random(5);
  std::uniform_real_distribution<double> noise(0.2, 5);
  ProductGrid grid = made_grid();
  for (double& seconds : grid.seconds) seconds *= noise(random);
  grid.make_rising();
  const auto size = [&] { return static_cast<int64_t>(1 + random() % 400); };
  for (int round = 0; round < 2000; ++round) {
    const int64_t m = size(), n = size(), k = size();
    const double seconds = grid.seconds_of(m, n, k) * (1 - 1e-12);
    EXPECT_GE(grid.seconds_of(m + size(), n, k), seconds);
    EXPECT_GE(grid.seconds_of(m, n + size(), k), seconds);
    EXPECT_GE(grid.seconds_of(m, n, k + size()), seconds);
  }
}

}  // namespace
}  // namespace epl
