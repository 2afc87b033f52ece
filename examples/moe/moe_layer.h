// A mixture of experts in place of a feed-forward layer: each token visits one or two of many
// experts, so that a network grows in parameters and not in work.
//
//   moe::MoeLayer layer(moe::ExpertOptions{/*width=*/128, /*inner=*/512, /*experts=*/8});
//   auto [y, balance] = layer->forward(x, mask);    // x, y: [groups, tokens, width]
//   loss = loss + 0.01 * balance;
//
// A group is one row of the batch. Its tokens compete for the places of the experts among
// themselves, and its part of the balance loss is its own, so that the rows of a batch stand for
// themselves: a batch that is cut over devices gives what the whole batch gives. Shapes do not
// depend on the data, and nothing is read back into C++.
//
// The weights of the experts are made inside of a split scope and used outside of it. On devices
// that have rows of the batch each (epl::replicate(k) as the default strategy), each device has
// experts / k of the experts, and tokens travel to their experts and back.
#pragma once

#include <epl/epl.h>
#include <torch/torch.h>

#include <algorithm>
#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>
#include <utility>

namespace moe {

enum class Gating {
  kTop2,    // Lepikhin et al., "GShard" (2020): the two best experts, weighted to a sum of one
  kSwitch,  // Fedus et al., "Switch Transformers" (2021): the best one, weighted by its probability
};

struct ExpertOptions {
  int64_t width = 128;
  int64_t inner = 512;  // of an expert, between its two layers
  int64_t experts = 8;
  Gating gating = Gating::kTop2;
  // An expert has room for so many times the tokens it would get if all were chosen alike.
  double capacity_factor = 1.25;
  double eval_capacity_factor = 2.0;
  int64_t least_capacity = 4;
  int split = 0;  // devices that the experts are cut over; 0: no scope
};

// Places that an expert has for the tokens of one group.
inline int64_t capacity_of(int64_t tokens, const ExpertOptions& options, bool training) {
  const double factor = training ? options.capacity_factor : options.eval_capacity_factor;
  const int64_t choices = options.gating == Gating::kTop2 ? 2 : 1;
  const double even =
      static_cast<double>(choices * tokens) / static_cast<double>(options.experts) * factor;
  // No expert is chosen twice by a token, so more places than tokens would stay empty.
  return std::min(tokens, std::max(options.least_capacity, static_cast<int64_t>(std::ceil(even))));
}

// Which token goes where.
struct Routing {
  torch::Tensor dispatch;  // [groups, tokens, experts, places]: 1 where a token has a place, else 0
  torch::Tensor combine;   // the same times the weight of that expert's answer
  torch::Tensor balance;   // the auxiliary loss: 1 where all experts are used alike
};

// 1 at the number that each element holds, in a new last dimension. A number past the end gives
// zeros only, unlike torch::one_hot: that is how tokens beyond the capacity are dropped.
inline torch::Tensor mark(const torch::Tensor& numbers, int64_t count) {
  const torch::Tensor all = torch::arange(count, numbers.options());
  return numbers.unsqueeze(-1).eq(all).to(torch::kFloat);
}

// [groups, tokens, experts, places]: the place of each token at the expert that it chose, where
// `choice` [groups, tokens, experts] has a 1. Places go to the tokens in their order, after those
// that are `taken`: [groups, 1, experts] or one number.
inline torch::Tensor places_of(const torch::Tensor& choice, const torch::Tensor& taken,
                               int64_t capacity) {
  const torch::Tensor before = torch::cumsum(choice, 1) - choice + taken;
  const torch::Tensor place = (before * choice).sum(-1);
  return choice.unsqueeze(-1) * mark(place, capacity).unsqueeze(-2);
}

// `scores` [groups, tokens, experts] of the gate; `mask` [groups, tokens] is 1 for a token and 0
// for padding, which goes nowhere and is not counted.
inline Routing route(const torch::Tensor& scores, const torch::Tensor& mask, Gating gating,
                     int64_t capacity) {
  const int64_t experts = scores.size(-1);
  const torch::Tensor real = mask.unsqueeze(-1);
  const torch::Tensor gates = torch::softmax(scores, -1);
  const torch::Tensor first = mark(gates.argmax(-1), experts) * real;
  const torch::Tensor first_gate = (gates * first).sum(-1);
  const torch::Tensor first_places = places_of(first, torch::zeros({}), capacity);
  const auto weighted = [](const torch::Tensor& places, const torch::Tensor& weight) {
    return places * weight.unsqueeze(-1).unsqueeze(-1);
  };

  Routing routing;
  if (gating == Gating::kSwitch) {
    routing.dispatch = first_places;
    routing.combine = weighted(first_places, first_gate);
  } else {
    const torch::Tensor rest = gates.masked_fill(first.gt(0), -1);
    const torch::Tensor second = mark(rest.argmax(-1), experts) * real;
    const torch::Tensor second_gate = (gates * second).sum(-1);
    // All first choices go before all second ones.
    const torch::Tensor second_places = places_of(second, first.sum(1, true), capacity);
    const torch::Tensor both = (first_gate + second_gate).clamp_min(1e-9);
    routing.dispatch = first_places + second_places;
    routing.combine =
        weighted(first_places, first_gate / both) + weighted(second_places, second_gate / both);
  }

  // For each group: experts * sum over experts of (part of the tokens that chose it first) * (mean
  // of its gate). The first factor has no gradient, the second one pushes towards balance.
  const torch::Tensor tokens = mask.sum(1, true).clamp_min(1);
  const torch::Tensor load = first.sum(1) / tokens;
  const torch::Tensor mean_gate = (gates * real).sum(1) / tokens;
  routing.balance = static_cast<double>(experts) * (load * mean_gate).sum(-1).mean();
  return routing;
}

struct MoeLayerImpl : torch::nn::Module {
  explicit MoeLayerImpl(const ExpertOptions& options) : options(options) {
    if (options.gating == Gating::kTop2 && options.experts < 2) {
      throw std::runtime_error("a token cannot choose two of " + std::to_string(options.experts) +
                               " experts");
    }
    gate = register_module(
        "gate",
        torch::nn::Linear(torch::nn::LinearOptions(options.width, options.experts).bias(false)));
    std::optional<epl::With> scope;
    if (options.split > 0) scope.emplace(epl::split(options.split, "experts"));
    up = register_parameter("up", torch::empty({options.experts, options.width, options.inner}));
    down =
        register_parameter("down", torch::empty({options.experts, options.inner, options.width}));
    torch::nn::init::normal_(up, 0, 1 / std::sqrt(static_cast<double>(options.width)));
    torch::nn::init::normal_(down, 0, 1 / std::sqrt(static_cast<double>(options.inner)));
  }

  // Tokens [groups, tokens, width] and their mask [groups, tokens] -> what the experts say, of the
  // same shape, and the balance loss. A token that no expert had room for gets zeros: it goes on
  // by the residual connection around this layer.
  std::pair<torch::Tensor, torch::Tensor> forward(const torch::Tensor& x,
                                                  const torch::Tensor& mask) {
    const int64_t groups = x.size(0);
    const int64_t capacity = capacity_of(x.size(1), options, is_training());
    const Routing routing = route(gate->forward(x), mask, options.gating, capacity);
    const torch::Tensor sent = torch::einsum("gsec,gsm->egcm", {routing.dispatch, x});
    const torch::Tensor tokens = sent.reshape({options.experts, groups * capacity, options.width});
    const torch::Tensor answers = torch::bmm(torch::relu(torch::bmm(tokens, up)), down);
    const torch::Tensor returned = answers.view({options.experts, groups, capacity, options.width});
    return {torch::einsum("egcm,gsec->gsm", {returned, routing.combine}), routing.balance};
  }

  ExpertOptions options;
  torch::nn::Linear gate{nullptr};
  torch::Tensor up, down;  // [experts, width, inner], [experts, inner, width]
};
TORCH_MODULE(MoeLayer);

}  // namespace moe
