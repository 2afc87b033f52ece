// A LibTorch program on shapes alone: what its step is and what it holds, of a model of any size.
//
//   const ProgramShapes shapes = shapes_of([] {
//     auto net = std::make_shared<Gpt>(TransformerSize{51200, 25600, 128, 160, 2048});
//     return ShapeProgram{net, step_of(net), {ids, targets}, adam};
//   });
//   shapes.graph;            // as a real run is recorded
//   shapes.optimizer_bytes;  // of any optimizer: its step() runs
#pragma once

#include <epl/step.h>
#include <torch/nn/module.h>
#include <torch/optim/optimizer.h>

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "capture/ghost.h"
#include "ir/graph.h"

namespace epl {

struct ShapeProgram {
  std::shared_ptr<torch::nn::Module> net;  // shared with `step`
  StepFunction step;
  Batch batch;
  // Of the parameters of `net`. Null: nothing is updated.
  std::function<std::unique_ptr<torch::optim::Optimizer>(std::vector<torch::Tensor>)> optimizer;
};

struct ProgramShapes {
  Graph graph;             // forward and backward; its leaves are ghosts
  int64_t parameters = 0;  // elements
  int64_t parameter_bytes = 0;
  int64_t buffer_bytes = 0;
  int64_t gradient_bytes = 0;   // of those that backward gives
  int64_t optimizer_bytes = 0;  // what it holds after a step
  // What was answered where the program asked for contents.
  std::vector<std::string> assumptions;
};

// Calls `make`, so that the net is made of ghosts, then the step, its backward and an update.
// Throws epl::Error where the program reads contents or an operator has no shape function.
ProgramShapes shapes_of(const std::function<ShapeProgram()>& make,
                        const ShapeOptions& options = {});

}  // namespace epl
