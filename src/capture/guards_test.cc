// What a step reads back into C++: where it may find something else next time, the graph expects
// what it found; where it cannot, the graph does not.
#include <epl/epl.h>
#include <gtest/gtest.h>

#include "capture/test_capture.h"

namespace epl {
namespace {

using torch::Tensor;
namespace F = torch::nn::functional;

struct Net : torch::nn::Module {
  Net() : weight(register_parameter("weight", torch::tensor({1.0f, 2.0f, 4.0f}))) {}
  Tensor weight;
};

struct Case {
  std::string name;
  std::function<Tensor(const Tensor& x, const Batch& batch)> step;  // x is weight * batch[0]
  std::string guards;  // "operator expects value" of each guard, in order
};

std::ostream& operator<<(std::ostream& out, const Case& item) { return out << item.name; }

std::string guards_of(const Graph& graph) {
  std::vector<std::string> guards;
  for (const Node& node : graph.nodes) {
    if (!node.expects) continue;
    const std::string text = print_node(graph, node);
    guards.push_back(op_name(node) + text.substr(text.find(" expects")));
  }
  return join(guards, "; ");
}

class Guards : public testing::TestWithParam<Case> {};

TEST_P(Guards, AreTheReadsThatDependOnData) {
  torch::manual_seed(1);
  Net net;
  const Graph graph = graph_of(
      net, [&](const Batch& batch) { return GetParam().step(net.weight * batch[0], batch); },
      {torch::tensor({{1.0f, 1.0f, 1.0f}, {1.0f, 0.0f, -1.0f}}), torch::tensor({2, 0})});
  EXPECT_EQ(guards_of(graph), GetParam().guards);
}

Tensor attention(const Tensor& query, const Tensor& key) {
  torch::nn::MultiheadAttention layer(3, 1);
  return std::get<0>(layer(query, key, key)).sum();
}

INSTANTIATE_TEST_SUITE_P(
    Reads, Guards,
    testing::Values(
        Case{"Item", [](const Tensor& x, const Batch&) { return x.sum() * x.max().item(); },
             "aten::_local_scalar_dense expects 4.0"},
        Case{"IfOnANumber",
             [](const Tensor& x, const Batch&) {
               return x.sum().item<float>() > 0 ? x.sum() : x.mean();
             },
             "aten::_local_scalar_dense expects 4.0"},
        Case{"IfOnATensor",
             [](const Tensor& x, const Batch&) {
               return (x.sum() > 0).is_nonzero() ? x.sum() : x.mean();
             },
             "aten::_local_scalar_dense expects true"},
        Case{"Allclose",
             [](const Tensor& x, const Batch&) { return x.allclose(x + 1) ? x.sum() : x.mean(); },
             "aten::allclose expects false"},
        Case{"EqualOfTwoValues",
             [](const Tensor& x, const Batch&) { return x.equal(x + 1) ? x.sum() : x.mean(); },
             "aten::equal expects false"},
        Case{"RandomNumber",
             [](const Tensor& x, const Batch&) {
               return x.sum() * torch::zeros({}).bernoulli_(0).item();
             },
             "aten::_local_scalar_dense expects 0.0"},
        Case{
            "Nonzero",
            [](const Tensor& x, const Batch&) { return x.index({x.nonzero().select(1, 0)}).sum(); },
            ""},
        Case{"MaskedSelect",
             [](const Tensor& x, const Batch&) { return x.masked_select(x > 0).sum(); }, ""},
        Case{"IndexByMask", [](const Tensor& x, const Batch&) { return x.index({x > 0}).sum(); },
             ""},
        Case{"Unique",
             [](const Tensor& x, const Batch&) {
               return x.sum() * std::get<0>(torch::_unique(x)).numel();
             },
             "aten::size.int expects 5; aten::size.int expects 0"},
        Case{"BackwardOfProd", [](const Tensor& x, const Batch&) { return x.prod(); },
             "aten::size.int expects 1; aten::size.int expects 2"},
        Case{"BackwardOfCumprod", [](const Tensor& x, const Batch&) { return x.cumprod(0).sum(); },
             "aten::_local_scalar_dense expects true"},
        Case{"LabelSmoothingWithClassWeights",
             [](const Tensor& x, const Batch& batch) {
               return F::cross_entropy(x, batch[1],
                                       F::CrossEntropyFuncOptions().label_smoothing(0.1).weight(
                                           torch::tensor({1.0f, 2.0f, 3.0f})));
             },
             ""},
        Case{"OneHotOfAsManyClassesAsThereAre",
             [](const Tensor& x, const Batch& batch) {
               return (x * torch::one_hot(batch[1])).sum();
             },
             "aten::_local_scalar_dense expects 0; aten::_local_scalar_dense expects 2"},
        // What cannot come out differently.
        Case{"OneHotOfAGivenNumberOfClasses",
             [](const Tensor& x, const Batch& batch) {
               return (x * torch::one_hot(batch[1], 3)).sum();
             },
             ""},
        Case{"SelfAttention",
             [](const Tensor& x, const Batch&) {
               const Tensor rows = x.unsqueeze(1);
               return attention(rows, rows);
             },
             ""},
        Case{"CrossAttention",
             [](const Tensor& x, const Batch& batch) {
               return attention(x.unsqueeze(1), batch[0].unsqueeze(1));
             },
             "aten::equal expects false"},
        Case{"ItemOfAConstant",
             [](const Tensor& x, const Batch&) { return x.sum() * torch::arange(5).sum().item(); },
             ""},
        Case{"IfOnAConstant",
             [](const Tensor& x, const Batch&) {
               return torch::ones({1}).is_nonzero() ? x.sum() : x.mean();
             },
             ""},
        Case{"Shapes",
             [](const Tensor& x, const Batch& batch) {
               return x.is_same_size(batch[0]) && x.is_floating_point() ? x.sum() : x.mean();
             },
             ""}),
    [](const auto& info) { return info.param.name; });

}  // namespace
}  // namespace epl
