#include "runtime/executor.h"

#include <ATen/CPUGeneratorImpl.h>
#include <gtest/gtest.h>
#include <torch/library.h>

#include "ir/text.h"
#include "plan/test_lower.h"
#include "runtime/device_memory.h"

namespace epl {
namespace {

// Both results have the size of the arguments; the second is allocated first, as in kernels that
// make their statistics before their output.
std::tuple<at::Tensor, at::Tensor> second_first(const at::Tensor& a, const at::Tensor& b) {
  at::Tensor second = at::empty_like(b);
  at::Tensor first = at::empty_like(a);
  first.copy_(a).add_(1);
  second.copy_(b).mul_(2);
  return {first, second};
}

// An intermediate of the size of the result takes the place that the result should get.
at::Tensor by_a_detour(const at::Tensor& a) {
  const at::Tensor scratch = a + 1;
  return scratch * 2;
}

// A result that lies otherwise than recorded.
at::Tensor transposed(const at::Tensor& a) { return a.t().clone().t().add(1); }

TORCH_LIBRARY(epl_executor_test, library) {
  library.def("second_first(Tensor a, Tensor b) -> (Tensor, Tensor)", second_first);
  library.def("by_a_detour(Tensor a) -> Tensor", by_a_detour);
  library.def("transposed(Tensor a) -> Tensor", transposed);
}

at::Tensor tensor(std::vector<float> values) { return at::tensor(values); }

// Runs a graph given as text; every metric is a result.
class Running {
 public:
  explicit Running(const std::string& text, std::vector<at::Tensor> leaves = {})
      : graph_(parse_graph(text)), plan_(lower(graph_, {})) {
    for (const auto& leaf : graph_.leaves) {
      leaf_tensors_.push_back(leaf.tensor);
      const bool given = leaf.kind == Leaf::Kind::kParameter || leaf.kind == Leaf::Kind::kState;
      if (!given) continue;
      leaf_tensors_.back() = leaves.at(0);
      leaves.erase(leaves.begin());
    }
    arena.ensure(plan_.programs[0].arena_bytes);
    executor = std::make_unique<Executor>(plan_.programs[0], arena, leaf_tensors_, generator);
  }

  // The metrics one after another.
  std::vector<at::Tensor> operator()(const std::vector<at::Tensor>& batch) {
    executor->load(batch);
    executor->set_seed(1);
    executor->run(0);
    std::vector<at::Tensor> results;
    for (const auto& metric : plan_.programs[0].outputs[0].metrics) {
      results.push_back(executor->tensor(metric.slot).clone());
    }
    return results;
  }

 private:
  DeviceMemory memory_;
  DeviceMemory::Use use_{memory_};
  Graph graph_;
  Plan plan_;
  std::vector<at::Tensor> leaf_tensors_;

 public:
  at::Generator generator = at::detail::createCPUGenerator(1);
  Arena arena{torch::kCPU};
  std::unique_ptr<Executor> executor;
};

void expect_equal(const at::Tensor& actual, const at::Tensor& expected) {
  EXPECT_EQ(actual.dtype(), expected.dtype());
  EXPECT_TRUE(actual.sizes() == expected.sizes() && actual.equal(expected)) << actual << "\n"
                                                                            << expected;
}

const char* const kScaled = R"(graph
  %0: f32[2,3] = input 0
  %1: f32[] = seed
  %2: f32[3,2] = parameter "w"
  %3: f32[2,3]{1,2} @%2 = aten::t(%2) {forward}
  %4: f32[2,3] = aten::mul.Tensor(%0, %3) {forward}
  return loss %1, metric m "y" %4)";

TEST(Executor, ReadsWhatTheParameterHoldsNow) {
  const at::Tensor w = at::rand({3, 2}), x = at::rand({2, 3});
  Running running(kScaled, {w});
  expect_equal(running({x})[0], x * w.t());
  w.mul_(3);
  expect_equal(running({x})[0], x * w.t());
  EXPECT_FALSE(running.executor->rebind_if_moved());
}

TEST(Executor, FollowsAParameterThatMoved) {
  const at::Tensor w = at::rand({3, 2}), x = at::rand({2, 3});
  Running running(kScaled, {w});
  w.set_data(at::rand({3, 2}));
  EXPECT_TRUE(running.executor->rebind_if_moved());
  EXPECT_FALSE(running.executor->rebind_if_moved());
  expect_equal(running({x})[0], x * w.t());
}

TEST(Executor, FollowsAParameterIntoTheMiddleOfAnotherStorage) {
  const at::Tensor w = at::rand({3, 2}), x = at::rand({2, 3});
  Running running(kScaled, {w});
  w.set_data(at::rand({7, 2}).slice(0, 2, 5));
  EXPECT_TRUE(running.executor->rebind_if_moved());
  expect_equal(running({x})[0], x * w.t());
}

TEST(Executor, FollowsAnArenaThatMoved) {
  const at::Tensor w = at::rand({3, 2}), x = at::rand({2, 3});
  Running running(kScaled, {w});
  running.arena.ensure(1 << 22);
  EXPECT_TRUE(running.executor->rebind_if_moved());
  expect_equal(running({x})[0], x * w.t());
}

TEST(Executor, NeedsAnArenaOfThePlansSize) {
  const Graph graph = parse_graph(kScaled);
  const Plan plan = lower(graph, {});
  const Arena arena(torch::kCPU);
  EXPECT_ANY_THROW(Executor(plan.programs[0], arena, {{}, {}, at::rand({3, 2})}, {}));
}

// Kernels without out= are offered the place of their result; they may use it for something else.
TEST(ExecutorPlaces, OfTwoResultsOfOneSizeAreToldApart) {
  const at::Tensor a = at::rand({64}), b = at::rand({64});
  Running running(R"(graph
  %0: f32[64] = input 0
  %1: f32[64] = input 1
  %2: f32[] = seed
  %3: f32[64], %4: f32[64] = epl_executor_test::second_first(%0, %1) {forward}
  return loss %2, metric m "first" %3, metric m "second" %4)");
  for (int i = 0; i < 2; ++i) {
    const auto results = running({a, b});
    expect_equal(results[0], a + 1);
    expect_equal(results[1], b * 2);
  }
}

TEST(ExecutorPlaces, HoldTheResultThoughAnIntermediateTookThemFirst) {
  const at::Tensor a = at::rand({64});
  Running running(R"(graph
  %0: f32[64] = input 0
  %1: f32[] = seed
  %2: f32[64] = epl_executor_test::by_a_detour(%0) {forward}
  return loss %1, metric m "y" %2)");
  expect_equal(running({a})[0], (a + 1) * 2);
}

TEST(ExecutorPlaces, HoldAResultThatCameWithOtherStrides) {
  const at::Tensor a = at::rand({4, 3});
  Running running(R"(graph
  %0: f32[4,3] = input 0
  %1: f32[] = seed
  %2: f32[4,3] = epl_executor_test::transposed(%0) {forward}
  %3: f32[12] @%2 = aten::view(%2, [12]) {forward}
  return loss %1, metric m "y" %3)");
  expect_equal(running({a})[0], (a + 1).view({12}));
}

TEST(ExecutorPlaces, OfStatisticsAreThoseOfLibTorch) {
  const at::Tensor x = at::rand({6, 4});
  Running running(R"(graph
  %0: f32[6,4] = input 0
  %1: f32[] = seed
  %2: f32[6,4], %3: f32[6,1], %4: f32[6,1] = aten::native_layer_norm(%0, [4], _, _, 1e-05) {forward}
  %5: f32[4], %6: f32[4] = aten::var_mean.correction(%0, [0], 0, false) {forward}
  return loss %1, metric m "a" %2, metric m "b" %3, metric m "c" %4, metric m "d" %5, metric m "e" %6)");
  const auto results = running({x});
  const auto [y, mean, rstd] = at::native_layer_norm(x, {4}, {}, {}, 1e-5);
  const auto [variance, average] = at::var_mean(x, at::IntArrayRef{0}, 0, false);
  expect_equal(results[0], y);
  expect_equal(results[1], mean);
  expect_equal(results[2], rstd);
  expect_equal(results[3], variance);
  expect_equal(results[4], average);
}

TEST(ExecutorPlaces, OfATensorListAreFilledInOrder) {
  const at::Tensor x = at::rand({4, 2});
  Running running(R"(graph
  %0: f32[4,2] = input 0
  %1: f32[] = seed
  [%2: f32[2,2], %3: f32[2,2]] = aten::split_copy.Tensor(%0, 2, 0) {forward}
  %4: f32[4,2] = aten::cat([%3, %2], 0) {forward}
  return loss %1, metric m "y" %4)");
  expect_equal(running({x})[0], at::cat({x.slice(0, 2, 4), x.slice(0, 0, 2)}));
}

TEST(Executor, HandsTensorsThatOperatorsMadeToLaterOnes) {
  const at::Tensor x = at::rand({3, 2});
  Running running(R"(graph
  %0: f32[3,2] = input 0
  %1: f32[] = seed
  %2: sparse f32[3,2] = aten::to_sparse(%0) {forward}
  %3: sparse f32[3,2] = aten::mul.Tensor(%2, %2) {forward}
  %4: sparse f32[6,2] = aten::cat([%3, %2], 0) {forward}
  %5: f32[6,2] = aten::to_dense(%4, none) {forward}
  return loss %1, metric m "y" %5)");
  for (const at::Tensor& batch : {x, x + 1}) {
    expect_equal(running({batch})[0], at::cat({batch * batch, batch}));
  }
}

TEST(Executor, FreesTensorsThatNobodyReadsAnyMore) {
  Running running(R"(graph
  %0: f32[3] = input 0
  %1: f32[] = seed
  %2: sparse f32[3] = aten::to_sparse(%0) {forward}
  %3: sparse f32[3] = aten::neg(%2) {forward}
  return loss %1, metric m "y" %3)");
  running({tensor({1, 0, 2})});
  int defined = 0;
  for (SlotId id = 0; id < 4; ++id) defined += running.executor->tensor(id).defined() ? 1 : 0;
  EXPECT_EQ(defined, 3);  // all but %2
}

TEST(Executor, PassesUndefinedMembersOfLists) {
  const at::Tensor x = at::rand({3, 4}), index = at::tensor({2, 0}, at::kLong);
  Running running(R"(graph
  %0: f32[3,4] = input 0
  %1: i64[2] = input 1
  %2: f32[] = seed
  %3: f32[3,2] = aten::index.Tensor(%0, [_, %1]) {forward}
  return loss %2, metric m "y" %3)");
  expect_equal(running({x, index})[0], x.index_select(1, index));
}

TEST(Executor, PromotesANumberOfTheUsersAsANumber) {
  Running running(R"(graph
  %0: f32[3] = input 0
  %1: f32[] = seed
  %2: f64[] = constant "two" 2.0 number
  %3: f32[3] = aten::mul.Tensor(%0, %2) {forward}
  return loss %1, metric m "y" %3)");
  expect_equal(running({tensor({1, 2, 3})})[0], tensor({2, 4, 6}));
}

TEST(Executor, WritesStateWhereTheUserHasIt) {
  const at::Tensor state = tensor({1, 2, 3, 4});
  Running running(R"(graph
  %0: f32[2] = input 0
  %1: f32[] = seed
  %2: f32[4] = state "s"
  %3: f32[2]+2 @%2 = aten::slice.Tensor(%2, 0, 2, 4, 1) {forward}
  %4: f32[2]+2 @%2 = aten::add_.Tensor(%3, %0, 1) {forward}
  %5: f32[4] = aten::neg(%2) {forward}
  return loss %1, metric m "y" %5)",
                  {state});
  expect_equal(running({tensor({10, 20})})[0], tensor({-1, -2, -13, -24}));
  expect_equal(state, tensor({1, 2, 13, 24}));
}

TEST(Executor, DrawsFromTheGeneratorItWasGiven) {
  Running running(R"(graph
  %0: f32[8] = input 0
  %1: f32[] = seed
  %2: f32[8] = aten::bernoulli.p(%0, 0.5, none) {forward}
  return loss %1, metric m "y" %2)");
  at::Generator twin = at::detail::createCPUGenerator(1);
  const at::Tensor x = at::rand({8});
  for (int i = 0; i < 3; ++i) expect_equal(running({x})[0], at::bernoulli(x, 0.5, twin));
}

TEST(Executor, StaysUsableAfterAnOperatorThrew) {
  const at::Tensor table = at::rand({5, 2});
  Running running(R"(graph
  %0: i64[3] = input 0
  %1: f32[] = seed
  %2: f32[5,2] = parameter "table"
  %3: f32[3,2] = aten::embedding(%2, %0, -1, false, false) {forward}
  %4: sparse f32[3,2] = aten::to_sparse(%3) {forward}
  %5: f32[3,2] = aten::to_dense(%4, none) {forward}
  return loss %1, metric m "y" %5)",
                  {table});
  const at::Tensor good = at::tensor({4, 0, 1}, at::kLong), bad = at::tensor({4, 9, 1}, at::kLong);
  expect_equal(running({good})[0], table.index_select(0, good));
  EXPECT_ANY_THROW(running({bad}));
  expect_equal(running({good})[0], table.index_select(0, good));
}

std::string guard(Running& running, const std::vector<at::Tensor>& batch) {
  try {
    running(batch);
  } catch (const GuardFailed& failure) {
    return failure.what();
  }
  return "";
}

TEST(Executor, SaysWhichValueIsNotAsItWasRecorded) {
  Running running(R"(graph
  %0: f32[] = input 0
  %1: f32[] = seed
  () = aten::_local_scalar_dense(%0) {forward} expects 0.5
  return loss %1)");
  EXPECT_EQ(guard(running, {at::scalar_tensor(0.5)}), "");
  EXPECT_EQ(guard(running, {at::scalar_tensor(0.25)}),
            "aten::_local_scalar_dense gave 0.25, but 0.5 when the step was recorded");
  EXPECT_EQ(guard(running, {at::scalar_tensor(0.5)}), "");
}

TEST(Executor, TakesTwoThatAreNoNumbersForTheSame) {
  Running running(R"(graph
  %0: f32[] = input 0
  %1: f32[] = seed
  () = aten::_local_scalar_dense(%0) {forward} expects nan
  return loss %1)");
  EXPECT_EQ(guard(running, {at::scalar_tensor(std::nan(""))}), "");
}

TEST(Executor, SaysWhichShapeIsNotAsItWasRecorded) {
  Running running(R"(graph
  %0: f32[4] = input 0
  %1: f32[] = seed
  %2: i64[2,1] = aten::nonzero(%0) {forward}
  return loss %1, metric m "y" %2)");
  EXPECT_EQ(guard(running, {tensor({1, 0, 0, 1})}), "");
  EXPECT_EQ(guard(running, {tensor({1, 0, 1, 1})}),
            "aten::nonzero gave a tensor of shape [3, 1], but [2, 1] when the step was recorded");
}

// Inputs of other strides and types than recorded are copied to their place.
TEST(Executor, TakesInputsHoweverTheyLie) {
  const at::Tensor w = at::rand({3, 2}), x = at::rand({3, 2});
  Running running(kScaled, {w});
  expect_equal(running({x.t()})[0], x.t() * w.t());
}

}  // namespace
}  // namespace epl
