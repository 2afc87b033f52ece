// A stack of linear layers with ReLU between them: the smallest real network.
#pragma once

#include <torch/torch.h>

namespace epl::models {

struct Mlp : torch::nn::Module {
  // `depth` linear layers in all, the last of which maps to `out`.
  Mlp(int64_t in, int64_t width, int64_t depth, int64_t out) {
    for (int64_t i = 0; i < depth; ++i) {
      const int64_t to = i + 1 == depth ? out : width;
      layers->push_back(torch::nn::Linear(i == 0 ? in : width, to));
      if (i + 1 < depth) layers->push_back(torch::nn::ReLU());
    }
    register_module("layers", layers);
  }

  torch::Tensor forward(torch::Tensor x) { return layers->forward(x); }

  torch::nn::Sequential layers;
};

}  // namespace epl::models
