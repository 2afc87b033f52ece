// Every row of the table of rules, run cut over 2 and 3 devices, and over 2 with uneven shares, in
// each way that it allows, gives what the operator gives whole.
#include <gtest/gtest.h>

#include <set>

#include "base/text.h"
#include "config/libtorch.h"
#include "ir/text.h"
#include "ops/facts.h"
#include "tests/rules/examples.h"
#include "tests/rules/run_cut.h"

namespace epl::testing {
namespace {

// What it makes differs from call to call.
bool differs_each_time(const Node& node) {
  return is_random(node.op) || makes_uninitialized(node.op);
}

struct Tolerance {
  double relative;
  double absolute;
};

// Half precision rounds intermediate results elsewhere, and sums of small numbers in single
// precision depend on their order.
Tolerance tolerance(const at::Tensor& tensor) {
  switch (tensor.scalar_type()) {
    case at::kBFloat16:
      return {1e-2, 1e-12};
    case at::kFloat:
      return {1e-5, 1e-6};
    default:
      return {1e-9, 1e-12};
  }
}

void expect_close(const at::Tensor& whole, const at::Tensor& cut) {
  ASSERT_EQ(whole.sizes(), cut.sizes());
  ASSERT_EQ(whole.scalar_type(), cut.scalar_type());
  const Tolerance near = tolerance(whole);
  EXPECT_TRUE(at::allclose(whole, cut, near.relative, near.absolute, /*equal_nan=*/true))
      << "differs by up to " << (whole.to(at::kDouble) - cut.to(at::kDouble)).abs().max();
}

void check_cut(const WholeCall& call, const Cut& cut, const Axis& parts, Places places) {
  SCOPED_TRACE(concat(print_node(call.graph(), call.node()), " over ", parts.size,
                      " devices of shares ", join(parts.shares, ":"), ", ", print_cut(cut),
                      ", places ", static_cast<int>(places)));
  const auto results = run_cut(call, cut, parts, places);
  ASSERT_EQ(results.size(), call.outputs().size());
  for (size_t i = 0; i < results.size(); ++i) {
    if (!has_contents(call.node(), i)) continue;
    if (differs_each_time(call.node())) {
      EXPECT_EQ(results[i].sizes(), call.outputs()[i].sizes());
    } else {
      expect_close(call.outputs()[i], results[i]);
    }
  }
}

constexpr Places kAllPlaces[] = {Places::kPieces, Places::kRowGaps, Places::kGaps};

template <typename Check>
void for_each_example(const Check& check) {
  for (const Example& example : all_examples()) {
    SCOPED_TRACE(example.op);
    try {
      const WholeCall call(example);
      for (Places places : kAllPlaces) check(call, places);
    } catch (const c10::Error& error) {
      ADD_FAILURE() << error.what_without_backtrace();
    }
  }
}

TEST(RulesTest, EveryRowHoldsNumerically) {
  for_each_example([](const WholeCall& call, Places places) {
    for (const Axis& parts : {Axis(2), Axis(3), Axis(2, {3, 1})}) {
      for (const Cut& cut : cuts_of(call.graph(), call.node(), parts)) {
        check_cut(call, cut, parts, places);
      }
    }
  });
}

// A node with everything whole is emitted as it is, whatever its rule.
TEST(RulesTest, EveryExampleRunsWhole) {
  for_each_example([](const WholeCall& call, Places places) {
    Cut whole;
    whole.inputs.resize(call.inputs().size());
    for_each_output(call.node(), [&](ValueId) { whole.outputs.emplace_back(); });
    // Random numbers that are whole come from one device: whoever cuts the graph sees to it.
    if (!differs_each_time(call.node())) check_cut(call, whole, 2, places);
  });
}

TEST(RulesTest, EveryRowHasAnExampleThatCanBeCut) {
  std::set<std::string> tried;
  for (const Example& example : all_examples()) {
    const WholeCall call(example);
    if (!cuts_of(call.graph(), call.node(), 2).empty()) tried.insert(example.op);
  }
  std::set<std::string> without;
  for (const OperatorRow* rule : all_rules()) {
    if (tried.count(rule->op) == 0) without.insert(rule->op);
  }
  // Operators that an earlier LibTorch does not have, or a later one.
  std::set<std::string> missing;
  if (EPL_TORCH_AT_LEAST(2, 0)) {
    missing = {"aten::prelu_backward"};
  }
  if (!EPL_TORCH_AT_LEAST(2, 5)) {
    missing = {"aten::_prelu_kernel",
               "aten::_prelu_kernel_backward",
               "aten::_safe_softmax",
               "aten::_scaled_dot_product_flash_attention_for_cpu",
               "aten::_scaled_dot_product_flash_attention_for_cpu_backward",
               "aten::mkldnn_rnn_layer",
               "aten::mkldnn_rnn_layer_backward"};
  }
  EXPECT_EQ(without, missing);
}

}  // namespace
}  // namespace epl::testing
