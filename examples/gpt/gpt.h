// A GPT: a decoder that predicts the next token of a text (Radford et al. 2019).
//
//   gpt::Gpt net(gpt::GptOptions{/*vocabulary=*/65});
//   loss = net->loss(tokens, next_tokens);             // int64 [rows, length] each
//   torch::Tensor text = gpt::write_on(net, prompt, /*count=*/200, /*temperature=*/0.8);
//
// With `split` = k the network and its loss stand in a split scope: attention is cut over its
// heads, the feed-forward layers over their inner width, the last layer and the loss over the
// vocabulary, each as EPL finds best. With `stages` > 1 the blocks are cut into the stages of a
// pipeline as well, each in a scope of its own.
#pragma once

#include <epl/epl.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>

namespace gpt {

struct GptOptions {
  int64_t vocabulary = 256;
  int64_t context = 64;  // tokens that it sees at most
  int64_t layers = 4;
  int64_t width = 128;
  int64_t heads = 4;
  double dropout = 0;
  int split = 0;       // devices that each scope is cut over; 0: not split
  int64_t stages = 1;  // scopes; without `split` each of them has one device
};

struct BlockImpl : torch::nn::Module {
  explicit BlockImpl(const GptOptions& options) : heads(options.heads) {
    using torch::nn::LayerNorm;
    using torch::nn::LayerNormOptions;
    using torch::nn::Linear;
    const int64_t width = options.width;
    norm1 = register_module("norm1", LayerNorm(LayerNormOptions({width})));
    query = register_module("query", Linear(width, width));
    key = register_module("key", Linear(width, width));
    value = register_module("value", Linear(width, width));
    out = register_module("out", Linear(width, width));
    norm2 = register_module("norm2", LayerNorm(LayerNormOptions({width})));
    up = register_module("up", Linear(width, 4 * width));
    down = register_module("down", Linear(4 * width, width));
    dropout = register_module("dropout", torch::nn::Dropout(options.dropout));
  }

  // `mask` [length, length] is -inf where a token would see a later one, else 0.
  torch::Tensor forward(torch::Tensor x, const torch::Tensor& mask) {
    x = x + dropout->forward(attention(norm1->forward(x), mask));
    return x + dropout->forward(down->forward(torch::gelu(up->forward(norm2->forward(x)))));
  }

  torch::Tensor attention(const torch::Tensor& x, const torch::Tensor& mask) {
    // The heads come first: batched products see heads * rows matrices, and a part of the heads
    // is then one piece of these.
    const auto by_head = [&](const torch::Tensor& tokens) {
      return tokens.view({x.size(0), x.size(1), heads, -1}).permute({2, 0, 1, 3});
    };
    const torch::Tensor q = by_head(query->forward(x));
    const torch::Tensor k = by_head(key->forward(x));
    const torch::Tensor v = by_head(value->forward(x));
    const double scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
    const torch::Tensor scores = torch::matmul(q, k.transpose(-2, -1)) * scale + mask;
    const torch::Tensor mixed = torch::matmul(torch::softmax(scores, -1), v);
    return out->forward(mixed.permute({1, 2, 0, 3}).reshape(x.sizes()));
  }

  int64_t heads;
  torch::nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  torch::nn::Linear query{nullptr}, key{nullptr}, value{nullptr}, out{nullptr};
  torch::nn::Linear up{nullptr}, down{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(Block);

struct GptImpl : torch::nn::Module {
  explicit GptImpl(const GptOptions& options) : options(options) {
    if (options.width % options.heads != 0) {
      throw std::runtime_error(std::to_string(options.heads) + " heads do not divide a width of " +
                               std::to_string(options.width));
    }
    if (options.stages < 1 || options.stages > options.layers) {
      throw std::runtime_error(std::to_string(options.layers) + " layers cannot be cut into " +
                               std::to_string(options.stages) + " stages");
    }
    token = register_module("token", torch::nn::Embedding(options.vocabulary, options.width));
    torch::nn::init::normal_(token->weight, 0, 0.02);
    place = register_parameter("place", 0.02 * torch::randn({options.context, options.width}));
    for (int64_t i = 0; i < options.layers; ++i) blocks->push_back(Block(options));
    register_module("blocks", blocks);
    norm =
        register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({options.width})));
    head = register_module(
        "head",
        torch::nn::Linear(torch::nn::LinearOptions(options.width, options.vocabulary).bias(false)));
    mask = register_buffer(
        "mask", torch::full({options.context, options.context}, -INFINITY).triu(/*diagonal=*/1));
  }

  // int64 [rows, length] -> scores of the next token, [rows, length, vocabulary].
  torch::Tensor forward(const torch::Tensor& tokens) {
    const int64_t length = tokens.size(1);
    torch::Tensor x;
    for (int64_t stage = 0; stage < options.stages; ++stage) {
      const std::optional<epl::With> scope = scope_of(stage);
      if (stage == 0) x = token->forward(tokens) + place.narrow(0, 0, length);
      const torch::Tensor visible = mask.narrow(0, 0, length).narrow(1, 0, length);
      const int64_t end = (stage + 1) * options.layers / options.stages;
      for (int64_t i = stage * options.layers / options.stages; i < end; ++i) {
        x = blocks->at<BlockImpl>(static_cast<size_t>(i)).forward(x, visible);
      }
      if (stage + 1 == options.stages) x = head->forward(norm->forward(x));
    }
    return x;
  }

  // The mean over all tokens, in nats.
  torch::Tensor loss(const torch::Tensor& tokens, const torch::Tensor& next_tokens) {
    const torch::Tensor scores = forward(tokens);
    const std::optional<epl::With> scope = scope_of(options.stages - 1);
    return torch::nn::functional::cross_entropy(scores.flatten(0, 1), next_tokens.flatten());
  }

  GptOptions options;
  torch::nn::Embedding token{nullptr};
  torch::Tensor place;
  torch::nn::ModuleList blocks;
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Linear head{nullptr};
  torch::Tensor mask;

 private:
  // A scope that is entered again by the same name goes on, so the loss joins the last stage.
  std::optional<epl::With> scope_of(int64_t stage) const {
    const std::string name = "stage_" + std::to_string(stage);
    if (options.split > 0) {
      return std::optional<epl::With>(std::in_place, epl::split(options.split, name));
    }
    if (options.stages > 1) {
      return std::optional<epl::With>(std::in_place, epl::replicate(1, name));
    }
    return std::optional<epl::With>();
  }
};
TORCH_MODULE(Gpt);

// Goes on with `prompt`, int64 [n], by `count` tokens and returns these. Each is drawn by its
// probability after the scores were divided by the temperature, or is the likeliest where that
// is 0. Plain LibTorch: the network that EPL trained is still the user's own.
inline torch::Tensor write_on(Gpt& net, const torch::Tensor& prompt, int64_t count,
                              double temperature) {
  const torch::NoGradGuard no_grad;
  const bool was_training = net->is_training();
  net->eval();
  torch::Tensor tokens = prompt.unsqueeze(0);
  for (int64_t i = 0; i < count; ++i) {
    const int64_t length = std::min(tokens.size(1), net->options.context);
    const torch::Tensor seen = tokens.narrow(1, tokens.size(1) - length, length);
    const torch::Tensor scores = net->forward(seen).select(1, length - 1);
    const torch::Tensor next = temperature > 0
                                   ? torch::multinomial(torch::softmax(scores / temperature, -1), 1)
                                   : scores.argmax(-1, /*keepdim=*/true);
    tokens = torch::cat({tokens, next}, 1);
  }
  net->train(was_training);
  return tokens.squeeze(0).narrow(0, prompt.size(0), count);
}

}  // namespace gpt
