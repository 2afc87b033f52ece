// Tensor parallelism as a user of LibTorch writes it: the blocks of split_block.h over several
// devices, which are threads, by two conjugate functions around each pair of layers.
//
//   SplitByHand hand(net, batch, /*devices=*/2, torch::optim::SGDOptions(1e-4).momentum(0.9));
//   hand.run(10);          // seconds of each step
//   hand.write_back();     // into `net`, to compare
//
// Each device has its heads of the attention and its hidden units of the feed-forward layers: the
// first layer of a pair is cut by its outputs, the second by its inputs, and the sum of what the
// second ones give is made by one all_reduce. Layer norms and the biases of the second layers are
// on every device. (Mohammad Shoeybi et al., "Megatron-LM", 2019, section 3.)
#pragma once

#include <chrono>
#include <exception>
#include <memory>
#include <thread>
#include <utility>
#include <vector>

#include "bench/programs.h"
#include "bench/split_block.h"
#include "comm/communicator.h"
#include "runtime/cores.h"

namespace epl::bench {

inline Communicator& group_of(torch::autograd::AutogradContext* context) {
  return *reinterpret_cast<Communicator*>(context->saved_data["group"].toInt());
}

inline void keep_group(torch::autograd::AutogradContext* context, Communicator* group) {
  context->saved_data["group"] = reinterpret_cast<int64_t>(group);
}

// In front of a pair of layers: every device reads the same, and each knows only its part of the
// gradient.
struct SumGradients : torch::autograd::Function<SumGradients> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, const torch::Tensor& x,
                               Communicator* group) {
    keep_group(context, group);
    return x.view_as(x);
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext* context,
                                               torch::autograd::tensor_list gradients) {
    const torch::Tensor sum = gradients[0].contiguous();
    group_of(context).all_reduce({sum}, ReduceOp::kSum);
    return {sum, torch::Tensor()};
  }
};

// Behind it: each device has its addend, and all get the same gradient.
struct SumValues : torch::autograd::Function<SumValues> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, torch::Tensor addend,
                               Communicator* group) {
    context->mark_dirty({addend});
    group->all_reduce({addend}, ReduceOp::kSum);
    return addend;
  }
  static torch::autograd::tensor_list backward(torch::autograd::AutogradContext*,
                                               torch::autograd::tensor_list gradients) {
    return {gradients[0], torch::Tensor()};
  }
};

// One block on one device.
class BlockByHand {
 public:
  BlockByHand(const SplitBlock& whole, Communicator& group)
      : group_(&group), heads_(whole->heads / group.size()), ahead_(whole->ahead) {
    norm1_ = {take(whole->norm1->weight), take(whole->norm1->bias)};
    query_ = {take(whole->query->weight, 0), take(whole->query->bias, 0)};
    key_ = {take(whole->key->weight, 0), take(whole->key->bias, 0)};
    value_ = {take(whole->value->weight, 0), take(whole->value->bias, 0)};
    projection_ = {take(whole->projection->weight, 1), take(whole->projection->bias)};
    norm2_ = {take(whole->norm2->weight), take(whole->norm2->bias)};
    widen_ = {take(whole->widen->weight, 0), take(whole->widen->bias, 0)};
    narrow_ = {take(whole->narrow->weight, 1), take(whole->narrow->bias)};
  }

  torch::Tensor forward(const torch::Tensor& x) const {
    const auto h = SumGradients::apply(normalized(x, norm1_), group_);
    const auto attended =
        attend(linear(h, query_), linear(h, key_), linear(h, value_), heads_, ahead_);
    const auto y = x + sum_of_products(attended, projection_);
    const auto wide =
        torch::gelu(linear(SumGradients::apply(normalized(y, norm2_), group_), widen_));
    return y + sum_of_products(wide, narrow_);
  }

  const std::vector<torch::Tensor>& parameters() const { return parameters_; }

  // Into the tensors that the pieces were taken from.
  void write_back() const {
    const torch::NoGradGuard no_grad;
    for (size_t i = 0; i < parameters_.size(); ++i) origins_[i].copy_(parameters_[i]);
  }

 private:
  struct Layer {
    torch::Tensor weight, bias;
  };

  // A parameter of this device: all of `whole`, or its piece along `dim`.
  torch::Tensor take(const torch::Tensor& whole, int64_t dim = -1) {
    torch::Tensor origin = whole.detach();
    if (dim >= 0) {
      const int64_t length = whole.size(dim) / group_->size();
      origin = origin.narrow(dim, group_->rank() * length, length);
    }
    origins_.push_back(origin);
    parameters_.push_back(origin.clone(torch::MemoryFormat::Contiguous).requires_grad_());
    return parameters_.back();
  }

  static torch::Tensor normalized(const torch::Tensor& x, const Layer& layer) {
    return torch::layer_norm(x, {x.size(-1)}, layer.weight, layer.bias);
  }
  static torch::Tensor linear(const torch::Tensor& x, const Layer& layer) {
    return torch::linear(x, layer.weight, layer.bias);
  }
  // The bias is added once, to the sum.
  torch::Tensor sum_of_products(const torch::Tensor& x, const Layer& layer) const {
    return SumValues::apply(torch::linear(x, layer.weight), group_) + layer.bias;
  }

  Communicator* const group_;
  const int64_t heads_;
  const torch::Tensor ahead_;
  Layer norm1_, query_, key_, value_, projection_, norm2_, widen_, narrow_;
  std::vector<torch::Tensor> parameters_;
  std::vector<torch::Tensor> origins_;
};

// A device: its blocks, and the loop that a user writes.
class DeviceByHand {
 public:
  DeviceByHand(const SplitBlocks& net, Communicator& group,
               const torch::optim::SGDOptions& options) {
    std::vector<torch::Tensor> parameters;
    for (const auto& block : net.blocks) {
      blocks_.emplace_back(block, group);
      const auto& those = blocks_.back().parameters();
      parameters.insert(parameters.end(), those.begin(), those.end());
    }
    optimizer_ = std::make_unique<torch::optim::SGD>(parameters, options);
  }

  void step(const Batch& batch) {
    optimizer_->zero_grad();
    torch::Tensor x = batch[0];
    for (const auto& block : blocks_) x = block.forward(x);
    block_loss(x, batch[1]).backward();
    optimizer_->step();
  }

  void write_back() const {
    for (const auto& block : blocks_) block.write_back();
  }

 private:
  std::vector<BlockByHand> blocks_;
  std::unique_ptr<torch::optim::SGD> optimizer_;
};

class SplitByHand {
 public:
  SplitByHand(const SplitBlocks& net, Batch batch, int devices,
              const torch::optim::SGDOptions& options)
      : batch_(std::move(batch)),
        cores_(share_cores(allowed_cores(), devices)),
        ends_(make_local_communicators(devices, watch_, {"by hand", std::chrono::minutes(5)})) {
    for (const auto& end : ends_) devices_.emplace_back(net, *end, options);
  }

  // Of so many steps, each, by device 0: all_reduce keeps the devices together.
  std::vector<double> run(int steps) {
    std::vector<double> taken;
    std::vector<std::exception_ptr> errors(devices_.size());
    const auto work = [&](size_t device) {
      try {
        const OnCores bound(cores_[device]);
        for (int i = 0; i < steps; ++i) {
          const double seconds = bench::seconds([&] { devices_[device].step(batch_); });
          if (device == 0) taken.push_back(seconds);
        }
      } catch (...) {
        errors[device] = std::current_exception();
      }
    };
    std::vector<std::thread> threads;
    for (size_t device = 0; device < devices_.size(); ++device) threads.emplace_back(work, device);
    for (auto& thread : threads) thread.join();
    for (const auto& error : errors) {
      if (error != nullptr) std::rethrow_exception(error);
    }
    return taken;
  }

  // Parameters into those of the network that this began with.
  void write_back() const {
    for (const auto& device : devices_) device.write_back();
  }

 private:
  const Batch batch_;
  const std::vector<CoreShare> cores_;
  Watch watch_;
  std::vector<std::unique_ptr<Communicator>> ends_;
  std::vector<DeviceByHand> devices_;
};

}  // namespace epl::bench
