#include "runtime/merge_outputs.h"

#include <epl/collection.h>
#include <torch/csrc/jit/serialization/pickle.h>

#include "base/check.h"
#include "runtime/merge_metric.h"

namespace epl {
namespace {

bool is_local(const std::string& collection) {
  return collection == collections::kLocalMean || collection == collections::kLocalSum ||
         collection == collections::kLocalConcat;
}

at::Tensor joined(const std::vector<at::Tensor>& of_slices, const PlanOutput& output) {
  const at::Tensor& one = of_slices[0];
  if (output.all_alike) return one;
  if (output.merge == SliceMerge::kConcat) return at::cat(of_slices, output.batch_dim);
  if (output.merge == SliceMerge::kSum) {
    return at::stack(of_slices).sum(0).to(one.scalar_type());
  }
  return one.is_floating_point() ? at::stack(of_slices).mean(0) : one;
}

// `parts`: those of each device, micro batch by micro batch. Gives those of each replica.
std::vector<at::Tensor> join_slices(const std::vector<at::Tensor>& parts, size_t micro_batches,
                                    const PlanOutput& output) {
  std::vector<at::Tensor> whole;
  const auto slices = static_cast<size_t>(output.devices);
  const size_t replicas = parts.size() / micro_batches / slices;
  for (size_t replica = 0; replica < replicas; ++replica) {
    for (size_t i = 0; i < micro_batches; ++i) {
      std::vector<at::Tensor> of_slices;
      for (size_t slice = 0; slice < slices; ++slice) {
        of_slices.push_back(parts[(replica * slices + slice) * micro_batches + i]);
      }
      whole.push_back(joined(of_slices, output));
    }
  }
  return whole;
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

// The type of a metric is that of its slot.
at::ScalarType type_of(const Plan& plan, const PlanOutput& metric) {
  const Program& program = plan.program_of(static_cast<size_t>(metric.role));
  for (const auto& outputs : program.outputs) {
    for (const auto& made : outputs.metrics) {
      if (made.name == metric.name) return program.slots[static_cast<size_t>(made.slot)].type.dtype;
    }
  }
  return at::kFloat;
}

void check_mergeable(const Plan& plan, const PlanOutput& metric) {
  const auto parts = static_cast<size_t>(plan.replicas * plan.micro_batches * metric.slices());
  check_mergeable(metric.name, metric.collection, type_of(plan, metric), parts);
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

double parts_in_loss(const Plan& plan) {
  const double parts = static_cast<double>(plan.replicas) * plan.micro_batches;
  const double slices = plan.loss.merge == SliceMerge::kSum ? 1 : plan.loss.devices;
  return parts * slices / plan.loss_parts;
}

double merged_loss(const std::vector<DeviceRun>& runs, const Plan& plan) {
  double merged = 0;  // as the plain loop adds up shares
  for (const auto& run : runs) {
    for (double loss : run.losses) merged += loss / plan.loss_parts;
  }
  return merged;
}

std::map<std::string, at::Tensor> merge_metrics(const std::vector<DeviceRun>& runs,
                                                const MetricsRequest& request) {
  const Plan& plan = request.plan;
  std::map<std::string, at::Tensor> merged;
  const auto micro_batches = static_cast<size_t>(plan.micro_batches);
  for (const PlanOutput& metric : plan.metrics) {
    check_mergeable(plan, metric);
    std::vector<at::Tensor> parts;
    int devices = 0;
    for (const auto& run : runs) {
      const auto own = run.metrics.find(metric.name);
      if (own == run.metrics.end()) continue;
      ++devices;
      parts.insert(parts.end(), own->second.parts.begin(), own->second.parts.end());
    }
    const bool local = is_local(metric.collection);
    const bool whole_replicas = devices > 0 && devices % metric.devices == 0;
    const bool stays = local && whole_replicas && plan.roles() == 1;
    const bool gathers = request.workers != nullptr && !stays;
    if (gathers) parts = gather_from_workers(parts, *request.workers);
    if (metric.devices > 1) parts = join_slices(parts, micro_batches, metric);
    if (local) {
      const auto replica = static_cast<size_t>(gathers ? request.replica : 0);
      const auto begin = parts.begin() + static_cast<std::ptrdiff_t>(replica * micro_batches);
      parts = {begin, begin + static_cast<std::ptrdiff_t>(micro_batches)};
    }
    merged[metric.name] = merge_metric(metric.collection, parts);
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
