#include "runtime/bound_step.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"
#include "program/plan_mesh.h"
#include "runtime/owner_gathering.h"

namespace epl {
namespace {

// What a run without the arena, a recorded or a plain one, has left behind is given back.
void ensure_arena(LocalReplicas& replicas, int device, int64_t bytes) {
  Arena& arena = replicas[device].arena;
  if (arena.bytes() >= bytes) return;
  arena.ensure(bytes);
  replicas.team.memory(device).trim();
}

}  // namespace

BoundStep::BoundStep(const Plan& plan, BoundLeaves leaves, const Where& where)
    : plan_(plan),
      leaves_(std::move(leaves)),
      replicas_(where.replicas),
      connections_(where.connections),
      spread_of_(where.spread_of),
      spread_(plan.roles()),
      own_state_(static_cast<size_t>(replicas_.size())),
      executors_(static_cast<size_t>(replicas_.size())),
      exchanges_(plan.roles()) {
  check_state();
  check_updated_early();
  if (where.homes != nullptr) make_homes(*where.homes);
  make_executors();
  make_spread();
  make_exchanges(where.exchange);
  make_gradients();
  if (placement().has_roles()) make_groups();
  if (!plan.transfers.empty()) {
    mail_ = std::make_unique<StageMail>(plan, placement(), connections_.cluster(),
                                        connections_.mailbox(), connections_.between_devices(),
                                        replicas_.team);
  }
  for (int device = 0; device < replicas_.size(); ++device) {
    const auto role = static_cast<size_t>(place(device).role);
    interpreters_.emplace_back(Interpreter::Bound{
        plan, program(device), *executors_[static_cast<size_t>(device)], *exchanges_[role],
        mail_.get(), replicas_.team, replicas_.first + device, given_rows(device), homes_.get(),
        number_in_role(device), spread_[role].get()});
  }
  bind_end();
}

// What is updated while the step runs nothing else of the step may show.
void BoundStep::check_updated_early() const {
  for (size_t role = 0; role < plan_.roles(); ++role) {
    const Program& program = plan_.program_of(role);
    const auto memory_of = [](const at::Tensor& tensor) {
      const auto* const begin = tensor.defined() && tensor.has_storage()
                                    ? static_cast<const char*>(tensor.storage().data())
                                    : nullptr;
      return std::make_pair(begin, begin == nullptr ? begin : begin + tensor.storage().nbytes());
    };
    const auto users_of = [&](const at::Tensor& own) {
      const auto [begin, end] = memory_of(own);
      int users = 0;
      for (const auto& each : leaves_.of_roles[role]) {
        const auto [first, last] = memory_of(each.tensor);
        users += first < end && begin < last ? 1 : 0;
      }
      return users;
    };
    for (const PlanGradient& gradient : program.gradients) {
      if (gradient.stays != PlanGradient::Stays::kUntilUpdated) continue;
      EPL_CHECK(users_of(leaf(role, gradient.leaf).tensor) <= 1,
                concat("`", program.leaves[static_cast<size_t>(gradient.leaf)].name,
                       "` is updated while the step runs, and the step reads its memory under "
                       "another name as well"),
                "optimizer.update_early = true", "optimizer.update_early = false");
    }
  }
}

void BoundStep::make_homes(TensorHomes& homes) {
  std::vector<int> devices;
  for (size_t role = 0; role < plan_.roles(); ++role) {
    devices.push_back(static_cast<int>(devices_of_role(role).size()));
  }
  homes_ = std::make_unique<LeafHomes>(homes, plan_, leaves_.users, devices);
}

LeafHomes::Device BoundStep::number_in_role(int device) const {
  const int role = place(device).role;
  const std::vector<int> devices = devices_of_role(static_cast<size_t>(role));
  const auto found = std::find(devices.begin(), devices.end(), device);
  return {role, static_cast<int>(found - devices.begin())};
}

void BoundStep::make_executors() {
  replicas_.team.run([&](int device) {
    LocalReplica& replica = replicas_[device];
    ensure_arena(replicas_, device, program(device).arena_bytes);
    executors_[static_cast<size_t>(device)] = std::make_unique<Executor>(
        plan_.role(static_cast<size_t>(place(device).role)), replica.arena, leaves_for(device),
        replica.streams.default_generator(),
        [&replica](const at::Generator& users) { return replica.streams.of(users); });
  });
}

void BoundStep::make_spread() {
  for (size_t role = 0; role < spread_.size(); ++role) {
    const Program& own = plan_.program_of(role);
    const auto here = static_cast<int>(devices_of_role(role).size());
    SpreadTensors tensors(own.leaves.size());
    bool any = false;
    for (size_t i = 0; i < own.leaves.size(); ++i) {
      if (!own.leaves[i].is_spread()) continue;
      tensors[i] = spread_of_(leaves_.users[i]);
      EPL_ASSERT(tensors[i] != nullptr, "a leaf that is spread has memory of its own");
      any = true;
    }
    if (!any || here == 0) continue;
    spread_[role] = std::make_unique<SpreadLeaves>(own, std::move(tensors), connections_,
                                                   static_cast<int>(role), here, replicas_.team);
  }
}

// What computes leaves the storage of a parameter to the program, so that it can be seen who else
// holds it.
at::Tensor BoundStep::memory_of(const at::Tensor& leaf) const {
  const auto own = leaf.defined() ? spread_of_(leaf) : nullptr;
  return own == nullptr ? leaf : own->tensor();
}

Gathering::Stays BoundStep::stays_spread() const {
  return [this](const at::Tensor& parameter) {
    const auto own = spread_of_(parameter);
    return own != nullptr && !own->is_near();
  };
}

void BoundStep::make_exchanges(const ExchangeOptions& options) {
  for (size_t role = 0; role < exchanges_.size(); ++role) {
    std::vector<Executor*> here;
    for (int device : devices_of_role(role)) {
      here.push_back(executors_[static_cast<size_t>(device)].get());
    }
    if (here.empty()) continue;
    const auto number = static_cast<int>(role);
    const int first = devices_of_role(role)[0];
    const Connections::Sharers& sharers = connections_.sharers_of(number);
    GradientExchange::Where where{
        std::move(here), connections_.routes(number),  sharers.devices,
        sharers.rank,    replicas_.team.memory(first), replicas_[first].sums};
    where.update_early = [this, number](const Instruction& update) {
      update_early(number, update);
    };
    exchanges_[role] =
        std::make_unique<GradientExchange>(plan_.program_of(role), std::move(where), options);
  }
}

// On the thread of a device, or of a lane. Devices go on computing meanwhile, so it has one thread.
void BoundStep::update_early(int role, const Instruction& update) {
  const MutexLock lock(updating_);
  const auto group = gradients_->group_of(role, update);
  if (!group) return;
  for (auto& part : gradients_->updates()[*group]) {
    Update& each = update_of_(part.optimizer);
    each.scale_gradients(1);
    const int64_t elements = each.prepare(part.gradients);
    each.run(0, elements);
    each.finish();
  }
}

void BoundStep::make_gradients() {
  StepGradients::Devices devices;
  devices.leaves = leaves_.users;
  for (int device = 0; device < replicas_.size(); ++device) {
    devices.places.push_back(place(device));
    devices.executors.push_back(executors_[static_cast<size_t>(device)].get());
  }
  for (const auto& exchange : exchanges_) devices.exchanges.push_back(exchange.get());
  for (int role = 0; role < placement().roles(); ++role) {
    devices.sharers.push_back(connections_.sharers_of(role));
  }
  gradients_ = std::make_unique<StepGradients>(plan_, std::move(devices));
}

// Those that all workers make together.
void BoundStep::make_groups() {
  for (int stage = 0; stage < placement().stages(); ++stage) {
    if (placement().parts(stage) > 1) connections_.make_group(placement().roles_of(stage));
  }
  for (const auto& gradients : plan_.tied) {
    std::vector<int> roles;
    for (const auto& each : gradients) roles.push_back(each.role);
    connections_.make_group(roles);
  }
  for (const std::string& axis : axes_of_collectives(plan_)) connections_.make_groups_along(axis);
}

// What the instructions name is looked up once: a step only walks through it.
void BoundStep::bind_end() {
  using Kind = Instruction::Kind;
  using Over = Instruction::Over;
  const auto roles = roles_by_leaf(plan_);
  for (EndPhase& phase : end_of_step(plan_)) {
    BoundPhase bound;
    bound.phase = std::move(phase);
    const Kind kind = bound.phase.kind;
    const bool ties = kind == Kind::kReduce && bound.phase.over == Over::kRoles;
    const bool looks = kind == Kind::kClip || kind == Kind::kFinite;
    if (ties || looks) bound.entries = gradients_->entries_of(bound.phase);
    for (size_t entry : ties ? bound.entries : std::vector<size_t>()) {
      const int leaf = gradients_->entries()[entry].leaf;
      bound.workers.push_back(connections_.workers_of(roles.at(leaf)));
    }
    const bool norm_of_all = kind == Kind::kClip && bound.phase.over == Over::kAll;
    if (norm_of_all && connections_.workers() != nullptr) {
      bound.counts = counts_of(bound.entries, /*scattered=*/false);
      bound.counts_scattered = counts_of(bound.entries, /*scattered=*/true);
    }
    end_.push_back(std::move(bound));
  }
}

// A piece counts where it is; what several have, once; of what owners alone have each its own.
std::vector<bool> BoundStep::counts_of(const std::vector<size_t>& entries, bool scattered) const {
  const auto roles = roles_by_leaf(plan_);
  std::vector<bool> counts;
  for (size_t index : entries) {
    const StepGradients::Entry& entry = gradients_->entries()[index];
    if (scattered && entry.scattered) {
      counts.push_back(entry.owned->length > 0);
      continue;
    }
    const std::vector<int> own = {gradients_->role_of(entry)};
    const std::vector<int>& holders = !entry.shard.is_cut() ? roles.at(entry.leaf) : own;
    counts.push_back(first_holder(connections_, holders) == connections_.cluster().worker_index);
  }
  return counts;
}

bool BoundStep::clips_each_replica() const {
  return std::any_of(end_.begin(), end_.end(), [](const BoundPhase& bound) {
    return bound.phase.kind == Instruction::Kind::kClip &&
           bound.phase.over == Instruction::Over::kReplica;
  });
}

std::vector<int> BoundStep::devices_of_role(size_t role) const {
  std::vector<int> devices;
  for (int device = 0; device < replicas_.size(); ++device) {
    if (static_cast<size_t>(place(device).role) == role) devices.push_back(device);
  }
  return devices;
}

// Stages run at the same time: what one of them writes no other one may touch.
void BoundStep::check_state() const {
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
  for (size_t writer = 0; writer < plan_.roles(); ++writer) {
    const Program& writing = plan_.program_of(writer);
    for (int index : writing.written_leaves) {
      for (size_t other = 0; other < plan_.roles(); ++other) {
        // Parts write pieces, or copies of their own.
        const int of_writer = placement().stage_of(static_cast<int>(writer));
        const int of_other = placement().stage_of(static_cast<int>(other));
        EPL_CHECK(of_other == of_writer || !touches(plan_.program_of(other), index),
                  concat("stage ", of_writer, " of the pipeline writes `",
                         writing.leaves[static_cast<size_t>(index)].name, "`, and stage ", of_other,
                         " uses it as well"),
                  placement().asked_by, "the module that owns it in one scope only");
      }
    }
  }
}

const BoundLeaves::Leaf& BoundStep::leaf(size_t role, int index) const {
  return leaves_.of_roles[role][static_cast<size_t>(index)];
}

std::vector<at::Tensor> BoundStep::leaves_for(int device) {
  const auto role = static_cast<size_t>(place(device).role);
  std::vector<at::Tensor> tensors;
  for (const auto& each : leaves_.of_roles[role]) tensors.push_back(memory_of(each.tensor));
  for (size_t i = 0; homes_ != nullptr && i < tensors.size(); ++i) {
    tensors[i] = homes_->window(program(device).leaves[i], tensors[i]);
  }
  const bool first = device == devices_of_role(role)[0];
  for (int index : program(device).written_leaves) {
    if (first && owns_state(role, index)) {
      own_state_[static_cast<size_t>(device)].emplace_back();
      continue;
    }
    at::Tensor& tensor = tensors[static_cast<size_t>(index)];
    tensor = tensor.detach().clone();
    own_state_[static_cast<size_t>(device)].push_back(tensor);
  }
  return tensors;
}

// Which rows of a micro batch this worker has, where its parts lie on several workers.
Executor::GivenRows BoundStep::given_rows(int device) const {
  const Place here = place(device);
  const std::vector<int> roles = placement().roles_of(placement().stage_of(here.role));
  for (size_t part = 0; part < roles.size(); ++part) {
    for (int other = 0; other < replicas_.size(); ++other) {
      const Place there = place(other);
      if (there.replica == here.replica && there.role == roles[part]) {
        return {static_cast<int64_t>(part), static_cast<int64_t>(roles.size())};
      }
    }
  }
  return {};
}

// A parameter that the program has given other memory may have another window, or none.
void BoundStep::bind_windows() {
  for (int device = 0; homes_ != nullptr && device < replicas_.size(); ++device) {
    const auto& leaves = program(device).leaves;
    const auto& tensors = leaves_.of_roles[static_cast<size_t>(place(device).role)];
    for (size_t i = 0; i < leaves.size(); ++i) {
      if (!leaves[i].offloaded) continue;
      executors_[static_cast<size_t>(device)]->set_leaf(
          i, homes_->window(leaves[i], tensors[i].tensor));
    }
  }
}

bool BoundStep::rebind_if_moved() {
  bind_windows();
  for (int device = 0; device < replicas_.size(); ++device) {
    if (replicas_[device].arena.bytes() >= program(device).arena_bytes) continue;
    // It was lost where a larger plan found no room.
    replicas_.team.run([&](int each) { ensure_arena(replicas_, each, program(each).arena_bytes); });
  }
  for (auto& executor : executors_) moved_ |= executor->rebind_if_moved();
  // Where this refuses the step, the next one finds no other addresses, and is to be looked at all
  // the same.
  if (moved_) check_updated_early();
  return std::exchange(moved_, false);
}

void BoundStep::bind_updates(const StepOptimizers& optimizers, Gather others) {
  gradients_->bind_updates(optimizers);
  for (const HeldParameter& held : gradients_->held()) {
    if (held.owners.are_all()) continue;
    connections_.make_group(held.roles);
    for (int role : held.roles) connections_.make_group({role});
  }
  gathering_ = Gathering();
  for (const auto& bound : end_) {
    const bool between_roles = bound.phase.kind == Instruction::Kind::kGather &&
                               bound.phase.over == Instruction::Over::kRoles;
    if (!between_roles) continue;
    gathering_ = gathering_of(connections_, gradients_->held(), bound.phase, others);
  }
}

void BoundStep::gather_from_owners() const {
  const Gathering::Stays stays = stays_spread();
  epl::gather_from_owners(connections_, gradients_->held(), [&](const at::Tensor& parameter) {
    return stays(parameter) ? std::vector<at::Tensor>()
                            : std::vector<at::Tensor>{parameter.detach()};
  });
}

void BoundStep::gather(Gather which) const {
  gathering_of(connections_, gradients_->held(), which).run(stays_spread());
}

void BoundStep::begin(const Start& start) {
  const auto& [step, loss_scale, sums_to_all, update_of] = start;
  EPL_ASSERT(loss_scale == 1 || plan_.scales_loss(), "a plan that does not scale its loss");
  loss_scale_ = loss_scale;
  update_of_ = update_of;
  gradients_->begin(sums_to_all);
  if (homes_ != nullptr) homes_->begin();
  for (auto& exchange : exchanges_) {
    if (exchange != nullptr) exchange->begin(step, sums_to_all);
  }
  for (auto& spread : spread_) {
    if (spread != nullptr) spread->begin(step);
  }
  if (mail_ != nullptr) mail_->begin();
}

void BoundStep::finish() {
  if (mail_ != nullptr) mail_->finish();
}

void BoundStep::run(int device, const std::vector<Batch>* micro_batches, DeviceRun& result) {
  interpreters_[static_cast<size_t>(device)].run(
      {micro_batches, plan_.seed * loss_scale_, connections_.groups_of(replicas_.first + device)},
      result);
}

void BoundStep::bring(int role, const Instruction& instruction) const {
  const size_t devices = devices_of_role(static_cast<size_t>(role)).size();
  for (size_t i = 0; i < devices; ++i) homes_->run_for_update(instruction);
}

void BoundStep::start_reductions(const EndPhase& reduce) {
  for (const auto& [role, instruction] : reduce.instructions) {
    const auto& exchange = exchanges_[static_cast<size_t>(role)];
    if (exchange != nullptr) exchange->start(*instruction);
  }
}

void BoundStep::wait_for_reductions() {
  for (auto& exchange : exchanges_) {
    if (exchange != nullptr) exchange->wait();
  }
}

}  // namespace epl
