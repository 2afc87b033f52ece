// Networks for images: LeNet, ResNet-18 and -50, a U-Net.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

namespace epl::models {

// Images of 1 x 28 x 28.
struct LeNet : torch::nn::Module {
  LeNet()
      : conv1(torch::nn::Conv2dOptions(1, 6, 5).padding(2)),
        conv2(torch::nn::Conv2dOptions(6, 16, 5)),
        fc1(16 * 5 * 5, 32),
        fc2(32, 24),
        fc3(24, 10) {
    register_module("conv1", conv1);
    register_module("conv2", conv2);
    register_module("fc1", fc1);
    register_module("fc2", fc2);
    register_module("fc3", fc3);
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::max_pool2d(torch::relu(conv1(x)), 2);
    x = torch::max_pool2d(torch::relu(conv2(x)), 2);
    x = x.view({-1, 16 * 5 * 5});
    x = torch::relu(fc1(x));
    x = torch::relu(fc2(x));
    return torch::log_softmax(fc3(x), 1);
  }

  torch::nn::Conv2d conv1, conv2;
  torch::nn::Linear fc1, fc2, fc3;
};

inline torch::nn::Conv2dOptions conv_options(int64_t in, int64_t out, int64_t kernel,
                                             int64_t stride = 1) {
  return torch::nn::Conv2dOptions(in, out, kernel).stride(stride).padding(kernel / 2).bias(false);
}

// Conv and batch norm of a shortcut that changes the shape; empty where the shortcut is the
// identity.
inline torch::nn::Sequential shortcut(int64_t in, int64_t out, int64_t stride) {
  torch::nn::Sequential layers;
  if (stride != 1 || in != out) {
    layers->push_back(torch::nn::Conv2d(conv_options(in, out, 1, stride)));
    layers->push_back(torch::nn::BatchNorm2d(out));
  }
  return layers;
}

struct BasicBlockImpl : torch::nn::Module {
  static constexpr int64_t kExpansion = 1;

  BasicBlockImpl(int64_t in, int64_t width, int64_t stride)
      : conv1(conv_options(in, width, 3, stride)),
        conv2(conv_options(width, width, 3)),
        bn1(width),
        bn2(width),
        downsample(shortcut(in, width, stride)) {
    register_module("conv1", conv1);
    register_module("bn1", bn1);
    register_module("conv2", conv2);
    register_module("bn2", bn2);
    register_module("downsample", downsample);
  }

  torch::Tensor forward(torch::Tensor x) {
    auto residual = downsample->is_empty() ? x : downsample->forward(x);
    x = bn1(conv1(x)).relu_();
    x = bn2(conv2(x));
    x += residual;
    return x.relu_();
  }

  torch::nn::Conv2d conv1, conv2;
  torch::nn::BatchNorm2d bn1, bn2;
  torch::nn::Sequential downsample;
};
TORCH_MODULE(BasicBlock);

struct BottleneckImpl : torch::nn::Module {
  static constexpr int64_t kExpansion = 4;

  BottleneckImpl(int64_t in, int64_t width, int64_t stride)
      : conv1(conv_options(in, width, 1)),
        conv2(conv_options(width, width, 3, stride)),
        conv3(conv_options(width, kExpansion * width, 1)),
        bn1(width),
        bn2(width),
        bn3(kExpansion * width),
        relu(torch::nn::ReLUOptions(/*inplace=*/true)),
        downsample(shortcut(in, kExpansion * width, stride)) {
    register_module("conv1", conv1);
    register_module("bn1", bn1);
    register_module("conv2", conv2);
    register_module("bn2", bn2);
    register_module("conv3", conv3);
    register_module("bn3", bn3);
    register_module("relu", relu);
    register_module("downsample", downsample);
  }

  torch::Tensor forward(torch::Tensor x) {
    auto out = relu(bn1(conv1(x)));
    out = relu(bn2(conv2(out)));
    out = bn3(conv3(out));
    out += downsample->is_empty() ? x : downsample->forward(x);
    return relu(out);
  }

  torch::nn::Conv2d conv1, conv2, conv3;
  torch::nn::BatchNorm2d bn1, bn2, bn3;
  torch::nn::ReLU relu;
  torch::nn::Sequential downsample;
};
TORCH_MODULE(Bottleneck);

template <typename Block>
struct ResNet : torch::nn::Module {
  ResNet(const std::vector<int64_t>& blocks, int64_t width, int64_t classes)
      : conv1(torch::nn::Conv2dOptions(3, width, 7).stride(2).padding(3).bias(false)), bn1(width) {
    register_module("conv1", conv1);
    register_module("bn1", bn1);
    int64_t in = width;
    for (size_t stage = 0; stage < blocks.size(); ++stage, width *= 2) {
      torch::nn::Sequential layer;
      for (int64_t i = 0; i < blocks[stage]; ++i) {
        layer->push_back(Block(in, width, stage > 0 && i == 0 ? 2 : 1));
        in = width * Block::ContainedType::kExpansion;
      }
      layers.push_back(register_module("layer" + std::to_string(stage + 1), layer));
    }
    fc = register_module("fc", torch::nn::Linear(in, classes));
    for (auto& module : modules(/*include_self=*/false)) {
      if (auto* conv = module->template as<torch::nn::Conv2d>()) {
        torch::nn::init::kaiming_normal_(conv->weight, 0, torch::kFanOut, torch::kReLU);
      }
    }
  }

  torch::Tensor forward(torch::Tensor x) {
    x = bn1(conv1(x)).relu_();
    x = torch::max_pool2d(x, 3, 2, 1);
    for (auto& layer : layers) x = layer->forward(x);
    x = torch::adaptive_avg_pool2d(x, {1, 1}).flatten(1);
    return fc(x);
  }

  torch::nn::Conv2d conv1;
  torch::nn::BatchNorm2d bn1;
  std::vector<torch::nn::Sequential> layers;
  torch::nn::Linear fc{nullptr};
};

struct ResNet18 : ResNet<BasicBlock> {
  explicit ResNet18(int64_t width = 64, int64_t classes = 1000)
      : ResNet({2, 2, 2, 2}, width, classes) {}
};

struct ResNet50 : ResNet<Bottleneck> {
  explicit ResNet50(int64_t width = 64, int64_t classes = 1000)
      : ResNet({3, 4, 6, 3}, width, classes) {}
};

// Skips that cross all of the network: what the encoder made first is read last.
struct UNet : torch::nn::Module {
  UNet(int64_t channels, int64_t width)
      : down1(block(channels, width)),
        down2(block(width, 2 * width)),
        bottom(block(2 * width, 4 * width)),
        up2(torch::nn::ConvTranspose2dOptions(4 * width, 2 * width, 2).stride(2)),
        merge2(block(4 * width, 2 * width)),
        merge1(block(3 * width, width)),
        head(torch::nn::Conv2dOptions(width, 1, 1)) {
    register_module("down1", down1);
    register_module("down2", down2);
    register_module("bottom", bottom);
    register_module("up2", up2);
    register_module("merge2", merge2);
    register_module("merge1", merge1);
    register_module("head", head);
  }

  torch::Tensor forward(torch::Tensor x) {
    namespace F = torch::nn::functional;
    auto skip1 = down1->forward(x);
    auto skip2 = down2->forward(torch::max_pool2d(skip1, 2));
    x = bottom->forward(torch::avg_pool2d(skip2, 2));
    x = merge2->forward(torch::cat({up2(x), skip2}, 1));
    x = F::interpolate(x, F::InterpolateFuncOptions()
                              .scale_factor(std::vector<double>{2, 2})
                              .mode(torch::kBilinear)
                              .align_corners(false));
    x = merge1->forward(torch::cat({x, skip1}, 1));
    return head(x);
  }

  static torch::nn::Sequential block(int64_t in, int64_t out) {
    return torch::nn::Sequential(torch::nn::Conv2d(torch::nn::Conv2dOptions(in, out, 3).padding(1)),
                                 torch::nn::GroupNorm(torch::nn::GroupNormOptions(2, out)),
                                 torch::nn::ReLU(torch::nn::ReLUOptions(/*inplace=*/true)));
  }

  torch::nn::Sequential down1, down2, bottom;
  torch::nn::ConvTranspose2d up2;
  torch::nn::Sequential merge2, merge1;
  torch::nn::Conv2d head;
};

}  // namespace epl::models
