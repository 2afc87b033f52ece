#include "driver/stage_parameters.h"

#include <algorithm>
#include <map>
#include <set>

namespace epl {
namespace {

std::set<int> workers_with(const ReadyStep& step, const std::vector<int>& stages,
                           const Cluster& cluster) {
  std::set<int> workers;
  for (int stage : stages) {
    for (int worker : step.placement().workers_of(stage, cluster)) workers.insert(worker);
  }
  return workers;
}

}  // namespace

int first_holder(const ReadyStep& step, const std::vector<int>& stages, const Cluster& cluster) {
  return *workers_with(step, stages, cluster).begin();
}

void reduce_tied(ReadyStep& step) {
  if (step.plan().tied.empty()) return;
  const auto stages = stages_by_leaf(step.plan());
  step.gradients().reduce_tied([&](const StepGradients::Entry& entry) {
    return step.ways().workers_of(stages.at(entry.leaf));
  });
}

void gather_pieces(Job& job, const ReadyStep& step, const PiecesOf& pieces_of) {
  const c10::AutoGradMode no_grad(false);
  using Pair = std::pair<at::Tensor, at::Tensor>;  // a part of the user's tensor, and what travels
  std::map<std::pair<int, at::ScalarType>, std::vector<Pair>> by_root;
  for (const auto& holder : step.gradients().holders()) {
    for (size_t i = 0; i < holder.pieces.size(); ++i) {
      const std::set<int> workers = workers_with(step, {holder.stages[i]}, job.cluster());
      if (static_cast<int>(workers.size()) == job.cluster().worker_num) continue;
      for (const at::Tensor& whole : pieces_of(holder.parameter)) {
        const Piece& piece = holder.pieces[i];
        const at::Tensor own = whole.narrow(holder.cut_dim, piece.begin, piece.length);
        if (own.numel() == 0) continue;
        by_root[{*workers.begin(), own.scalar_type()}].emplace_back(own, own.contiguous());
      }
    }
  }
  for (const auto& [key, pairs] : by_root) {
    std::vector<at::Tensor> travelling;
    for (const auto& pair : pairs) travelling.push_back(pair.second);
    job.workers()->broadcast(travelling, key.first);
    for (const auto& [own, copy] : pairs) {
      if (copy.data_ptr() != own.data_ptr()) at::Tensor(own).copy_(copy);
    }
  }
}

void gather_parameters(Job& job, const ReadyStep& step, Gather which) {
  if (job.workers() == nullptr || !step.placement().has_roles()) return;
  const c10::AutoGradMode no_grad(false);
  using Pair = std::pair<at::Tensor, at::Tensor>;  // the user's tensor and what travels for it
  std::map<std::pair<int, at::ScalarType>, std::vector<Pair>> by_root;
  // Nobody reads a piece that is not its own.
  if (which == Gather::kAll) {
    gather_pieces(job, step, [](const at::Tensor& parameter) {
      return std::vector<at::Tensor>{parameter.detach()};
    });
  }
  for (const auto& holder : step.gradients().holders()) {
    const at::Tensor& parameter = holder.parameter;
    const std::set<int> workers = workers_with(step, holder.stages, job.cluster());
    if (static_cast<int>(workers.size()) == job.cluster().worker_num) continue;
    const std::set<int> reading = workers_with(step, holder.readers, job.cluster());
    const bool enough =
        std::includes(workers.begin(), workers.end(), reading.begin(), reading.end());
    if (which == Gather::kRead && enough) continue;
    const at::Tensor own = parameter.detach();
    if (own.numel() == 0) continue;
    by_root[{*workers.begin(), own.scalar_type()}].emplace_back(own, own.contiguous());
  }
  for (const auto& [key, pairs] : by_root) {
    std::vector<at::Tensor> travelling;
    for (const auto& pair : pairs) travelling.push_back(pair.second);
    job.workers()->broadcast(travelling, key.first);
    for (const auto& [own, copy] : pairs) {
      if (copy.data_ptr() != own.data_ptr()) at::Tensor(own).copy_(copy);
    }
  }
}

}  // namespace epl
