#include "runtime/spread_leaves.h"

#include <set>
#include <utility>

#include "base/check.h"
#include "base/hash.h"
#include "base/text.h"
#include "runtime/owner_gathering.h"

namespace epl {

int64_t fetched_by(const Program& program) {
  std::string text;
  for (const Instruction& each : program.instructions) {
    if (each.kind != Instruction::Kind::kFetch) continue;
    for (int leaf : each.leaves) {
      text += concat(program.leaves[static_cast<size_t>(leaf)].name, " ");
    }
    text += ";";
  }
  return text.empty() ? 0 : static_cast<int64_t>(hash_of_text(text) >> 1);
}

int64_t fetched_by(const Plan& plan) {
  std::string text;
  for (const Program& program : plan.programs) text += concat(fetched_by(program), " ");
  return static_cast<int64_t>(hash_of_text(text) >> 1);
}

SpreadLeaves::SpreadLeaves(const Program& program, SpreadTensors tensors, Connections& connections,
                           int role, int devices, DeviceTeam& team)
    : program_(program),
      tensors_(std::move(tensors)),
      connections_(connections),
      role_(role),
      devices_(devices),
      team_(team),
      waiting_(connections.watch(), connections.deadline(), team.size()),
      about_(fetched_by(program)) {
  find_instructions();
}

SpreadLeaves::~SpreadLeaves() { settle(); }

// A wait is for the last fetch of each of its leaves.
void SpreadLeaves::find_instructions() {
  std::map<int, size_t> last;  // by leaf
  const MutexLock lock(mutex_);
  for (const Instruction& each : program_.instructions) {
    if (each.kind == Instruction::Kind::kFetch) {
      number_of_[&each] = fetches_.size();
      for (int leaf : each.leaves) last[leaf] = fetches_.size();
      fetches_.push_back({&each});
    } else if (each.kind == Instruction::Kind::kWait) {
      std::set<size_t> numbers;
      for (int leaf : each.leaves) numbers.insert(last.at(leaf));
      awaited_[&each] = {numbers.begin(), numbers.end()};
    }
  }
}

// Whatever it was that failed, the step has thrown it.
void SpreadLeaves::settle() {
  std::vector<std::shared_ptr<Work>> works;
  {
    const MutexLock lock(mutex_);
    for (Fetch& each : fetches_) {
      if (each.work != nullptr) works.push_back(std::exchange(each.work, nullptr));
    }
  }
  for (const auto& work : works) {
    try {
      work->wait();
    } catch (...) {
    }
  }
}

void SpreadLeaves::begin(int64_t step) {
  settle();
  step_ = step;
  route_ = &connections_.fetch_route(role_);
  const MutexLock lock(mutex_);
  for (Fetch& each : fetches_) each.reached = 0;
  stored_.clear();
  for (size_t i = 0; i < program_.leaves.size(); ++i) {
    if (program_.leaves[i].is_spread()) tensor(static_cast<int>(i)).drop();
  }
}

void SpreadLeaves::run(const Instruction& instruction) {
  if (instruction.kind == Instruction::Kind::kFetch) return fetch(number_of_.at(&instruction));
  if (instruction.kind == Instruction::Kind::kStore) return store(instruction);
  for (size_t number : awaited_.at(&instruction)) wait(number);
}

// The lane is told under the lock: whoever comes last to one fetch may be overtaken by whoever
// comes last to the next.
void SpreadLeaves::fetch(size_t number) {
  {
    const MutexLock lock(mutex_);
    Fetch& own = fetches_[number];
    if (++own.reached < devices_) return;
    own.work = route_->lane->start(
        [this, &instruction = *own.instruction, number] { gather(instruction, number); });
  }
  started_.fetch_add(1, std::memory_order_seq_cst);
  bell_.ring();
}

void SpreadLeaves::gather(const Instruction& instruction, size_t number) const {
  route_->lane->watch().doing(step_, "fetch", static_cast<int>(number));
  std::vector<OwnedRow> rows;
  for (int leaf : instruction.leaves) {
    SpreadTensor& own = tensor(leaf);
    own.bring();
    const at::Tensor& whole = own.tensor();
    rows.push_back({whole.as_strided({whole.numel()}, {1}), {Owners::Kind::kRanges, 0}});
  }
  route_->communicator->set_about(about_);
  gather_rows(rows, connections_.sharers_of(role_), *route_->communicator);
}

std::shared_ptr<Work> SpreadLeaves::work_of(size_t number) {
  const MutexLock lock(mutex_);
  return fetches_[number].work;
}

// First for the devices that have not come to the fetch yet, then for the call.
void SpreadLeaves::wait(size_t number) {
  std::shared_ptr<Work> work = work_of(number);
  while (work == nullptr) {
    const uint64_t seen = started_.load(std::memory_order_seq_cst);
    work = work_of(number);
    if (work != nullptr) break;
    waiting_.until(
        bell_, [&] { return started_.load(std::memory_order_seq_cst) != seen; },
        [this] {
          if (team_.cancelled()) throw Cancelled();
        },
        [&] { return concat("another device did not come to fetch ", number, " of its program"); });
    work = work_of(number);
  }
  work->wait();
}

void SpreadLeaves::store(const Instruction& instruction) {
  {
    const MutexLock lock(mutex_);
    if (++stored_[&instruction] < devices_) return;
  }
  for (int leaf : instruction.leaves) tensor(leaf).drop();
}

}  // namespace epl
