// Models that draw: a variational autoencoder, and the two halves of a DCGAN.
#pragma once

#include <torch/torch.h>

#include <tuple>

namespace epl::models {

struct Vae : torch::nn::Module {
  Vae(int64_t in, int64_t hidden, int64_t latent)
      : encode(in, hidden),
        to_mean(hidden, latent),
        to_log_variance(hidden, latent),
        decode1(latent, hidden),
        decode2(hidden, in) {
    register_module("encode", encode);
    register_module("to_mean", to_mean);
    register_module("to_log_variance", to_log_variance);
    register_module("decode1", decode1);
    register_module("decode2", decode2);
  }

  // The reconstruction, the mean and the logarithm of the variance.
  std::tuple<torch::Tensor, torch::Tensor, torch::Tensor> forward(torch::Tensor x) {
    auto h = torch::relu(encode(x));
    auto mean = to_mean(h);
    auto log_variance = to_log_variance(h);
    auto z = mean;
    if (is_training()) {
      auto deviation = log_variance.div(2).exp();
      z = torch::randn_like(deviation).mul(deviation).add_(mean);
    }
    return {torch::sigmoid(decode2(torch::relu(decode1(z)))), mean, log_variance};
  }

  // Reconstruction error and divergence from the prior, summed over the batch.
  torch::Tensor loss(torch::Tensor x) {
    auto [reconstruction, mean, log_variance] = forward(x);
    auto error = torch::nn::functional::binary_cross_entropy(
        reconstruction, x,
        torch::nn::functional::BinaryCrossEntropyFuncOptions().reduction(torch::kSum));
    auto divergence = -0.5 * torch::sum(1 + log_variance - mean.pow(2) - log_variance.exp());
    return error + divergence;
  }

  torch::nn::Linear encode, to_mean, to_log_variance, decode1, decode2;
};

// [batch, noise, 1, 1] to images of 1 x 16 x 16.
struct Generator : torch::nn::Module {
  Generator(int64_t noise, int64_t width)
      : conv1(torch::nn::ConvTranspose2dOptions(noise, 2 * width, 4).bias(false)),
        norm1(2 * width),
        conv2(options(2 * width, width)),
        norm2(width),
        conv3(options(width, 1)) {
    register_module("conv1", conv1);
    register_module("norm1", norm1);
    register_module("conv2", conv2);
    register_module("norm2", norm2);
    register_module("conv3", conv3);
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(norm1(conv1(x)));
    x = norm2(conv2(x)).relu_();
    return torch::tanh(conv3(x));
  }

  static torch::nn::ConvTranspose2dOptions options(int64_t in, int64_t out) {
    return torch::nn::ConvTranspose2dOptions(in, out, 4).stride(2).padding(1).bias(false);
  }

  torch::nn::ConvTranspose2d conv1;
  torch::nn::BatchNorm2d norm1;
  torch::nn::ConvTranspose2d conv2;
  torch::nn::BatchNorm2d norm2;
  torch::nn::ConvTranspose2d conv3;
};

struct Discriminator : torch::nn::Module {
  explicit Discriminator(int64_t width)
      : layers(torch::nn::Conv2d(options(1, width)), leaky(),
               torch::nn::Conv2d(options(width, 2 * width)), torch::nn::BatchNorm2d(2 * width),
               leaky(), torch::nn::Conv2d(torch::nn::Conv2dOptions(2 * width, 1, 4).bias(false)),
               torch::nn::Sigmoid()) {
    register_module("layers", layers);
  }

  torch::Tensor forward(torch::Tensor x) { return layers->forward(x).reshape({-1}); }

  static torch::nn::Conv2dOptions options(int64_t in, int64_t out) {
    return torch::nn::Conv2dOptions(in, out, 4).stride(2).padding(1).bias(false);
  }
  static torch::nn::LeakyReLU leaky() {
    return torch::nn::LeakyReLU(torch::nn::LeakyReLUOptions().negative_slope(0.2).inplace(true));
  }

  torch::nn::Sequential layers;
};

}  // namespace epl::models
