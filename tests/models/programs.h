// Every test model as a program for the parity tests, with a batch that can be cut over devices.
#pragma once

#include <algorithm>
#include <stdexcept>
#include <string>
#include <vector>

#include "tests/models/steps.h"
#include "tests/parity/parity.h"

namespace epl::models {

// By name. Weights are drawn anew with each call, from the same seed.
inline ModelStep step_named(const std::string& name) {
  for (ModelStep& step : all_steps()) {
    if (step.name == name) return std::move(step);
  }
  throw std::invalid_argument("there is no model " + name);
}

inline parity::MakeProgram program_named(const std::string& name) {
  return [name] {
    const ModelStep step = step_named(name);
    const double momentum = name == "bag of words" ? 0 : 0.9;  // a sparse buffer cannot be compared
    return parity::Program{
        {parity::Turn{{{"", step.net}}, {parity::sgd(*step.net, 0.05, momentum)}, step.step}}};
  };
}

// The rows of the model's own batch `times` times, other numbers in each row and step.
inline parity::MakeBatch batches_named(const std::string& name, int times) {
  return [name, times](int) {
    const at::Generator generator = at::detail::getDefaultCPUGenerator();
    const auto seed = generator.current_seed();
    const Batch own = step_named(name).batch;  // seeds the generator
    torch::manual_seed(seed);
    Batch batch;
    for (const torch::Tensor& tensor : own) {
      const torch::Tensor rows = torch::cat(std::vector<torch::Tensor>(times, tensor));
      const torch::Tensor order = torch::randperm(rows.size(0));
      // Within the range of the model's own: LibTorch 2 refuses a cross entropy of others than [0,
      // 1].
      batch.push_back(rows.is_floating_point()
                          ? (rows + 0.1 * torch::randn_like(rows)).clamp(rows.min(), rows.max())
                          : rows.index_select(0, order));
    }
    return batch;
  };
}

// Those whose batch has its rows in dim 0 of every tensor.
inline std::vector<std::string> names_with_rows() {
  std::vector<std::string> names;
  for (const ModelStep& step : all_steps()) {
    if (step.name != "graph net") names.push_back(step.name);
  }
  return names;
}

inline std::string test_name(const testing::TestParamInfo<std::string>& info) {
  std::string name = info.param;
  std::replace(name.begin(), name.end(), ' ', '_');
  return name;
}

}  // namespace epl::models
