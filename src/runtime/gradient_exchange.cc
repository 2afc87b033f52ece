#include "runtime/gradient_exchange.h"

#include <ATen/ATen.h>

#include <algorithm>

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

bool comes_to_owners(const Program& program, const PlanGradient& gradient) {
  if (gradient.owners.are_all()) return false;
  if (gradient.owners.kind == Owners::Kind::kRank) return true;
  const auto type_of = [&](SlotId slot) -> const TensorType& {
    return program.slots[static_cast<size_t>(slot)].type;
  };
  const TensorType& own = type_of(gradient.slot);
  const PlanLeaf& leaf = program.leaves[static_cast<size_t>(gradient.leaf)];
  if (leaf.shard.is_cut()) return own.strides == contiguous_strides(own.sizes);
  const TensorType& parameter = type_of(leaf.slot);
  return own.sizes == parameter.sizes && own.strides == parameter.strides;
}

GradientExchange::GradientExchange(const Program& program, std::vector<Executor*> devices,
                                   const std::vector<Route>& routes, std::vector<int> shares,
                                   ExchangeOptions options, DeviceMemory& memory)
    : program_(program),
      devices_(std::move(devices)),
      routes_(routes),
      shares_(std::move(shares)),
      options_(options),
      memory_(memory) {
  for (const auto& instruction : program.instructions) {
    const bool reduces = instruction.kind == Instruction::Kind::kReduce &&
                         instruction.over == Instruction::Over::kReplicas;
    if (!reduces || instruction.gradients.empty()) continue;
    groups_.push_back(&instruction);
    for (int index : instruction.gradients) {
      if (is_sparse(index)) sparse_[index] = at::Tensor();
    }
  }
  about_ = static_cast<int64_t>(hash_of_text(join(names(), " ")));
  reported_ = std::vector<std::atomic<int>>(groups_.size());
  works_.resize(groups_.size());
}

std::vector<std::string> GradientExchange::names() const {
  std::vector<std::string> names;
  for (const Instruction* group : groups_) {
    for (int index : group->gradients) {
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

// A step that fails on one device leaves reductions behind, which end when the job's failure comes
// to their Watch.
GradientExchange::~GradientExchange() {
  for (const auto& work : works_) {
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
  to_all_ = to_all;
  for (auto& count : reported_) count.store(0, std::memory_order_relaxed);
  for (auto& work : works_) work.reset();
}

void GradientExchange::ready(const Instruction& reduce_instruction) {
  const auto group = static_cast<size_t>(reduce_instruction.group);
  const int before = reported_[group].fetch_add(1, std::memory_order_acq_rel);
  if (before + 1 < static_cast<int>(devices_.size()) || routes_.empty()) return;
  const Route& route = routes_[group % routes_.size()];
  works_[group] = route.lane->start([this, group, &route] {
    const DeviceMemory::Use use(memory_);
    route.lane->watch().doing(step_, "reduce", static_cast<int>(group));
    // Workers may have recorded different steps: gradients of other parameters look the same.
    route.communicator->set_about(about_);
    try {
      reduce(*groups_[group], route.communicator.get());
    } catch (const JobFailed&) {
      throw;
    } catch (const Error&) {
      refuse_to_mix();
    }
  });
}

void GradientExchange::start(const Instruction& reduce_instruction) {
  if (reduce_instruction.gradients.empty()) return;
  for (size_t device = 0; device < devices_.size(); ++device) ready(reduce_instruction);
}

void GradientExchange::wait() {
  for (size_t group = 0; group < groups_.size(); ++group) {
    EPL_ASSERT(
        reported_[group].load(std::memory_order_acquire) == static_cast<int>(devices_.size()),
        "a group of gradients is waited for that a device has not reported");
    if (works_[group] == nullptr) continue;
    routes_[0].lane->watch().doing(step_, "reduce", static_cast<int>(group));
    works_[group]->wait();
  }
  if (!routes_.empty()) return;
  for (const auto& [index, unused] : sparse_) sparse_[index] = reduce_sparse(index, nullptr);
}

void GradientExchange::reduce(const Instruction& group, Communicator* communicator) {
  const at::NoGradGuard no_grad;
  std::vector<int> dense;
  for (int index : group.gradients) {
    if (is_sparse(index)) {
      sparse_.at(index) = reduce_sparse(index, communicator);
      continue;
    }
    at::Tensor sum = gradient(0, index);
    for (size_t device = 1; device < devices_.size(); ++device) sum.add_(gradient(device, index));
    if (sum.numel() > 0) dense.push_back(index);
  }
  if (!dense.empty()) reduce_dense(dense, *communicator);
}

// Those with gaps, and half precision, travel as copies.
GradientExchange::Travelling GradientExchange::travelling(int index) const {
  const PlanGradient& of_plan = program_.gradients[static_cast<size_t>(index)];
  Travelling made{gradient(0, index), {}, {}};
  if (!to_all_ && comes_to_owners(program_, of_plan)) made.owners = of_plan.owners;
  const at::Tensor in_order = in_memory_order(made.gradient);
  if (in_order.defined()) made.gradient = in_order;
  made.travels = made.gradient.contiguous();
  const bool halves = options_.half && at::isFloatingType(made.gradient.scalar_type());
  if (halves) made.travels = (made.travels * options_.half_scale).to(at::kHalf);
  return made;
}

// Tensors of one type at a time.
void GradientExchange::reduce_dense(const std::vector<int>& gradients,
                                    Communicator& communicator) const {
  std::map<at::ScalarType, std::vector<Travelling>> by_type;
  for (int index : gradients) {
    Travelling made = travelling(index);
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
