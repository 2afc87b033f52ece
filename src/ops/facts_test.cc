#include "ops/facts.h"

#include <gtest/gtest.h>

#include "config/libtorch.h"
#include "ir/text.h"

namespace epl {
namespace {

c10::OperatorHandle op(const std::string& name) {
  const size_t dot = name.find('.');
  const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  return c10::Dispatcher::singleton().findSchemaOrThrow(("aten::" + name.substr(0, dot)).c_str(),
                                                        overload.c_str());
}

std::string name_of(const std::optional<c10::OperatorHandle>& op) {
  return op ? c10::toString(op->operator_name()) : "none";
}

TEST(FunctionalVariant, MakesANewTensorOfTheSameContents) {
  const std::pair<const char*, const char*> table[] = {
      {"relu_", "aten::relu"},
      {"add_.Tensor", "aten::add.Tensor"},
      {"add_.Scalar", "aten::add.Scalar"},
      {"mul_.Tensor", "aten::mul.Tensor"},
      {"addcmul_", "aten::addcmul"},
      {"bernoulli_.float", "aten::bernoulli.p"},
      {"bernoulli_.Tensor", "aten::bernoulli.Tensor"},
      {"normal_", "aten::normal_functional"},
      {"uniform_", "aten::uniform"},
      {"exponential_", "aten::exponential"},
      {"random_.from", "aten::random.from"},
      {"copy_", "aten::copy"},
      {"fill_.Scalar", "aten::fill.Scalar"},
      {"fill_.Tensor", "aten::fill.Tensor"},
      {"zero_", "aten::zero"},
      {"masked_fill_.Scalar", "aten::masked_fill.Scalar"},
      {"masked_fill_.Tensor", "aten::masked_fill.Tensor"},
      {"index_put_", "aten::index_put"},
      {"index_add_", "aten::index_add"},
      {"scatter_.value", "aten::scatter.value"},
      {"transpose_", "aten::transpose.int"},
      {"add.out", "aten::add.Tensor"},
      {"mm.out", "aten::mm"},
      {"cat.out", "aten::cat"},
      {"sum.IntList_out", "aten::sum.dim_IntList"},
      {"resize_", "none"},  // what a larger tensor holds is not defined
      {"set_", "none"},     // points at other memory
      {"detach_", "aten::detach"},
      {"relu", "none"},                  // writes nothing
      {"_foreach_add_.Scalar", "none"},  // writes a list and returns nothing
  };
  for (const auto& [in_place, functional] : table) {
    EXPECT_EQ(name_of(functional_variant(op(in_place))), functional) << in_place;
  }
}

TEST(OutVariant, IsTheOneWithAKernelOfItsOwn) {
  const std::pair<const char*, const char*> table[] = {
      {"mm", "aten::mm.out"},
      {"bmm", "aten::bmm.out"},
      {"addmm", "aten::addmm.out"},
      {"add.Tensor", "aten::add.out"},
      {"sum.dim_IntList", "aten::sum.IntList_out"},
      {"cat", "aten::cat.out"},
      {"tanh", "aten::tanh.out"},
      {"gelu", "aten::gelu.out"},
      {"_softmax", "aten::_softmax.out"},
      {"nll_loss_forward", "aten::nll_loss_forward.output"},  // writes its result alone
      {"relu", "none"},  // LibTorch would compute into fresh memory and copy
      {"native_layer_norm", "none"},
      {"native_batch_norm", EPL_TORCH_AT_LEAST(2, 0) ? "aten::native_batch_norm.out" : "none"},
      {"convolution", "none"},
      {"embedding", "none"},
      {"binary_cross_entropy", "none"},  // out= is scratch for all elements, then shrinks
      {"mse_loss", "none"},
      {"add_.Tensor", "none"},  // writes in place
      {"view", "none"},
  };
  for (const auto& [functional, out] : table) {
    EXPECT_EQ(name_of(out_variant(op(functional), c10::DispatchKey::CPU)), out) << functional;
  }
}

TEST(InPlaceVariant, WritesOverTheFirstArgument) {
  const std::pair<const char*, const char*> table[] = {
      {"relu", "aten::relu_"},
      {"add.Tensor", "aten::add_.Tensor"},
      {"masked_fill.Scalar", "aten::masked_fill_.Scalar"},
      {"scatter.src", "aten::scatter_.src"},
      {"scatter_add", "aten::scatter_add_"},
      {"index_put", "aten::index_put_"},
      {"index_fill.int_Scalar", "aten::index_fill_.int_Scalar"},
      {"index_add", "aten::index_add_"},
      {"index_copy", "aten::index_copy_"},
      {"masked_scatter", "aten::masked_scatter_"},
      {"scatter_reduce.two", "aten::scatter_reduce_.two"},
      {"mm", "none"},
      {"cat", "none"},
  };
  for (const auto& [functional, in_place] : table) {
    EXPECT_EQ(name_of(in_place_variant(op(functional))), in_place) << functional;
  }
}

using Question = bool (*)(const c10::OperatorHandle&);

struct Answers {
  const char* name;
  Question question;
  std::vector<const char*> yes;
  std::vector<const char*> no;
};

class Fact : public testing::TestWithParam<Answers> {};

TEST_P(Fact, HoldsForTheseAndNotForThose) {
  for (const char* name : GetParam().yes) EXPECT_TRUE(GetParam().question(op(name))) << name;
  for (const char* name : GetParam().no) EXPECT_FALSE(GetParam().question(op(name))) << name;
}

const Answers kAnswers[] = {
    {"IsRandom",
     is_random,
     {"bernoulli.p", "bernoulli_.float", "native_dropout", "rand", "randn", "randn_like",
      "rand_like", "randint", "randperm", "normal_", "uniform_", "multinomial", "rrelu_with_noise",
      "normal_functional"},
     {"relu", "empty.memory_format", "zeros", "mul.Tensor", "native_dropout_backward"}},
    {"MakesUninitialized",
     makes_uninitialized,
     {"empty.memory_format", "empty_like", "empty_strided", "new_empty", "new_empty_strided"},
     {"zeros", "ones_like", "full", "clone"}},
    {"Resizes", resizes, {"resize_", "resize_as_"}, {"set_.source_Tensor", "view", "squeeze_"}},
    {"Overwrites",
     overwrites,
     {"copy_", "fill_.Scalar", "fill_.Tensor", "zero_", "uniform_", "normal_", "bernoulli_.float"},
     {"add_.Tensor", "relu_", "masked_fill_.Scalar", "index_put_", "copy"}},
    {"GivesTruth",
     gives_truth,
     {"lt_.Scalar", "eq_.Tensor", "logical_not_"},
     {"lt.Scalar", "relu_"}},
    {"ChangesPlaceOnly",
     changes_place_only,
     {"transpose_", "t_", "squeeze_.dim", "unsqueeze_", "detach_", "resize_", "set_.source_Tensor"},
     {"relu_", "copy_", "transpose.int", "view", "add.out"}},
    {"ChangesSome",
     changes_some,
     {"scatter.src", "scatter.value", "scatter_add", "index_put", "index_fill.int_Scalar",
      "index_add", "index_copy", "masked_scatter"},
     {"gather", "masked_fill.Scalar", "copy", "cat", "scatter_.src"}},
    {"IsPointwise",
     is_pointwise,
     {"add.Tensor", "relu", "threshold_backward", "gelu_backward", "where.self"},
     {"mm", "sum", "_softmax", "cat", "bernoulli.p", "cumsum", "flip"}},
    {"OnlyChecks",
     only_checks,
     {"_linalg_check_errors", "_assert_async"},
     {"_foreach_zero_", "_local_scalar_dense", "relu", "equal"}},
    {"ReadsMetadataOnly",
     reads_metadata_only,
     {"is_same_size", "dense_dim", "is_coalesced"},
     {"equal", "_local_scalar_dense", "_nnz", "relu"}},
};

INSTANTIATE_TEST_SUITE_P(Of, Fact, testing::ValuesIn(kAnswers),
                         [](const auto& answers) { return answers.param.name; });

// The last node of a graph over %0: f32[2,3,4], %1: f32[3], %2: i64[2], %3: b8[2,3,4], %4: u8[2].
Graph graph_of(const std::string& node) {
  return parse_graph(
      "%0: f32[2,3,4] = input 0\n%1: f32[3] = state \"s\"\n%2: i64[2] = input 1\n"
      "%3: b8[2,3,4] = input 2\n%4: u8[2] = input 3\n" +
      node +
      " {forward}\n"
      "return loss %0\n");
}

TEST(WrittenArguments, AreThoseOfTheSchemaAndRunningStatistics) {
  using Positions = std::vector<size_t>;
  const std::string norm = "%5: f32[2,3,4], %6: f32[3], %7: f32[3] = aten::native_batch_norm";
  const std::pair<std::string, Positions> table[] = {
      {"%5: f32[2,3,4] = aten::relu(%0)", {}},
      {"%5: f32[2,3,4] @%0 = aten::relu_(%0)", {0}},
      {"%5: f32[2,3,4] @%0 = aten::add.out(%1, %1, 1, %0)", {3}},
      {"%5: f32[2,3,4], %6: i64[2] = aten::max.dim_max(%0, 0, false, %0, %2)", {3, 4}},
      {"() = aten::_foreach_zero_([%0, %1])", {0}},
      {norm + "(%0, _, _, %1, %1, true, 0.1, 1e-05)", {3, 4}},
      {norm + "(%0, _, _, %1, %1, false, 0.1, 1e-05)", {}},  // eval mode reads them
      {norm + "(%0, _, _, _, _, true, 0.1, 1e-05)", {}},     // and some track none
  };
  for (const auto& [node, written] : table) {
    EXPECT_EQ(written_arguments(graph_of(node).nodes[0]), written) << node;
  }
}

TEST(ValuesThatDecideShape, AreMasksAndWhatIsCounted) {
  using Values = std::vector<ValueId>;
  const std::pair<std::string, Values> table[] = {
      {"%5: i64[1,3] = aten::nonzero(%0)", {0}},
      {"%5: f32[7] = aten::masked_select(%0, %3)", {3}},
      {"%5: f32[7] = aten::index.Tensor(%0, [%3])", {3}},
      {"%5: f32[7,3,4] = aten::index.Tensor(%0, [_, %4])", {4}},
      {"%5: f32[2,3,4] = aten::index.Tensor(%0, [%2])", {}},
      {"%5: i64[7] = aten::bincount(%2, _, 0)", {2}},
      {"%5: i64[2] = aten::repeat_interleave.Tensor(%2, none)", {2}},
      {"%5: f32[7] = aten::_values(%1)", {1}},
      {"%5: f32[2,3,4] = aten::relu(%0)", {}},
      {"%5: f32[2,3,4] = aten::masked_fill.Scalar(%0, %3, 0)", {}},
  };
  for (const auto& [node, values] : table) {
    const Graph graph = graph_of(node);
    EXPECT_EQ(values_that_decide_shape(graph, graph.nodes[0]), values) << node;
  }
}

}  // namespace
}  // namespace epl
