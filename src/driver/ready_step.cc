#include "driver/ready_step.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "ops/facts.h"

namespace epl {

BoundLeaves bound_leaves(const CompiledStep& step) {
  BoundLeaves leaves;
  for (const auto& leaf : step.graph.leaves) leaves.users.push_back(leaf.tensor);
  for (size_t role = 0; role < step.plan.roles(); ++role) {
    auto& own = leaves.of_roles.emplace_back();
    for (const auto& leaf : step.graph_of(role).leaves) {
      own.push_back({leaf.tensor, leaf.kind == Leaf::Kind::kParameter});
    }
  }
  return leaves;
}

namespace {

std::string name_of(const Model& model, const at::Tensor& parameter) {
  for (const auto& [name, tensor] : model.parameters()) {
    if (tensor.is_same(parameter)) return name;
  }
  return "";
}

}  // namespace

ReadyStep::ReadyStep(CompiledStep step, const Capture& capture, const BoundStep::Where& where)
    : compiled_(std::move(step)),
      bound_(compiled_.plan, bound_leaves(compiled_), where),
      recorded_loss_(capture.loss),
      draws_random_numbers_(epl::draws_random_numbers(compiled_.graph)),
      closed_over_(capture.closed_over),
      held_unseen_(capture.held_unseen) {
  for (HeldUnseen& memory : held_unseen_) memory.count();  // with the executors' own tensors
}

StateSnapshot ReadyStep::snapshot() const {
  std::vector<at::Tensor> written;
  for (const auto& program : plan().programs) {
    for (int index : program.written_leaves) {
      written.push_back(compiled_.graph.leaves[static_cast<size_t>(index)].tensor);
    }
  }
  return {written, generators_of(compiled_.graph)};
}

bool ReadyStep::out_of_date() const {
  return std::any_of(closed_over_.begin(), closed_over_.end(),
                     [](const ClosedOver& tensor) { return !tensor.is_as_recorded(); }) ||
         std::any_of(held_unseen_.begin(), held_unseen_.end(),
                     [](const HeldUnseen& memory) { return !memory.is_as_counted(); });
}

bool ReadyStep::leaves_are_as_recorded() const {
  const Graph& graph = compiled_.graph;
  return std::all_of(graph.leaves.begin(), graph.leaves.end(), [&](const Leaf& leaf) {
    if (!leaf.tensor.defined() || leaf.tensor.layout() != c10::kStrided) return true;
    TensorType now = type_of(leaf.tensor);
    const TensorType& recorded = graph.value(leaf.value).type;
    now.offset = recorded.offset;  // the executor follows it
    return now.same_place(recorded);
  });
}

void ReadyStep::bind_updates(Model& model, GradientHistory& history, Gather gather) {
  const bool alone = bound_.connections().cluster().worker_num == 1;
  const GradientHistory::Asker asker{placement(), alone};
  std::set<c10::TensorImpl*> has_gradient;
  for (const auto& given : bound_.gradients().given()) {
    const std::string& name = compiled_.graph.leaves[static_cast<size_t>(given.leaf)].name;
    Home home = given;
    // Workers may turn out to have recorded different steps: then nobody owns anything.
    if (!history.has_owners(given.parameter)) home.owners = {};
    history.add(name, given.parameter, home, asker);
    has_gradient.insert(given.parameter.unsafeGetTensorImpl());
  }
  StepOptimizers optimizers;
  optimizers.of = [&](const at::Tensor& parameter) -> const std::vector<size_t>& {
    return model.optimizers_of(parameter);
  };
  optimizers.fused = [&](size_t optimizer) { return model.update(optimizer).fused(); };
  for (const auto& [name, parameter] : model.parameters()) {
    if (has_gradient.count(parameter.unsafeGetTensorImpl()) != 0) continue;
    if (const std::optional<Home> home = history.find(name, parameter, asker)) {
      optimizers.without_gradient.push_back({parameter, *home});
    } else {
      optimizers.resting.push_back(parameter);
    }
  }
  bound_.bind_updates(optimizers, gather);
  check_updates_of_pieces(model);
}

void ReadyStep::settle_owners(GradientHistory& history) const {
  if (settled_) return;
  const bool alone = bound_.connections().cluster().worker_num == 1;
  for (const auto& held : bound_.gradients().held()) {
    if (held.leaf < 0 || held.owners.are_all()) continue;
    const std::string& name = compiled_.graph.leaves[static_cast<size_t>(held.leaf)].name;
    history.add(name, held.parameter, held, {placement(), alone});
  }
  settled_ = true;
}

void ReadyStep::check_updates_of_pieces(Model& model) const {
  for (const auto& held : bound_.gradients().held()) {
    if (held.shards.empty() || is_on_one_worker(bound_.connections(), held)) continue;
    for (size_t optimizer : model.optimizers_of(held.parameter)) {
      EPL_CHECK(model.update(optimizer).fused(),
                concat("`", name_of(model, held.parameter), "` is cut over several workers, and ",
                       model.update(optimizer).name(),
                       " would see a piece of it where it expects the whole"),
                placement().asked_by,
                "SGD, Adam, AdamW, RMSprop or Adagrad of torch::optim, or all devices of the scope "
                "on one worker");
    }
  }
}

}  // namespace epl
