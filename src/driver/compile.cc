#include "driver/compile.h"

#include <c10/core/TensorOptions.h>

#include "passes/dead_code.h"
#include "passes/dense_gradients.h"
#include "passes/own_generators.h"
#include "passes/own_gradients.h"
#include "passes/purify.h"
#include "plan/lower.h"

namespace epl {

PassList standard_passes(const Config& config, const CompileOptions& options) {
  PassList passes;
  // First: what follows may then move and drop nodes without asking who shares memory.
  passes.push_back(std::make_unique<Purify>());
  // After Purify, which can make two gradients one value; before DeadCode, so that copies that
  // nobody needs go as well.
  passes.push_back(std::make_unique<OwnGradients>());
  // After OwnGradients, which leaves sparse gradients to themselves.
  const bool reduces = options.replicas * options.slices > 1;
  if (reduces && config.get<bool>("communication.sparse_as_dense")) {
    passes.push_back(std::make_unique<DenseGradients>());
  }
  // Before DeadCode, which removes the arguments that an operator was like.
  if (reduces) passes.push_back(std::make_unique<OwnGenerators>());
  // Last: removes what the others left without a reader.
  passes.push_back(std::make_unique<DeadCode>());
  return passes;
}

CompiledStep compile(Graph graph, const Config& config, const CompileOptions& options) {
  CompiledStep compiled;
  compiled.graph = std::move(graph);
  run_passes(compiled.graph, standard_passes(config, options));
  LowerOptions lowering;
  lowering.micro_batches = static_cast<int>(config.get<int64_t>("pipeline.num_micro_batch"));
  lowering.apply_groups = static_cast<int>(config.get<int64_t>("optimizer.num_apply_group"));
  lowering.replicas = options.replicas;
  lowering.slices = options.slices;
  lowering.most_reductions = static_cast<int>(config.get<int64_t>("communication.max_splits"));
  lowering.reduces_early = !options.clips_locally;
  lowering.backend = c10::computeDispatchKey(c10::nullopt, c10::nullopt, options.device);
  compiled.plan = lower(compiled.graph, lowering);
  return compiled;
}

}  // namespace epl
