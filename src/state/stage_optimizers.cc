#include "state/stage_optimizers.h"

#include <ATen/ATen.h>

#include "base/check.h"

namespace epl {
namespace {

// Of the parameters that lie somewhere: by the worker that speaks for them, the first that has one.
std::vector<std::vector<size_t>> numbers_by_worker(const StatesOnWorkers& where,
                                                   const std::vector<std::string>& names) {
  std::vector<std::vector<size_t>> numbers(static_cast<size_t>(where.cluster.worker_num));
  for (size_t number = 0; number < names.size(); ++number) {
    const StateEntry* const entry = where.map.find(names[number]);
    if (entry == nullptr || !entry->home) continue;
    EPL_CHECK(!entry->home->roles.empty(),
              concat("the states of `", names[number],
                     "` lie where another trainer with other stages has put them"),
              "epl::Trainer::save", "save() of the trainer that stepped last");
    const int speaks = StateMap::workers_of(*entry, where.placement, where.cluster)[0];
    numbers[static_cast<size_t>(speaks)].push_back(number);
  }
  return numbers;
}

// From a worker to worker 0, which alone is given it.
std::string bring(std::string text, int from, const StatesOnWorkers& where) {
  const int here = where.cluster.worker_index;
  const at::Tensor size = at::full({1}, static_cast<int64_t>(text.size()), at::kLong);
  if (here == from) where.workers.send(size, 0, 0);
  if (here == 0) where.workers.receive(size, from, 0);
  text.resize(static_cast<size_t>(size.item<int64_t>()));
  const at::Tensor bytes =
      at::from_blob(text.data(), {static_cast<int64_t>(text.size())}, at::kByte);
  if (here == from) where.workers.send(bytes, 0, 0);
  if (here == 0) where.workers.receive(bytes, from, 0);
  return text;
}

}  // namespace

void gather_optimizer_states(const StatesOnWorkers& where,
                             const std::vector<OptimizerOfNames>& optimizers) {
  const c10::AutoGradMode no_grad(false);
  const int here = where.cluster.worker_index;
  for (const auto& [optimizer, names] : optimizers) {
    const auto numbers = numbers_by_worker(where, names);
    for (int worker = 1; worker < where.cluster.worker_num; ++worker) {
      const auto& wanted = numbers[static_cast<size_t>(worker)];
      if (wanted.empty() || (here != 0 && here != worker)) continue;
      const std::string text =
          bring(here == worker ? optimizer.saved_states(wanted) : "", worker, where);
      if (here == 0) optimizer.add_saved_states(text, wanted);
    }
  }
}

}  // namespace epl
