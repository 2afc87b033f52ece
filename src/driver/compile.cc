#include "driver/compile.h"

#include <c10/core/TensorOptions.h>

#include "passes/dead_code.h"
#include "passes/own_gradients.h"
#include "passes/purify.h"
#include "plan/lower.h"

namespace epl {

PassList standard_passes() {
  PassList passes;
  // First: what follows may then move and drop nodes without asking who shares memory.
  passes.push_back(std::make_unique<Purify>());
  // After Purify, which can make two gradients one value; before DeadCode, so that copies that
  // nobody needs go as well.
  passes.push_back(std::make_unique<OwnGradients>());
  // Last: removes what the others left without a reader.
  passes.push_back(std::make_unique<DeadCode>());
  return passes;
}

CompiledStep compile(Graph graph, const Config& config, c10::Device device) {
  CompiledStep compiled;
  compiled.graph = std::move(graph);
  run_passes(compiled.graph, standard_passes());
  LowerOptions options;
  options.micro_batches = static_cast<int>(config.get<int64_t>("pipeline.num_micro_batch"));
  options.apply_groups = static_cast<int>(config.get<int64_t>("optimizer.num_apply_group"));
  options.backend = c10::computeDispatchKey(c10::nullopt, c10::nullopt, device);
  compiled.plan = lower(compiled.graph, options);
  return compiled;
}

}  // namespace epl
