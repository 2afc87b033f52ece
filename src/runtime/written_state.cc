#include "runtime/written_state.h"

#include <ATen/ATen.h>

#include <limits>
#include <map>

#include "base/check.h"

namespace epl {
namespace {

void merge_means(const std::vector<WrittenState>& states, Communicator* workers) {
  std::map<at::ScalarType, std::vector<at::Tensor>> travelling;
  std::vector<std::pair<const WrittenState*, at::Tensor>> sums;
  for (const auto& state : states) {
    if (state.merge != WrittenState::Merge::kMean) continue;
    at::Tensor sum = state.written.empty()
                         ? at::zeros_like(state.users, at::MemoryFormat::Contiguous)
                         : state.written[0].contiguous().clone();
    for (size_t i = 1; i < state.written.size(); ++i) sum.add_(state.written[i]);
    travelling[sum.scalar_type()].push_back(sum);
    sums.emplace_back(&state, sum);
  }
  if (workers != nullptr) {
    for (const auto& [type, tensors] : travelling) workers->all_reduce(tensors, ReduceOp::kSum);
  }
  for (auto& [state, sum] : sums) {
    at::Tensor(state->users).copy_(state->devices == 1 ? sum : sum.div_(state->devices));
  }
}

// States of one role and type, laid end to end: there may be many small ones.
struct Row {
  std::vector<const WrittenState*> states;
  at::Tensor before;
  // Of what was written the largest value and the largest of its opposites: equal but for the sign
  // where all who wrote agree.
  at::Tensor largest;
  at::Tensor least;
};

at::Tensor laid_out(const std::vector<at::Tensor>& tensors, at::ScalarType type) {
  std::vector<at::Tensor> flat;
  for (const auto& tensor : tensors) flat.push_back(tensor.reshape({-1}).to(type));
  return at::cat(flat);
}

at::Scalar nothing(at::ScalarType type) {
  if (type == at::kLong) return std::numeric_limits<int64_t>::min();
  return -std::numeric_limits<double>::infinity();
}

void note_writers(Row& row, at::ScalarType type) {
  std::vector<at::Tensor> tensors;
  for (const auto* state : row.states) tensors.push_back(state->before);
  row.before = laid_out(tensors, type);
  row.largest = at::full_like(row.before, nothing(type));
  row.least = row.largest.clone();
  const at::Tensor none = row.largest.clone();
  for (size_t device = 0; device < row.states[0]->written.size(); ++device) {
    tensors.clear();
    for (const auto* state : row.states) tensors.push_back(state->written[device]);
    const at::Tensor written = laid_out(tensors, type);
    const at::Tensor changed = written.ne(row.before);
    row.largest = at::maximum(row.largest, at::where(changed, written, none));
    row.least = at::maximum(row.least, at::where(changed, written.neg(), none));
  }
}

// Normalising what was normalised before may change the last bits once more: a device may have
// looked up the same row of an embedding in two micro batches.
double rounding(at::ScalarType type) {
  switch (type) {
    case at::kDouble:
      return 16 * std::numeric_limits<double>::epsilon();
    case at::kFloat:
      return 16 * std::numeric_limits<float>::epsilon();
    case at::kLong:
      return 0;
    default:
      return 1e-2;  // of 16 bits
  }
}

[[noreturn]] void refuse(const Row& row, int64_t at) {
  const double largest = row.largest[at].item<double>();
  const double least = -row.least[at].item<double>();
  for (const auto* state : row.states) {
    if (at < state->users.numel()) {
      throw Error(
          concat("devices write different values into `", state->name, "` in one step: element ",
                 at, " becomes ", least, " on one of ", state->devices, " and ", largest,
                 " on another, since each writes from its own rows"),
          "the step function",
          "writing it between steps, or values that do not depend on the rows of the batch; one "
          "device trains the step as it is");
    }
    at -= state->users.numel();
  }
  throw Error("devices write different values", "the step function");
}

void finish(const Row& row, at::ScalarType type) {
  const at::Tensor any = row.largest.ne(nothing(type));
  const at::Tensor apart = at::where(any, row.largest + row.least, at::zeros_like(row.before));
  const at::Tensor allowed = row.largest.abs() * rounding(type);
  const at::Tensor differs = apart.gt(allowed);
  if (differs.any().item<bool>()) refuse(row, differs.nonzero()[0].item<int64_t>());
  const at::Tensor result = at::where(any, row.largest, row.before);
  int64_t at = 0;
  for (const auto* state : row.states) {
    const int64_t count = state->users.numel();
    at::Tensor(state->users).copy_(result.narrow(0, at, count).view(state->users.sizes()));
    at += count;
  }
}

void merge_writers(const std::vector<WrittenState>& states, Communicator* workers) {
  std::map<std::pair<int, at::ScalarType>, Row> rows;
  for (const auto& state : states) {
    if (state.merge != WrittenState::Merge::kWriters || state.users.numel() == 0) continue;
    const at::ScalarType type =
        state.users.is_floating_point() ? state.users.scalar_type() : at::kLong;
    rows[{state.role, type}].states.push_back(&state);
  }
  for (auto& [key, row] : rows) {
    note_writers(row, key.second);
    if (workers != nullptr) workers->all_reduce({row.largest, row.least}, ReduceOp::kMax);
  }
  try {
    for (const auto& [key, row] : rows) finish(row, key.second);
  } catch (const Error&) {
    for (const auto& state : states) {
      if (state.merge == WrittenState::Merge::kWriters) at::Tensor(state.users).copy_(state.before);
    }
    throw;
  }
}

}  // namespace

void merge_written_state(const std::vector<WrittenState>& states, Communicator* workers) {
  const c10::AutoGradMode no_grad(false);
  merge_writers(states, workers);
  merge_means(states, workers);
}

}  // namespace epl
