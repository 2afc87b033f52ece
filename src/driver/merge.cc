#include "driver/merge.h"

#include <epl/collection.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include "base/check.h"
#include "driver/metrics.h"

namespace epl {
namespace {

bool is_local(const std::string& collection) {
  return collection == collections::kLocalMean || collection == collections::kLocalSum ||
         collection == collections::kLocalConcat;
}

// `parts`: those of each device, micro batch by micro batch. Gives those of each replica.
std::vector<at::Tensor> join_slices(const std::vector<at::Tensor>& parts, size_t micro_batches,
                                    size_t slices, const TwoSizes& sizes, size_t metric) {
  std::vector<at::Tensor> joined;
  const size_t replicas = parts.size() / micro_batches / slices;
  for (size_t replica = 0; replica < replicas; ++replica) {
    for (size_t i = 0; i < micro_batches; ++i) {
      std::vector<at::Tensor> of_slices;
      for (size_t slice = 0; slice < slices; ++slice) {
        of_slices.push_back(parts[(replica * slices + slice) * micro_batches + i]);
      }
      const at::Tensor& one = of_slices[0];
      if (sizes.metrics[metric] == SliceMerge::kConcat) {
        joined.push_back(at::cat(of_slices, sizes.metric_batch_dims[metric]));
      } else if (sizes.metrics[metric] == SliceMerge::kSum) {
        joined.push_back(at::stack(of_slices).sum(0).to(one.scalar_type()));
      } else {
        joined.push_back(one.is_floating_point() ? at::stack(of_slices).mean(0) : one);
      }
    }
  }
  return joined;
}

// Devices that a layer is split over all have its metrics, those of slices aside.
bool all_have_the_same(const ReadyStep& step, size_t metric) {
  const std::vector<bool>& of_slices = step.compiled().metrics_of_slices;
  const int stage = step.metric_stage(step.compiled().graph.metrics[metric].name);
  const bool cut = metric < of_slices.size() && of_slices[metric];
  return !cut && step.placement().parts(step.placement().group(stage)) > 1;
}

// Whether all parts or any of them must be true the step alone can say.
void check_mergeable(const std::string& name, const std::string& collection, at::ScalarType type,
                     size_t parts) {
  EPL_CHECK(parts == 1 || type != at::kBool || collection != collections::kGlobalMean,
            concat("the metric \"", name, "\" is a truth value, and ", parts,
                   " parts of the batch give one each"),
            "epl::StepOutput",
            concat("a count: ", name,
                   ".to(torch::kLong) is summed; or epl::add_to_collection(GLOBAL_CONCAT, ...)"));
}

void check_mergeable(const ReadyStep& step, size_t metric, size_t slices) {
  const Graph& graph = step.compiled().graph;
  const Metric& merged = graph.metrics[metric];
  const auto parts = static_cast<size_t>(step.plan().replicas * step.plan().micro_batches);
  check_mergeable(merged.name, merged.collection, graph.value(merged.value).type.dtype,
                  all_have_the_same(step, metric) ? parts : parts * slices);
}

}  // namespace

std::vector<at::Tensor> gather_from_workers(const std::vector<at::Tensor>& mine,
                                            Communicator& workers) {
  const std::vector<char> bytes = torch::jit::pickle_save(c10::IValue(mine));
  const auto size = static_cast<int64_t>(bytes.size());
  const at::Tensor counts = at::empty({workers.size()}, at::kLong);
  workers.all_gather(at::full({1}, size, at::kLong), counts,
                     std::vector<int64_t>(static_cast<size_t>(workers.size()), 1));
  const std::vector<int64_t> rows(counts.data_ptr<int64_t>(),
                                  counts.data_ptr<int64_t>() + counts.numel());
  const at::Tensor all = at::empty({counts.sum().item<int64_t>()}, at::kByte);
  const at::Tensor part =
      at::from_blob(const_cast<char*>(bytes.data()), {size}, at::TensorOptions(at::kByte));
  workers.all_gather(part, all, rows);
  std::vector<at::Tensor> result;
  const char* next = static_cast<const char*>(all.data_ptr());
  for (int64_t count : rows) {
    const auto value = torch::jit::pickle_load(std::vector<char>(next, next + count));
    for (const at::Tensor& tensor : value.toTensorVector()) result.push_back(tensor);
    next += count;
  }
  return result;
}

double parts_in_loss(const ReadyStep& step, bool sums) {
  if (!sums || step.sizes().loss_of_parts != SliceMerge::kSum) return 1;
  return static_cast<double>(step.plan().replicas) * step.plan().micro_batches;
}

double merged_loss(const std::vector<DeviceRun>& runs, const ReadyStep& step, bool sums) {
  const Plan& plan = step.plan();
  // Parts that all have the loss of all rows have its mean as well.
  const int slices = step.placement().devices_of_group(step.placement().group(step.loss_stage()));
  const double count = static_cast<double>(plan.replicas) * slices * plan.micro_batches;
  double mean = 0;  // as the plain loop adds up shares
  for (const auto& run : runs) {
    for (double loss : run.losses) mean += loss / count;
  }
  mean *= parts_in_loss(step, sums);
  return step.sizes().loss == SliceMerge::kSum ? mean * slices : mean;
}

std::map<std::string, at::Tensor> merge_metrics(const std::vector<DeviceRun>& runs,
                                                const ReadyStep& step, Communicator* workers,
                                                int first) {
  std::map<std::string, at::Tensor> merged;
  const auto& metrics = step.compiled().graph.metrics;
  const auto micro_batches = static_cast<size_t>(step.plan().micro_batches);
  for (size_t i = 0; i < metrics.size(); ++i) {
    const std::string& name = metrics[i].name;
    const auto stage = static_cast<size_t>(step.metric_stage(name));
    const Placement& placement = step.placement();
    const auto slices =
        static_cast<size_t>(placement.devices_of_group(placement.group(static_cast<int>(stage))));
    check_mergeable(step, i, slices);
    std::vector<at::Tensor> parts;
    size_t devices = 0;
    for (const auto& run : runs) {
      const auto own = run.metrics.find(name);
      if (own == run.metrics.end()) continue;
      ++devices;
      parts.insert(parts.end(), own->second.parts.begin(), own->second.parts.end());
    }
    const bool local = is_local(metrics[i].collection);
    const bool stays =
        local && devices % slices == 0 && devices > 0 && !step.placement().has_roles();
    const bool gathers = workers != nullptr && !stays;
    if (gathers) parts = gather_from_workers(parts, *workers);
    if (slices > 1) parts = join_slices(parts, micro_batches, slices, step.sizes(), i);
    if (local) {
      const auto own = static_cast<size_t>(step.placement().place(first).replica);
      const size_t replica = gathers ? own : 0;
      const auto begin = parts.begin() + static_cast<std::ptrdiff_t>(replica * micro_batches);
      parts = {begin, begin + static_cast<std::ptrdiff_t>(micro_batches)};
    }
    merged[name] = merge_metric(metrics[i].collection, parts);
  }
  return merged;
}

std::map<std::string, at::Tensor> merge_metrics_of_replicas(const std::vector<DeviceRun>& runs,
                                                            Communicator* workers) {
  std::map<std::string, at::Tensor> merged;
  for (const auto& [name, first] : runs[0].metrics) {
    std::vector<at::Tensor> parts = first.parts;
    if (!is_local(first.collection)) {
      for (size_t device = 1; device < runs.size(); ++device) {
        const auto own = runs[device].metrics.find(name);
        if (own == runs[device].metrics.end()) continue;
        parts.insert(parts.end(), own->second.parts.begin(), own->second.parts.end());
      }
      if (workers != nullptr) parts = gather_from_workers(parts, *workers);
    }
    check_mergeable(name, first.collection, parts[0].scalar_type(), parts.size());
    merged[name] = merge_metric(first.collection, parts);
  }
  return merged;
}

}  // namespace epl
