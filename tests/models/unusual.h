// What real programs do and textbooks leave out: sparse gradients, frozen, unused and shared parts,
// autograd functions of one's own, buffers that the forward pass writes, mixtures, graphs.
#pragma once

#include <torch/torch.h>

#include <vector>

namespace epl::models {

// Averages word vectors, then classifies; the embedding's gradient is sparse.
struct BagOfWords : torch::nn::Module {
  BagOfWords(int64_t vocabulary, int64_t hidden, int64_t classes)
      : words(torch::nn::EmbeddingOptions(vocabulary, hidden).sparse(true)), head(hidden, classes) {
    register_module("words", words);
    register_module("head", head);
  }

  torch::Tensor forward(torch::Tensor ids) { return head(words(ids).mean(1)); }

  torch::nn::Embedding words;
  torch::nn::Linear head;
};

// A pretrained part that stands still, a layer that nothing calls, and a head that learns.
struct FineTuned : torch::nn::Module {
  FineTuned(int64_t in, int64_t hidden, int64_t classes)
      : backbone(in, hidden), unused(hidden, hidden), head(hidden, classes) {
    register_module("backbone", backbone);
    register_module("unused", unused);
    register_module("head", head);
    for (auto& parameter : backbone->parameters()) parameter.requires_grad_(false);
  }

  torch::Tensor forward(torch::Tensor x) { return head(torch::relu(backbone(x))); }

  torch::nn::Linear backbone, unused, head;
};

// One layer, called `times` times.
struct Repeated : torch::nn::Module {
  Repeated(int64_t in, int64_t hidden, int64_t classes, int64_t times)
      : times(times), first(in, hidden), shared(hidden, hidden), head(hidden, classes) {
    register_module("first", first);
    register_module("shared", shared);
    register_module("head", head);
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::tanh(first(x));
    for (int64_t i = 0; i < times; ++i) x = torch::tanh(shared(x));
    return head(x);
  }

  int64_t times;
  torch::nn::Linear first, shared, head;
};

// Rounds on the way forward, lets gradients pass within [-limit, limit] on the way back.
struct StraightThrough : torch::autograd::Function<StraightThrough> {
  static torch::Tensor forward(torch::autograd::AutogradContext* context, torch::Tensor x,
                               double limit) {
    context->save_for_backward({x});
    context->saved_data["limit"] = limit;
    return (x * 4).round() / 4;
  }

  static torch::autograd::variable_list backward(torch::autograd::AutogradContext* context,
                                                 torch::autograd::variable_list gradients) {
    auto x = context->get_saved_variables()[0];
    auto inside = x.abs() <= context->saved_data["limit"].toDouble();
    return {gradients[0] * inside, torch::Tensor()};
  }
};

struct Quantised : torch::nn::Module {
  Quantised(int64_t in, int64_t hidden, int64_t classes)
      : first(in, hidden), head(hidden, classes) {
    register_module("first", first);
    register_module("head", head);
  }

  torch::Tensor forward(torch::Tensor x) { return head(StraightThrough::apply(first(x), 1.5)); }

  torch::nn::Linear first, head;
};

// A network that follows the running mean of its activations in a buffer, by its own hand.
struct RunningMean : torch::nn::Module {
  RunningMean(int64_t in, int64_t hidden, int64_t classes)
      : first(in, hidden), head(hidden, classes) {
    register_module("first", first);
    register_module("head", head);
    mean = register_buffer("mean", torch::zeros({hidden}));
    seen = register_buffer("seen", torch::zeros({}, torch::kLong));
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(first(x));
    if (is_training()) {
      torch::NoGradGuard no_grad;
      mean.mul_(0.9).add_(x.mean(0), 0.1);
      seen += x.size(0);
    }
    return head(x - mean);
  }

  torch::nn::Linear first, head;
  torch::Tensor mean, seen;
};

// Two of several experts for every row, chosen by topk; all experts run on all rows.
struct Mixture : torch::nn::Module {
  Mixture(int64_t in, int64_t hidden, int64_t experts, int64_t classes)
      : gate(in, experts), head(hidden, classes) {
    register_module("gate", gate);
    weights = register_parameter("weights", torch::randn({experts, in, hidden}) * 0.2);
    register_module("head", head);
  }

  torch::Tensor forward(torch::Tensor x) {
    auto scores = torch::softmax(gate(x), -1);
    auto [best, chosen] = scores.topk(2, -1);
    auto mask = torch::zeros_like(scores).scatter(1, chosen, best);
    auto outputs = torch::einsum("bi,eih->beh", {x, weights});
    auto mixed = (torch::relu(outputs) * mask.unsqueeze(-1)).sum(1);
    return head(mixed);
  }

  torch::nn::Linear gate, head;
  torch::Tensor weights;
};

// Two rounds of message passing over a fixed set of edges.
struct GraphNet : torch::nn::Module {
  GraphNet(int64_t in, int64_t hidden, int64_t classes)
      : first(in, hidden), second(hidden, hidden), head(hidden, classes) {
    register_module("first", first);
    register_module("second", second);
    register_module("head", head);
  }

  // `edges` is [2, number of edges]: from, to.
  torch::Tensor forward(torch::Tensor nodes, torch::Tensor edges) {
    nodes = torch::relu(pass(first(nodes), edges));
    nodes = torch::relu(pass(second(nodes), edges));
    return head(nodes);
  }

  static torch::Tensor pass(const torch::Tensor& nodes, const torch::Tensor& edges) {
    return nodes +
           torch::zeros_like(nodes).index_add_(0, edges[1], nodes.index_select(0, edges[0]));
  }

  torch::nn::Linear first, second, head;
};

// A trunk with two heads; each head has a loss of its own.
struct TwoHeads : torch::nn::Module {
  TwoHeads(int64_t in, int64_t hidden, int64_t classes)
      : trunk(in, hidden), classify(hidden, classes), regress(hidden, 1) {
    register_module("trunk", trunk);
    register_module("classify", classify);
    register_module("regress", regress);
  }

  std::pair<torch::Tensor, torch::Tensor> forward(torch::Tensor x) {
    x = torch::tanh(trunk(x));
    return {classify(x), regress(x).squeeze(1)};
  }

  torch::nn::Linear trunk, classify, regress;
};

}  // namespace epl::models
