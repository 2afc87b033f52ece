// A language model whose attention is torch::scaled_dot_product_attention, in the ways that people
// call it. LibTorch has it since 2.0.
#pragma once

#include <torch/torch.h>

#include <string>
#include <vector>

#include "config/libtorch.h"

namespace epl::models {

#if EPL_TORCH_AT_LEAST(2, 5)

// On CPU the first three become one operator; for the others LibTorch takes products and a softmax.
enum class Fused {
  kCausal,   // query, key and value are views of one product
  kPadded,   // a mask of truth values, of each row of the batch
  kBiased,   // a mask of numbers, the same for all rows
  kLearned,  // the same, as a parameter
  kDropped,  // causal, with dropout
  kStrided,  // the elements of a head do not lie side by side
  kGrouped,  // fewer heads of keys and values than of queries
};

inline const std::vector<std::pair<std::string, Fused>>& fused_kinds() {
  static const std::vector<std::pair<std::string, Fused>> all = {
      {"causal attention", Fused::kCausal},   {"padded attention", Fused::kPadded},
      {"biased attention", Fused::kBiased},   {"learned attention", Fused::kLearned},
      {"dropped attention", Fused::kDropped}, {"strided attention", Fused::kStrided},
      {"grouped attention", Fused::kGrouped}};
  return all;
}

struct FusedSize {
  int64_t vocabulary = 11;
  int64_t width = 32;
  int64_t heads = 4;
  int64_t length = 6;
  int64_t layers = 2;
};

// Without biases where attention is asked: that of a key has no gradient but rounding.
struct FusedBlockImpl : torch::nn::Module {
  FusedBlockImpl(Fused kind, const FusedSize& size)
      : kind(kind), heads(size.heads), key_heads(size.heads) {
    if (kind == Fused::kGrouped) key_heads = size.heads / 2;
    const int64_t keys = size.width / size.heads * key_heads;
    if (kind == Fused::kCausal) {
      all = product("all", size.width, 3 * size.width);
    } else {
      query = product("query", size.width, size.width);
      key = product("key", size.width, keys);
      value = product("value", size.width, keys);
    }
    out = product("out", size.width, size.width);
    const torch::nn::LayerNormOptions normalized({size.width});
    norm1 = register_module("norm1", torch::nn::LayerNorm(normalized));
    norm2 = register_module("norm2", torch::nn::LayerNorm(normalized));
    widen = register_module("widen", torch::nn::Linear(size.width, 2 * size.width));
    narrow = register_module("narrow", torch::nn::Linear(2 * size.width, size.width));
    const torch::Tensor numbers = torch::randn({1, size.heads, size.length, size.length});
    if (kind == Fused::kBiased) bias = register_buffer("bias", numbers);
    if (kind == Fused::kLearned) bias = register_parameter("bias", numbers);
  }

  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& ids) {
    const torch::Tensor seen = attention(norm1(x), ids).transpose(1, 2).reshape(x.sizes());
    const torch::Tensor y = x + out(seen);
    return y + narrow(torch::gelu(widen(norm2(y))));
  }

 private:
  torch::nn::Linear product(const std::string& name, int64_t from, int64_t to) {
    return register_module(name, torch::nn::Linear(torch::nn::LinearOptions(from, to).bias(false)));
  }

  // [rows, heads, length, size of a head]
  torch::Tensor by_head(const torch::Tensor& x, int64_t count) const {
    if (kind == Fused::kStrided) {
      return x.view({x.size(0), x.size(1), -1, count}).permute({0, 3, 1, 2});
    }
    return x.view({x.size(0), x.size(1), count, -1}).transpose(1, 2);
  }

  torch::Tensor attention(const torch::Tensor& x, const torch::Tensor& ids) {
    if (kind == Fused::kCausal) {
      const auto parts = all(x).chunk(3, -1);
      return torch::scaled_dot_product_attention(by_head(parts[0], heads), by_head(parts[1], heads),
                                                 by_head(parts[2], heads), {}, 0, true);
    }
    const torch::Tensor q = by_head(query(x), heads);
    const torch::Tensor k = by_head(key(x), key_heads);
    const torch::Tensor v = by_head(value(x), key_heads);
    if (kind == Fused::kPadded) {
      // The first token always counts: a row that sees nothing has no gradient.
      const torch::Tensor first = torch::ones_like(ids.slice(1, 0, 1), torch::kBool);
      const torch::Tensor counts = torch::cat({first, ids.slice(1, 1).gt(2)}, 1);
      return torch::scaled_dot_product_attention(q, k, v, counts.unsqueeze(1).unsqueeze(1));
    }
    if (bias.defined()) return torch::scaled_dot_product_attention(q, k, v, bias);
    const double dropout = kind == Fused::kDropped && is_training() ? 0.1 : 0;
    return torch::scaled_dot_product_attention(q, k, v, {}, dropout, /*is_causal=*/true, {},
                                               /*enable_gqa=*/kind == Fused::kGrouped);
  }

  Fused kind;
  int64_t heads, key_heads;
  torch::nn::Linear all{nullptr}, query{nullptr}, key{nullptr}, value{nullptr}, out{nullptr};
  torch::nn::Linear widen{nullptr}, narrow{nullptr};
  torch::nn::LayerNorm norm1{nullptr}, norm2{nullptr};
  torch::Tensor bias;
};
TORCH_MODULE(FusedBlock);

struct FusedLanguageModel : torch::nn::Module {
  explicit FusedLanguageModel(Fused kind, const FusedSize& size = {})
      : tokens(size.vocabulary, size.width), head(size.width, size.vocabulary) {
    register_module("tokens", tokens);
    positions = register_parameter("positions", torch::randn({size.length, size.width}) * 0.02);
    for (int64_t i = 0; i < size.layers; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), FusedBlock(kind, size)));
    }
    register_module("head", head);
  }

  // Token ids [rows, length] to [rows, length, vocabulary].
  torch::Tensor forward(const torch::Tensor& ids) { return last_half(first_half(ids), ids); }

  // Cut in the middle, for pipelines.
  torch::Tensor first_half(const torch::Tensor& ids) {
    torch::Tensor x = tokens(ids) + positions;
    for (size_t i = 0; i < blocks.size() / 2; ++i) x = blocks[i](x, ids);
    return x;
  }
  torch::Tensor last_half(torch::Tensor x, const torch::Tensor& ids) {
    for (size_t i = blocks.size() / 2; i < blocks.size(); ++i) x = blocks[i](x, ids);
    return head(x);
  }

  torch::nn::Embedding tokens;
  torch::Tensor positions;
  std::vector<FusedBlock> blocks;
  torch::nn::Linear head;
};

#endif

}  // namespace epl::models
