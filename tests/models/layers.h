// The smaller layers of torch::nn, one behind the other: what they call differs from LibTorch to
// LibTorch.
#pragma once

#include <torch/torch.h>

namespace epl::models {

struct Layers : torch::nn::Module {
  // Images [rows, 4, 8, 8] and word ids [rows, 5] to two classes.
  torch::Tensor forward(const torch::Tensor& images, const torch::Tensor& words) {
    namespace F = torch::nn::functional;
    torch::Tensor x = prelu(norm2(conv2(images)));
    x = F::instance_norm(x) + group(x) + F::leaky_relu(x) + F::elu(x) + F::selu(x) + F::celu(x);
    x = F::avg_pool2d(x, F::AvgPool2dFuncOptions(2)) + F::max_pool2d(x, F::MaxPool2dFuncOptions(2));
    x = F::interpolate(x, F::InterpolateFuncOptions().scale_factor(std::vector<double>{2, 2}));
    x = up(F::pad(x, F::PadFuncOptions({1, 1, 1, 1}).mode(torch::kReflect)));
    x = F::adaptive_max_pool2d(x, F::AdaptiveMaxPool2dFuncOptions(4)) +
        F::adaptive_avg_pool2d(x, F::AdaptiveAvgPool2dFuncOptions(4));
    torch::Tensor volume = norm3(conv3(x.view({x.size(0), 1, 4, 4, 4})));
    volume = F::max_pool3d(volume, F::MaxPool3dFuncOptions(2)).flatten(1);
    torch::Tensor rows = conv1(x.flatten(2));
    rows = F::glu(rows, F::GLUFuncOptions(1)) + F::logsigmoid(rows.slice(1, 0, 2));
    rows = F::max_pool1d(rows, F::MaxPool1dFuncOptions(2)) +
           F::avg_pool1d(rows, F::AvgPool1dFuncOptions(2));
    torch::Tensor y = torch::cat({rows.flatten(1), volume}, 1);
    y = torch::dropout(norm1(body(y)), 0.1, is_training());
    y = torch::gelu(y) + torch::silu(y) + torch::mish(y) + torch::hardswish(y) + F::softplus(y) +
        F::softsign(y) + F::relu6(y) + F::hardshrink(y) + torch::hardsigmoid(y);
    y = y + bag(words) + bilinear(y, table(words).mean(1));
    const torch::Tensor sequence = table(words).transpose(0, 1);
    y = y + std::get<0>(rnn->forward(sequence)).mean(0) + gru_cell(y);
    const torch::Tensor seen = std::get<0>(attention(sequence, sequence, sequence)).mean(0);
    return head(F::normalize(y + seen, F::NormalizeFuncOptions().dim(1)));
  }

  // Several of the losses that people add up.
  torch::Tensor loss(const torch::Tensor& scores, const torch::Tensor& classes) {
    namespace F = torch::nn::functional;
    const torch::Tensor chosen = torch::one_hot(classes, 2).to(scores.dtype());
    return F::cross_entropy(scores, classes) + F::mse_loss(scores, chosen) +
           F::smooth_l1_loss(scores, chosen) + F::huber_loss(scores, chosen) +
           F::l1_loss(scores, chosen) + F::binary_cross_entropy_with_logits(scores, chosen) +
           F::kl_div(torch::log_softmax(scores, 1), chosen) +
           F::binary_cross_entropy(torch::sigmoid(scores), chosen) +
           (1 - F::cosine_similarity(scores, chosen)).mean();
  }

  template <typename Layer>
  Layer add(const char* name, Layer layer) {
    return register_module(name, layer);
  }

  torch::nn::Conv2d conv2 =
      add("conv2", torch::nn::Conv2d(torch::nn::Conv2dOptions(4, 4, 3).padding(1).groups(2)));
  torch::nn::BatchNorm2d norm2 = add("norm2", torch::nn::BatchNorm2d(4));
  torch::nn::PReLU prelu =
      add("prelu", torch::nn::PReLU(torch::nn::PReLUOptions().num_parameters(4)));
  torch::nn::GroupNorm group = add("group", torch::nn::GroupNorm(2, 4));
  torch::nn::ConvTranspose2d up =
      add("up", torch::nn::ConvTranspose2d(torch::nn::ConvTranspose2dOptions(4, 4, 3).stride(2)));
  torch::nn::Conv3d conv3 = add("conv3", torch::nn::Conv3d(1, 2, 3));
  torch::nn::BatchNorm3d norm3 = add("norm3", torch::nn::BatchNorm3d(2));
  torch::nn::Conv1d conv1 = add("conv1", torch::nn::Conv1d(4, 4, 3));
  torch::nn::Linear body = add("body", torch::nn::Linear(2 * 7 + 2, 8));
  torch::nn::BatchNorm1d norm1 = add("norm1", torch::nn::BatchNorm1d(8));
  torch::nn::EmbeddingBag bag = add("bag", torch::nn::EmbeddingBag(11, 8));
  torch::nn::Embedding table = add("table", torch::nn::Embedding(11, 8));
  torch::nn::Bilinear bilinear = add("bilinear", torch::nn::Bilinear(8, 8, 8));
  torch::nn::RNN rnn = add("rnn", torch::nn::RNN(8, 8));
  torch::nn::GRUCell gru_cell = add("gru_cell", torch::nn::GRUCell(8, 8));
  torch::nn::MultiheadAttention attention = add("attention", torch::nn::MultiheadAttention(8, 2));
  torch::nn::Linear head = add("head", torch::nn::Linear(8, 2));
};

}  // namespace epl::models
