#include "capture/hidden_tensor.h"

#include <epl/error.h>
#include <gmock/gmock.h>
#include <torch/torch.h>

namespace epl {
namespace {

std::string error_of(const std::function<void()>& work) {
  try {
    work();
  } catch (const Error& error) {
    return error.what();
  } catch (const c10::Error&) {
    return "LibTorch's";
  }
  return "none";
}

TEST(HiddenTensor, IsRefusedByOperatorsWithItsName) {
  const torch::Tensor x = torch::rand({4, 4}).set_requires_grad(true);
  const torch::Tensor shown = hide(x, "layer.weight");
  EXPECT_EQ(
      error_of([&] { x.sum(); }),
      "epl: workers keep parts of `layer.weight` between steps, and aten::sum would use all of "
      "it\n  asked by: zero.level = \"v2\"\n  try:      trainer.gather_parameters() on all "
      "workers before, which brings all parameters until the next step");
  EXPECT_THAT(error_of([&] {
                torch::stack({torch::ones({4, 4}), x});
              }),
              testing::HasSubstr("`layer.weight`"));
  EXPECT_THAT(error_of([&] {
                torch::nn::functional::linear(torch::ones({4, 4}), x);
              }),
              testing::HasSubstr("`layer.weight`"));
  EXPECT_EQ(error_of([&] { x.data_ptr(); }), "LibTorch's");
  EXPECT_EQ(error_of([&] { x.storage(); }), "LibTorch's");
  EXPECT_EQ(x.sizes(), shown.sizes());
  show(x, shown);
}

TEST(HiddenTensor, IsAsItWasWhenItIsShown) {
  torch::Tensor x = torch::rand({4, 4}).set_requires_grad(true);
  const torch::Tensor contents = x.detach().clone();
  void* const data = x.data_ptr();
  const torch::Tensor before = (x * x).sum();  // a graph that reads it
  show(x, hide(x, "x"));
  EXPECT_FALSE(is_hidden(x));
  EXPECT_EQ(x.data_ptr(), data);
  EXPECT_TRUE(x.requires_grad());
  EXPECT_TRUE(x.is_leaf());
  before.backward();
  EXPECT_TRUE(torch::allclose(x.grad(), 2 * contents));
  EXPECT_EQ(x.storage().use_count(), 1U);
}

// A copy that was made of it stays refused: it would be without memory for ever.
TEST(HiddenTensor, LeavesNoCopyThatReadsNothing) {
  const torch::Tensor x = torch::rand({4, 4});
  const torch::Tensor shown = hide(x, "x");
  const torch::Tensor copy = x.tensor_data();
  show(x, shown);
  EXPECT_NE(error_of([&] { copy.sum(); }), "none");
  EXPECT_EQ(error_of([&] { x.sum(); }), "none");
}

}  // namespace
}  // namespace epl
