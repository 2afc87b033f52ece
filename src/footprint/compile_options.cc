#include "footprint/compile_options.h"

#include "config/settings.h"
#include "model/model_state.h"
#include "model/owned_states.h"
#include "model/spread_parameters.h"
#include "model/state_on_workers.h"

namespace epl {

CompileOptions compile_options(const MemorySubject& subject, const ClipOptions& clipping,
                               const Graph& recorded, const Placement& placement,
                               const std::optional<std::set<std::string>>& alone) {
  using Clip = CompileOptions::Clip;
  const Model& model = subject.model;
  const Config& config = subject.config;
  CompileOptions options;
  options.device = model.device();
  if (clipping.clips()) options.clip = clipping.norm > 0 ? Clip::kNorm : Clip::kValues;
  options.states_of = states_kept(model);
  if (!config.get<std::string>("offload.level").empty()) {
    options.offloaded = subject.offload != nullptr
                            ? subject.offload->offloaded(config, recorded)
                            : Offload::would_be_offloaded(config, model, recorded);
  }
  options.updated_whole = updated_whole(model);
  // In one worker all pieces are at hand, however a step cuts.
  if (subject.job.workers() == nullptr) return options;
  options.state = state_of(model, subject.job.gradient_history(), placement);
  if (cuts_parameters(config)) {
    options.may_be_spread = alone ? *alone : subject.job.spread().may_be_spread(model);
  }
  return options;
}

}  // namespace epl
