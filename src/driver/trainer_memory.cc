// What a step needs of memory, by its plan, and what the devices held in the last one.
#include <set>
#include <utility>

#include "base/check.h"
#include "batch/readers.h"
#include "comm/segment.h"
#include "driver/trainer_impl.h"
#include "model/model_state.h"
#include "runtime/device_memory.h"
#include "state/memory_report.h"
#include "state/state_snapshot.h"

namespace epl {
namespace {

// The tensors that a model keeps from step to step, each memory once.
struct KeptMemory {
  int64_t bytes = 0;    // resident
  int64_t counted = 0;  // of those, what an account of a device has as well
};

KeptMemory kept_memory(const Model& model) {
  KeptMemory kept;
  std::set<const void*> seen;
  const auto add = [&](const at::Tensor& tensor) {
    if (!tensor.defined() || tensor.layout() != c10::kStrided) return;
    const void* const data = tensor.storage().data();
    if (data == nullptr || !seen.insert(data).second) return;
    const int64_t bytes =
        DeviceMemory::resident(data, static_cast<int64_t>(tensor.storage().nbytes()));
    kept.bytes += bytes;
    if (DeviceMemory::counts(data)) kept.counted += bytes;
  };
  for (const auto& [name, tensor] : model.all_tensors()) add(tensor);
  for (const auto& [name, parameter] : model.parameters()) {
    for (const at::Tensor& state : model.states_of(parameter)) add(state);
  }
  return kept;
}

// Leaves a model and the program's generator as they were. A recorded run takes back what operators
// wrote; this also takes back what C++ wrote itself, through pointers.
class Unchanged {
 public:
  explicit Unchanged(const Model& model) : generators_({}, generators_of(Graph())) {
    for (const auto& [name, tensor] : model.all_tensors()) {
      if (!tensor.defined() || tensor.layout() != c10::kStrided) continue;
      before_.emplace_back(tensor, tensor.detach().clone());
    }
  }
  ~Unchanged() {
    const c10::AutoGradMode no_grad(false);
    for (const auto& [tensor, contents] : before_) {
      const bool same = tensor.sizes() == contents.sizes() && tensor.equal(contents);
      if (!same) tensor.detach().copy_(contents);
    }
    generators_.restore();
  }
  Unchanged(const Unchanged&) = delete;
  Unchanged& operator=(const Unchanged&) = delete;

 private:
  const StateSnapshot generators_;
  std::vector<std::pair<at::Tensor, at::Tensor>> before_;
};

}  // namespace

void Trainer::Impl::begin_laps() {
  DeviceMemory::begin_lap_here();
  for (int device = 1; device < replicas.size(); ++device) job->team().memory(device).begin_lap();
}

// Device 0 is this thread, whatever memory it uses.
void Trainer::Impl::keep_laps() {
  most_held = {DeviceMemory::account_here().lap_peak};
  for (int device = 1; device < replicas.size(); ++device) {
    most_held.push_back(job->team().memory(device).account().lap_peak);
  }
}

MemoryReport Trainer::Impl::forecast_of(const Plan& plan, const Placement& placement) const {
  StateMap state = state_of(model, job->gradient_history(), placement);
  state.place(plan);
  MemorySources sources{plan, placement, job->cluster(), state};
  sources.made = states_made_with_optimizers(model);
  sources.releases_others =
      job->workers() != nullptr && !config.get<bool>("pipeline.gather_parameters");
  sources.communicators = comm::Segment::mapped();
  if (config.get<bool>("communication.fp16")) {
    sources.halves = static_cast<int>(config.get<int64_t>("communication.num_communicators"));
  }
  return forecast_memory(sources);
}

// What is shared lies in memory of the program's own, or was made by the first device.
void Trainer::Impl::add_measured(MemoryReport& report) const {
  if (most_held.empty()) return;
  const KeptMemory kept = kept_memory(model);
  MemoryReport::Worker& here = report.workers[static_cast<size_t>(job->cluster().worker_index)];
  here.measured_shared = kept.bytes + comm::Segment::mapped();
  for (size_t i = 0; i < most_held.size(); ++i) {
    here.devices[i].measured = most_held[i] - (i == 0 ? kept.counted : 0);
  }
}

MemoryReport Trainer::memory() const {
  const ReadyStep* last = impl_->step_cache.last();
  EPL_CHECK(last != nullptr, "there is no plan before the first step", "epl::Trainer::memory",
            "call it after step(), or forecast(batch) before");
  MemoryReport report = impl_->forecast_of(last->plan(), last->placement());
  report.recording = impl_->step_cache.recording_bytes();
  impl_->add_measured(report);
  return report;
}

// By a StepCache of its own, so that the trainer knows nothing of it: what is recorded now need not
// be what the step does when it comes.
MemoryReport Trainer::Impl::forecast(const Batch& batch) {
  step_cache.begin_step();  // looks whether the program has changed its modules
  LocalReplicas own_replicas(job->team(), model.device(), job->cluster().first_device());
  StepCache cache(
      {model, function, config, *job, own_replicas, clipping, [this] { return plain_seed(); }});
  BatchInput input(batch, config, own_replicas.size());
  const Batch sample = input.sample();
  const Placement placement = cache.placement(sample, batch, plain_seed());
  const DeviceBatches batches = input.cut(shares_here(placement, job->cluster(), config));
  Batch scratch;
  const CompiledStep compiled = cache.plan_once(micro_batch_of(batches, placement, 0, 0, scratch));
  job->team().memory(0).trim();
  MemoryReport report = forecast_of(compiled.plan, placement);
  report.recording = cache.recording_bytes();
  return report;
}

MemoryReport Trainer::forecast(const Batch& batch) {
  Impl& impl = *impl_;
  const Job::StepTurn turn(*impl.job);
  const Unchanged unchanged(impl.model);
  std::optional<DeviceMemory::Use> use;
  if (!DeviceMemory::in_use_on_this_thread()) use.emplace(impl.job->team().memory(0));
  try {
    return impl.forecast(batch);
  } catch (const CannotReplay& why) {
    throw Error(
        concat("such a step runs as the plain program would, and what that needs is in no plan: ",
               why.what()),
        "epl::Trainer::forecast", "a step that can be replayed (docs/trainer.md)");
  }
}

}  // namespace epl
