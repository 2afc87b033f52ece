// UnchangedModel: leaves a model and the program's generator as they were.
//
//   {
//     const UnchangedModel unchanged(model);
//     ... the step function runs under a recorder
//   }
//
// A recorded run takes back what operators wrote; this also takes back what C++ wrote itself,
// through pointers. Tensors that are as they were are not written.
#pragma once

#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

#include "model/model.h"
#include "state/state_snapshot.h"

namespace epl {

class UnchangedModel {
 public:
  explicit UnchangedModel(const Model& model);
  ~UnchangedModel();
  UnchangedModel(const UnchangedModel&) = delete;
  UnchangedModel& operator=(const UnchangedModel&) = delete;

 private:
  const StateSnapshot generators_;
  std::vector<std::pair<at::Tensor, at::Tensor>> before_;
};

}  // namespace epl
