#include "runtime/gradient_exchange.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <chrono>

#include "base/check.h"
#include "base/hash.h"
#include "base/text.h"

namespace epl {
namespace {

// All elements of a tensor without gaps in the order in which they lie in memory.
at::Tensor in_memory_order(const at::Tensor& tensor) {
  if (!tensor.is_non_overlapping_and_dense()) return at::Tensor();
  return tensor.as_strided({tensor.numel()}, {1});
}

}  // namespace

namespace {

bool starts_group(const Instruction& instruction) {
  const bool reduces = instruction.kind == Instruction::Kind::kReduce &&
                       instruction.over == Instruction::Over::kReplicas;
  return (reduces || instruction.kind == Instruction::Kind::kUpdateEarly) &&
         !instruction.gradients.empty();
}

WorkerSums sums_in(const Program& program, DeviceMemory& memory, at::Tensor& pages) {
  const DeviceMemory::Use use(memory);
  return WorkerSums(program, pages);
}

}  // namespace

GradientExchange::GradientExchange(const Program& program, Where where, ExchangeOptions options)
    : program_(program),
      devices_(std::move(where.devices)),
      routes_(where.routes),
      shares_(std::move(where.shares)),
      rank_(where.rank),
      options_(options),
      memory_(where.memory),
      update_early_(std::move(where.update_early)),
      sums_(sums_in(program, where.memory, where.pages)) {
  for (const auto& instruction : program.instructions) {
    if (!starts_group(instruction)) continue;
    const auto number = static_cast<size_t>(instruction.group);
    if (groups_.size() <= number) groups_.resize(number + 1);
    const bool updates = instruction.kind == Instruction::Kind::kUpdateEarly;
    (updates ? groups_[number].update : groups_[number].reduce) = &instruction;
    for (int index : instruction.gradients) {
      if (is_sparse(index)) sparse_[index] = at::Tensor();
    }
  }
  about_ = static_cast<int64_t>(hash_of_text(join(names(), " ")));
  reported_ = std::vector<std::atomic<int>>(groups_.size());
  forget_last_step();
}

void GradientExchange::forget_last_step() {
  for (auto& count : reported_) count.store(0, std::memory_order_relaxed);
  const MutexLock lock(mutex_);
  works_.assign(groups_.size(), nullptr);
  done_.assign(groups_.size(), false);
}

std::vector<std::string> GradientExchange::names() const {
  std::vector<std::string> names;
  for (const Group& group : groups_) {
    for (int index : group.any().gradients) {
      const PlanGradient& gradient = program_.gradients[static_cast<size_t>(index)];
      names.push_back("`" + program_.leaves[static_cast<size_t>(gradient.leaf)].name + "`");
    }
    names.back() += ";";
  }
  return names;
}

void GradientExchange::refuse_to_mix() const {
  constexpr size_t kMost = 12;
  std::vector<std::string> some = names();
  const size_t count = some.size();
  some.resize(std::min(count, kMost));
  throw Error("workers have different gradients to reduce: they have recorded different steps",
              concat("step ", step_, ", where this worker has ", count, ": ", join(some, " "),
                     count > kMost ? " ..." : ""),
              "batches of the same shape on all workers, and steps that use the same layers there");
}

bool GradientExchange::is_sparse(int index) const {
  const SlotId slot = program_.gradients[static_cast<size_t>(index)].slot;
  return program_.slots[static_cast<size_t>(slot)].type.layout != c10::kStrided;
}

at::Tensor GradientExchange::gradient(size_t device, int index) const {
  return devices_[device]->tensor(program_.gradients[static_cast<size_t>(index)].slot);
}

// Gradients that do not stay lie where their micro batch has made them.
SlotId GradientExchange::slot_of(const Instruction& group, size_t place) const {
  return group.slots.empty() ? program_.gradients[static_cast<size_t>(group.gradients[place])].slot
                             : group.slots[place];
}

// A step that fails on one device leaves reductions behind, which end when the job's failure comes
// to their Watch.
GradientExchange::~GradientExchange() { end_works(); }

void GradientExchange::end_works() {
  std::vector<std::shared_ptr<Work>> works;
  {
    const MutexLock lock(mutex_);
    works = works_;
  }
  for (const auto& work : works) {
    if (work == nullptr) continue;
    try {
      work->wait();
    } catch (...) {
      // The step has thrown what is to be known.
    }
  }
}

void GradientExchange::begin(int64_t step, bool to_all) {
  step_ = step;
  if (to_all_ && !to_all) release_sums_of_others();
  if (to_all != to_all_) counted_sums_ = false;
  to_all_ = to_all;
  forget_last_step();
}

void GradientExchange::release_sums_of_others() const {
  const DeviceMemory::Use use(memory_);
  for (size_t i = 0; i < program_.gradients.size(); ++i) {
    const auto index = static_cast<int>(i);
    if (!sums_.has(index)) continue;
    sums_.release_besides(index, owned_here(index, sums_.of(index).numel()));
  }
}

// What is reduced and then updated is complete with the first of the two.
void GradientExchange::ready(const Instruction& instruction) {
  const auto number = static_cast<size_t>(instruction.group);
  if (&instruction != &groups_[number].any()) return;
  const int before = reported_[number].fetch_add(1, std::memory_order_acq_rel);
  if (before + 1 < static_cast<int>(devices_.size())) return;
  if (!routes_.empty()) {
    start_on_lane(number);
  } else if (groups_[number].is_short()) {
    finish_here(number);
  }
}

void GradientExchange::start_on_lane(size_t number) {
  const Route& route = routes_[number % routes_.size()];
  auto work = route.lane->start([this, number, &route] {
    const DeviceMemory::Use use(memory_);
    route.lane->watch().doing(step_, "reduce", static_cast<int>(number));
    // Workers may have recorded different steps: gradients of other parameters look the same.
    route.communicator->set_about(about_);
    try {
      reduce(*groups_[number].reduce, route.communicator.get());
    } catch (const JobFailed&) {
      throw;
    } catch (const Error&) {
      refuse_to_mix();
    }
    if (groups_[number].is_short()) finish_short(groups_[number]);
  });
  const MutexLock lock(mutex_);
  works_[number] = std::move(work);
  changed_.notify_all();
}

// The devices of this worker are all there are.
void GradientExchange::finish_here(size_t number) {
  finish_short(groups_[number]);
  const MutexLock lock(mutex_);
  done_[number] = true;
  changed_.notify_all();
}

// Where parameters are updated, the update reads what all devices have, as at the end of a step.
void GradientExchange::finish_short(const Group& group) const {
  const at::NoGradGuard no_grad;
  if (group.update != nullptr) return update_early_(*group.update);
  for (size_t i = 0; i < group.reduce->gradients.size(); ++i) keep_sum(*group.reduce, i);
}

void GradientExchange::keep_sum(const Instruction& group, size_t place) const {
  const int index = group.gradients[place];
  const SlotId slot = slot_of(group, place);
  at::Tensor sum = devices_[0]->tensor(slot);
  for (size_t device = 1; device < devices_.size() && routes_.empty(); ++device) {
    sum.add_(devices_[device]->tensor(slot));
  }
  const auto mode = group.micro_batch == 0 ? WorkerSums::Mode::kReplace : WorkerSums::Mode::kAdd;
  const Piece all{0, sum.numel()};
  sums_.take(index, sum, to_all_ ? all : owned_here(index, sum.numel()), mode);
}

// Of a sum, in the order of memory: what this worker is given of it.
Piece GradientExchange::owned_here(int index, int64_t elements) const {
  const PlanGradient& gradient = program_.gradients[static_cast<size_t>(index)];
  if (routes_.empty() || !comes_to_owners(program_, gradient)) return {0, elements};
  return owned_elements(gradient.owners, elements, shares_, rank_);
}

void GradientExchange::await(const Instruction& group, const std::function<void()>& look) {
  constexpr auto kBetweenLooks = std::chrono::milliseconds(20);
  const auto number = static_cast<size_t>(group.group);
  std::shared_ptr<Work> work;
  bool done = false;
  while (work == nullptr && !done) {
    look();
    const MutexLock lock(mutex_);
    changed_.wait_until(
        mutex_, Condition::Clock::now() + kBetweenLooks,
        [&]() EPL_REQUIRES(mutex_) { return works_[number] != nullptr || done_[number]; });
    work = works_[number];
    done = done_[number];
  }
  if (work != nullptr) work->wait();
}

void GradientExchange::start(const Instruction& reduce_instruction) {
  if (reduce_instruction.gradients.empty()) return;
  for (size_t device = 0; device < devices_.size(); ++device) ready(reduce_instruction);
}

void GradientExchange::wait() {
  std::vector<std::shared_ptr<Work>> works;
  {
    const MutexLock lock(mutex_);
    works = works_;
  }
  for (size_t group = 0; group < groups_.size(); ++group) {
    EPL_ASSERT(
        reported_[group].load(std::memory_order_acquire) == static_cast<int>(devices_.size()),
        "a group of gradients is waited for that a device has not reported");
    if (works[group] == nullptr) continue;
    routes_[0].lane->watch().doing(step_, "reduce", static_cast<int>(group));
    works[group]->wait();
  }
  count_sums();
  if (!routes_.empty()) return;
  for (const auto& [index, unused] : sparse_) sparse_[index] = reduce_sparse(index, nullptr);
}

// Their pages have come with the first step.
void GradientExchange::count_sums() {
  if (sums_.empty() || std::exchange(counted_sums_, true)) return;
  const DeviceMemory::Use use(memory_);
  DeviceMemory::note_changed_pages();
  DeviceMemory::count_pages();
}

void GradientExchange::reduce(const Instruction& group, Communicator* communicator) {
  const at::NoGradGuard no_grad;
  std::vector<size_t> dense;
  for (size_t i = 0; i < group.gradients.size(); ++i) {
    const int index = group.gradients[i];
    if (is_sparse(index)) {
      sparse_.at(index) = reduce_sparse(index, communicator);
      continue;
    }
    const SlotId slot = slot_of(group, i);
    at::Tensor sum = devices_[0]->tensor(slot);
    for (size_t device = 1; device < devices_.size(); ++device) {
      sum.add_(devices_[device]->tensor(slot));
    }
    if (sum.numel() > 0) dense.push_back(i);
  }
  if (!dense.empty()) reduce_dense(group, dense, *communicator);
}

// Those with gaps, and half precision, travel as copies.
GradientExchange::Travelling GradientExchange::travelling(const Instruction& group,
                                                          size_t place) const {
  const PlanGradient& of_plan = program_.gradients[static_cast<size_t>(group.gradients[place])];
  Travelling made{devices_[0]->tensor(slot_of(group, place)), {}, {}};
  if (!to_all_ && comes_to_owners(program_, of_plan)) made.owners = of_plan.owners;
  const at::Tensor in_order = in_memory_order(made.gradient);
  if (in_order.defined()) made.gradient = in_order;
  made.travels = made.gradient.contiguous();
  const bool halves = options_.half && at::isFloatingType(made.gradient.scalar_type());
  if (halves) made.travels = (made.travels * options_.half_scale).to(at::kHalf);
  return made;
}

// Tensors of one type at a time.
void GradientExchange::reduce_dense(const Instruction& group, const std::vector<size_t>& places,
                                    Communicator& communicator) const {
  std::map<at::ScalarType, std::vector<Travelling>> by_type;
  for (size_t place : places) {
    Travelling made = travelling(group, place);
    by_type[made.travels.scalar_type()].push_back(std::move(made));
  }
  for (const auto& [type, of_type] : by_type) {
    reduce_of_type(of_type, communicator);
    for (const auto& [gradient, travels, owners] : of_type) {
      if (travels.data_ptr() == gradient.data_ptr()) continue;
      const bool halves = travels.scalar_type() != gradient.scalar_type();
      at::Tensor(gradient).copy_(
          halves ? travels.to(gradient.scalar_type()).div_(options_.half_scale) : travels);
    }
  }
}

// What comes to owners is handed over by rank, so that each of them owns one run of all of it.
void GradientExchange::reduce_of_type(const std::vector<Travelling>& gradients,
                                      Communicator& communicator) const {
  std::vector<at::Tensor> to_all;
  for (const auto& each : gradients) {
    if (each.owners.are_all()) to_all.push_back(each.travels);
  }
  if (!to_all.empty()) communicator.all_reduce(to_all, ReduceOp::kSum);
  std::vector<at::Tensor> to_owners;
  std::vector<int64_t> counts;
  for (int rank = 0; rank < communicator.size(); ++rank) {
    int64_t& count = counts.emplace_back(0);
    for (const auto& each : gradients) {
      if (each.owners.are_all()) continue;
      const Piece owned = owned_elements(each.owners, each.travels.numel(), shares_, rank);
      if (owned.length == 0) continue;
      to_owners.push_back(each.travels.view({-1}).narrow(0, owned.begin, owned.length));
      count += owned.length;
    }
  }
  if (!to_owners.empty()) {
    communicator.reduce_scatter_in_place(to_owners, counts, ReduceOp::kSum);
  }
}

// Indices and values of all workers, one behind the other, then joined.
at::Tensor GradientExchange::reduce_sparse(int index, Communicator* communicator) const {
  const at::NoGradGuard no_grad;
  at::Tensor sum = gradient(0, index);
  for (size_t device = 1; device < devices_.size(); ++device) sum = sum + gradient(device, index);
  if (communicator == nullptr || communicator->size() == 1) return sum;
  sum = sum.coalesce();
  const at::Tensor indices = sum.indices().t().contiguous();
  const at::Tensor values = sum.values().contiguous();
  const at::Tensor mine = at::full({1}, indices.size(0), at::kLong);
  const at::Tensor counts = at::empty({communicator->size()}, at::kLong);
  communicator->all_gather(mine, counts, std::vector<int64_t>(counts.numel(), 1));
  const std::vector<int64_t> rows(counts.data_ptr<int64_t>(),
                                  counts.data_ptr<int64_t>() + counts.numel());
  const int64_t total = counts.sum().item<int64_t>();
  const at::Tensor all_indices = at::empty({total, indices.size(1)}, at::kLong);
  std::vector<int64_t> shape = values.sizes().vec();
  shape[0] = total;
  const at::Tensor all_values = at::empty(shape, values.options());
  communicator->all_gather(indices, all_indices, rows);
  communicator->all_gather(values, all_values, rows);
  return at::sparse_coo_tensor(all_indices.t(), all_values, sum.sizes()).coalesce();
}

ExchangeOptions exchange_options(const Config& config) {
  ExchangeOptions options;
  options.half = config.get<bool>("communication.fp16");
  options.half_scale = static_cast<double>(config.get<int64_t>("communication.fp16_scale"));
  return options;
}

}  // namespace epl
