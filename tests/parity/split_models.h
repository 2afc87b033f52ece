// Networks whose operators are cut over devices, for the tests of split.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "tests/parity/parity.h"

namespace epl::parity {

// A program for a number of devices that its operators are cut over. Where `colocated`, it has
// parts under replicate as well, on the same devices.
struct SplitModel {
  std::function<Program(int devices)> make;
  MakeBatch batch;
  Exactness exactness;
  bool colocated = false;
};

const std::map<std::string, SplitModel>& split_models();

inline std::vector<std::string> split_model_names() {
  std::vector<std::string> names;
  for (const auto& model : split_models()) names.push_back(model.first);
  return names;
}

// `devices` that share the operators, `replicas` of them.
inline Variant split_over(int devices, int micro_batches = 1, int replicas = 1) {
  return Variant()
      .steps(3)
      .stages(devices)
      .devices(devices * replicas)
      .micro_batches(micro_batches);
}

inline testing::AssertionResult trains_split(const SplitModel& model, int devices,
                                             Variant variant) {
  if (model.colocated) variant.with("cluster.colocate_split_and_replicate", true);
  return parity([&] { return model.make(devices); }, model.batch, model.exactness, variant);
}

}  // namespace epl::parity
