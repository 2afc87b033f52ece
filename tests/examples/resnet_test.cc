// The network of examples/resnet.
#include <gtest/gtest.h>

#include "examples/resnet/network.h"

namespace {

TEST(ResNet, HasTheLossOfItsScoresWithScopesAndWithout) {
  const torch::Tensor images = torch::randn({3, 3, 32, 32});
  const torch::Tensor labels = torch::tensor({0, 4, 2}, torch::kInt64);
  torch::manual_seed(0);
  ResNet plain(18, 5);
  torch::manual_seed(0);
  ResNet cut(18, 5, /*split=*/2);
  EXPECT_EQ(plain->features(images).sizes(), torch::IntArrayRef({3, 512}));
  const torch::Tensor loss = plain->loss(images, labels);
  EXPECT_TRUE(torch::equal(loss, cut->loss(images, labels)));
  EXPECT_TRUE(
      torch::equal(loss, torch::nn::functional::cross_entropy(plain->forward(images), labels)));
}

}  // namespace
