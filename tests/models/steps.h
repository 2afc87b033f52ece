// Training steps of the test models, small, for tests of the compiler: capture, passes, plan.
#pragma once

#include <epl/step.h>
#include <torch/torch.h>

#include <memory>
#include <string>
#include <vector>

#include "capture/capture.h"
#include "tests/models/generative.h"
#include "tests/models/mlp.h"
#include "tests/models/recurrent.h"
#include "tests/models/transformer.h"
#include "tests/models/unusual.h"
#include "tests/models/vision.h"

namespace epl::models {

struct ModelStep {
  std::string name;
  std::shared_ptr<torch::nn::Module> net;  // shared with `step`
  StepFunction step;
  Batch batch;

  Graph capture(const std::vector<int>& cuts = {}) const {
    NamedTensors parameters, state;
    for (const auto& entry : net->named_parameters()) {
      parameters.emplace_back(entry.key(), entry.value());
    }
    for (const auto& entry : net->named_buffers()) state.emplace_back(entry.key(), entry.value());
    return capture_step({step, batch, parameters, state, /*may_keep_tensors=*/false, cuts}).graph;
  }
};

inline torch::Tensor ids_below(int64_t count, torch::IntArrayRef shape) {
  return torch::randint(count, shape, torch::kLong);
}

// net->forward(batch[0]) against the classes in batch[1].
template <typename Net>
ModelStep classifier(const std::string& name, std::shared_ptr<Net> net, torch::Tensor input,
                     int64_t classes) {
  const int64_t rows = input.size(0);
  return {name,
          net,
          [net](const Batch& batch) {
            return torch::nn::functional::cross_entropy(net->forward(batch[0]), batch[1]);
          },
          {std::move(input), ids_below(classes, {rows})}};
}

template <typename Net>
ModelStep language_model(const std::string& name, std::shared_ptr<Net> net, int64_t vocabulary) {
  return {name,
          net,
          [net](const Batch& batch) { return token_loss(net->forward(batch[0]), batch[1]); },
          {ids_below(vocabulary, {2, 5}), ids_below(vocabulary, {2, 5})}};
}

inline ModelStep mlp_step() {
  return classifier("mlp", std::make_shared<Mlp>(6, 8, 3, 4), torch::randn({5, 6}), 4);
}

inline ModelStep lstm_step() {
  return language_model("lstm", std::make_shared<LstmLanguageModel>(11, 8, 2), 11);
}

inline ModelStep gpt_step() {
  return language_model("gpt", std::make_shared<Gpt>(TransformerSize{11, 8, 2, 2, 6, 0.1}), 11);
}

inline ModelStep resnet_step() {
  return classifier("resnet18", std::make_shared<ResNet18>(4, 3), torch::randn({2, 3, 32, 32}), 3);
}

inline ModelStep sparse_step() {
  return classifier("bag of words", std::make_shared<BagOfWords>(20, 4, 3), ids_below(20, {4, 6}),
                    3);
}

inline ModelStep vae_step() {
  auto net = std::make_shared<Vae>(12, 8, 3);
  return {"vae",
          net,
          [net](const Batch& batch) { return net->loss(batch[0]); },
          {torch::rand({4, 12})}};
}

inline ModelStep translator_step() {
  auto net = std::make_shared<Translator>(13, 8, 1, 0.1);
  return {
      "translator",
      net,
      [net](const Batch& batch) { return token_loss(net->forward(batch[0], batch[1]), batch[2]); },
      {ids_below(13, {2, 5}), ids_below(13, {2, 4}), ids_below(13, {2, 4})}};
}

inline ModelStep unet_step() {
  auto net = std::make_shared<UNet>(2, 4);
  return {"unet",
          net,
          [net](const Batch& batch) { return torch::mse_loss(net->forward(batch[0]), batch[1]); },
          {torch::randn({2, 2, 8, 8}), torch::randn({2, 1, 8, 8})}};
}

inline ModelStep graph_net_step() {
  auto net = std::make_shared<GraphNet>(4, 8, 3);
  return {"graph net",
          net,
          [net](const Batch& batch) {
            return torch::nn::functional::cross_entropy(net->forward(batch[0], batch[1]), batch[2]);
          },
          {torch::randn({6, 4}), ids_below(6, {2, 9}), ids_below(3, {6})}};
}

inline ModelStep gan_step() {
  auto net = std::make_shared<Generator>(5, 4);
  return {"generator",
          net,
          [net](const Batch& batch) { return net->forward(batch[0]).pow(2).mean(); },
          {torch::randn({3, 5, 1, 1})}};
}

// One step of each; weights and batches are drawn from the default generator, seeded here.
inline std::vector<ModelStep> all_steps() {
  torch::manual_seed(1);
  return {
      mlp_step(),
      lstm_step(),
      gpt_step(),
      resnet_step(),
      sparse_step(),
      vae_step(),
      translator_step(),
      unet_step(),
      graph_net_step(),
      gan_step(),
      language_model("gru", std::make_shared<GruLanguageModel>(11, 8, 1), 11),
      language_model("cell", std::make_shared<CellLanguageModel>(11, 8), 11),
      classifier("lenet", std::make_shared<LeNet>(), torch::randn({2, 1, 28, 28}), 10),
      classifier("encoder", std::make_shared<EncoderClassifier>(11, 8, 1, 5, 3),
                 ids_below(11, {2, 5}), 3),
      classifier("bert", std::make_shared<Bert>(TransformerSize{11, 8, 1, 2, 6}),
                 ids_below(11, {2, 6}), 2),
      classifier("speech", std::make_shared<SpeechNet>(5, 6, 3), torch::randn({3, 5, 7}), 3),
      classifier("fine tuned", std::make_shared<FineTuned>(5, 6, 3), torch::randn({4, 5}), 3),
      classifier("repeated", std::make_shared<Repeated>(5, 6, 3, 3), torch::randn({4, 5}), 3),
      classifier("quantised", std::make_shared<Quantised>(5, 6, 3), torch::randn({4, 5}), 3),
      classifier("running mean", std::make_shared<RunningMean>(5, 6, 3), torch::randn({4, 5}), 3),
      classifier("mixture", std::make_shared<Mixture>(5, 6, 4, 3), torch::randn({4, 5}), 3)};
}

}  // namespace epl::models
