// Units: what the search decides about, one after another. A node of the graph, or a demand that
// stands at its end: the loss is whole, a gradient lies as its parameter does.
#pragma once

#include <cstdint>
#include <vector>

#include "sharding/reshard.h"
#include "sharding/sharding.h"

namespace epl {

// The search writes a layout as one of 16 numbers: whole, a partial sum, cut in one of these
// dimensions, or not known yet.
inline constexpr int kDimsThatAreCut = 13;

struct UnitOption {
  std::vector<Layout> inputs;   // as Unit::inputs
  std::vector<Layout> outputs;  // as Unit::outputs
  double seconds = 0;
  size_t cut = 0;  // index into Unit::cuts
};

struct Unit {
  enum class Kind : uint8_t { kNode, kGradient, kLoss, kMetric, kGoesOut };

  Kind kind = Kind::kNode;
  size_t index = 0;             // of the node, gradient or metric
  std::vector<ValueId> inputs;  // a value that is read twice stands twice
  std::vector<ValueId> outputs;
  std::vector<Cut> cuts;  // of a node
  std::vector<UnitOption> options;
};

// A parameter of two or more dimensions lies cut under split() wherever a rule lets it, however
// small the gain: that is what was asked for. One that stays whole weighs as much as a second,
// which is more than layouts differ by in time.
inline constexpr double kWeightOfUncutMatrix = 1.0;

// What a layout of a value costs by itself.
struct LayoutPrice {
  double seconds = 0;      // memory of parameters that stay whole
  int uncut_matrices = 0;  // against what was asked for

  double weighed() const { return seconds + kWeightOfUncutMatrix * uncut_matrices; }
};

// How a value may come to be, and whether it may change its layout afterwards.
struct ValueFacts {
  std::vector<Layout> made;        // all layouts that its maker may give it
  std::vector<LayoutPrice> price;  // of each, paid once
  // Parameters are never made whole where they are cut, and state is written in place.
  bool stays = false;
};

struct Units {
  std::vector<Unit> units;  // in the order of the search
  std::vector<ValueFacts> values;
};

// `order`: of all nodes (order.h).
Units make_units(const ShardingRequest& request, const std::vector<size_t>& order);

}  // namespace epl
