// A translator in the manner of T5 (Raffel et al. 2020): encoder and decoder of attention with
// relative positions and of feed-forward layers, every second of which has experts in its place.
//
//   moe::Translator net(options);
//   epl::StepOutput output = net->step(source, target);      // int64 [rows, length] each
//   torch::Tensor text = moe::translate(net, source);        // greedy
#pragma once

#include <epl/epl.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <stdexcept>
#include <string>
#include <vector>

#include "examples/moe/moe_layer.h"

namespace moe {

// Tokens that are no words.
enum SpecialToken : int64_t { kPadding = 0, kBegin = 1, kEnd = 2, kUnknown = 3, kFirstWord = 4 };

struct TranslatorOptions {
  int64_t source_vocabulary = 64;
  int64_t target_vocabulary = 64;
  int64_t longest = 32;  // tokens of a sentence
  int64_t layers = 2;    // of the encoder, and of the decoder
  int64_t heads = 4;
  int64_t experts_every = 2;  // each so many-th layer has experts; 0: none
  double dropout = 0.1;
  double label_smoothing = 0;
  double balance_weight = 0.01;  // of the auxiliary loss of each layer with experts
  ExpertOptions experts;         // its width and inner width are those of all layers
};

inline torch::nn::Linear linear(int64_t in, int64_t out) {
  return torch::nn::Linear(torch::nn::LinearOptions(in, out).bias(false));
}

struct RmsNormImpl : torch::nn::Module {
  explicit RmsNormImpl(int64_t width) { scale = register_parameter("scale", torch::ones({width})); }
  torch::Tensor forward(const torch::Tensor& x) {
    return x * torch::rsqrt(x.square().mean(-1, /*keepdim=*/true) + 1e-6) * scale;
  }
  torch::Tensor scale;
};
TORCH_MODULE(RmsNorm);

// What T5 adds to the scores of attention for the distance of two tokens: near ones have a bucket
// for each distance, far ones share buckets that grow with the distance.
struct RelativeBiasImpl : torch::nn::Module {
  static constexpr int64_t kBuckets = 32;
  static constexpr int64_t kFarthest = 128;

  RelativeBiasImpl(int64_t longest, int64_t heads, bool looks_ahead) {
    table = register_module("table", torch::nn::Embedding(kBuckets, heads));
    torch::nn::init::normal_(table->weight, 0, 0.1);
    const torch::Tensor buckets = torch::empty({longest, longest}, torch::kInt64);
    auto bucket = buckets.accessor<int64_t, 2>();
    for (int64_t from = 0; from < longest; ++from) {
      for (int64_t to = 0; to < longest; ++to) bucket[from][to] = bucket_of(to - from, looks_ahead);
    }
    this->buckets = register_buffer("buckets", buckets);
  }

  // [heads, length, length]
  torch::Tensor forward(int64_t length) {
    return table->forward(buckets.narrow(0, 0, length).narrow(1, 0, length)).permute({2, 0, 1});
  }

  // Where nobody looks ahead, all buckets are for tokens before this one.
  static int64_t bucket_of(int64_t distance, bool looks_ahead) {
    const int64_t count = looks_ahead ? kBuckets / 2 : kBuckets;
    const int64_t first = looks_ahead && distance > 0 ? count : 0;
    const int64_t way = looks_ahead ? std::abs(distance) : std::max<int64_t>(-distance, 0);
    const int64_t exact = count / 2;
    if (way < exact) return first + way;
    const double growth = std::log(static_cast<double>(way) / static_cast<double>(exact)) /
                          std::log(static_cast<double>(kFarthest) / static_cast<double>(exact));
    const auto bucket = exact + static_cast<int64_t>(growth * static_cast<double>(count - exact));
    return first + std::min(bucket, count - 1);
  }

  torch::nn::Embedding table{nullptr};
  torch::Tensor buckets;
};
TORCH_MODULE(RelativeBias);

struct AttentionImpl : torch::nn::Module {
  AttentionImpl(int64_t width, int64_t heads) : heads(heads) {
    query = register_module("query", linear(width, width));
    key = register_module("key", linear(width, width));
    value = register_module("value", linear(width, width));
    out = register_module("out", linear(width, width));
  }

  // What `x` makes of `memory`; `bias` is added to the scores [rows, heads, tokens, memory].
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& memory,
                        const torch::Tensor& bias) {
    const auto by_head = [&](const torch::Tensor& tokens) {
      return tokens.view({tokens.size(0), tokens.size(1), heads, -1}).transpose(1, 2);
    };
    const torch::Tensor q = by_head(query->forward(x));
    const torch::Tensor k = by_head(key->forward(memory));
    const torch::Tensor v = by_head(value->forward(memory));
    const double scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
    const torch::Tensor scores = torch::matmul(q, k.transpose(-2, -1)) * scale + bias;
    const torch::Tensor mixed = torch::matmul(torch::softmax(scores, -1), v);
    return out->forward(mixed.transpose(1, 2).reshape(x.sizes()));
  }

  int64_t heads;
  torch::nn::Linear query{nullptr}, key{nullptr}, value{nullptr}, out{nullptr};
};
TORCH_MODULE(Attention);

// What the tokens of a sentence look like to a layer.
struct Sentence {
  torch::Tensor x;     // [rows, tokens, width]
  torch::Tensor mask;  // [rows, tokens]: 1, or 0 for padding
  torch::Tensor bias;  // of its attention to itself

  // For those who look at this sentence: far below zero where it has padding, [rows, 1, 1, tokens].
  torch::Tensor padding_bias() const { return ((1 - mask) * -10000.0).unsqueeze(1).unsqueeze(1); }
};

struct LayerImpl : torch::nn::Module {
  LayerImpl(const TranslatorOptions& options, bool has_experts, bool has_memory) {
    const int64_t width = options.experts.width;
    norm1 = register_module("norm1", RmsNorm(width));
    self = register_module("self", Attention(width, options.heads));
    if (has_memory) {
      norm2 = register_module("norm2", RmsNorm(width));
      cross = register_module("cross", Attention(width, options.heads));
    }
    norm3 = register_module("norm3", RmsNorm(width));
    if (has_experts) {
      experts = register_module("experts", MoeLayer(options.experts));
    } else {
      up = register_module("up", linear(width, options.experts.inner));
      down = register_module("down", linear(options.experts.inner, width));
    }
    dropout = register_module("dropout", torch::nn::Dropout(options.dropout));
  }

  // `memory` is what the encoder made, for layers of the decoder. Layers with experts add to
  // `balance`.
  torch::Tensor forward(const Sentence& sentence, const Sentence* memory,
                        std::vector<torch::Tensor>& balance) {
    torch::Tensor x = sentence.x;
    const torch::Tensor own = norm1->forward(x);
    x = x + dropout->forward(self->forward(own, own, sentence.bias));
    if (memory != nullptr) {
      x = x +
          dropout->forward(cross->forward(norm2->forward(x), memory->x, memory->padding_bias()));
    }
    return x + dropout->forward(feed_forward(norm3->forward(x), sentence.mask, balance));
  }

  torch::Tensor feed_forward(const torch::Tensor& x, const torch::Tensor& mask,
                             std::vector<torch::Tensor>& balance) {
    if (experts.is_empty()) return down->forward(torch::relu(up->forward(x)));
    const auto [y, loss] = experts->forward(x, mask);
    balance.push_back(loss);
    return y;
  }

  RmsNorm norm1{nullptr}, norm2{nullptr}, norm3{nullptr};
  Attention self{nullptr}, cross{nullptr};
  MoeLayer experts{nullptr};
  torch::nn::Linear up{nullptr}, down{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(Layer);

// The encoder, or the decoder, whose tokens see none that come later and look at a memory.
struct StackImpl : torch::nn::Module {
  enum class Kind { kEncoder, kDecoder };

  StackImpl(const TranslatorOptions& options, Kind kind) : kind(kind) {
    const int64_t width = options.experts.width;
    const bool decodes = kind == Kind::kDecoder;
    words = register_module(
        "words", torch::nn::Embedding(
                     decodes ? options.target_vocabulary : options.source_vocabulary, width));
    distance = register_module("distance", RelativeBias(options.longest, options.heads, !decodes));
    for (int64_t i = 0; i < options.layers; ++i) {
      const bool has_experts = options.experts_every > 0 && (i + 1) % options.experts_every == 0;
      layers->push_back(Layer(options, has_experts, decodes));
    }
    register_module("layers", layers);
    norm = register_module("norm", RmsNorm(width));
    dropout = register_module("dropout", torch::nn::Dropout(options.dropout));
    later = register_buffer(
        "later", torch::full({options.longest, options.longest}, -10000.0).triu(/*diagonal=*/1));
  }

  Sentence forward(const torch::Tensor& tokens, const Sentence* memory,
                   std::vector<torch::Tensor>& balance) {
    const int64_t length = tokens.size(1);
    Sentence sentence;
    sentence.mask = tokens.ne(kPadding).to(torch::kFloat);
    sentence.bias = distance->forward(length);
    // Padding comes last, so a decoder that does not look ahead never sees it.
    sentence.bias = kind == Kind::kDecoder
                        ? sentence.bias + later.narrow(0, 0, length).narrow(1, 0, length)
                        : sentence.bias + sentence.padding_bias();
    sentence.x = dropout->forward(words->forward(tokens));
    for (const auto& layer : *layers) {
      sentence.x = layer->as<Layer>()->forward(sentence, memory, balance);
    }
    sentence.x = dropout->forward(norm->forward(sentence.x));
    return sentence;
  }

  Kind kind;
  torch::nn::Embedding words{nullptr};
  RelativeBias distance{nullptr};
  torch::nn::ModuleList layers;
  RmsNorm norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
  torch::Tensor later;
};
TORCH_MODULE(Stack);

struct TranslatorImpl : torch::nn::Module {
  explicit TranslatorImpl(const TranslatorOptions& options) : options(options) {
    if (options.experts.width % options.heads != 0) {
      throw std::runtime_error(std::to_string(options.heads) + " heads do not divide a width of " +
                               std::to_string(options.experts.width));
    }
    encoder = register_module("encoder", Stack(options, StackImpl::Kind::kEncoder));
    decoder = register_module("decoder", Stack(options, StackImpl::Kind::kDecoder));
    head = register_module("head", linear(options.experts.width, options.target_vocabulary));
  }

  // Scores [rows, tokens, target_vocabulary] of the token after each of `target`.
  torch::Tensor decode(const torch::Tensor& target, const Sentence& memory,
                       std::vector<torch::Tensor>& balance) {
    return head->forward(decoder->forward(target, &memory, balance).x);
  }

  // Sentences as Sentences has them: `source` ends with kEnd, `target` begins with kBegin and ends
  // with kEnd; padding follows. The metrics are sums over the tokens: "nll" in nats, "hits" that
  // were the likeliest, and the number of "tokens"; and the mean "balance" of the experts.
  epl::StepOutput step(const torch::Tensor& source, const torch::Tensor& target) {
    const int64_t length = target.size(1) - 1;
    const torch::Tensor given = target.narrow(1, 0, length);
    const torch::Tensor expected = target.narrow(1, 1, length);
    std::vector<torch::Tensor> balance;
    const Sentence memory = encoder->forward(source, nullptr, balance);
    const torch::Tensor scores = decode(given, memory, balance);

    namespace F = torch::nn::functional;
    const torch::Tensor losses = F::cross_entropy(scores.flatten(0, 1), expected.flatten(),
                                                  F::CrossEntropyFuncOptions()
                                                      .ignore_index(kPadding)
                                                      .label_smoothing(options.label_smoothing)
                                                      .reduction(torch::kNone));
    const torch::Tensor real = expected.ne(kPadding);
    const torch::Tensor hits = scores.argmax(-1).eq(expected).logical_and(real);
    std::map<std::string, torch::Tensor> metrics = {{"nll", losses.sum().detach()},
                                                    {"hits", hits.sum().to(torch::kFloat)},
                                                    {"tokens", real.sum().to(torch::kFloat)}};
    // Divided by the places and not by the tokens, so that every row has the same weight however
    // the rows are cut over devices; padding has a loss of zero.
    torch::Tensor loss = losses.mean();
    if (!balance.empty()) {
      const torch::Tensor sum = torch::stack(balance).sum();
      metrics["balance"] = sum.detach() / static_cast<double>(balance.size());
      loss = loss + options.balance_weight * sum;
    }
    return {loss, metrics};
  }

  TranslatorOptions options;
  Stack encoder{nullptr}, decoder{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(Translator);

// Greedy translations of `source`: int64 [rows, tokens], each until kEnd; what follows that means
// nothing. Plain LibTorch: the network that EPL trained is still the user's own.
inline torch::Tensor translate(Translator& net, const torch::Tensor& source) {
  const torch::NoGradGuard no_grad;
  const bool was_training = net->is_training();
  net->eval();
  std::vector<torch::Tensor> balance;
  const Sentence memory = net->encoder->forward(source, nullptr, balance);
  torch::Tensor target = torch::full({source.size(0), 1}, int64_t{kBegin}, torch::kInt64);
  torch::Tensor ended = torch::zeros({source.size(0)}, torch::kBool);
  while (target.size(1) < net->options.longest && !ended.all().item<bool>()) {
    const torch::Tensor scores = net->decode(target, memory, balance);
    const torch::Tensor next = scores.select(1, -1).argmax(-1);
    target = torch::cat({target, next.unsqueeze(1)}, 1);
    ended = ended.logical_or(next.eq(kEnd));
  }
  net->train(was_training);
  return target.narrow(1, 1, target.size(1) - 1);
}

}  // namespace moe
