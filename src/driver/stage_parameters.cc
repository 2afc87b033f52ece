#include "driver/stage_parameters.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>
#include <tuple>

#include "base/check.h"
#include "runtime/pages.h"

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

std::set<int> all_workers(const Cluster& cluster) {
  std::set<int> workers;
  for (int worker = 0; worker < cluster.worker_num; ++worker) workers.insert(worker);
  return workers;
}

// What goes from one worker to others, joined by who takes part, by its root and its type. All of
// them walk through it in the same order.
struct Travel {
  Communicator* group = nullptr;
  int root = 0;                                            // its rank in the group
  std::vector<std::pair<at::Tensor, at::Tensor>> tensors;  // the user's and what travels for it
};
using Travels = std::map<std::tuple<std::set<int>, int, at::ScalarType>, Travel>;

void add_travel(const at::Tensor& own, const std::set<int>& members, int from, Communicator* group,
                Travels& travels) {
  if (own.numel() == 0) return;
  Travel& travel = travels[{members, from, own.scalar_type()}];
  travel.group = group;
  travel.root = static_cast<int>(std::distance(members.begin(), members.find(from)));
  travel.tensors.emplace_back(own, own.contiguous());
}

void broadcast(const Travels& travels) {
  for (const auto& [key, travel] : travels) {
    std::vector<at::Tensor> travelling;
    for (const auto& pair : travel.tensors) travelling.push_back(pair.second);
    travel.group->broadcast(travelling, travel.root);
    for (const auto& [own, copy] : travel.tensors) {
      if (copy.data_ptr() != own.data_ptr()) at::Tensor(own).copy_(copy);
    }
  }
}

// Visits what this worker neither updates nor reads: pieces, and parameters of other stages.
template <typename Visit>
void for_each_piece_of_others(const Job& job, const ReadyStep& step, const Visit& visit) {
  const auto is_here = [&](const std::vector<int>& stages) {
    return workers_with(step, stages, job.cluster()).count(job.cluster().worker_index) != 0;
  };
  for (const auto& holder : step.gradients().holders()) {
    const at::Tensor& parameter = holder.parameter;
    for (size_t i = 0; i < holder.shards.size(); ++i) {
      if (is_here({holder.stages[i]})) continue;
      visit(parameter, holder.shards[i].dim, holder.shards[i].piece);
    }
    const bool elsewhere =
        holder.shards.empty() && !is_here(holder.stages) && !is_here(holder.readers);
    if (elsewhere && parameter.dim() > 0) visit(parameter, 0, Piece{0, parameter.size(0)});
  }
}

// Whether all stages with a piece of the parameter lie on the same workers.
bool is_on_one_worker(const Job& job, const ReadyStep& step, const StepGradients::Holders& holder) {
  const std::set<int> all = workers_with(step, holder.stages, job.cluster());
  return std::all_of(holder.stages.begin(), holder.stages.end(),
                     [&](int stage) { return workers_with(step, {stage}, job.cluster()) == all; });
}

std::string name_of(const Model& model, const at::Tensor& parameter) {
  for (const auto& [name, tensor] : model.parameters()) {
    if (tensor.is_same(parameter)) return name;
  }
  return "";
}

}  // namespace

int first_holder(const ReadyStep& step, const std::vector<int>& stages, const Cluster& cluster) {
  return *workers_with(step, stages, cluster).begin();
}

void check_updates_of_pieces(const Job& job, const ReadyStep& step, Model& model) {
  for (const auto& holder : step.gradients().holders()) {
    if (holder.shards.empty() || is_on_one_worker(job, step, holder)) continue;
    for (size_t optimizer : model.optimizers_of(holder.parameter)) {
      EPL_CHECK(model.update(optimizer).fused(),
                concat("`", name_of(model, holder.parameter), "` is cut over several workers, and ",
                       model.update(optimizer).name(),
                       " would see a piece of it where it expects the whole"),
                step.placement().asked_by,
                "SGD, Adam, AdamW, RMSprop or Adagrad of torch::optim, or all devices of the scope "
                "on one worker");
    }
  }
}

void reduce_tied(ReadyStep& step) {
  if (step.plan().tied.empty()) return;
  const auto stages = stages_by_leaf(step.plan());
  step.gradients().reduce_tied([&](const StepGradients::Entry& entry) {
    return step.ways().workers_of(stages.at(entry.leaf));
  });
}

void gather_pieces(Job& job, const ReadyStep& step, Among among, const PiecesOf& pieces_of) {
  const c10::AutoGradMode no_grad(false);
  const int here = job.cluster().worker_index;
  Travels travels;
  for (const auto& holder : step.gradients().holders()) {
    const std::set<int> holders = workers_with(step, holder.stages, job.cluster());
    const std::set<int> members = among == Among::kAll ? all_workers(job.cluster()) : holders;
    if (members.size() == 1 || members.count(here) == 0) continue;
    Communicator* const group =
        among == Among::kAll ? job.workers() : step.ways().workers_of(holder.stages);
    for (size_t i = 0; i < holder.shards.size(); ++i) {
      const std::set<int> have = workers_with(step, {holder.stages[i]}, job.cluster());
      if (have.size() == members.size()) continue;
      const Piece& piece = holder.shards[i].piece;
      for (const at::Tensor& whole : pieces_of(holder.parameter)) {
        const at::Tensor own = whole.narrow(holder.shards[i].dim, piece.begin, piece.length);
        add_travel(own, members, *have.begin(), group, travels);
      }
    }
  }
  broadcast(travels);
}

int64_t bytes_of_others(const Job& job, const ReadyStep& step) {
  int64_t bytes = 0;
  for_each_piece_of_others(job, step, [&](const at::Tensor& whole, int dim, Piece piece) {
    if (whole.numel() > 0) {
      bytes += static_cast<int64_t>(whole.nbytes()) / whole.size(dim) * piece.length;
    }
  });
  return bytes;
}

void release_pieces_of_others(const Job& job, const ReadyStep& step, const PiecesOf& pieces_of) {
  for_each_piece_of_others(job, step, [&](const at::Tensor& parameter, int dim, Piece piece) {
    for (const at::Tensor& whole : pieces_of(parameter)) {
      if (!whole.device().is_cpu() || !whole.is_contiguous()) continue;
      release_pages(whole, dim, piece.begin, piece.length);
    }
  });
}

void gather_parameters(Job& job, const ReadyStep& step, Gather which) {
  if (job.workers() == nullptr || !step.placement().has_roles()) return;
  const c10::AutoGradMode no_grad(false);
  // Nobody reads a piece that is not its own.
  if (which == Gather::kAll) {
    gather_pieces(job, step, Among::kAll, [](const at::Tensor& parameter) {
      return std::vector<at::Tensor>{parameter.detach()};
    });
  }
  Travels travels;
  for (const auto& holder : step.gradients().holders()) {
    if (!holder.shards.empty()) continue;
    const std::set<int> workers = workers_with(step, holder.stages, job.cluster());
    if (static_cast<int>(workers.size()) == job.cluster().worker_num) continue;
    const std::set<int> reading = workers_with(step, holder.readers, job.cluster());
    const bool enough =
        std::includes(workers.begin(), workers.end(), reading.begin(), reading.end());
    if (which == Gather::kRead && enough) continue;
    add_travel(holder.parameter.detach(), all_workers(job.cluster()), *workers.begin(),
               job.workers(), travels);
  }
  broadcast(travels);
}

}  // namespace epl
