// Transformers: two over LibTorch's own modules, GPT and BERT with an attention of their own.
#pragma once

#include <epl/strategy.h>
#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <optional>
#include <string>
#include <vector>

namespace epl::models {

// Classifies sequences with torch::nn::TransformerEncoder.
struct EncoderClassifier : torch::nn::Module {
  EncoderClassifier(int64_t vocabulary, int64_t hidden, int64_t layers, int64_t length,
                    int64_t classes, double dropout = 0)
      : tokens(vocabulary, hidden),
        encoder(torch::nn::TransformerEncoderOptions(
            torch::nn::TransformerEncoderLayerOptions(hidden, 4)
                .dim_feedforward(2 * hidden)
                .dropout(dropout)
                .activation(torch::kGELU),
            layers)),
        head(hidden, classes) {
    register_module("tokens", tokens);
    positions = register_parameter("positions", torch::randn({length, 1, hidden}) * 0.02);
    register_module("encoder", encoder);
    register_module("head", head);
  }

  // `ids` is [batch, length]; `padding` marks keys to leave out, [batch, length] of bool, or
  // nothing.
  torch::Tensor forward(torch::Tensor ids, torch::Tensor padding = {}) {
    auto x = tokens(ids.transpose(0, 1)) + positions;
    x = encoder(x, /*src_mask=*/torch::Tensor{}, padding);
    return head(x.mean(0));
  }

  torch::nn::Embedding tokens;
  torch::Tensor positions;
  torch::nn::TransformerEncoder encoder;
  torch::nn::Linear head;
};

// Translates with torch::nn::Transformer, the decoder behind a causal mask.
struct Translator : torch::nn::Module {
  Translator(int64_t vocabulary, int64_t hidden, int64_t layers, double dropout = 0)
      : source(vocabulary, hidden),
        target(vocabulary, hidden),
        transformer(torch::nn::TransformerOptions(hidden, 4, layers, layers)
                        .dim_feedforward(2 * hidden)
                        .dropout(dropout)),
        head(hidden, vocabulary) {
    register_module("source", source);
    register_module("target", target);
    register_module("transformer", transformer);
    register_module("head", head);
  }

  // [batch, length] each; the result is [batch, target length, vocabulary].
  torch::Tensor forward(torch::Tensor from, torch::Tensor to) {
    auto mask = torch::nn::TransformerImpl::generate_square_subsequent_mask(to.size(1));
    auto x = transformer(source(from).transpose(0, 1), target(to).transpose(0, 1),
                         /*src_mask=*/torch::Tensor{}, mask);
    return head(x).transpose(0, 1);
  }

  torch::nn::Embedding source, target;
  torch::nn::Transformer transformer;
  torch::nn::Linear head;
};

// Whether attention may look ahead, and where the layer norms stand.
enum class BlockKind { kEncoderPostNorm, kDecoderPreNorm };

struct BlockImpl : torch::nn::Module {
  BlockImpl(BlockKind kind, int64_t hidden, int64_t heads, double dropout)
      : kind(kind),
        heads(heads),
        qkv(hidden, 3 * hidden),
        projection(hidden, hidden),
        widen(hidden, 4 * hidden),
        narrow(4 * hidden, hidden),
        norm1(torch::nn::LayerNormOptions({hidden})),
        norm2(torch::nn::LayerNormOptions({hidden})),
        drop(dropout) {
    register_module("qkv", qkv);
    register_module("projection", projection);
    register_module("widen", widen);
    register_module("narrow", narrow);
    register_module("norm1", norm1);
    register_module("norm2", norm2);
    register_module("drop", drop);
  }

  torch::Tensor attention(const torch::Tensor& x) {
    const int64_t batch = x.size(0), length = x.size(1), hidden = x.size(2), size = hidden / heads;
    auto parts = qkv(x).view({batch, length, 3, heads, size}).permute({2, 0, 3, 1, 4}).unbind(0);
    auto scores = torch::matmul(parts[0], parts[1].transpose(-2, -1)) *
                  (1.0 / std::sqrt(static_cast<double>(size)));
    if (kind == BlockKind::kDecoderPreNorm) {
      auto ahead = torch::ones({length, length}, torch::kBool).triu(1);
      scores = scores.masked_fill(ahead, -std::numeric_limits<float>::infinity());
    }
    auto mixed = torch::matmul(torch::softmax(scores, -1), parts[2]);
    return drop(projection(mixed.transpose(1, 2).reshape({batch, length, hidden})));
  }

  torch::Tensor feed_forward(const torch::Tensor& x) { return drop(narrow(torch::gelu(widen(x)))); }

  torch::Tensor forward(torch::Tensor x) {
    if (kind == BlockKind::kDecoderPreNorm) {
      x = x + attention(norm1(x));
      return x + feed_forward(norm2(x));
    }
    x = norm1(x + attention(x));
    return norm2(x + feed_forward(x));
  }

  BlockKind kind;
  int64_t heads;
  torch::nn::Linear qkv, projection, widen, narrow;
  torch::nn::LayerNorm norm1, norm2;
  torch::nn::Dropout drop;
};
TORCH_MODULE(Block);

struct TransformerSize {
  int64_t vocabulary;
  int64_t hidden;
  int64_t layers;
  int64_t heads;
  int64_t length;
  double dropout = 0;
};

// Sends x through the blocks in order. Where `starts` is not empty they stand in the scopes of a
// pipeline: block i is the first one of a new stage if it is in `starts`, and what happens to x
// before the first start belongs to stage 0.
class StagedBlocks {
 public:
  explicit StagedBlocks(const std::vector<int64_t>& starts) : starts_(starts) {
    if (!starts_.empty()) enter(0);
  }

  torch::Tensor operator()(std::vector<Block>& blocks, torch::Tensor x) {
    for (size_t i = 0; i < blocks.size(); ++i) {
      for (size_t stage = 0; stage < starts_.size(); ++stage) {
        if (starts_[stage] == static_cast<int64_t>(i)) enter(stage + 1);
      }
      x = blocks[i](x);
    }
    return x;
  }

 private:
  void enter(size_t stage) {
    scope_.reset();  // scopes do not nest
    scope_.emplace(epl::replicate(1, "stage_" + std::to_string(stage)));
  }

  const std::vector<int64_t>& starts_;
  std::optional<epl::With> scope_;
};

// How the head of a language model gets its weight.
enum class Head {
  kUntied,        // its own
  kTied,          // linear(x, embedding weight)
  kTiedByMember,  // head->weight = tokens->weight: the weight registered first stays, unused
};

struct Gpt : torch::nn::Module {
  explicit Gpt(const TransformerSize& size, Head kind = Head::kUntied)
      : kind(kind),
        tokens(size.vocabulary, size.hidden),
        final_norm(torch::nn::LayerNormOptions({size.hidden})) {
    register_module("tokens", tokens);
    positions = register_parameter("positions", torch::randn({size.length, size.hidden}) * 0.02);
    for (int64_t i = 0; i < size.layers; ++i) {
      blocks.push_back(register_module(
          "block" + std::to_string(i),
          Block(BlockKind::kDecoderPreNorm, size.hidden, size.heads, size.dropout)));
    }
    register_module("final_norm", final_norm);
    if (kind != Head::kTied) {
      head = register_module(
          "head",
          torch::nn::Linear(torch::nn::LinearOptions(size.hidden, size.vocabulary).bias(false)));
    }
    if (kind == Head::kTiedByMember) head->weight = tokens->weight;
    // Torch's default of 1 saturates the softmax of a tied head.
    if (kind != Head::kUntied) torch::nn::init::normal_(tokens->weight, 0, 0.1);
  }

  // [batch, length] of token ids to [batch, length, vocabulary].
  torch::Tensor forward(torch::Tensor ids) {
    StagedBlocks staged(stage_starts);
    auto x = tokens(ids) + positions.slice(0, 0, ids.size(1));
    x = final_norm(staged(blocks, x));
    return kind == Head::kTied ? torch::linear(x, tokens->weight) : head(x);
  }

  std::vector<int64_t> stage_starts;  // of a pipeline; none: no scopes
  Head kind;
  torch::nn::Embedding tokens;
  torch::Tensor positions;
  std::vector<Block> blocks;
  torch::nn::LayerNorm final_norm;
  torch::nn::Linear head{nullptr};
};

// Two classes from the first token, as in fine-tuning.
struct Bert : torch::nn::Module {
  explicit Bert(const TransformerSize& size)
      : tokens(size.vocabulary, size.hidden),
        norm(torch::nn::LayerNormOptions({size.hidden})),
        pool(size.hidden, size.hidden),
        head(size.hidden, 2) {
    register_module("tokens", tokens);
    positions = register_parameter("positions", torch::randn({size.length, size.hidden}) * 0.02);
    register_module("norm", norm);
    for (int64_t i = 0; i < size.layers; ++i) {
      blocks.push_back(register_module(
          "block" + std::to_string(i),
          Block(BlockKind::kEncoderPostNorm, size.hidden, size.heads, size.dropout)));
    }
    register_module("pool", pool);
    register_module("head", head);
  }

  torch::Tensor forward(torch::Tensor ids) {
    StagedBlocks staged(stage_starts);
    auto x = staged(blocks, norm(tokens(ids) + positions.slice(0, 0, ids.size(1))));
    return head(torch::tanh(pool(x.select(1, 0))));
  }

  std::vector<int64_t> stage_starts;  // of a pipeline; none: no scopes
  torch::nn::Embedding tokens;
  torch::Tensor positions;
  torch::nn::LayerNorm norm;
  std::vector<Block> blocks;
  torch::nn::Linear pool, head;
};

// Mean cross entropy of [batch, length, vocabulary] against [batch, length].
inline torch::Tensor token_loss(const torch::Tensor& logits, const torch::Tensor& targets) {
  return torch::nn::functional::cross_entropy(logits.reshape({-1, logits.size(-1)}),
                                              targets.reshape({-1}));
}

}  // namespace epl::models
