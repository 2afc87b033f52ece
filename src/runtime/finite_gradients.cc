#include "runtime/finite_gradients.h"

#include <ATen/Functions.h>
#include <ATen/Parallel.h>

#include <algorithm>
#include <atomic>
#include <functional>
#include <limits>
#include <set>
#include <utility>

#include "runtime/update_kernels.h"

namespace epl {
namespace {

constexpr int64_t kGrain = 131072;  // elements that are worth a thread of their own

bool lies_in_one_run(const at::Tensor& tensor) {
  const bool known = tensor.scalar_type() == at::kFloat || tensor.scalar_type() == at::kDouble;
  return known && tensor.layout() == at::kStrided && tensor.device().is_cpu() &&
         tensor.is_non_overlapping_and_dense();
}

double most_in(ElementType type) {
  constexpr double kAddends = 65536;
  return type == ElementType::kFloat ? std::numeric_limits<float>::max() / kAddends
                                     : std::numeric_limits<double>::max() / kAddends;
}

at::Tensor numbers_of(const at::Tensor& gradient) {
  return gradient.layout() == at::kSparse ? gradient._values() : gradient;
}

// By LibTorch: gradients that are sparse, have gaps or another type.
bool is_finite(const at::Tensor& gradient) {
  return at::isfinite(numbers_of(gradient)).all().item<bool>();
}

// The elements of all gradients are numbered through, so that devices share them evenly.
class Runs {
 public:
  void add(const at::Tensor& gradient) {
    const bool single = gradient.scalar_type() == at::kFloat;
    runs_.push_back({gradient.data_ptr(), single ? ElementType::kFloat : ElementType::kDouble,
                     elements_, elements_ + gradient.numel()});
    elements_ = runs_.back().end;
  }

  int64_t elements() const { return elements_; }

  bool are_finite(int64_t begin, int64_t end) const {
    auto run = std::upper_bound(runs_.begin(), runs_.end(), begin,
                                [](int64_t at, const Run& run) { return at < run.end; });
    bool finite = true;
    for (; run != runs_.end() && run->begin < end && finite; ++run) {
      finite = are_within(run->type, run->numbers, std::max(begin, run->begin) - run->begin,
                          std::min(end, run->end) - run->begin, most_in(run->type));
    }
    return finite;
  }

 private:
  struct Run {
    const void* numbers;
    ElementType type;
    int64_t begin;
    int64_t end;
  };

  std::vector<Run> runs_;
  int64_t elements_ = 0;
};

using Look = std::function<void(int64_t begin, int64_t end)>;

bool look_at(const std::vector<at::Tensor>& gradients,
             const std::function<void(int64_t elements, const Look& look)>& share) {
  Runs runs;
  for (const at::Tensor& gradient : gradients) {
    if (lies_in_one_run(gradient)) {
      runs.add(gradient);
    } else if (!is_finite(gradient)) {
      return false;
    }
  }
  std::atomic<bool> finite{true};
  share(runs.elements(), [&](int64_t begin, int64_t end) {
    at::parallel_for(begin, end, kGrain, [&](int64_t from, int64_t to) {
      if (!runs.are_finite(from, to)) finite = false;
    });
  });
  return finite;
}

}  // namespace

bool are_finite(const std::vector<at::Tensor>& gradients) {
  return look_at(gradients, [](int64_t elements, const Look& look) { look(0, elements); });
}

bool are_finite(const std::vector<at::Tensor>& gradients, DeviceTeam& team) {
  return look_at(gradients, [&](int64_t elements, const Look& look) {
    if (team.size() == 1 || elements < kGrain) return look(0, elements);
    team.run([&](int device) {
      look(elements * device / team.size(), elements * (device + 1) / team.size());
    });
  });
}

std::string infinite_gradient(const StepGradients& gradients) {
  const std::vector<at::Tensor> all = gradients.of_devices();
  size_t next = 0;
  for (const auto& entry : gradients.entries()) {
    for (size_t part = 0; part < entry.parts.size(); ++part, ++next) {
      if (!are_finite({all[next]})) return entry.name;
    }
  }
  return "";
}

void unscale_gradients(const std::vector<at::Tensor>& gradients, double scale) {
  const c10::AutoGradMode no_grad(false);
  std::set<std::pair<const void*, int64_t>> seen;
  for (const at::Tensor& gradient : gradients) {
    const at::Tensor numbers = numbers_of(gradient);
    // Those of two embeddings whose rows are added are the same memory, where both are sparse.
    if (!seen.insert({numbers.data_ptr(), numbers.numel()}).second) continue;
    numbers.mul_(1 / scale);
  }
}

}  // namespace epl
