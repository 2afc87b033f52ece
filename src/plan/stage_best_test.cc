// Stage cuts against all cuts that there are, on small random steps.
#include <gtest/gtest.h>

#include <functional>
#include <map>
#include <optional>
#include <random>
#include <set>

#include "base/text.h"
#include "plan/stage_cuts.h"
#include "plan/stage_model.h"
#include "plan/test_step.h"

namespace epl {
namespace {

TestStep random_step(std::mt19937& random) {
  const auto below = [&](int count) { return static_cast<int>(random() % count); };
  TestStep step;
  std::vector<ValueId> values{step.input(1 + below(50)), step.input(1 + below(50))};
  const std::vector<ValueId> weights{step.parameter("a.x.weight", below(100)),
                                     step.parameter("a.y.weight", below(100)),
                                     step.parameter("b.weight", below(100))};
  const int operators = 2 + below(8);
  std::vector<ValueId> made;
  for (int i = 0; i < operators; ++i) {
    const ValueId recent = values[values.size() - 1 - static_cast<size_t>(below(2))];
    if (below(5) == 0) {
      values.push_back(step.forward_view(recent));
    } else {
      const ValueId other = values[static_cast<size_t>(below(static_cast<int>(values.size())))];
      const double seconds = below(4) == 0 ? below(30) : 1 + below(10);
      values.push_back(step.forward({recent, other, weights[static_cast<size_t>(below(3))]},
                                    below(60), seconds, below(3) == 0));
    }
    made.push_back(values.back());
  }
  ValueId gradient = made.back();
  std::vector<ValueId> gradients{gradient};
  for (int call = operators - 1; call >= 0; --call) {
    const ValueId other = gradients[static_cast<size_t>(below(static_cast<int>(gradients.size())))];
    gradient = step.backward(call, {gradient, other, made[static_cast<size_t>(call)]}, below(60),
                             below(20));
    gradients.push_back(gradient);
  }
  return step;
}

struct Tried {
  double pace = 0;
  double squares = 0;
  double memory = 0;  // of the stage that needs most
};

// The same by the definitions alone: who makes, reads and saves what in which stage.
Tried try_cut(const TestStep& step, const std::vector<int>& stage_of, const StageModel& model,
              const StageCutsRequest& request) {
  const auto count = static_cast<size_t>(request.stages);
  std::vector<double> seconds(count), received(count), parameters(count), saved(count);
  std::map<ValueId, int> homes;  // by storage
  std::set<ValueId> forward_made, weights;
  for (const Leaf& leaf : step.graph.leaves) {
    if (leaf.kind == Leaf::Kind::kParameter) weights.insert(leaf.value);
    if (leaf.kind == Leaf::Kind::kInput) forward_made.insert(leaf.value);
    if (leaf.kind == Leaf::Kind::kInput) homes[leaf.value] = 0;
  }
  std::set<std::pair<ValueId, int>> reads, backward_reads;
  for (size_t i = 0; i < step.graph.nodes.size(); ++i) {
    const Node& node = step.graph.nodes[i];
    const int stage = stage_of[static_cast<size_t>(node.origin.call)];
    seconds[static_cast<size_t>(stage)] += step.costs.seconds[i];
    for_each_input(node, [&](ValueId id) {
      const ValueId storage = step.graph.value(id).storage;
      reads.emplace(storage, stage);
      if (node.phase == Phase::kBackward) backward_reads.emplace(storage, stage);
    });
    for_each_output(node, [&](ValueId id) {
      const ValueId storage = step.graph.value(id).storage;
      if (storage != id) return;
      homes[storage] = stage;
      if (node.phase == Phase::kForward) forward_made.insert(storage);
    });
  }
  for (const auto& [storage, stage] : reads) {
    const auto bytes = static_cast<double>(step.graph.value(storage).type.numel());
    const auto index = static_cast<size_t>(stage);
    if (weights.count(storage) != 0) parameters[index] += bytes;
    if (weights.count(storage) == 0 && homes.at(storage) != stage) received[index] += bytes;
  }
  for (const auto& [storage, stage] : backward_reads) {
    if (forward_made.count(storage) == 0) continue;
    saved[static_cast<size_t>(stage)] +=
        static_cast<double>(step.graph.value(storage).type.numel());
  }
  Tried tried;
  const double mean = std::max(step.costs.total() / request.stages, 1e-12);
  for (size_t i = 0; i < count; ++i) {
    const double pace = seconds[i] + received[i] / request.bytes_per_second;
    const double in_flight = std::min(request.micro_batches, request.stages - static_cast<int>(i));
    tried.pace = std::max(tried.pace, pace);
    tried.squares += pace * pace / mean / mean;
    tried.memory = std::max(tried.memory,
                            parameters[i] * (2 + request.optimizer_state) + saved[i] * in_flight);
  }
  for (size_t i = 1; i < stage_of.size(); ++i) {
    if (stage_of[i] != stage_of[i - 1]) {
      tried.squares += 0.001 * model.awkwardness(static_cast<int>(i));
    }
  }
  return tried;
}

std::vector<int> stages_of(const std::vector<int>& cuts, int operators) {
  std::vector<int> stages;
  for (int i = 0; i < operators; ++i) {
    stages.push_back(
        static_cast<int>(std::upper_bound(cuts.begin(), cuts.end(), i) - cuts.begin()));
  }
  return stages;
}

// All ways to choose `count` cuts out of positions [first, operators).
void for_each_cut(int first, int operators, int count, std::vector<int>& cuts,
                  const std::function<void()>& visit) {
  if (count == 0) return visit();
  for (int cut = first; cut < operators; ++cut) {
    cuts.push_back(cut);
    for_each_cut(cut + 1, operators, count - 1, cuts, visit);
    cuts.pop_back();
  }
}

// The least sum of squares of all cuts that fit and are nearly as fast as the best, or nothing.
std::optional<double> best_by_trying(const TestStep& step, const StageModel& model,
                                     const StageCutsRequest& request) {
  std::vector<Tried> all;
  std::vector<int> cuts;
  for_each_cut(1, step.calls(), request.stages - 1, cuts, [&] {
    all.push_back(try_cut(step, stages_of(cuts, step.calls()), model, request));
  });
  double pace = std::numeric_limits<double>::infinity();
  const auto fits = [&](const Tried& tried) {
    return request.device_bytes == 0 || tried.memory <= static_cast<double>(request.device_bytes);
  };
  for (const Tried& tried : all) {
    if (fits(tried)) pace = std::min(pace, tried.pace);
  }
  std::optional<double> best;
  for (const Tried& tried : all) {
    if (!fits(tried) || tried.pace > pace * (1 + request.tolerance) + 1e-9) continue;
    best = best ? std::min(*best, tried.squares) : tried.squares;
  }
  return best;
}

TEST(StageCuts, AreTheBestOfAllCuts) {
  std::mt19937 random(7);
  int refused = 0;
  for (int round = 0; round < 2000; ++round) {
    const TestStep step = random_step(random);
    StageCutsRequest request = stages(1 + static_cast<int>(random() % 4));
    if (request.stages > step.calls()) continue;
    request.tolerance = std::vector<double>{0, 0.05, 0.3}[random() % 3];
    request.bytes_per_second = std::vector<double>{1, 10, 1000}[random() % 3];
    request.device_bytes = random() % 2 == 0 ? 0 : 300 + static_cast<int64_t>(random() % 700);
    const StageModel model = make_stage_model(step.graph, step.costs);
    const std::optional<double> best = best_by_trying(step, model, request);
    SCOPED_TRACE(concat("round ", round));
    if (!best) {
      EXPECT_NE(error_of(step, request), "no error");
      ++refused;
      continue;
    }
    const StageCuts chosen = choose(step, request);
    const Tried tried = try_cut(step, stages_of(chosen.cuts, step.calls()), model, request);
    EXPECT_NEAR(tried.squares, *best, 1e-9);
    EXPECT_NEAR(tried.pace, chosen.pace, 1e-9);
  }
  EXPECT_GT(refused, 20);
}

TEST(PartBytes, AreThoseOfEachPart) {
  std::mt19937 random(11);
  for (int round = 0; round < 50; ++round) {
    const TestStep step = random_step(random);
    const StageModel model = make_stage_model(step.graph, step.costs);
    for (const Growths* growths : {&model.received, &model.parameters, &model.saved}) {
      PartBytes parts(*growths, model.positions());
      for (int end = 1; end <= model.positions(); ++end) {
        parts.extend();
        for (int begin = 0; begin < end; ++begin) {
          EXPECT_EQ(parts[begin], bytes_of_part(*growths, begin, end));
          EXPECT_GE(parts[begin], 0);
        }
      }
      EXPECT_EQ(bytes_of_part(model.received, 0, model.positions()), 0);
    }
  }
}

}  // namespace
}  // namespace epl
