// Operators as models really call them: each can be cut in every way that its rule allows.
#include <epl/error.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/text.h"
#include "config/libtorch.h"
#include "ir/text.h"
#include "ops/facts.h"
#include "ops/rule.h"
#include "passes/dead_code.h"
#include "passes/purify.h"
#include "sharding/slices.h"
#include "tests/models/steps.h"
#include "tests/rules/run_cut.h"

namespace epl::testing {
namespace {

// How a device holds the value: dense, or, of a whole that is cut in place, with gaps.
TensorType local_type(const TensorType& whole, Layout layout, int parts, int part, bool in_place) {
  TensorType type = whole;
  type.sizes = local_sizes(whole.sizes, layout, parts, part);
  if (!in_place) {
    type.strides = contiguous_strides(type.sizes);
    type.offset = 0;
  }
  return type;
}

void emit_all(const Graph& graph, const Node& node, int parts, bool in_place) {
  for (const Cut& cut : cuts_of(graph, node, parts)) {
    SCOPED_TRACE(concat(print_node(graph, node), " over ", parts, " devices, ", print_cut(cut)));
    for (int part = 0; part < parts; ++part) {
      Graph local;
      std::vector<ValueId> inputs;
      for_each_input(node, [&](ValueId id) {
        const TensorType type =
            local_type(graph.value(id).type, cut.inputs[inputs.size()], parts, part, in_place);
        inputs.push_back(local.add_value(type));
      });
      const LocalNode at{graph, node, cut, parts, part, inputs};
      Emitter to(local);
      const auto outputs = emit_local(at, to);
      ASSERT_EQ(outputs.size(), cut.outputs.size());
      for (size_t i = 0; i < outputs.size(); ++i) {
        if (is_workspace(node, i)) continue;
        EXPECT_EQ(local.value(outputs[i]).type.sizes, at.output_sizes(i));
      }
    }
  }
}

std::vector<models::ModelStep> all_models() {
  std::vector<models::ModelStep> steps = models::all_steps();
  for (auto& step : models::example_steps()) steps.push_back(std::move(step));
  steps.push_back(models::layers_step());
  return steps;
}

// What the models call is another list with each LibTorch: an operator that is new there and has no
// row would run whole on every device, and rows that replicate(k) cuts would not be followed
// through it. So it fails here, and gets a row or a place in the list of those that need none.
TEST(RulesTest, HoldForAllOperatorsOfTheModels) {
  std::set<std::string> without;
  for (const models::ModelStep& step : all_models()) {
    SCOPED_TRACE(step.name);
    Graph graph = step.capture();
    Purify().run(graph);
    for (const Node& node : graph.nodes) {
      if (find_rule(node.op) == nullptr) without.insert(op_name(node));
      try {
        for (int parts : {2, 3}) {
          for (bool in_place : {false, true}) emit_all(graph, node, parts, in_place);
        }
      } catch (const c10::Error& error) {
        ADD_FAILURE() << print_node(graph, node) << "\n" << error.what_without_backtrace();
      }
    }
  }
  // Sparse tensors, counts of steps, questions whose answer is one number for all devices, numbers
  // of places: whole on every device.
  std::set<std::string> known = {"aten::_local_scalar_dense",
                                 "aten::_sparse_coo_tensor_with_dims_and_tensors",
                                 "aten::add_.Scalar",
                                 "aten::add_.Tensor",
                                 "aten::arange",
                                 "aten::arange.start_step",
                                 "aten::equal",
                                 "aten::mul_.Scalar",
                                 "aten::scalar_tensor"};
  if (EPL_TORCH_AT_LEAST(2, 14)) known.insert("aten::aminmax");  // looks at offsets of bags
  EXPECT_EQ(without, known);
}

// Precision, cost and randomness are asked of every operator, cut or not.
TEST(OperatorRows, SayWhatIsAskedOfAllOperatorsOfTheModels) {
  std::set<std::string> without_row;
  std::set<std::string> views_that_cost;
  std::set<std::string> random_without_words;
  for (const models::ModelStep& step : all_models()) {
    SCOPED_TRACE(step.name);
    Graph graph = step.capture();
    Purify().run(graph);
    for (const Node& node : graph.nodes) {
      const OperatorFacts* facts = find_facts(node.op);
      if (facts == nullptr || facts->precision == Precision::kUnsaid) {
        without_row.insert(op_name(node));
        continue;
      }
      if (is_view(graph, node) && !facts->has(OperatorTrait::kView)) {
        views_that_cost.insert(op_name(node));
      }
      const bool draws = facts->drawn.kind != Draws::Kind::kNothing;
      if (is_random(node.op) && !draws) random_without_words.insert(op_name(node));
    }
  }
  EXPECT_EQ(without_row, std::set<std::string>());
  EXPECT_EQ(views_that_cost, std::set<std::string>());
  EXPECT_EQ(random_without_words, std::set<std::string>());
}

// Rows of ordinary models stand for themselves: what looks at all of them has its reason.
TEST(SlicesOfModels, LookAtAllRowsOnlyWhereTheyMust) {
  std::set<std::string> mixing;
  for (const models::ModelStep& step : all_models()) {
    const bool even = std::all_of(step.batch.begin(), step.batch.end(), [](const at::Tensor& rows) {
      return rows.dim() > 0 && rows.size(0) % 2 == 0;
    });
    if (!even) continue;
    Graph graph = step.capture();
    Purify().run(graph);
    DeadCode().run(graph);
    std::vector<std::string> remarks;
    try {
      remarks = follow_slices({graph, 2}).remarks;
    } catch (const Error&) {
      continue;  // batch norm of a model whose batch has one row for each device
    }
    for (const std::string& remark : remarks) {
      mixing.insert(concat(step.name, ": ", remark.substr(0, remark.find(" looks"))));
    }
  }
  // Sparse gradients and bags whose ends are numbers in the batch; rows that are picked by their
  // numbers; nodes of a graph that look at each other; a question about all rows.
  EXPECT_EQ(mixing,
            (std::set<std::string>{
                "bag of words: aten::_sparse_coo_tensor_with_dims_and_tensors",
                "examples/moe: aten::index_put (2 times)", "graph net: aten::index_add (2 times)",
                "graph net: aten::index_select (4 times)", "graph net: aten::select.int (4 times)",
                "layers: aten::_embedding_bag", "translator: aten::equal"}));
}

}  // namespace
}  // namespace epl::testing
