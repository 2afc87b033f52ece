// The training programs of bench_split. Each is written once, and a side decides what is cut.
#pragma once

#include <optional>
#include <string>
#include <vector>

#include "bench/programs.h"
#include "bench/split_block.h"
#include "examples/moe/moe_layer.h"

namespace epl::bench {

struct SplitSizes {
  // Features of rows, and the classes that they are told apart into.
  int64_t features = 512;
  int64_t classes = 100'000;
  int64_t classified_rows = 32;

  BlockSize block;
  int64_t block_rows = 8;

  moe::ExpertOptions experts = {/*width=*/256, /*inner=*/1024, /*experts=*/16};
  int64_t moe_layers = 2;
  int64_t moe_rows = 16;
  int64_t moe_tokens = 64;  // a row
};

inline SplitSizes tiny_sizes() {
  SplitSizes sizes;
  sizes.features = 8;
  sizes.classes = 20'000;  // with fewer the plan would gather the scores
  sizes.classified_rows = 8;
  sizes.block = {/*hidden=*/16, /*heads=*/4, /*length=*/8};
  sizes.block_rows = 4;
  sizes.experts = {/*width=*/8, /*inner=*/16, /*experts=*/4};
  sizes.moe_rows = 8;  // more than one a device: LibTorch has other operators for one row
  sizes.moe_tokens = 8;
  return sizes;
}

struct ManyClasses : torch::nn::Module {
  explicit ManyClasses(const SplitSizes& sizes)
      : body(sizes.features, sizes.features), head(sizes.features, sizes.classes) {
    register_module("body", body);
    register_module("head", head);
  }

  torch::Tensor body_of(const torch::Tensor& x) { return torch::relu(body(x)); }
  torch::Tensor loss_of(const torch::Tensor& x, const torch::Tensor& classes) {
    return torch::nn::functional::cross_entropy(head(x), classes);
  }

  torch::nn::Linear body, head;
};

// Cut over so many devices; 0: as it stands, which is data parallel on several devices.
inline Model many_classes(const SplitSizes& sizes, int cut_over) {
  auto net = std::make_shared<ManyClasses>(sizes);
  const StepFunction step = [net, cut_over](const Batch& batch) {
    std::optional<With> scope;
    if (cut_over > 0) scope.emplace(replicate(cut_over, "features"));
    const torch::Tensor x = net->body_of(batch[0]);
    scope.reset();
    if (cut_over > 0) scope.emplace(split(cut_over, "classes"));
    return net->loss_of(x, batch[1]);
  };
  return {net,
          step,
          {torch::randn({sizes.classified_rows, sizes.features}),
           ids(sizes.classes, {sizes.classified_rows})}};
}

inline Model gpt_block(const SplitSizes& sizes, int cut_over) {
  auto net = std::make_shared<SplitBlocks>(sizes.block);
  const StepFunction step = [net, cut_over](const Batch& batch) {
    std::optional<With> scope;
    if (cut_over > 0) scope.emplace(split(cut_over, "blocks"));
    return block_loss(net->forward(batch[0]), batch[1]);
  };
  const std::vector<int64_t> shape = {sizes.block_rows, sizes.block.length, sizes.block.hidden};
  return {net, step, {torch::randn(shape), torch::randn(shape)}};
}

// Layers of experts behind a layer that all tokens go through, so that gradients go back through
// every one of them.
struct Mixture : torch::nn::Module {
  Mixture(const moe::ExpertOptions& options, int64_t layers)
      : first(register_module("first", torch::nn::Linear(options.width, options.width))) {
    for (int64_t i = 0; i < layers; ++i) {
      mixtures.push_back(register_module("mixture" + std::to_string(i), moe::MoeLayer(options)));
    }
  }

  torch::Tensor loss_of(const Batch& batch) {
    torch::Tensor x = first(batch[0]), balance = torch::zeros({});
    const torch::Tensor mask = torch::ones({x.size(0), x.size(1)});
    for (auto& mixture : mixtures) {
      const auto [y, unbalance] = mixture->forward(x, mask);
      x = x + y;
      balance = balance + unbalance;
    }
    return torch::mse_loss(x, batch[1]) + 0.01 * balance;
  }

  torch::nn::Linear first;
  std::vector<moe::MoeLayer> mixtures;
};

// On so many devices, with rows of their own on each; the experts are cut over them or not.
inline Model mixture(const SplitSizes& sizes, int devices, bool cut) {
  moe::ExpertOptions options = sizes.experts;
  options.split = cut ? devices : 0;
  auto net = std::make_shared<Mixture>(options, sizes.moe_layers);
  const StepFunction step = [net, devices](const Batch& batch) {
    set_default_strategy(replicate(devices));
    return net->loss_of(batch);
  };
  const std::vector<int64_t> shape = {sizes.moe_rows, sizes.moe_tokens, sizes.experts.width};
  return {net, step, {torch::randn(shape), torch::randn(shape)}};
}

// Bytes that tokens and their gradients take from a device to the experts of others and back: four
// times in each layer and step.
inline double all_to_all_bytes(const SplitSizes& sizes, int devices) {
  const int64_t places = moe::capacity_of(sizes.moe_tokens, sizes.experts, /*training=*/true) *
                         sizes.experts.experts * (sizes.moe_rows / devices);
  const double once =
      static_cast<double>(places * sizes.experts.width) * sizeof(float) * (devices - 1) / devices;
  return 4 * static_cast<double>(sizes.moe_layers) * once;
}

}  // namespace epl::bench
