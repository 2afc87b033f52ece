#include "tests/models/steps.h"

#include <torch/torch.h>

#include "capture/capture.h"
#include "examples/bert/network.h"
#include "examples/gpt/gpt.h"
#include "examples/moe/network.h"
#include "examples/resnet/network.h"
#include "tests/models/attention.h"
#include "tests/models/generative.h"
#include "tests/models/layers.h"
#include "tests/models/mlp.h"
#include "tests/models/recurrent.h"
#include "tests/models/transformer.h"
#include "tests/models/unusual.h"
#include "tests/models/vision.h"

namespace epl::models {
namespace {

template <typename Net>
ModelStep language_model(const std::string& name, std::shared_ptr<Net> net, int64_t vocabulary) {
  return {name,
          net,
          [net](const Batch& batch) { return token_loss(net->forward(batch[0]), batch[1]); },
          {ids_below(vocabulary, {2, 5}), ids_below(vocabulary, {2, 5})}};
}

ModelStep resnet_step() {
  return classifier("resnet18", std::make_shared<ResNet18>(4, 3), torch::randn({2, 3, 32, 32}), 3);
}

ModelStep vae_step() {
  auto net = std::make_shared<Vae>(12, 8, 3);
  return {"vae",
          net,
          [net](const Batch& batch) { return net->loss(batch[0]); },
          {torch::rand({4, 12})}};
}

ModelStep translator_step() {
  auto net = std::make_shared<Translator>(13, 8, 1, 0.1);
  return {
      "translator",
      net,
      [net](const Batch& batch) { return token_loss(net->forward(batch[0], batch[1]), batch[2]); },
      {ids_below(13, {2, 5}), ids_below(13, {2, 4}), ids_below(13, {2, 4})}};
}

ModelStep unet_step() {
  auto net = std::make_shared<UNet>(2, 4);
  return {"unet",
          net,
          [net](const Batch& batch) { return torch::mse_loss(net->forward(batch[0]), batch[1]); },
          {torch::randn({2, 2, 8, 8}), torch::randn({2, 1, 8, 8})}};
}

ModelStep graph_net_step() {
  auto net = std::make_shared<GraphNet>(4, 8, 3);
  return {"graph net",
          net,
          [net](const Batch& batch) {
            return torch::nn::functional::cross_entropy(net->forward(batch[0], batch[1]), batch[2]);
          },
          {torch::randn({6, 4}), ids_below(6, {2, 9}), ids_below(3, {6})}};
}

ModelStep gan_step() {
  auto net = std::make_shared<Generator>(5, 4);
  return {"generator",
          net,
          [net](const Batch& batch) { return net->forward(batch[0]).pow(2).mean(); },
          {torch::randn({3, 5, 1, 1})}};
}

}  // namespace

ModelStep layers_step() {
  auto net = std::make_shared<Layers>();
  return {
      "layers",
      net,
      [net](const Batch& batch) { return net->loss(net->forward(batch[0], batch[1]), batch[2]); },
      {torch::randn({4, 4, 8, 8}), ids_below(11, {4, 5}), ids_below(2, {4})}};
}

Graph ModelStep::capture() const {
  NamedTensors parameters, state;
  for (const auto& entry : net->named_parameters()) {
    parameters.emplace_back(entry.key(), entry.value());
  }
  for (const auto& entry : net->named_buffers()) state.emplace_back(entry.key(), entry.value());
  return capture_step({step, batch, parameters, state, /*may_keep_tensors=*/false}).graph;
}

torch::Tensor ids_below(int64_t count, torch::IntArrayRef shape) {
  return torch::randint(count, shape, torch::kLong);
}

ModelStep mlp_step() {
  return classifier("mlp", std::make_shared<Mlp>(6, 8, 3, 4), torch::randn({5, 6}), 4);
}

ModelStep lstm_step() {
  return language_model("lstm", std::make_shared<LstmLanguageModel>(11, 8, 2), 11);
}

ModelStep gpt_step() {
  return language_model("gpt", std::make_shared<Gpt>(TransformerSize{11, 8, 2, 2, 6, 0.1}), 11);
}

ModelStep sparse_step() {
  return classifier("bag of words", std::make_shared<BagOfWords>(20, 4, 3), ids_below(20, {4, 6}),
                    3);
}

ModelStep bert_step() {
  return classifier("bert", std::make_shared<Bert>(TransformerSize{50, 64, 4, 2, 16}),
                    ids_below(50, {4, 16}), 2);
}

std::vector<ModelStep> all_steps() {
  torch::manual_seed(1);
  std::vector<ModelStep> steps = {
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
#if EPL_TORCH_AT_LEAST(2, 5)
  for (const auto& [name, kind] : fused_kinds()) {
    const FusedSize size{11, 8, 2, 5, 1};
    steps.push_back(language_model(name, std::make_shared<FusedLanguageModel>(kind, size), 11));
  }
#endif
  return steps;
}

std::vector<ModelStep> example_steps() {
  torch::manual_seed(1);
  std::vector<ModelStep> steps;
  {
    gpt::Gpt net(gpt::GptOptions{11, 6, 1, 8, 2, 0.1});
    steps.push_back(
        {"examples/gpt",
         net.ptr(),
         [net](const Batch& batch) mutable { return token_loss(net->forward(batch[0]), batch[1]); },
         {ids_below(11, {2, 6}), ids_below(11, {2, 6})}});
  }
  {
    bert::QuestionAnswering net(bert::NetworkOptions{1, 8, 2, 16, 11, 6});
    steps.push_back({"examples/bert",
                     net.ptr(),
                     [net](const Batch& batch) mutable {
                       const auto scores =
                           net->forward(batch[0], torch::zeros_like(batch[0]), batch[1]);
                       return at::cross_entropy_loss(scores.select(-1, 0), batch[2]) +
                              at::cross_entropy_loss(scores.select(-1, 1), batch[2]);
                     },
                     {ids_below(11, {2, 6}), torch::ones({2, 6}), ids_below(6, {2})}});
  }
  {
    ::ResNet net(18, 3);
    steps.push_back({"examples/resnet",
                     net.ptr(),
                     [net](const Batch& batch) mutable { return net->loss(batch[0], batch[1]); },
                     {torch::randn({2, 3, 32, 32}), ids_below(3, {2})}});
  }
  for (const moe::Gating gating : {moe::Gating::kTop2, moe::Gating::kSwitch}) {
    moe::TranslatorOptions options;
    options.source_vocabulary = options.target_vocabulary = 13;
    options.longest = 8;
    options.layers = options.heads = 2;
    options.label_smoothing = 0.1;
    options.experts = {8, 12, 4, gating};
    moe::Translator net(options);
    steps.push_back({"examples/moe",
                     net.ptr(),
                     [net](const Batch& batch) mutable { return net->step(batch[0], batch[1]); },
                     {ids_below(13, {2, 6}), ids_below(13, {2, 6})}});
  }
  return steps;
}

std::vector<ModelStep> wide_steps() {
  torch::manual_seed(1);
  const TransformerSize size{100, 64, 4, 4, 32, 0.1};
  return {
      classifier("bert", std::make_shared<Bert>(size), ids_below(100, {2, 32}), 2),
      classifier("encoder", std::make_shared<EncoderClassifier>(100, 64, 4, 32, 3),
                 ids_below(100, {2, 32}), 3),
      language_model("gpt", std::make_shared<Gpt>(size), 100),
      language_model("lstm", std::make_shared<LstmLanguageModel>(100, 64, 2), 100),
      classifier("resnet18", std::make_shared<ResNet18>(8, 10), torch::randn({2, 3, 32, 32}), 10),
      classifier("speech", std::make_shared<SpeechNet>(20, 64, 10), torch::randn({8, 20, 30}), 10)};
}

}  // namespace epl::models
