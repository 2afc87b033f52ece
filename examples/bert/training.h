// Trains a question answering network: by EPL, or by the plain LibTorch loop to compare with.
//
//   bert::Training training(net, options, bert::Training::By::kEpl);
//   double loss = training.step(rows);
//   bert::Predictions answers = bert::answers_of(set, features, training.scores(features));
//
// Both ways make the same updates from the same rows. The plain loop accumulates the gradients of
// micro batches as a program without EPL does.
#pragma once

#include <epl/epl.h>
#include <torch/torch.h>

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "examples/bert/features.h"
#include "examples/bert/network.h"

namespace bert {

struct TrainingOptions {
  int64_t steps = 0;          // of the whole run: the learning rate falls to zero over them
  int64_t micro_batches = 4;  // of a step
  double learning_rate = 5e-5;
  double warmup = 0.1;  // part of the steps in which the learning rate rises
  double weight_decay = 0.01;
  double clip = 1.0;  // largest norm of the gradients; 0: any
};

class Training {
 public:
  enum class By { kEpl, kPlain };

  Training(QuestionAnswering net, const TrainingOptions& options, By by);

  // One update; returns the loss.
  double step(const Rows& rows);

  // Updates so far. A buffer of the network counts them, so that checkpoints know the number.
  int64_t steps_done() const { return steps_done_.item<int64_t>(); }

  // Scores of all windows, [windows, length, 2], without dropout. `progress` hears how many of them
  // are done.
  torch::Tensor scores(const Features& features,
                       const std::function<void(size_t)>& progress = nullptr);

  // Network, optimizer and number of steps in one file. By EPL only.
  void save(const std::string& path) const { trainer_->save(path); }
  void load(const std::string& path) { trainer_->load(path); }

 private:
  void set_learning_rate();
  double plain_step(const epl::Batch& batch);

  QuestionAnswering net_;
  TrainingOptions options_;
  torch::Tensor steps_done_;
  std::unique_ptr<torch::optim::AdamW> optimizer_;
  std::unique_ptr<epl::Trainer> trainer_;  // none where the plain loop trains
};

}  // namespace bert
