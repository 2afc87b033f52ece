// Training steps of the test models, small, for tests of the compiler: capture, passes, plan. The
// models themselves are compiled once, in steps.cc, so that such a test need not read them.
#pragma once

#include <ATen/Functions.h>
#include <epl/step.h>
#include <torch/nn/module.h>

#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "ir/graph.h"

namespace epl::models {

struct ModelStep {
  std::string name;
  std::shared_ptr<torch::nn::Module> net;  // shared with `step`
  StepFunction step;
  Batch batch;

  Graph capture() const;
};

torch::Tensor ids_below(int64_t count, torch::IntArrayRef shape);

// net->forward(batch[0]) against the classes in batch[1].
template <typename Net>
ModelStep classifier(const std::string& name, std::shared_ptr<Net> net, torch::Tensor input,
                     int64_t classes) {
  const int64_t rows = input.size(0);
  return {name,
          net,
          [net](const Batch& batch) {
            return at::cross_entropy_loss(net->forward(batch[0]), batch[1]);
          },
          {std::move(input), ids_below(classes, {rows})}};
}

ModelStep mlp_step();
ModelStep lstm_step();
ModelStep gpt_step();
ModelStep sparse_step();
ModelStep bert_step();    // of four blocks
ModelStep layers_step();  // the smaller layers of torch::nn

// One step of each model; weights and batches are drawn from the default generator, seeded here.
std::vector<ModelStep> all_steps();

// Those of the programs in examples/.
std::vector<ModelStep> example_steps();

// Some of the width that people train.
std::vector<ModelStep> wide_steps();

}  // namespace epl::models
