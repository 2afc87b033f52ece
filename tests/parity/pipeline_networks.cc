// Networks of real layers in stages, and values of every dtype and shape between them.
#include "tests/parity/pipeline_models.h"

namespace epl::parity {
namespace {

using torch::Tensor;

const Exactness kRounding =
    within(1e-5, "each stage sums its own uses over the micro batches first");

const Exactness kSparse = within(1e-6, "the order of a sparse sum is its own");

MakeBatch tokens(int64_t rows, int64_t length) {
  return [=](int) -> Batch { return {classes(12, {rows, length}), classes(12, {rows, length})}; };
}

// A causal transformer whose table is used at both ends.
struct Language : torch::nn::Module {
  explicit Language(int count) : stages(count) {
    for (int i = 0; i < stages; ++i) {
      auto options = torch::nn::TransformerEncoderLayerOptions(8, 2).dim_feedforward(16).dropout(0);
      blocks->push_back(torch::nn::TransformerEncoderLayer(options));
    }
    register_module("blocks", blocks);
  }

  Tensor loss(const Batch& batch) {
    const int64_t length = batch[0].size(1);
    const Tensor mask = torch::full({length, length}, -INFINITY).triu(1);
    Tensor x;
    for (int i = 0; i < stages; ++i) {
      const With scope(stage(i));
      if (i == 0) {
        x = (table(batch[0]) + position(torch::arange(length))).transpose(0, 1);
      }
      x = blocks[static_cast<size_t>(i)]->as<torch::nn::TransformerEncoderLayer>()->forward(x,
                                                                                            mask);
    }
    const Tensor logits = torch::matmul(norm(x).transpose(0, 1), table->weight.t());
    return cross_entropy(logits.flatten(0, 1), batch[1].flatten());
  }

  int stages;
  torch::nn::ModuleList blocks;
  torch::nn::Embedding table = register_module("table", torch::nn::Embedding(12, 8));
  torch::nn::Embedding position = register_module("position", torch::nn::Embedding(6, 8));
  torch::nn::LayerNorm norm =
      register_module("norm", torch::nn::LayerNorm(torch::nn::LayerNormOptions({8})));
};

Program language() {
  auto net = std::make_shared<Language>(3);
  return program(net, sgd(*net, 0.1, 0.9), [net](const Batch& batch) { return net->loss(batch); });
}

// Down, across and up again, with a skip; batch norm in every stage.
struct Images : torch::nn::Module {
  static torch::nn::Conv2dOptions conv(int64_t in, int64_t out, int64_t stride) {
    return torch::nn::Conv2dOptions(in, out, 3).stride(stride).padding(1).bias(false);
  }
  Tensor loss(const Batch& batch) {
    Tensor x, early;
    {
      const With scope(stage(0));
      early = first_norm(first(batch[0])).relu_();
    }
    {
      const With scope(stage(1));
      x = torch::max_pool2d(torch::relu(second_norm(second(early))), 2);
    }
    const With scope(stage(2));
    x = torch::upsample_nearest2d(x, std::vector<int64_t>{8, 8});
    x = torch::cat({x, early}, 1).mean({2, 3});
    return cross_entropy(head(x), batch[1]);
  }

  torch::nn::Conv2d first = register_module("first", torch::nn::Conv2d(conv(2, 4, 1)));
  torch::nn::BatchNorm2d first_norm = register_module("first_norm", torch::nn::BatchNorm2d(4));
  torch::nn::Conv2d second = register_module("second", torch::nn::Conv2d(conv(4, 4, 2)));
  torch::nn::BatchNorm2d second_norm = register_module("second_norm", torch::nn::BatchNorm2d(4));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(8, 6));
};

Program images() {
  auto net = std::make_shared<Images>();
  return program(net, sgd(*net, 0.1), [net](const Batch& batch) { return net->loss(batch); });
}

Batch image_batch(int) { return {torch::randn({32, 2, 8, 8}), classes(6, {32})}; }

// Two layers that hand a sequence and both of their states on.
struct Recurrent : torch::nn::Module {
  Tensor loss(const Batch& batch) {
    Tensor x;
    std::tuple<Tensor, Tensor> state;
    {
      const With scope(stage(0));
      std::tie(x, state) = first(table(batch[0]));
    }
    const With scope(stage(1));
    x = std::get<0>(second(x, state));
    return cross_entropy(head(x).flatten(0, 1), batch[1].flatten());
  }

  static torch::nn::LSTMOptions sizes() { return torch::nn::LSTMOptions(8, 8).batch_first(true); }
  torch::nn::Embedding table = register_module("table", torch::nn::Embedding(12, 8));
  torch::nn::LSTM first = register_module("first", torch::nn::LSTM(sizes()));
  torch::nn::LSTM second = register_module("second", torch::nn::LSTM(sizes()));
  torch::nn::Linear head = register_module("head", torch::nn::Linear(8, 12));
};

Program recurrent() {
  auto net = std::make_shared<Recurrent>();
  return program(net, sgd(*net, 0.1), [net](const Batch& batch) { return net->loss(batch); });
}

// Views of one tensor that cross by themselves, some of which overlap or repeat.
StepOutput views(Parts& net, const Batch& batch) {
  Tensor x, turned, windows, repeated, column, diagonal;
  {
    const With scope(stage(0));
    x = net(0, batch[0]);
    turned = x.t();
    windows = x.unfold(1, 3, 1);                // [rows, 4, 3], overlapping
    repeated = x.sum(1, true).expand({-1, 6});  // one number a row
    column = x.slice(1, 1, 2);
    diagonal = torch::diagonal(x.view({-1, 2, 3}), 0, 1, 2);
  }
  const With scope(stage(1));
  x = net(1, turned.t() + repeated * column + windows.sum(2).repeat({1, 2}).slice(1, 0, 6));
  return cross_entropy(x + diagonal.sum(1, true), batch[1]);
}

// Of every dtype that LibTorch computes with.
StepOutput dtypes(Parts& net, const Batch& batch) {
  Tensor x;
  std::vector<Tensor> crossing;
  {
    const With scope(stage(0));
    x = net(0, batch[0]);
    for (auto type : {torch::kByte, torch::kChar, torch::kShort, torch::kInt, torch::kLong}) {
      crossing.push_back((batch[0].abs() * 10).to(type));
    }
    for (auto type : {torch::kHalf, torch::kBFloat16, torch::kDouble}) {
      crossing.push_back(x.to(type));
    }
    crossing.push_back(batch[0] > 0.1);
    crossing.push_back(torch::complex(batch[0], batch[0] * 2));
  }
  const With scope(stage(1));
  for (const Tensor& each : crossing) {
    x = x + 0.1 * (each.is_complex() ? torch::real(each) : each.to(torch::kFloat));
  }
  return cross_entropy(net(1, x), batch[1]);
}

// The last stage computes what is only shown: it has no backward.
StepOutput metric_behind_the_loss(Parts& net, const Batch& batch) {
  Tensor x;
  {
    const With scope(stage(0));
    x = net(0, batch[0]);
  }
  Tensor loss;
  {
    const With scope(stage(1));
    loss = cross_entropy(net(1, x), batch[1]);
  }
  const With scope(stage(2));
  StepOutput output = loss;
  output.metrics["shown"] = x.detach().pow(2).mean() + net.table->weight.detach().sum();
  return output;
}

// A penalty on the gradient of the loss: forward goes through the stages backwards.
StepOutput gradient_penalty(Parts& net, const Batch& batch) {
  Tensor x;
  {
    const With scope(stage(0));
    x = net(0, batch[0]);
  }
  Tensor loss;
  {
    const With scope(stage(1));
    loss = cross_entropy(net(1, x), batch[1]);
  }
  const std::vector<Tensor> weights = {net.layers[0]->weight, net.layers[1]->weight};
  Tensor penalty = torch::zeros({});
  for (const Tensor& each : torch::autograd::grad({loss}, weights, {}, true, true)) {
    penalty = penalty + each.pow(2).sum();
  }
  return loss + 0.1 * penalty;
}

// The first stage reads the table that only the last one trains.
StepOutput read_elsewhere(Parts& net, const Batch& batch) {
  Tensor x;
  {
    const With scope(stage(0));
    x = net(0, batch[0]) + torch::embedding(net.table->weight.detach(), batch[1]);
  }
  const With scope(stage(1));
  return cross_entropy(net(1, x) + net.table(batch[1]), batch[1]);
}

// No batch at all: what the step reads it closes over.
Program without_batch() {
  auto net = std::make_shared<Parts>(2);
  const Tensor input = torch::randn({8, 6}), target = classes(6, {8}), scale = torch::rand({6});
  return program(net, sgd(*net, 0.1, 0.9), [=](const Batch&) {
    Tensor x;
    {
      const With scope(stage(0));
      x = (*net)(0, input) * scale;
    }
    const With scope(stage(1));
    return cross_entropy((*net)(1, x) * scale, target);
  });
}

// Drawn outside of all scopes and first read on the first device: the numbers of the plain loop.
StepOutput noise(Parts& net, const Batch& batch) {
  const Tensor drawn = torch::randn({6});
  Tensor x = batch[0];
  for (int i : {0, 1, 2}) {
    const With scope(stage(i));
    x = net(i, i == 1 ? x : x + drawn);
  }
  return cross_entropy(x, batch[1]);
}

// A table with a sparse gradient in one of the stages.
Program sparse_table(int where) {
  auto net = std::make_shared<Parts>(2);
  const auto options = torch::nn::EmbeddingOptions(10, 6).sparse(true);
  net->replace_module("table", net->table = torch::nn::Embedding(options));
  auto plain = std::make_shared<torch::optim::SGD>(net->parameters(), 0.1);
  return program(net, plain, [net, where](const Batch& batch) {
    Tensor x = batch[0];
    for (int i : {0, 1}) {
      const With scope(stage(i));
      x = (*net)(i, x);
      if (i == where) x = x + net->table(batch[1]);
    }
    return cross_entropy(x, batch[1]);
  });
}

Program doubles() {
  auto net = std::make_shared<Stack>(2);
  net->to(torch::kDouble);
  return program(net, sgd(*net, 0.1, 0.9), [net](const Batch& batch) {
    return cross_entropy(net->forward(batch[0].to(torch::kDouble)), batch[1]);
  });
}

}  // namespace

const std::map<std::string, StagedModel>& staged_networks() {
  static const std::map<std::string, StagedModel> models = {
      {"language", {3, language, kRounding, tokens(32, 5)}},
      {"images", {3, images, within(1e-4, "depth amplifies rounding"), image_batch}},
      {"recurrent",
       {2, recurrent, within(1e-5, "the sum over time has another order"), tokens(32, 4)}},
      {"views", {2, parts(2, views), kRounding}},
      {"dtypes", {2, parts(2, dtypes)}},
      {"metric behind the loss", {3, parts(2, metric_behind_the_loss)}},
      {"gradient penalty", {2, parts(2, gradient_penalty), kRounding}},
      {"read elsewhere", {2, parts(2, read_elsewhere)}},
      {"doubles", {2, doubles}},
      {"without batch", {2, without_batch, bit_equal(), [](int) { return Batch(); }}},
      {"noise", {3, parts(3, noise)}},
      {"sparse table first", {2, [] { return sparse_table(0); }, kSparse}},
      {"sparse table last", {2, [] { return sparse_table(1); }, kSparse}},
  };
  return models;
}

}  // namespace epl::parity
