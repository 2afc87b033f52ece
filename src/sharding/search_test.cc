#include "sharding/search.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>

#include "ir/text.h"
#include "sharding/order.h"
#include "sharding/test_graphs.h"

namespace epl {
namespace {

// Tries every option of every unit.
class BruteForce {
 public:
  BruteForce(const ShardingRequest& request, const Units& units)
      : request_(request), units_(units) {
    chosen_.resize(units.units.size());
  }

  double least() {
    try_unit(0, 0);
    return least_;
  }

  // What the values cost under these options.
  double cost(const std::vector<size_t>& options) {
    chosen_ = options;
    double seconds = 0;
    for (size_t i = 0; i < options.size(); ++i) {
      seconds += units_.units[i].options[options[i]].seconds;
    }
    return seconds + cost_of_values();
  }

 private:
  void try_unit(size_t at, double seconds) {
    if (seconds >= least_) return;
    if (at == chosen_.size()) {
      least_ = std::min(least_, seconds + cost_of_values());
      return;
    }
    const auto& options = units_.units[at].options;
    for (chosen_[at] = 0; chosen_[at] < options.size(); ++chosen_[at]) {
      try_unit(at + 1, seconds + options[chosen_[at]].seconds);
    }
  }

  double cost_of_values() const {
    std::map<ValueId, Layout> made;
    std::map<ValueId, std::set<Layout>> wanted;
    for (size_t i = 0; i < chosen_.size(); ++i) {
      const Unit& unit = units_.units[i];
      const UnitOption& option = unit.options[chosen_[i]];
      for (size_t j = 0; j < unit.outputs.size(); ++j) made[unit.outputs[j]] = option.outputs[j];
      for (size_t j = 0; j < unit.inputs.size(); ++j) {
        wanted[unit.inputs[j]].insert(option.inputs[j]);
      }
    }
    double seconds = 0;
    for (const auto& [id, layouts] : wanted) {
      const ValueFacts& facts = units_.values[static_cast<size_t>(id)];
      double least = kImpossible;
      for (size_t i = 0; i < facts.made.size(); ++i) {
        if (made.count(id) != 0 && facts.made[i] != made.at(id)) continue;
        least = std::min(least, facts.price[i].weighed() + bring(id, facts.made[i], layouts));
      }
      seconds += least;
    }
    return seconds;
  }

  double bring(ValueId id, Layout from, const std::set<Layout>& layouts) const {
    double seconds = 0;
    for (Layout to : layouts) {
      const bool stays = units_.values[static_cast<size_t>(id)].stays && from != to;
      seconds += stays ? kImpossible
                       : reshard_seconds(request_.graph.value(id).type, from, to, request_.parts);
    }
    return seconds;
  }

  const ShardingRequest& request_;
  const Units& units_;
  std::vector<size_t> chosen_;
  double least_ = kImpossible;
};

// A few operators on square matrices, one gradient and a loss, at random.
Graph random_graph(uint64_t seed) {
  std::mt19937_64 random(seed);
  const auto below = [&](size_t count) { return static_cast<size_t>(random() % count); };
  const int64_t size = std::vector<int64_t>{4, 64, 1024}[below(3)];
  TestGraph test;
  std::vector<ValueId> values = {test.input({size, size})};
  const ValueId first = test.parameter("first", {size, size});
  values.push_back(first);
  values.push_back(test.parameter("second", {size, size}));
  const auto any = [&] { return values[below(values.size())]; };
  for (int call = 0; call < 5; ++call) {
    const Phase phase = call < 3 ? Phase::kForward : Phase::kBackward;
    switch (below(6)) {
      case 0:
      case 1:
        values.push_back(test.node("aten::mm", {any(), any()}, call, phase));
        break;
      case 2:
        values.push_back(test.node("aten::tanh", {any()}, call, phase));
        break;
      case 3:
        values.push_back(test.node("aten::mul.Tensor", {any(), any()}, call, phase));
        break;
      case 4:
        values.push_back(test.node("aten::add.Tensor", {any(), any()}, call, phase));
        break;
      default:
        values.push_back(test.node("aten::t", {any()}, call, phase));
    }
  }
  test.graph.loss = test.node("aten::sum", {values.back()}, 5);
  test.gradient(first, values[3 + below(values.size() - 3)]);
  return std::move(test.graph);
}

TEST(Search, FindsWhatTryingEverythingFinds) {
  for (uint64_t seed = 1; seed <= 60; ++seed) {
    const Graph graph = random_graph(seed);
    for (int parts : {2, 3}) {
      const ShardingRequest request{graph, parts};
      const Units units = make_units(request, order_by_open_values(request.graph));
      const Decision decision = search_layouts(request, units);
      BruteForce brute_force(request, units);
      const double least = brute_force.least();
      EXPECT_TRUE(decision.complete);
      EXPECT_NEAR(decision.weighed() / least, 1, 1e-9) << seed << "\n" << print_graph(graph);
      EXPECT_NEAR(brute_force.cost(decision.options) / least, 1, 1e-9) << seed;
    }
  }
}

// Cut in dimension 13 a value was written as one that nobody has made yet.
TEST(Search, LeavesDimensionsThatItCannotWriteWhole) {
  std::vector<int64_t> sizes(15, 1);
  sizes[13] = 4096;
  sizes[14] = 4096;
  TestGraph test;
  ValueId value = test.parameter("w", sizes);
  for (int call = 0; call < 3; ++call) value = test.node("aten::tanh", {value}, call);
  test.graph.loss = test.node("aten::sum", {value}, 3);
  const ShardingRequest request{test.graph, 2};
  const Units units = make_units(request, order_by_open_values(request.graph));
  for (const Unit& unit : units.units) {
    for (const UnitOption& option : unit.options) {
      for (const Layout& layout : option.inputs) EXPECT_LT(layout.dim, kDimsThatAreCut);
    }
  }
  EXPECT_TRUE(search_layouts(request, units).complete);
}

TEST(Search, SaysThatNothingIsPossible) {
  TestGraph test;
  const ValueId weight = test.parameter("w", {4, 4});
  test.graph.loss = test.node("aten::sum", {weight}, 0);
  const ShardingRequest request{test.graph, 2};
  Units units = make_units(request, order_by_open_values(request.graph));
  for (auto& unit : units.units) {
    for (auto& option : unit.options) {
      if (unit.kind == Unit::Kind::kNode) option.inputs = {Layout::partial()};
    }
  }
  EXPECT_GE(search_layouts(request, units).seconds, kImpossible);
}

// A matrix that no rule cuts is against what was asked for; that takes no time.
TEST(Search, CountsMatricesThatStayWholeApartFromSeconds) {
  TestGraph test;
  const ValueId weight = test.parameter("w", {4, 4});
  test.graph.loss = test.node("aten::sum", {test.node("aten::inverse", {weight}, 0)}, 1);
  const ShardingRequest request{test.graph, 2};
  const Decision decision =
      search_layouts(request, make_units(request, order_by_open_values(request.graph)));
  EXPECT_EQ(decision.uncut_matrices, 1);
  EXPECT_GT(decision.seconds, 0);
  EXPECT_LT(decision.seconds, 1e-3);
}

TEST(Search, IsCompleteHoweverDeepTheNetwork) {
  const Graph graph = linear_layers(64, std::vector<int64_t>(21, 256));
  const ShardingRequest request{graph, 2};
  const Decision decision =
      search_layouts(request, make_units(request, order_by_open_values(request.graph)));
  EXPECT_TRUE(decision.complete);
  int cut_in_rows = 0, cut_in_columns = 0;
  for (const auto& leaf : graph.leaves) {
    const Layout layout = decision.values[static_cast<size_t>(leaf.value)];
    if (layout == Layout::cut(0) && leaf.kind == Leaf::Kind::kParameter) ++cut_in_rows;
    if (layout == Layout::cut(1) && leaf.kind == Leaf::Kind::kParameter) ++cut_in_columns;
  }
  // In pairs, as one would by hand.
  EXPECT_EQ(cut_in_rows, 10);
  EXPECT_EQ(cut_in_columns, 10);
}

}  // namespace
}  // namespace epl
