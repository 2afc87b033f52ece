// GPT blocks whose heads and hidden units can be cut over devices: one of bench_split's networks.
#pragma once

#include <torch/torch.h>

#include <cmath>
#include <limits>
#include <string>
#include <vector>

namespace epl::bench {

struct BlockSize {
  int64_t hidden = 512;
  int64_t heads = 8;
  int64_t length = 128;
  int64_t layers = 1;
};

// Scaled dot products of each position with itself and those before it; [rows, length, hidden] of
// so many heads each. The heads come first: batched products see heads * rows matrices, and a part
// of the heads is then one piece of these.
inline torch::Tensor attend(const torch::Tensor& query, const torch::Tensor& key,
                            const torch::Tensor& value, int64_t heads, const torch::Tensor& ahead) {
  const int64_t rows = query.size(0), length = query.size(1), size = query.size(2) / heads;
  const auto by_head = [&](const torch::Tensor& x) {
    return x.view({rows, length, heads, size}).permute({2, 0, 1, 3});
  };
  auto scores = torch::matmul(by_head(query), by_head(key).transpose(-2, -1)) *
                (1.0 / std::sqrt(static_cast<double>(size)));
  scores = scores.masked_fill(ahead, -std::numeric_limits<float>::infinity());
  const auto mixed = torch::matmul(torch::softmax(scores, -1), by_head(value));
  return mixed.permute({1, 2, 0, 3}).reshape({rows, length, heads * size});
}

struct SplitBlockImpl : torch::nn::Module {
  explicit SplitBlockImpl(const BlockSize& size)
      : heads(size.heads),
        norm1(torch::nn::LayerNormOptions({size.hidden})),
        query(size.hidden, size.hidden),
        key(size.hidden, size.hidden),
        value(size.hidden, size.hidden),
        projection(size.hidden, size.hidden),
        norm2(torch::nn::LayerNormOptions({size.hidden})),
        widen(size.hidden, 4 * size.hidden),
        narrow(4 * size.hidden, size.hidden) {
    register_module("norm1", norm1);
    register_module("query", query);
    register_module("key", key);
    register_module("value", value);
    register_module("projection", projection);
    register_module("norm2", norm2);
    register_module("widen", widen);
    register_module("narrow", narrow);
    ahead = register_buffer("ahead", torch::ones({size.length, size.length}, torch::kBool).triu(1));
  }

  torch::Tensor forward(torch::Tensor x) {
    const auto h = norm1(x);
    x = x + projection(attend(query(h), key(h), value(h), heads, ahead));
    return x + narrow(torch::gelu(widen(norm2(x))));
  }

  int64_t heads;
  torch::nn::LayerNorm norm1;
  torch::nn::Linear query, key, value, projection;
  torch::nn::LayerNorm norm2;
  torch::nn::Linear widen, narrow;
  torch::Tensor ahead;
};
TORCH_MODULE(SplitBlock);

struct SplitBlocks : torch::nn::Module {
  explicit SplitBlocks(const BlockSize& size) {
    for (int64_t i = 0; i < size.layers; ++i) {
      blocks.push_back(register_module("block" + std::to_string(i), SplitBlock(size)));
    }
  }

  torch::Tensor forward(torch::Tensor x) {
    for (auto& block : blocks) x = block(x);
    return x;
  }

  std::vector<SplitBlock> blocks;
};

// What the blocks are trained for: to give the second tensor of the batch for the first.
inline torch::Tensor block_loss(const torch::Tensor& given, const torch::Tensor& wanted) {
  return torch::mse_loss(given, wanted);
}

}  // namespace epl::bench
