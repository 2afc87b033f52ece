#include "sharding/rows.h"

#include <gtest/gtest.h>

#include "sharding/test_graphs.h"

namespace epl {
namespace {

using Constants = std::vector<c10::IValue>;

const c10::IValue kNothing;

c10::IValue sizes(std::vector<int64_t> list) { return c10::IValue(std::move(list)); }

// The kind of a sum over what an operator makes of a batch.
OverRows of_sum(std::vector<int64_t> batch, const std::string& op, const Constants& constants) {
  TestGraph test;
  const ValueId input = test.input(std::move(batch));
  const ValueId made = test.node(op, {input}, 0, Phase::kForward, constants);
  test.graph.loss = test.node("aten::sum", {made}, 1, Phase::kForward, {kNothing});
  return loss_over_rows(test.graph).kind;
}

TEST(LossOverRows, GoesThroughViews) {
  EXPECT_EQ(of_sum({6, 4}, "aten::view", {sizes({6, 2, 2})}), OverRows::kSum);
  EXPECT_EQ(of_sum({6, 4}, "aten::slice.Tensor", {1, 0, 2, 1}), OverRows::kSum);
  EXPECT_EQ(of_sum({6, 4}, "aten::slice.Tensor", {0, 0, 2, 1}), OverRows::kNeither);
}

// An empty batch ended the program: places in it were found by division by its number of rows.
TEST(LossOverRows, OfAnEmptyBatchIsAnswered) {
  of_sum({0, 4}, "aten::view", {sizes({0, 2, 2})});
  of_sum({0, 4}, "aten::view", {sizes({3, 0, 5})});
  of_sum({0, 4}, "aten::slice.Tensor", {0, 0, 2, 1});
  of_sum({0, 4}, "aten::as_strided", {sizes({0, 2}), sizes({4, 1}), 0});
}

}  // namespace
}  // namespace epl
