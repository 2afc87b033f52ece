#include "cost/recompute_choice.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <limits>
#include <optional>
#include <random>

#include "cost/cut_frontier.h"

namespace epl {
namespace {

using Operation = RecomputeModel::Operation;

int add_storage(RecomputeModel& model, int64_t bytes) {
  RecomputeModel::Storage storage;
  storage.bytes = bytes;
  storage.maker = static_cast<int>(model.operations.size());
  model.storages.push_back(storage);
  return static_cast<int>(model.storages.size()) - 1;
}

int add(RecomputeModel& model, bool backward, double seconds, std::vector<int> reads,
        int64_t bytes) {
  const int made = add_storage(model, bytes);
  Operation operation;
  operation.backward = backward;
  operation.repeatable = !backward;
  operation.seconds = seconds;
  operation.reads = std::move(reads);
  operation.makes = {made};
  operation.kind = static_cast<int>(model.operations.size());
  model.operations.push_back(std::move(operation));
  return made;
}

// Each value is made of one to three earlier ones, mostly the last; its derivative reads the
// gradient and some of what the operator read and made.
RecomputeModel random_step(std::mt19937& random, int values) {
  RecomputeModel model;
  const auto below = [&](int end) {
    return static_cast<int>(random() % static_cast<unsigned>(end));
  };
  std::vector<std::vector<int>> inputs;
  std::vector<int> forward;
  for (int i = 0; i < values; ++i) {
    std::vector<int> reads;
    for (int k = 0; k < 1 + below(3) && i > 0; ++k) {
      const int read = forward[static_cast<size_t>(below(2) == 0 ? i - 1 : below(i))];
      if (std::find(reads.begin(), reads.end(), read) == reads.end()) reads.push_back(read);
    }
    inputs.push_back(reads);
    forward.push_back(add(model, false, 1 + below(20), reads, 64 * (1 + below(16))));
  }
  int gradient = add(model, true, 1, {forward.back()}, 64);
  for (int i = values; i-- > 0;) {
    std::vector<int> reads{gradient};
    for (int read : inputs[static_cast<size_t>(i)]) {
      if (below(3) > 0) reads.push_back(read);
    }
    if (below(2) == 0) reads.push_back(forward[static_cast<size_t>(i)]);
    gradient = add(model, true, 2 + below(30), reads, 64 * (1 + below(8)));
  }
  return model;
}

double seconds_of(const RecomputeModel& model) {
  double seconds = 0;
  for (const auto& operation : model.operations) seconds += operation.seconds;
  return seconds;
}

// All choices, cheapest first.
std::vector<RecomputeOutcome> all_outcomes(const RecomputeModel& model, int values) {
  RecomputeMemory memory(model);
  std::vector<RecomputeOutcome> outcomes;
  for (uint32_t choice = 0; choice < (1U << static_cast<unsigned>(values)); ++choice) {
    Again again(model.operations.size(), false);
    for (int i = 0; i < values; ++i) {
      again[static_cast<size_t>(i)] = ((choice >> static_cast<unsigned>(i)) & 1U) != 0;
    }
    outcomes.push_back(memory.measure(again));
  }
  std::sort(outcomes.begin(), outcomes.end(), [](const auto& a, const auto& b) {
    return std::make_pair(a.seconds, a.peak) < std::make_pair(b.seconds, b.peak);
  });
  return outcomes;
}

std::optional<double> least_seconds(const std::vector<RecomputeOutcome>& outcomes, int64_t limit) {
  for (const auto& outcome : outcomes) {
    if (outcome.peak <= limit) return outcome.seconds;
  }
  return std::nullopt;
}

TEST(CheapestWithin, IsNearlyAlwaysTheBestOfAllChoices) {
  std::mt19937 random(11);
  const int values = 11;
  int feasible = 0, missed = 0, exact = 0;
  double gaps = 0, worst = 0;
  for (int round = 0; round < 80; ++round) {
    const RecomputeModel model = random_step(random, values);
    const auto outcomes = all_outcomes(model, values);
    const int64_t kept = RecomputeMemory(model).measure(Again(model.operations.size())).peak;
    for (int percent = 95; percent >= 40; percent -= 9) {
      const int64_t limit = kept * percent / 100;
      const auto best = least_seconds(outcomes, limit);
      const RecomputeChoice found = cheapest_within(model, limit);
      if (!best) {
        EXPECT_FALSE(found.fits);
        continue;
      }
      ++feasible;
      if (!found.fits) {
        ++missed;
        continue;
      }
      EXPECT_LE(found.outcome.peak, limit);
      const double gap = (found.outcome.seconds - *best) / seconds_of(model);
      EXPECT_GE(gap, -1e-9);
      exact += gap < 1e-9 ? 1 : 0;
      gaps += gap;
      worst = std::max(worst, gap);
    }
  }
  RecordProperty("exact", exact);
  std::cout << feasible << " feasible, " << missed << " missed, " << exact << " exact, mean gap "
            << gaps / feasible << ", worst " << worst << "\n";
  EXPECT_GT(feasible, 200);
  EXPECT_LE(missed, feasible / 100);
  EXPECT_LE(gaps / feasible, 0.002);
  EXPECT_LE(worst, 0.06);
}

TEST(LeastMemory, IsNearlyAlwaysTheLeastOfAllChoices) {
  std::mt19937 random(5);
  const int values = 11;
  int exact = 0;
  double worst = 0;
  const int rounds = 60;
  for (int round = 0; round < rounds; ++round) {
    const RecomputeModel model = random_step(random, values);
    int64_t least = std::numeric_limits<int64_t>::max();
    for (const auto& outcome : all_outcomes(model, values)) least = std::min(least, outcome.peak);
    const int64_t found = least_memory(model).outcome.peak;
    EXPECT_GE(found, least);
    exact += found == least ? 1 : 0;
    worst = std::max(worst, static_cast<double>(found) / static_cast<double>(least) - 1);
  }
  std::cout << exact << " of " << rounds << " exact, worst " << worst << "\n";
  EXPECT_GE(exact, rounds * 9 / 10);
  EXPECT_LE(worst, 0.1);
}

// Who asks for the least memory gets no more than a limit can enforce.
TEST(LeastMemory, IsNotAboveWhatALimitCanReach) {
  std::mt19937 random(23);
  int asked = 0, below = 0;
  for (int round = 0; round < 50; ++round) {
    const RecomputeModel model = random_step(random, 10 + static_cast<int>(random() % 24));
    RecomputeChooser chooser(model);
    const int64_t least = chooser.least_memory().outcome.peak;
    for (int permille = 999; permille >= 700; permille -= 13) {
      const RecomputeChoice found = chooser.cheapest_within(least * permille / 1000);
      ++asked;
      if (found.fits) ++below;
    }
    EXPECT_TRUE(chooser.cheapest_within(least).fits);
  }
  std::cout << below << " of " << asked << " limits below the least are kept\n";
  EXPECT_EQ(below, 0);
}

// A chain of equal layers: input -> wide (cheap) -> narrow (dear) -> ...
RecomputeModel layers(int count) {
  RecomputeModel model;
  int value = add(model, false, 10, {}, 100 * 64);
  std::vector<std::pair<int, int>> read;
  for (int i = 0; i < count; ++i) {
    const int wide = add(model, false, 1, {value}, 400 * 64);
    const int next = add(model, false, 20, {wide}, 100 * 64);
    read.emplace_back(value, wide);
    value = next;
  }
  int gradient = add(model, true, 1, {value}, 100 * 64);
  for (int i = count; i-- > 0;) {
    const auto [before, wide] = read[static_cast<size_t>(i)];
    const int of_wide = add(model, true, 40, {gradient, wide}, 400 * 64);
    gradient = add(model, true, 2, {of_wide, before}, 100 * 64);
  }
  return model;
}

TEST(CheapestWithin, MakesTheWideAndCheapValuesAgain) {
  const RecomputeModel model = layers(12);
  const int64_t kept = RecomputeMemory(model).measure(Again(model.operations.size())).peak;
  const RecomputeChoice half = cheapest_within(model, kept / 2);
  ASSERT_TRUE(half.fits);
  EXPECT_LE(half.outcome.seconds, 12);  // of 12 * 63
  for (size_t i = 0; i < half.again.size(); ++i) {
    EXPECT_TRUE(!half.again[i] || model.operations[i].seconds == 1) << i;
  }
}

TEST(CheapestWithin, RunsNothingAgainWhereAllFits) {
  const RecomputeModel model = layers(3);
  const int64_t kept = RecomputeMemory(model).measure(Again(model.operations.size())).peak;
  const RecomputeChoice choice = cheapest_within(model, kept);
  EXPECT_TRUE(choice.fits);
  EXPECT_EQ(choice.outcome.seconds, 0);
}

TEST(CheapestWithin, IsFastForManyLayers) {
  const RecomputeModel model = layers(1000);
  const int64_t kept = RecomputeMemory(model).measure(Again(model.operations.size())).peak;
  EXPECT_TRUE(cheapest_within(model, kept / 2).fits);
}

TEST(AllAgain, KeepsWhatDoesNotRaiseThePeak) {
  const RecomputeModel model = layers(4);
  Again again;
  for (const auto& operation : model.operations) again.push_back(operation.repeatable);
  RecomputeMemory memory(model);
  const RecomputeOutcome all = memory.measure(again);
  const RecomputeChoice choice = all_again(model);
  EXPECT_LE(choice.outcome.peak, all.peak);
  EXPECT_LE(choice.outcome.seconds, all.seconds);
}

TEST(CutFrontier, GoesFromAllKeptToLeastKept) {
  const RecomputeModel model = layers(6);
  const std::vector<Again> plans = cut_frontier(model);
  ASSERT_GE(plans.size(), 2);
  RecomputeMemory memory(model);
  EXPECT_EQ(memory.measure(plans.front()).seconds, 0);
  for (size_t i = 1; i < plans.size(); ++i) {
    EXPECT_GE(memory.measure(plans[i]).seconds, memory.measure(plans[i - 1]).seconds);
  }
}

}  // namespace
}  // namespace epl
