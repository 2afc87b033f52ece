#include <ATen/ATen.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <gtest/gtest.h>

#include <limits>

#include "ops/facts.h"

namespace epl {
namespace {

c10::OperatorHandle op(const std::string& name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(("epl_rows::" + name).c_str(), "");
}

at::Tensor call(const std::string& name, std::vector<c10::IValue> arguments) {
  op(name).callBoxed(&arguments);
  return arguments.at(0).toTensor();
}

// As the Executor calls it, over memory that holds something else.
at::Tensor call_out(const std::string& name, std::vector<c10::IValue> arguments,
                    const at::Tensor& out) {
  const auto variant = out_variant(op(name), c10::DispatchKey::CPU);
  EXPECT_TRUE(variant) << name;
  arguments.emplace_back(out);
  variant->callBoxed(&arguments);
  EXPECT_EQ(arguments.at(0).toTensor().data_ptr(), out.data_ptr());
  return out;
}

void expect_close(const at::Tensor& got, const at::Tensor& expected) {
  ASSERT_EQ(got.sizes(), expected.sizes());
  EXPECT_TRUE(at::allclose(got, expected, 1e-5, 1e-6, /*equal_nan=*/true))
      << "differs by " << (got - expected).abs().max();
}

// More and fewer rows than a block has, rows longer than a block, and the dimension anywhere.
struct Shape {
  std::vector<int64_t> sizes;
  int64_t dim;
};
const std::vector<Shape> kShapes = {{{3, 7}, 1},    {{700, 1000}, 1}, {{3, 100'000}, -1},
                                    {{1000, 3}, 0}, {{90'000}, 0},    {{4, 300, 500}, 1},
                                    {{1, 1}, 0},    {{0, 5}, 1},      {{2, 1000, 70}, 0}};

// What devices make with the sums of all of them, here of one that has everything.
TEST(CutSoftmax, OfOneDeviceIsTheWhole) {
  for (const auto& [sizes, dim] : kShapes) {
    const at::Tensor x = at::randn(sizes, at::kDouble) * 5;
    const at::Tensor largest =
        x.numel() == 0 ? at::zeros({0, 1}, at::kDouble) : at::amax(x, {dim}, /*keepdim=*/true);
    const at::Tensor sum = call("sum_exp", {x, largest, dim});
    expect_close(sum, (x - largest).exp().sum({dim}, true));
    const at::Tensor y = call("log_softmax", {x, largest, sum});
    expect_close(y, at::log_softmax(x, dim));
    const at::Tensor gradient = at::randn(sizes, at::kDouble);
    const at::Tensor summed = gradient.sum({dim}, true);
    expect_close(call("log_softmax_backward", {gradient, y, summed}),
                 at::_log_softmax_backward_data(gradient, y, dim, at::kDouble));
  }
}

TEST(CutSoftmax, ReadsPiecesWithGaps) {
  const at::Tensor x = at::randn({500, 2000}).narrow(1, 700, 900);
  const at::Tensor largest = at::amax(x, {1}, true);
  const at::Tensor sum = call("sum_exp", {x, largest, 1});
  expect_close(call("log_softmax", {x, largest, sum}), at::log_softmax(x, 1));
}

TEST(CutSoftmax, WritesWhereItIsTold) {
  const at::Tensor x = at::randn({130, 3000});
  const at::Tensor largest = at::amax(x, {1}, true);
  const at::Tensor sum = call_out("sum_exp", {x, largest, 1}, at::full({130, 1}, 9.0));
  const at::Tensor expected = at::log_softmax(x, 1);
  expect_close(call_out("log_softmax", {x, largest, sum}, at::full({130, 3000}, 9.0)), expected);
  const at::Tensor over = x.clone();  // the result may lie where the argument lies
  expect_close(call_out("log_softmax", {over, largest, sum}, over), expected);
  const at::Tensor gradient = at::randn({130, 3000});
  const at::Tensor summed = gradient.sum({1}, true);
  const at::Tensor back = at::_log_softmax_backward_data(gradient, expected, 1, at::kFloat);
  const at::Tensor on_gradient = gradient.clone();
  expect_close(call_out("log_softmax_backward", {on_gradient, expected, summed}, on_gradient),
               back);
  const at::Tensor on_output = expected.clone();
  expect_close(call_out("log_softmax_backward", {gradient, on_output, summed}, on_output), back);
}

// Classes that are masked out may be all that a device has.
TEST(CutSoftmax, TakesRowsThatAreNowhereFinite) {
  const float infinity = std::numeric_limits<float>::infinity();
  at::Tensor x = at::randn({2, 6});
  x[0].fill_(-infinity);
  const at::Tensor largest = at::full({2, 1}, 3.0);  // of the other devices
  const at::Tensor sum = call("sum_exp", {x, largest, 1});
  EXPECT_EQ(sum[0].item<float>(), 0);
  const at::Tensor y = call("log_softmax", {x, largest, sum + 1});
  EXPECT_TRUE((y[0] == -infinity).all().item<bool>());
  const at::Tensor gradient = at::ones({2, 6});
  const at::Tensor back = call("log_softmax_backward", {gradient, y, at::ones({2, 1})});
  EXPECT_TRUE((back[0] == 1).all().item<bool>());
}

TEST(CutSoftmax, KnowsItsShapesWithoutContents) {
  const auto meta = [](at::IntArrayRef sizes) {
    return at::empty(sizes, at::TensorOptions().device(at::kMeta));
  };
  EXPECT_EQ(call("sum_exp", {meta({3, 5}), meta({3, 1}), 1}).sizes(), (at::IntArrayRef{3, 1}));
  EXPECT_EQ(call("log_softmax", {meta({3, 5}), meta({3, 1}), meta({3, 1})}).sizes(),
            (at::IntArrayRef{3, 5}));
}

}  // namespace
}  // namespace epl
