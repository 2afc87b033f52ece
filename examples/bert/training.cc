#include "examples/bert/training.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "examples/common/training.h"

namespace bert {
namespace {

constexpr size_t kWindowsScoredAtOnce = 32;

epl::Batch batch_of(const Rows& rows) { return {rows.ids, rows.segments, rows.mask, rows.spans}; }

torch::Tensor loss_of(QuestionAnswering& net, const epl::Batch& batch) {
  return span_loss(net->forward(batch[0], batch[1], batch[2]), batch[3]);
}

}  // namespace

Training::Training(QuestionAnswering net, const TrainingOptions& options, By by)
    : net_(std::move(net)), options_(options) {
  steps_done_ = net_->register_buffer("steps_done", torch::zeros({}, torch::kInt64));
  optimizer_ = std::make_unique<torch::optim::AdamW>(
      examples::adamw_groups(*net_, options.weight_decay, /*eps=*/1e-6));
  if (by == By::kPlain) return;
  epl::TrainerOptions trainer_options;
  trainer_options.clip_grad_norm = options.clip;
  trainer_ = std::make_unique<epl::Trainer>(
      net_, *optimizer_,
      [net = net_](const epl::Batch& batch) mutable { return loss_of(net, batch); },
      trainer_options);
}

double Training::step(const Rows& rows) {
  set_learning_rate();
  const epl::Batch batch = batch_of(rows);
  const double loss = trainer_ ? trainer_->step(batch).loss : plain_step(batch);
  steps_done_.add_(1);
  return loss;
}

// Rises over the warmup, then falls on a straight line to zero (Devlin et al. 2018).
void Training::set_learning_rate() {
  const double steps = static_cast<double>(std::max<int64_t>(options_.steps, 1));
  const double way = static_cast<double>(steps_done()) / steps;
  const double rise = (way + 1 / steps) / std::max(options_.warmup, 1 / steps);
  const double rate = options_.learning_rate * std::min(rise, std::max(1 - way, 0.0));
  for (auto& group : optimizer_->param_groups()) {
    static_cast<torch::optim::AdamWOptions&>(group.options()).lr(rate);
  }
}

double Training::plain_step(const epl::Batch& batch) {
  optimizer_->zero_grad();
  double loss_sum = 0;
  const int64_t rows = batch[0].size(0) / options_.micro_batches;
  for (int64_t i = 0; i < options_.micro_batches; ++i) {
    epl::Batch part;
    for (const torch::Tensor& tensor : batch) part.push_back(tensor.narrow(0, i * rows, rows));
    const torch::Tensor loss = loss_of(net_, part) / options_.micro_batches;
    loss.backward();
    loss_sum += loss.item<double>();
  }
  if (options_.clip > 0) torch::nn::utils::clip_grad_norm_(net_->parameters(), options_.clip);
  optimizer_->step();
  return loss_sum;
}

torch::Tensor Training::scores(const Features& features,
                               const std::function<void(size_t)>& progress) {
  const torch::NoGradGuard no_grad;
  const bool was_training = net_->is_training();
  net_->eval();
  std::vector<torch::Tensor> parts;
  for (size_t first = 0; first < features.windows.size(); first += kWindowsScoredAtOnce) {
    std::vector<size_t> windows(std::min(kWindowsScoredAtOnce, features.windows.size() - first));
    std::iota(windows.begin(), windows.end(), first);
    const Rows rows = rows_of(features, windows);
    parts.push_back(net_->forward(rows.ids, rows.segments, rows.mask));
    if (progress) progress(first + windows.size());
  }
  net_->train(was_training);
  return parts.empty() ? torch::empty({0, features.options.length, 2}) : torch::cat(parts);
}

}  // namespace bert
