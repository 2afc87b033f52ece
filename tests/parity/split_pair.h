// A small network that workers train cut over them, and beside it the plain loop.
#pragma once

#include <epl/epl.h>
#include <gtest/gtest.h>

#include <memory>

#include "tests/models/programs.h"
#include "tests/parity/parity.h"

namespace epl::parity {

struct TwoLayers : torch::nn::Module {
  TwoLayers(int64_t width, int64_t classes) : body(16, width), head(width, classes) {
    register_module("body", body);
    register_module("head", head);
  }
  torch::Tensor loss_of(const Batch& batch) {
    return cross_entropy(head(torch::tanh(body(batch[0]))), batch[1]);
  }
  torch::nn::Linear body, head;
};

inline Batch batch_of(int64_t rows, int64_t classes_in_all, int step) {
  torch::manual_seed(100 + step);
  return {torch::randn({rows, 16}), classes(classes_in_all, {rows})};
}

// The same network trained by EPL, cut over all workers, and by the plain loop. All workers hand in
// the same rows, so the plain loop needs no more of them.
template <typename Optimizer, typename Options>
struct Pair {
  Pair(int64_t width, int64_t classes, int parts, const Options& options)
      : plain(fresh(width, classes)),
        net(fresh(width, classes)),
        plain_optimizer(plain->parameters(), options),
        optimizer(net->parameters(), options),
        trainer(net, optimizer, [this, parts](const Batch& batch) {
          const With scope(split(parts, "all"));
          return net->loss_of(batch);
        }) {}

  static std::shared_ptr<TwoLayers> fresh(int64_t width, int64_t classes) {
    torch::manual_seed(1);
    return std::make_shared<TwoLayers>(width, classes);
  }

  void step(const Batch& batch) {
    plain_optimizer.zero_grad();
    plain->loss_of(batch).backward();
    plain_optimizer.step();
    trainer.step(batch);
  }

  void expect_equal() {
    for (const auto& parameter : plain->named_parameters()) {
      const torch::Tensor other = net->named_parameters()[parameter.key()];
      EXPECT_TRUE(torch::allclose(parameter.value(), other, 1e-4, 1e-5))
          << parameter.key() << " differs by "
          << (parameter.value() - other).abs().max().template item<float>();
    }
  }

  std::shared_ptr<TwoLayers> plain, net;
  Optimizer plain_optimizer, optimizer;
  Trainer trainer;
};
using Adam = Pair<torch::optim::Adam, torch::optim::AdamOptions>;
using Sgd = Pair<torch::optim::SGD, torch::optim::SGDOptions>;

}  // namespace epl::parity
