#include "tests/parity/split_models.h"

#include "examples/gpt/gpt.h"
#include "examples/moe/moe_layer.h"

namespace epl::parity {
namespace {

using torch::Tensor;
namespace F = torch::nn::functional;

// Devices sum what one device sums in another order.
const Exactness kRounding = within(2e-5, "sums over devices have another order");

OptimizerPointer adamw(const torch::nn::Module& net) {
  return std::make_shared<torch::optim::AdamW>(net.parameters(), 1e-3);
}

MakeBatch features(int64_t rows, int64_t width, int64_t count) {
  return [=](int) -> Batch { return {torch::randn({rows, width}), classes(count, {rows})}; };
}

MakeBatch tokens(int64_t rows, int64_t length, int64_t count) {
  return [=](int) -> Batch {
    return {classes(count, {rows, length}), classes(count, {rows, length})};
  };
}

// A network whose forward and loss stand in one split scope.
template <typename Net, typename... Arguments>
std::function<Program(int)> in_scope(const Arguments&... arguments) {
  return [=](int devices) {
    auto net = std::make_shared<Net>(arguments...);
    return program(net, sgd(*net, 0.1, 0.9), [net, devices](const Batch& batch) {
      const With scope(split(devices, "all"));
      return net->loss(batch);
    });
  };
}

struct Mlp : torch::nn::Module {
  explicit Mlp(int64_t hidden = 24) {
    first = register_module("first", torch::nn::Linear(12, hidden));
    second = register_module("second", torch::nn::Linear(hidden, 10));
  }
  Tensor loss(const Batch& batch) {
    return cross_entropy(second(torch::relu(first(batch[0]))), batch[1]);
  }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

// The classifier of many classes.
struct Classifier : torch::nn::Module {
  explicit Classifier(int64_t count) {
    body = register_module("body", torch::nn::Linear(12, 9));
    head = register_module("head", torch::nn::Linear(9, count));
  }
  Tensor loss(const Batch& batch) {
    return cross_entropy(head(torch::tanh(body(batch[0]))), batch[1]);
  }
  torch::nn::Linear body{nullptr}, head{nullptr};
};

// The same with its body under replicate: each device has rows of its own there.
std::function<Program(int)> colocated(int64_t count) {
  return [=](int devices) {
    auto net = std::make_shared<Classifier>(count);
    return program(net, sgd(*net, 0.1, 0.9), [net, devices](const Batch& batch) {
      Tensor x;
      {
        const With scope(replicate(devices, "body"));
        x = torch::tanh(net->body(batch[0]));
      }
      const With scope(split(devices, "head"));
      return cross_entropy(net->head(x), batch[1]);
    });
  };
}

// Weighted classes, rows that do not count, and a sum instead of a mean.
struct OddLoss : torch::nn::Module {
  OddLoss() {
    head = register_module("head", torch::nn::Linear(12, 10));
    weights = register_buffer("weights", torch::rand({10}) + 0.5);
  }
  Tensor loss(const Batch& batch) {
    const auto options =
        F::CrossEntropyFuncOptions().weight(weights).ignore_index(3).reduction(torch::kMean);
    const auto sum = F::CrossEntropyFuncOptions().reduction(torch::kSum);
    const Tensor logits = head(batch[0]);
    return F::cross_entropy(logits, batch[1], options) +
           0.01 * F::cross_entropy(logits, batch[1], sum);
  }
  torch::nn::Linear head{nullptr};
  Tensor weights;
};

// A GPT block with its head.
struct Gpt : torch::nn::Module {
  explicit Gpt(int64_t heads) {
    gpt::GptOptions options;
    options.vocabulary = 13;
    options.context = 6;
    options.width = 8 * heads;
    options.heads = heads;
    options.layers = 2;
    net = register_module("net", gpt::Gpt(options));
    // Its gradient is zero but for rounding: softmax does not see what all keys have in common.
    for (auto& parameter : net->named_parameters()) {
      const bool key = parameter.key().find("key.bias") != std::string::npos;
      if (key) parameter.value().set_requires_grad(false);
    }
  }
  Tensor loss(const Batch& batch) {
    const Tensor logits = net->forward(batch[0]);
    return cross_entropy(logits.flatten(0, 1), batch[1].flatten());
  }
  gpt::Gpt net{nullptr};
};

// Attention as it is mostly written: torch::matmul merges rows and heads.
struct Attention : torch::nn::Module {
  Attention() {
    int number = 0;
    for (auto* layer : {&query, &key, &value, &out}) {
      const auto options = torch::nn::LinearOptions(24, 24).bias(layer != &key);
      *layer = register_module("layer" + std::to_string(number++), torch::nn::Linear(options));
    }
  }
  Tensor loss(const Batch& batch) {
    const Tensor& x = batch[0];
    const auto by_head = [&](const Tensor& tokens) {
      return tokens.view({x.size(0), x.size(1), 8, 3}).transpose(1, 2);
    };
    const Tensor scores =
        torch::matmul(by_head(query(x)), by_head(key(x)).transpose(-2, -1)) / std::sqrt(3.0);
    const Tensor mixed = torch::matmul(torch::softmax(scores, -1), by_head(value(x)));
    return (out(mixed.transpose(1, 2).contiguous().view(x.sizes())) - batch[1]).pow(2).mean();
  }
  torch::nn::Linear query{nullptr}, key{nullptr}, value{nullptr}, out{nullptr};
};

struct Conv : torch::nn::Module {
  Conv() {
    using Options = torch::nn::Conv2dOptions;
    first = register_module("first", torch::nn::Conv2d(Options(3, 8, 3).padding(1).bias(false)));
    norm = register_module("norm", torch::nn::BatchNorm2d(8));
    second = register_module("second", torch::nn::Conv2d(Options(8, 6, 3).padding(1).bias(false)));
    group = register_module("group", torch::nn::GroupNorm(2, 6));
    head = register_module("head", torch::nn::Linear(6, 10));
  }
  Tensor loss(const Batch& batch) {
    Tensor x = torch::relu(norm(first(batch[0])));
    x = torch::max_pool2d(torch::relu(group(second(x))), 2);
    return cross_entropy(head(x.mean({2, 3})), batch[1]);
  }
  torch::nn::Conv2d first{nullptr}, second{nullptr};
  torch::nn::BatchNorm2d norm{nullptr};
  torch::nn::GroupNorm group{nullptr};
  torch::nn::Linear head{nullptr};
};

// A table that is also the head: one parameter, cut for both uses.
struct Tied : torch::nn::Module {
  Tied() { table = register_module("table", torch::nn::Embedding(14, 8)); }
  Tensor loss(const Batch& batch) {
    const Tensor x = torch::tanh(table(batch[0]));
    return cross_entropy(torch::matmul(x, table->weight.t()).flatten(0, 1), batch[1].flatten());
  }
  torch::nn::Embedding table{nullptr};
};

// Operators without a rule and values that are read back: whole on every device.
struct Odd : torch::nn::Module {
  Odd() { head = register_module("head", torch::nn::Linear(12, 10)); }
  Tensor loss(const Batch& batch) {
    const Tensor x = std::get<0>(torch::sort(batch[0], 1));
    Tensor logits = head(torch::erfinv(torch::tanh(x) * 0.5));
    if (logits.sum().gt(1e6).item<bool>()) logits = logits * 2;
    return cross_entropy(logits, batch[1]);
  }
  torch::nn::Linear head{nullptr};
};

// Layers of which some cannot be cut: fewer elements than devices.
struct Narrow : torch::nn::Module {
  Narrow() {
    first = register_module("first", torch::nn::Linear(12, 1));
    second = register_module("second", torch::nn::Linear(1, 10));
  }
  Tensor loss(const Batch& batch) { return cross_entropy(second(first(batch[0])), batch[1]); }
  torch::nn::Linear first{nullptr}, second{nullptr};
};

std::function<Program(int)> mixture(moe::Gating gating) {
  return [=](int devices) {
    moe::ExpertOptions options{8, 12, 8, gating};
    options.split = devices;
    auto layer = moe::MoeLayer(options);
    auto net = layer.ptr();
    return program(net, adamw(*net), [net, devices](const Batch& batch) {
      set_default_strategy(replicate(devices));
      const auto [y, balance] = net->forward(batch[0], torch::ones({batch[0].size(0), 6}));
      return (y - batch[1]).pow(2).mean() + 0.01 * balance;
    });
  };
}

MakeBatch vectors(int64_t rows, int64_t width) {
  return [=](int) -> Batch {
    return {torch::randn({rows, 6, width}), torch::randn({rows, 6, width})};
  };
}

MakeBatch images(int64_t rows) {
  return [=](int) -> Batch { return {torch::randn({rows, 3, 6, 6}), classes(10, {rows})}; };
}

}  // namespace

const std::map<std::string, SplitModel>& split_models() {
  static const std::map<std::string, SplitModel> models = {
      {"mlp", {in_scope<Mlp>(), features(48, 12, 10), kRounding}},
      {"uneven mlp", {in_scope<Mlp>(23), features(48, 12, 10), kRounding}},
      {"classifier", {in_scope<Classifier>(100), features(48, 12, 100), kRounding}},
      {"uneven classifier", {in_scope<Classifier>(97), features(48, 12, 97), kRounding}},
      {"colocated classifier", {colocated(50), features(96, 12, 50), kRounding, true}},
      {"odd loss", {in_scope<OddLoss>(), features(48, 12, 10), kRounding}},
      {"attention", {in_scope<Attention>(), vectors(48, 24), kRounding}},
      {"gpt", {in_scope<Gpt>(8), tokens(48, 6, 13), kRounding}},
      {"conv", {in_scope<Conv>(), images(48), within(5e-4, "norms of sums in another order")}},
      {"tied", {in_scope<Tied>(), tokens(48, 5, 14), kRounding}},
      {"odd operators", {in_scope<Odd>(), features(48, 12, 10), kRounding}},
      {"narrow", {in_scope<Narrow>(), features(48, 12, 10), kRounding}},
      {"mixture top 2", {mixture(moe::Gating::kTop2), vectors(96, 8), kRounding}},
      {"mixture switch", {mixture(moe::Gating::kSwitch), vectors(96, 8), kRounding}},
  };
  return models;
}

}  // namespace epl::parity
