// ResNet-18, -34, -50 and -101 (He et al., "Deep Residual Learning for Image Recognition", 2015)
// with the stride in the 3x3 convolution of a bottleneck, as torchvision has it.
//
// For very many classes the layers before the classifier stand in one scope, which copies them, and
// the classifier with its loss in another, which cuts them over the classes: loss() with `split`.
#pragma once

#include <epl/strategy.h>
#include <torch/torch.h>

#include <array>
#include <optional>
#include <stdexcept>
#include <string>

inline torch::nn::Conv2d convolution(int64_t in, int64_t out, int64_t kernel, int64_t stride = 1) {
  return torch::nn::Conv2d(
      torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false));
}

// Two 3x3 convolutions, or three where the middle one works on a quarter of the channels.
struct ResidualBlockImpl : torch::nn::Module {
  ResidualBlockImpl(int64_t in, int64_t width, int64_t stride, bool bottleneck) {
    const int64_t out = bottleneck ? 4 * width : width;
    if (bottleneck) {
      add(convolution(in, width, 1), width);
      body->push_back(torch::nn::ReLU());
      add(convolution(width, width, 3, stride), width);
      body->push_back(torch::nn::ReLU());
      add(convolution(width, out, 1), out);
    } else {
      add(convolution(in, width, 3, stride), width);
      body->push_back(torch::nn::ReLU());
      add(convolution(width, out, 3), out);
    }
    register_module("body", body);
    if (stride != 1 || in != out) {
      shortcut->push_back(convolution(in, out, 1, stride));
      shortcut->push_back(torch::nn::BatchNorm2d(out));
    }
    register_module("shortcut", shortcut);
  }

  torch::Tensor forward(const torch::Tensor& x) {
    const torch::Tensor past = shortcut->is_empty() ? x : shortcut->forward(x);
    return torch::relu(body->forward(x) + past);
  }

  void add(const torch::nn::Conv2d& convolution, int64_t channels) {
    body->push_back(convolution);
    last_norm = torch::nn::BatchNorm2d(channels);
    body->push_back(last_norm);
  }

  torch::nn::Sequential body, shortcut;
  torch::nn::BatchNorm2d last_norm{nullptr};
};
TORCH_MODULE(ResidualBlock);

struct ResNetImpl : torch::nn::Module {
  // `split`: devices that share the classes; 0: no scopes.
  ResNetImpl(int depth, int64_t classes, int split = 0) : split(split) {
    const std::array<int, 4> blocks = blocks_of(depth);
    const bool bottleneck = depth >= 50;
    stem->push_back(convolution(3, 64, 7, 2));
    stem->push_back(torch::nn::BatchNorm2d(64));
    stem->push_back(torch::nn::ReLU());
    stem->push_back(torch::nn::MaxPool2d(torch::nn::MaxPool2dOptions(3).stride(2).padding(1)));
    int64_t channels = 64;
    for (size_t stage = 0; stage < blocks.size(); ++stage) {
      const int64_t width = int64_t{64} << stage;
      for (int i = 0; i < blocks[stage]; ++i) {
        const int64_t stride = stage > 0 && i == 0 ? 2 : 1;
        stages->push_back(ResidualBlock(channels, width, stride, bottleneck));
        channels = bottleneck ? 4 * width : width;
      }
    }
    register_module("stem", stem);
    register_module("stages", stages);
    classifier = register_module("classifier", torch::nn::Linear(channels, classes));
    initialize();
  }

  // Images [n, 3, height, width] -> scores [n, classes].
  torch::Tensor forward(const torch::Tensor& images) {
    return classifier->forward(features(images));
  }

  // The mean cross entropy of the images' classes.
  torch::Tensor loss(const torch::Tensor& images, const torch::Tensor& labels) {
    std::optional<epl::With> scope;
    if (split > 0) scope.emplace(epl::replicate(split, "features"));
    const torch::Tensor seen = features(images);
    if (split > 0) scope.emplace(epl::split(split, "classifier"));
    return torch::nn::functional::cross_entropy(classifier->forward(seen), labels);
  }

  // [n, 3, height, width] -> [n, channels].
  torch::Tensor features(const torch::Tensor& images) {
    return stages->forward(stem->forward(images)).mean({2, 3});
  }

 private:
  static std::array<int, 4> blocks_of(int depth) {
    switch (depth) {
      case 18:
        return {2, 2, 2, 2};
      case 34:
      case 50:
        return {3, 4, 6, 3};
      case 101:
        return {3, 4, 23, 3};
      default:
        throw std::runtime_error("there is no ResNet-" + std::to_string(depth) +
                                 ": 18, 34, 50 or 101");
    }
  }

  // Each block begins as the identity: the scale of its last norm is zero.
  void initialize() {
    for (const auto& module : modules(/*include_self=*/false)) {
      if (auto* convolution = module->as<torch::nn::Conv2d>()) {
        torch::nn::init::kaiming_normal_(convolution->weight, 0, torch::kFanOut, torch::kReLU);
      } else if (auto* block = module->as<ResidualBlock>()) {
        torch::nn::init::zeros_(block->last_norm->weight);
      }
    }
  }

  int split;
  torch::nn::Sequential stem, stages;
  torch::nn::Linear classifier{nullptr};
};
TORCH_MODULE(ResNet);
