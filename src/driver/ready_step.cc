#include "driver/ready_step.h"

#include <algorithm>

#include "base/check.h"
#include "ops/facts.h"

namespace epl {

bool draws_random_numbers(const Graph& graph) {
  return std::any_of(graph.nodes.begin(), graph.nodes.end(),
                     [](const Node& node) { return is_random(node.op); });
}

ReadyStep::ReadyStep(CompiledStep step, LocalReplicas& replicas, const Capture& capture,
                     StageWays& ways, const Cluster& cluster, ExchangeOptions options)
    : compiled_(std::move(step)),
      replicas_(replicas),
      ways_(ways),
      own_state_(static_cast<size_t>(replicas.size())),
      executors_(static_cast<size_t>(replicas.size())),
      exchanges_(compiled_.plan.programs.size()),
      end_(end_of_step(compiled_.plan)),
      recorded_loss_(capture.loss),
      draws_random_numbers_(epl::draws_random_numbers(compiled_.graph)),
      closed_over_(capture.closed_over),
      held_unseen_(capture.held_unseen) {
  check_state();
  replicas.team.run([&](int device) {
    LocalReplica& replica = replicas[device];
    replica.arena.ensure(program(device).arena_bytes);
    executors_[static_cast<size_t>(device)] = std::make_unique<Executor>(
        program(device), replica.arena, leaves_for(device), replica.streams.default_generator(),
        [&replica](const at::Generator& users) { return replica.streams.of(users); });
  });
  StepGradients::Devices devices{{ways.placement(), cluster.worker_num == 1}, {}, {}, {}};
  for (int device = 0; device < replicas.size(); ++device) {
    devices.places.push_back(place(device));
    devices.executors.push_back(executors_[static_cast<size_t>(device)].get());
  }
  for (size_t stage = 0; stage < exchanges_.size(); ++stage) {
    std::vector<Executor*> here;
    for (int device : devices_of_stage(stage)) {
      here.push_back(executors_[static_cast<size_t>(device)].get());
    }
    if (!here.empty()) {
      exchanges_[stage] = std::make_unique<GradientExchange>(
          plan().programs[stage], std::move(here), ways.channels(static_cast<int>(stage)), options);
    }
    devices.exchanges.push_back(exchanges_[stage].get());
  }
  gradients_ = std::make_unique<StepGradients>(compiled_, std::move(devices));
  for (HeldUnseen& memory : held_unseen_) memory.count();  // with the executors' own tensors
  if (placement().has_roles()) make_groups();
  if (!plan().transfers.empty()) {
    mail_ = std::make_unique<StageMail>(plan(), ways.placement(), cluster, ways.mailbox(),
                                        ways.between_devices());
  }
  for (int device = 0; device < replicas.size(); ++device) {
    interpreters_.emplace_back(
        Interpreter::Bound{plan(), program(device), *executors_[static_cast<size_t>(device)],
                           *exchanges_[static_cast<size_t>(place(device).stage)], mail_.get(),
                           replicas.team, replicas.first + device, given_rows(device)});
  }
}

// Those that all workers make together.
void ReadyStep::make_groups() {
  for (int group = 0; group < placement().groups(); ++group) {
    if (placement().parts(group) > 1) ways_.make_group(placement().stages_of(group));
  }
  for (const auto& gradients : plan().tied) {
    std::vector<int> stages;
    for (const auto& each : gradients) stages.push_back(each.program);
    ways_.make_group(stages);
  }
}

std::vector<int> ReadyStep::devices_of_stage(size_t stage) const {
  std::vector<int> devices;
  for (int device = 0; device < replicas_.size(); ++device) {
    if (static_cast<size_t>(place(device).stage) == stage) devices.push_back(device);
  }
  return devices;
}

// Stages run at the same time: what one of them writes no other one may touch.
void ReadyStep::check_state() const {
  const auto touches = [](const Program& program, int leaf) {
    const auto is_leaf = [&](SlotId id) {
      const Slot& slot = program.slots[static_cast<size_t>(id)];
      return slot.where == Slot::Where::kLeaf && slot.index == leaf;
    };
    bool any = false;
    for (const auto& segment : program.segments) {
      for (const auto& call : segment.calls) {
        for_each_operand(call, [&](SlotId id) { any |= is_leaf(id); });
      }
    }
    return any;
  };
  const auto& programs = plan().programs;
  for (size_t writer = 0; writer < programs.size(); ++writer) {
    for (int index : programs[writer].written_leaves) {
      for (size_t other = 0; other < programs.size(); ++other) {
        // Parts write pieces, or copies of their own.
        const bool together = placement().group(static_cast<int>(other)) ==
                              placement().group(static_cast<int>(writer));
        EPL_CHECK(together || !touches(programs[other], index),
                  concat("stage ", writer, " of the pipeline writes `",
                         compiled_.graph.leaves[static_cast<size_t>(index)].name, "`, and stage ",
                         other, " uses it as well"),
                  placement().asked_by, "the module that owns it in one scope only");
      }
    }
  }
}

const at::Tensor& ReadyStep::leaf(size_t stage, int index) const {
  return compiled_.graph_of(stage).leaves[static_cast<size_t>(index)].tensor;
}

std::vector<at::Tensor> ReadyStep::leaves_for(int device) {
  const auto stage = static_cast<size_t>(place(device).stage);
  std::vector<at::Tensor> tensors;
  for (const auto& leaf : compiled_.graph_of(stage).leaves) tensors.push_back(leaf.tensor);
  const bool first = device == devices_of_stage(stage)[0];
  for (int index : program(device).written_leaves) {
    if (first && owns_state(stage, index)) {
      own_state_[static_cast<size_t>(device)].emplace_back();
      continue;
    }
    at::Tensor& tensor = tensors[static_cast<size_t>(index)];
    tensor = tensor.detach().clone();
    own_state_[static_cast<size_t>(device)].push_back(tensor);
  }
  return tensors;
}

// Of the parts that each have all of a state the first one has the user's own.
bool ReadyStep::owns_state(size_t stage, int index) const {
  const auto number = static_cast<int>(stage);
  const PlanLeaf& leaf = plan().programs[stage].leaves[static_cast<size_t>(index)];
  return leaf.shard.is_cut() || placement().stages_of(placement().group(number))[0] == number;
}

at::Tensor ReadyStep::piece_of_state(size_t stage, int index, const at::Tensor& whole) const {
  const PlanLeaf& leaf = plan().programs[stage].leaves[static_cast<size_t>(index)];
  if (!leaf.shard.is_cut()) return whole;
  return whole.narrow(leaf.shard.dim, leaf.shard.piece.begin, leaf.shard.piece.length);
}

// Which rows of a micro batch this worker has, where its parts lie on several workers.
Executor::GivenRows ReadyStep::given_rows(int device) const {
  const Place here = place(device);
  const std::vector<int> stages = placement().stages_of(placement().group(here.stage));
  for (size_t part = 0; part < stages.size(); ++part) {
    for (int other = 0; other < replicas_.size(); ++other) {
      const Place there = place(other);
      if (there.replica == here.replica && there.stage == stages[part]) {
        return {static_cast<int64_t>(part), static_cast<int64_t>(stages.size())};
      }
    }
  }
  return {};
}

bool ReadyStep::out_of_date() const {
  return std::any_of(closed_over_.begin(), closed_over_.end(),
                     [](const ClosedOver& tensor) { return !tensor.is_as_recorded(); }) ||
         std::any_of(held_unseen_.begin(), held_unseen_.end(),
                     [](const HeldUnseen& memory) { return !memory.is_as_counted(); });
}

bool ReadyStep::rebind_if_moved() {
  bool moved = false;
  for (int device = 0; device < replicas_.size(); ++device) {
    if (replicas_[device].arena.bytes() >= program(device).arena_bytes) continue;
    // It was lost where a larger plan found no room.
    replicas_.team.run([&](int each) { replicas_[each].arena.ensure(program(each).arena_bytes); });
  }
  for (auto& executor : executors_) moved |= executor->rebind_if_moved();
  return moved;
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

void ReadyStep::begin(int64_t step) {
  for (auto& exchange : exchanges_) {
    if (exchange != nullptr) exchange->begin(step);
  }
  if (mail_ != nullptr) mail_->begin();
}

void ReadyStep::finish() {
  if (mail_ != nullptr) mail_->finish();
}

void ReadyStep::start_reductions() {
  for (auto& exchange : exchanges_) {
    if (exchange != nullptr) exchange->start_all();
  }
}

void ReadyStep::wait_for_reductions() {
  for (auto& exchange : exchanges_) {
    if (exchange != nullptr) exchange->wait();
  }
}

void ReadyStep::run(int device, const std::vector<Batch>* micro_batches, double seed,
                    DeviceRun& result) {
  interpreters_[static_cast<size_t>(device)].run(
      {micro_batches, seed, ways_.parts_of(replicas_.first + device)}, result);
}

void ReadyStep::hand_out_state() {
  const c10::AutoGradMode no_grad(false);
  for (size_t device = 0; device < own_state_.size(); ++device) {
    const auto stage = static_cast<size_t>(place(static_cast<int>(device)).stage);
    const auto& written = plan().programs[stage].written_leaves;
    for (size_t i = 0; i < own_state_[device].size(); ++i) {
      at::Tensor& own = own_state_[device][i];
      if (own.defined()) own.copy_(leaf(stage, written[i]).detach());
    }
  }
  state_before_.resize(plan().programs.size());
  for (size_t stage = 0; stage < plan().programs.size(); ++stage) {
    const auto& written = plan().programs[stage].written_leaves;
    state_before_[stage].resize(written.size());
    for (size_t i = 0; i < written.size(); ++i) {
      if (merge_of(stage, written[i]) != WrittenState::Merge::kWriters) continue;
      const at::Tensor users = piece_of_state(stage, written[i], leaf(stage, written[i]).detach());
      at::Tensor& before = state_before_[stage][i];
      if (before.defined() && before.sizes() == users.sizes()) {
        before.copy_(users);
      } else {
        before = users.clone();
      }
    }
  }
}

// One device has what the plain loop has; only to other workers it travels.
WrittenState::Merge ReadyStep::merge_of(size_t stage, int index) const {
  const Leaf& written = compiled_.graph_of(stage).leaves[static_cast<size_t>(index)];
  const bool mean = written.kind != Leaf::Kind::kParameter && written.tensor.is_floating_point();
  const bool one = plan().replicas * plan().programs[stage].devices == 1;
  return mean || one ? WrittenState::Merge::kMean : WrittenState::Merge::kWriters;
}

// Of a state that one device writes nothing is merged, but other workers get it.
void ReadyStep::merge_state(Communicator* workers) {
  const bool travels = placement().has_roles() && workers != nullptr;
  std::vector<WrittenState> states;
  for (size_t stage = 0; stage < plan().programs.size(); ++stage) {
    const Program& program = plan().programs[stage];
    const std::vector<int> here = devices_of_stage(stage);
    for (size_t i = 0; i < program.written_leaves.size(); ++i) {
      const int index = program.written_leaves[i];
      WrittenState state;
      state.devices = plan().replicas * program.devices;
      if (!owns_state(stage, index) || (state.devices == 1 && !travels)) continue;
      state.name = compiled_.graph_of(stage).leaves[static_cast<size_t>(index)].name;
      state.merge = merge_of(stage, index);
      state.stage = static_cast<int>(stage);
      state.users = piece_of_state(stage, index, leaf(stage, index).detach());
      state.before = state_before_[stage][i];
      for (int device : here) {
        const at::Tensor& own = own_state_[static_cast<size_t>(device)][i];
        state.written.push_back(own.defined() ? piece_of_state(stage, index, own) : state.users);
      }
      states.push_back(std::move(state));
    }
  }
  if (!states.empty()) merge_written_state(states, workers);
}

}  // namespace epl
