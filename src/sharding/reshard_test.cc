#include "sharding/reshard.h"

#include <gtest/gtest.h>

#include "ir/text.h"
#include "sharding/test_graphs.h"

namespace epl {
namespace {

const Layout R = Layout::whole(), P = Layout::partial(), S0 = Layout::cut(0), S1 = Layout::cut(1);

TensorType matrix(int64_t rows, int64_t columns) {
  TestGraph test;
  return test.graph.value(test.input({rows, columns})).type;
}

double cost(Layout from, Layout to, int parts = 4) {
  return reshard_seconds(matrix(512, 512), from, to, parts);
}

TEST(Reshard, CostsNothingWhereNothingChanges) {
  for (Layout layout : {R, P, S0, S1}) EXPECT_EQ(cost(layout, layout), 0);
}

TEST(Reshard, CostsMoreWhereMoreMoves) {
  const std::vector<double> ascending = {cost(R, S0), cost(R, P), cost(S0, S1),
                                         cost(S0, R), cost(P, R), 2 * cost(P, R)};
  for (size_t i = 1; i < ascending.size(); ++i) EXPECT_LT(ascending[i - 1], ascending[i]) << i;
  EXPECT_EQ(cost(S0, R), cost(P, S1));
  EXPECT_EQ(cost(S0, P), cost(S0, R) + cost(R, P));
}

// A direct way is never dearer than one with a stop.
TEST(Reshard, KeepsTheTriangleInequality) {
  for (int parts : {2, 3, 8}) {
    for (Layout a : {R, P, S0, S1}) {
      for (Layout b : {R, P, S0, S1}) {
        for (Layout c : {R, P, S0, S1}) {
          EXPECT_LE(cost(a, c, parts), cost(a, b, parts) + cost(b, c, parts) + 1e-9)
              << a.str() << " " << b.str() << " " << c.str();
        }
      }
    }
  }
}

// What device `part` of 3 does, as the text of nodes; the whole is [7, 5].
std::string emitted(Layout from, Layout to, int part) {
  const TensorType whole = matrix(7, 5);
  TestGraph test;
  const ValueId local = test.input(local_sizes(whole.sizes, from, 3, part));
  Emitter emitter(test.graph);
  const ValueId made = emit_reshard(emitter, local, whole, from, to, 3, part);
  EXPECT_EQ(test.graph.value(made).type.sizes, local_sizes(whole.sizes, to, 3, part));
  std::string text;
  for (const auto& node : test.graph.nodes) {
    const std::string line = print_node(test.graph, node);
    text += (text.empty() ? "" : "; ") + line.substr(line.find("= ") + 2);
  }
  return text;
}

TEST(Reshard, EmitsTheTable) {
  EXPECT_EQ(emitted(R, R, 1), "");
  EXPECT_EQ(emitted(R, S0, 0), "aten::slice.Tensor(%0, 0, 0, 3, 1) {forward}");
  EXPECT_EQ(emitted(R, S0, 2), "aten::slice.Tensor(%0, 0, 5, 7, 1) {forward}");
  EXPECT_EQ(emitted(R, S1, 2), "aten::slice.Tensor(%0, 1, 4, 5, 1) {forward}");
  EXPECT_EQ(emitted(R, P, 0), "");
  EXPECT_EQ(emitted(R, P, 1), "aten::zeros_like(%0, none, none, none, none, none) {forward}");
  EXPECT_EQ(emitted(S0, R, 1), "epl::all_gather(%0, 0, [3, 2, 2], \"part\") {forward}");
  EXPECT_EQ(emitted(S1, R, 2), "epl::all_gather(%0, 1, [2, 2, 1], \"part\") {forward}");
  EXPECT_EQ(emitted(S0, S1, 1),
            "epl::all_to_all(%0, 0, 1, [3, 2, 2], [2, 2, 1], \"part\") {forward}");
  EXPECT_EQ(emitted(S1, S0, 0),
            "epl::all_to_all(%0, 1, 0, [2, 2, 1], [3, 2, 2], \"part\") {forward}");
  EXPECT_EQ(emitted(P, R, 1), "epl::all_reduce(%0, \"sum\", \"part\") {forward}");
  EXPECT_EQ(emitted(P, S1, 1), "epl::reduce_scatter(%0, 1, [2, 2, 1], \"part\") {forward}");
  EXPECT_EQ(emitted(S0, P, 0), "epl::all_gather(%0, 0, [3, 2, 2], \"part\") {forward}");
  EXPECT_EQ(emitted(S0, P, 2),
            "epl::all_gather(%0, 0, [3, 2, 2], \"part\") {forward}; "
            "aten::zeros_like(%1, none, none, none, none, none) {forward}");
}

}  // namespace
}  // namespace epl
