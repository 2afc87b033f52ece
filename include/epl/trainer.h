// Trainer: an ordinary LibTorch training step, compiled.
//
//   epl::Trainer trainer(net, optimizer, [&](const epl::Batch& batch) {
//     return torch::nn::functional::cross_entropy(net->forward(batch[0]), batch[1]);
//   });
//   for (auto& batch : *loader) std::cout << trainer.step({batch.data, batch.target}).loss << "\n";
//
// The first step records the function: forward, loss and backward become one graph, which passes
// rewrite and a Plan lays out in memory. Every step then runs the Plan and updates the parameters
// as the optimizer says. k steps give the parameters that k steps of the plain loop give:
//
//   optimizer.zero_grad();  loss = step(batch);  loss.backward();  optimizer.step();
//
// The module, the optimizer and the loader stay the user's own: a changed learning rate takes
// effect with the next step, torch::save(net, ...) saves what was trained. The function is C++ that
// runs while it is recorded, twice, and what it computes from tensors is replayed. Where the two
// recordings differ (C++ numbers that change, data read through pointers) it runs as the plain
// program would, in every step, and a line on std::clog says why.
#pragma once

#include <epl/io.h>
#include <epl/memory.h>
#include <epl/modules.h>
#include <epl/step.h>
#include <epl/timeline.h>

#include <functional>
#include <initializer_list>
#include <map>
#include <memory>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace epl {

// What a step hands back.
struct StepResult {
  double loss = 0;                               // mean over the micro batches
  std::map<std::string, torch::Tensor> metrics;  // merged, by name
  // No update was made: the loss was not finite, or in mixed precision a gradient.
  bool skipped = false;
  double loss_scale = 1;  // of this step, in mixed precision; gradients are divided by it
  // Of the reduced gradients, before they are clipped where it is they that are; 0 unless
  // clip_grad_norm is set.
  double gradient_norm = 0;
  double seconds = 0;  // that step() took, recording and waits included
};

struct TrainerOptions {
  // As torch::nn::utils::clip_grad_norm_ and clip_grad_value_, applied to the accumulated gradients
  // before the update. 0 switches off. On several replicas each clips the gradients of its own rows
  // before they are reduced, which is not what the plain loop does with the whole batch;
  // communication.clip_after_allreduce = true is.
  double clip_grad_norm = 0;
  double clip_norm_type = 2;
  double clip_grad_value = 0;
};

class Trainer {
 public:
  // Takes std::shared_ptr<Net>, a module holder made by TORCH_MODULE, or the module itself, which
  // must then outlive the trainer.
  template <typename Module,
            typename = std::enable_if_t<!std::is_convertible_v<Module&, std::vector<NamedModule>>>>
  Trainer(Module& net, torch::optim::Optimizer& optimizer, StepFunction step,
          TrainerOptions options = {})
      : Trainer(std::vector<NamedModule>{{"", module_of(net)}}, OptimizerList{optimizer},
                std::move(step), options) {}

  // Several modules, several optimizers; the parameters of one optimizer are updated in the order
  // in which the optimizers are given.
  Trainer(std::vector<NamedModule> modules, OptimizerList optimizers, StepFunction step,
          TrainerOptions options = {});

  ~Trainer();
  Trainer(Trainer&&) noexcept;
  Trainer& operator=(Trainer&&) noexcept;

  // Steps that several threads ask for run one after the other, whichever trainers they are of.
  //
  // One update from this batch, cut evenly along dim 0 into pipeline.num_micro_batch micro batches.
  // The second form takes step({x, y}), and step() where the function reads no batch.
  StepResult step(const Batch& batch);
  StepResult step(std::initializer_list<torch::Tensor> batch = {}) { return step(Batch(batch)); }

  // One update from pipeline.num_micro_batch calls of `source`.
  StepResult step(const BatchSource& source);

  // Which rows this worker hands in, by the stages and devices of the step: for a sampler, and by
  // worker_batch_size(rows_of_a_device, shares) for a loader.
  //
  //   const epl::WorkerShares shares = trainer.shares({x, y});
  //   epl::DistributedSampler sampler(rows, {}, shares);
  //
  // The step is recorded with `sample`, which trains nothing; where EPL chooses the stages they are
  // chosen by it, so give it the rows of a micro batch. On all workers together.
  WorkerShares shares(const Batch& sample);

  // Runs `fn` on the batch with every module in eval mode and gradients off, then restores the
  // modes. It runs on this worker alone, so that one worker may evaluate while others do not; where
  // each evaluates rows of its own, epl::all_reduce (collectives.h) merges what they found. Where
  // parameters lie on other workers, gather_parameters() comes before it.
  StepOutput evaluate(const StepFunction& fn, const Batch& batch);

  // The plan that the last step ran, as text. Before the first step there is none: an error.
  std::string plan() const;

  // The captured graph behind it after all passes, as text.
  std::string graph() const;

  // Where each parameter, buffer and tensor of an optimizer's state lies since the last step, one
  // line each: its type, how it is cut, the programs of the plan that change it and their workers.
  std::string state() const;

  // What the plan that the last step ran needs of memory, by kind, device and worker; for this
  // worker beside what its devices held in that step, by their accounts. Those count all that the
  // devices hold: of other trainers of this process, too.
  MemoryReport memory() const;

  // The same for a step with such a batch, before there is one: the function runs once, recorded,
  // and a step is planned; parameters, buffers, generators and gradients are as before. An error
  // where such a step would run as the plain program would. On all workers together.
  MemoryReport forecast(const Batch& batch);

  // For a limit of bytes a device: whether a step with such a batch fits, and if not, which changes
  // of the configuration would make it fit, with what each costs. Plans all of them and changes
  // nothing, as forecast() does; the function runs once for each number of micro batches and
  // precision that is tried. On all workers together.
  FittingReport what_fits(const Batch& batch, int64_t limit);

  // What the devices of this worker did in the last step: a table, or a trace for a browser.
  Timeline timeline() const;

  // The same as its plan should have gone. In a pipeline of which this worker has all stages, from
  // the mean costs of the tasks that were measured: what is left of the difference is neither
  // computing nor the schedule. Else by the costs that stand in the plan, which are estimates.
  Timeline simulated() const;

  // Where workers keep parts of parameters (zero.level = "v2"): brings all of them to all workers,
  // until the next step. Where the stages of a pipeline, or the pieces of what is split, lie on
  // several workers: brings all of them to this worker. Every step does it by itself unless
  // pipeline.gather_parameters is false; then they stay until the next step. On all workers
  // together.
  void gather_parameters();

  // Where workers keep states of optimizers that others do not have (zero.level, or stages of a
  // pipeline on several workers): brings all of them to worker 0, so that torch::save(optimizer)
  // there writes LibTorch's own file. They stay until the next step. On all workers together.
  void gather_optimizer_states();

  // Parameters, buffers and optimizer state in one file for load(), written to a temporary name
  // first so that a crash or a full disk leaves the old file whole. torch::load() does not read it:
  // a file of the network alone is written by torch::save(net, ...). Worker 0 writes. Where the
  // stages of a pipeline lie on several workers, all of them call save(). Throws Error with the
  // system's words where the file cannot be written; training may go on.
  void save(const std::string& path) const;
  void load(const std::string& path);

  // Of a model that another front end of EPL's own makes; for programs there are constructors.
  struct Impl;
  static Trainer of(std::unique_ptr<Impl> impl);

 private:
  Trainer() = default;

  template <typename Module>
  static std::shared_ptr<torch::nn::Module> module_of(Module& net) {
    if constexpr (std::is_convertible_v<Module, std::shared_ptr<torch::nn::Module>>) {
      return net;
    } else if constexpr (std::is_base_of_v<torch::nn::Module, Module>) {
      return {std::shared_ptr<torch::nn::Module>(), &net};  // not owned
    } else {
      return net.is_empty() ? nullptr : net.ptr();
    }
  }

  std::unique_ptr<Impl> impl_;
};

}  // namespace epl
