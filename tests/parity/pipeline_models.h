// Ways in which values go between the stages of a pipeline: one small program each.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/parity/pipelines.h"

namespace epl::parity {

struct StagedModel {
  int stages;
  MakeProgram make;
  Exactness exactness = bit_equal();
  MakeBatch batch = rows(32);
};

// Why "gradient penalty" is another program on parts of a batch.
inline const char* const kPenalty = "the norm of a gradient is neither a mean nor a sum over rows";

// Linear layers of one width, called by their numbers, and a table of ten embeddings.
struct Parts : torch::nn::Module {
  explicit Parts(int count) {
    for (int i = 0; i < count; ++i) {
      layers.push_back(register_module("layer" + std::to_string(i), torch::nn::Linear(6, 6)));
    }
  }
  torch::Tensor operator()(int i, const torch::Tensor& x) {
    return torch::tanh(layers[static_cast<size_t>(i)]->forward(x));
  }

  std::vector<torch::nn::Linear> layers;
  torch::nn::Embedding table = register_module("table", torch::nn::Embedding(10, 6));
  torch::nn::Linear unused = register_module("unused", torch::nn::Linear(2, 2));
};

using PartsStep = std::function<StepOutput(Parts& net, const Batch& batch)>;

inline MakeProgram parts(int count, const PartsStep& step) {
  return [=] {
    auto net = std::make_shared<Parts>(count);
    return program(net, sgd(*net, 0.1, 0.9),
                   [net, step](const Batch& batch) { return step(*net, batch); });
  };
}

// By what is odd about it: ways through the stages, and networks of real layers.
const std::map<std::string, StagedModel>& staged_ways();
const std::map<std::string, StagedModel>& staged_networks();

inline const StagedModel& staged_model(const std::string& name) {
  const auto found = staged_ways().find(name);
  return found != staged_ways().end() ? found->second : staged_networks().at(name);
}

inline std::vector<std::string> staged_model_names() {
  std::vector<std::string> names;
  for (const auto& model : staged_ways()) names.push_back(model.first);
  for (const auto& model : staged_networks()) names.push_back(model.first);
  return names;
}

}  // namespace epl::parity
