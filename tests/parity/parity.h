// Parity: the oracle of EPL's tests. A program trains twice from the same seed, once by the plain
// LibTorch loop and once by epl::Trainer, and after every step the two are compared: the loss, the
// metrics, every parameter and buffer, and the state of every optimizer.
//
//   EXPECT_TRUE(parity(
//       [] {
//         auto net = std::make_shared<models::Mlp>(16, 16, 3, 4);
//         return program(net, sgd(*net, 0.1), [net](const Batch& batch) {
//           return cross_entropy(net->forward(batch[0]), batch[1]);
//         });
//       },
//       [](int) { return Batch{torch::randn({8, 16}), classes(4, {8})}; }, bit_equal()));
//
// A failure names the first step that differs, the worst tensor in it by its path, and both values.
#pragma once

#include <epl/epl.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <functional>
#include <map>
#include <memory>
#include <numeric>
#include <stdexcept>
#include <string>
#include <vector>

namespace epl::parity {

// How far two tensors may lie apart: max |plain - epl| / max |plain|. 0 asks for equal bits (but
// -0 == 0). Whatever the bound, integers are equal and shapes and dtypes are the same.
struct Exactness {
  double relative;
  std::string reason;  // why the bits may differ
};
inline Exactness bit_equal() { return {0, ""}; }
inline Exactness within(double relative, std::string reason) {
  return {relative, std::move(reason)};
}

using OptimizerPointer = std::shared_ptr<torch::optim::Optimizer>;

// What one trainer is made of. The step function owns whatever else it uses.
struct Turn {
  std::vector<NamedModule> modules;
  std::vector<OptimizerPointer> optimizers;
  StepFunction step;
};

// A user's program: usually one turn; a GAN takes two, one after the other on each batch.
struct Program {
  std::vector<Turn> turns;
  // What the user's loop does before step i: schedules, freezing, loading ...
  std::function<void(int i)> before_step = nullptr;
};

using MakeProgram = std::function<Program()>;
using MakeBatch = std::function<Batch(int step)>;

// What both sides do alike: Variant().micro_batches(4).sum().
class Variant {
 public:
  Variant& steps(int count) { return steps_ = count, *this; }
  Variant& micro_batches(int count) { return micro_batches_ = count, *this; }
  // communication.gradients_reduce_method = "sum"
  Variant& sum() { return sum_ = true, *this; }
  // optimizer.num_apply_group
  Variant& apply_groups(int count) { return apply_groups_ = count, *this; }
  // Trainer::step(source) instead of step(batch).
  Variant& from_source() { return from_source_ = true, *this; }
  // Batches are drawn in the loop, from the generator that the model draws from.
  Variant& draw_in_loop() { return draw_in_loop_ = true, *this; }
  Variant& clip_norm(double norm, double type = 2) {
    return options_.clip_grad_norm = norm, options_.clip_norm_type = type, *this;
  }
  Variant& clip_value(double value) { return options_.clip_grad_value = value, *this; }

  // Devices of one worker, as threads. The batch is cut over them.
  Variant& devices(int count) { return workers_ = {count}, *this; }
  // Devices of each of several workers, which are processes.
  Variant& workers(std::vector<int> devices) { return workers_ = std::move(devices), *this; }
  // The program is a pipeline, by scopes of its own, whose stages have so many devices each: the
  // batch is cut over its replicas alone.
  Variant& stages(std::vector<int> devices) { return stages_ = std::move(devices), *this; }
  Variant& stages(int count) { return stages(std::vector<int>(static_cast<size_t>(count), 1)); }
  // Devices that share one micro batch: replicate(count) as default strategy.
  Variant& slices(int count) { return slices_ = count, *this; }
  // Why the undivided plain loop gives something else where the rows are cut, by the program's own
  // nature. Batch norm, dropout, summed gradients and local clipping need not be told.
  Variant& differs_by_rows(std::string why) { return differs_ = std::move(why), *this; }
  const std::string& why_it_differs_by_rows() const { return differs_; }
  // Parameters are cut over workers: each has the state of its pieces, which is not compared.
  Variant& without_states() { return with_states_ = false, *this; }
  bool with_states() const { return with_states_; }
  // Tensors are looked at in every so many steps, and after the last one: where workers keep parts
  // of parameters that brings them together.
  Variant& looks_every(int steps) { return looks_every_ = steps, *this; }
  int looks_every() const { return looks_every_; }
  bool looks_after(int step) const { return (step + 1) % looks_every_ == 0 || step + 1 == steps_; }
  // communication.clip_after_allreduce
  Variant& clip_after() { return with("communication.clip_after_allreduce", true); }
  // A key that changes how something is done, but not what comes out.
  Variant& with(std::string key, ConfigValue value) {
    return settings_.emplace_back(std::move(key), std::move(value)), *this;
  }

  int steps() const { return steps_; }
  int micro_batches() const { return micro_batches_; }
  bool sums() const { return sum_; }
  int apply_groups() const { return apply_groups_; }
  bool has_source() const { return from_source_; }
  bool draws_in_loop() const { return draw_in_loop_; }
  const TrainerOptions& options() const { return options_; }
  const std::vector<int>& worker_devices() const { return workers_; }
  int all_devices() const { return std::accumulate(workers_.begin(), workers_.end(), 0); }
  const std::vector<int>& stage_devices() const { return stages_; }
  int slice_count() const { return slices_; }
  // Devices that take rows of their own. The stages of a pipeline count as one.
  int row_devices() const {
    return all_devices() / std::max(1, std::accumulate(stages_.begin(), stages_.end(), 0));
  }
  const std::vector<Setting>& settings() const { return settings_; }
  bool clips_locally() const;

 private:
  int steps_ = 5;
  int micro_batches_ = 1;
  bool sum_ = false;
  int apply_groups_ = 1;
  bool from_source_ = false;
  bool draw_in_loop_ = false;
  TrainerOptions options_;
  std::vector<int> workers_ = {1};
  std::vector<int> stages_;
  int slices_ = 1;
  bool with_states_ = true;
  int looks_every_ = 1;
  std::string differs_;
  std::vector<Setting> settings_;
};

// All that can be seen of a training after one step.
struct Snapshot {
  std::vector<double> losses;  // one a turn
  std::vector<double> gradient_norms;
  std::vector<std::pair<std::string, torch::Tensor>> tensors;
};
using Trace = std::vector<Snapshot>;

Trace train_plain(const MakeProgram& make, const MakeBatch& batch, const Variant& variant = {});
Trace train_epl(const MakeProgram& make, const MakeBatch& batch, const Variant& variant = {});
// The same on variant.devices(), which end with it.
Trace train_on_devices(const MakeProgram& make, const MakeBatch& batch, const Variant& variant);
testing::AssertionResult compare(const Trace& plain, const Trace& epl, const Exactness& exactness,
                                 const Variant& variant = {});

// What the first worker that failed said. Refused: by an epl::Error.
class WorkersFailed : public std::runtime_error {
 public:
  enum class Kind : uint8_t { kRefused, kOther };
  WorkersFailed(Kind kind, const std::string& what) : std::runtime_error(what), kind_(kind) {}
  Kind kind() const { return kind_; }

 private:
  Kind kind_;
};

// Runs `work` on workers with so many devices each, which are processes: before it, epl::init() has
// not been called. Throws where one of them fails, or has a failure of a test.
void run_on_workers(const std::vector<int>& devices, const std::function<void(int worker)>& work);

// The training on each worker of variant.workers(), which are processes of their own. Throws where
// one of them fails.
std::vector<Trace> train_on_workers(const MakeProgram& make, const MakeBatch& batch,
                                    const Variant& variant);

// Of a pipeline: what a worker has no part in, other states of optimizers, comes from the first
// that has it.
void complete(std::vector<Trace>& workers);

// How many replicas' rows a worker hands to a step: of those whose first stage it has a device of,
// or, where it has none, as many as the worker that it gets its values from.
int replicas_of_worker(const Variant& variant, int worker);

// Where rows are cut there are two references: the plain loop that cuts them alike, to `exactness`,
// and the undivided plain loop, up to rounding (rounding.h).
//
// With several workers each of them is compared, and their parameters must have the same bits. In a
// pipeline the state of an optimizer lies where its parameters are updated: on one worker at least.
testing::AssertionResult parity(const MakeProgram& make, const MakeBatch& batch,
                                const Exactness& exactness, const Variant& variant = {});

// The worst difference between two modules, by the path of the parameter or buffer.
testing::AssertionResult same_modules(const torch::nn::Module& plain, const torch::nn::Module& epl,
                                      const Exactness& exactness);

// One value of a metric, compared on the same terms.
testing::AssertionResult same_tensor(const std::string& name, const torch::Tensor& plain,
                                     const torch::Tensor& epl, const Exactness& exactness);

// --- short words for the tests ------------------------------------------------------------------

template <typename Net>
Program program(std::shared_ptr<Net> net, OptimizerPointer optimizer, StepFunction step) {
  return Program{{Turn{{{"", net}}, {std::move(optimizer)}, std::move(step)}}};
}

inline OptimizerPointer sgd(const torch::nn::Module& net, double lr, double momentum = 0) {
  return std::make_shared<torch::optim::SGD>(net.parameters(),
                                             torch::optim::SGDOptions(lr).momentum(momentum));
}

// Integers in [0, count): labels or token ids.
inline torch::Tensor classes(int64_t count, torch::IntArrayRef shape) {
  return torch::randint(count, shape, torch::kLong);
}

inline torch::Tensor cross_entropy(const torch::Tensor& logits, const torch::Tensor& target) {
  return torch::nn::functional::cross_entropy(logits, target);
}

// net->forward(batch[0]) against the classes in batch[1].
template <typename Net>
StepFunction classification(std::shared_ptr<Net> net) {
  return [net](const Batch& batch) { return cross_entropy(net->forward(batch[0]), batch[1]); };
}

}  // namespace epl::parity
