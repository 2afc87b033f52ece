// Split under every option of a training: optimizers, clipping, sums, metrics, files, modes.
#include <cstdio>
#include <filesystem>

#include "tests/parity/on_devices.h"
#include "tests/parity/split_models.h"

namespace epl::parity {
namespace {

using torch::Tensor;
namespace F = torch::nn::functional;

const Exactness kRounding = within(2e-5, "sums over devices have another order");

// Two layers and a head of uneven sizes, all cut over the devices.
struct Net : torch::nn::Module {
  Net() {
    table = register_module("table", torch::nn::Embedding(11, 8));
    up = register_module("up", torch::nn::Linear(8, 22));
    down = register_module("down", torch::nn::Linear(22, 8));
    head = register_module("head", torch::nn::Linear(8, 13));
    unused = register_module("unused", torch::nn::Linear(3, 5));
  }
  Tensor forward(const Tensor& words) {
    const Tensor x = table(words);
    return head(x + down(torch::gelu(up(x))));
  }
  torch::nn::Embedding table{nullptr};
  torch::nn::Linear up{nullptr}, down{nullptr}, head{nullptr}, unused{nullptr};
};

MakeBatch words(int64_t rows) {
  return [=](int) -> Batch { return {classes(11, {rows}), classes(13, {rows})}; };
}

template <typename Module>
StepFunction in_split(std::shared_ptr<Module> net, int devices) {
  return [net, devices](const Batch& batch) {
    const With scope(split(devices, "all"));
    return cross_entropy(net->forward(batch[0]), batch[1]);
  };
}

using MakeOptimizer = std::function<OptimizerPointer(std::vector<Tensor>)>;

MakeProgram net_with(const MakeOptimizer& optimizer, int devices = 2) {
  return [=] {
    auto net = std::make_shared<Net>();
    return program(net, optimizer(net->parameters()), in_split(net, devices));
  };
}

MakeProgram net(int devices = 2) {
  return net_with(
      [](const std::vector<Tensor>& parameters) {
        return std::make_shared<torch::optim::SGD>(parameters,
                                                   torch::optim::SGDOptions(0.1).momentum(0.9));
      },
      devices);
}

// --- gradients ----------------------------------------------------------------------------------

// A table whose gradient is sparse, in one split scope with all else, or in the first or second
// stage of a pipeline.
struct SparseTable : torch::nn::Module {
  explicit SparseTable(int stage) : stage(stage) {
    table = register_module("table",
                            torch::nn::Embedding(torch::nn::EmbeddingOptions(11, 8).sparse(true)));
    other = register_module("other", torch::nn::Embedding(11, 8));
    head = register_module("head", torch::nn::Linear(8, 13));
  }
  Strategy scope_of(int number) const {
    if (stage < 0) return split(2, "all");
    return number == stage ? split(2, "table") : replicate(1, "rest");
  }
  Tensor loss_of(const Batch& batch) {
    Tensor x;
    {
      const With scope(scope_of(0));
      x = torch::tanh(stage == 1 ? other(batch[0]) : table(batch[0]));
    }
    const With scope(scope_of(1));
    x = x + (stage == 1 ? table(batch[0]) : other(batch[0]));
    return cross_entropy(head(x), batch[1]);
  }
  int stage;
  torch::nn::Embedding table{nullptr}, other{nullptr};
  torch::nn::Linear head{nullptr};
};

// What is sparse cannot be cut; made dense before the cut it can.
TEST(SplitOptions, SparseGradientsMayBeMadeDense) {
  for (int stage : {-1, 0, 1}) {
    const MakeProgram make = [=] {
      auto net = std::make_shared<SparseTable>(stage);
      return program(net, std::make_shared<torch::optim::SGD>(net->parameters(), 0.1),
                     [net](const Batch& batch) { return net->loss_of(batch); });
    };
    Variant variant = split_over(2);
    if (stage >= 0) {
      variant = Variant()
                    .steps(3)
                    .stages(stage == 0 ? std::vector<int>{2, 1} : std::vector<int>{1, 2})
                    .devices(3);
    }
    variant.micro_batches(2).with("communication.sparse_as_dense", true);
    EXPECT_TRUE(parity(make, words(24), kRounding, variant)) << stage;
  }
}

// The transposed weight belongs to the second stage, though dead code of the first reads it: its
// gradient, which both devices of the second stage have all of, counts once.
struct ReadInVain : torch::nn::Module {
  ReadInVain() {
    table = register_module("table", torch::nn::Embedding(11, 8));
    weight = register_parameter("weight", torch::randn({13, 8}));
  }
  Tensor loss_of(const Batch& batch) {
    const Tensor columns = weight.t();
    Tensor x;
    {
      const With scope(replicate(1, "first"));
      x = table(batch[0]);
      torch::mm(x, columns).sum();
    }
    const With scope(split(2, "second"));
    return cross_entropy(torch::mm(torch::tanh(x), columns), batch[1]);
  }
  torch::nn::Embedding table{nullptr};
  Tensor weight;
};

TEST(SplitOptions, WhatDeadCodeReadsBelongsToTheStageThatNeedsIt) {
  const MakeProgram make = [] {
    auto net = std::make_shared<ReadInVain>();
    return program(net, std::make_shared<torch::optim::SGD>(net->parameters(), 0.1),
                   [net](const Batch& batch) { return net->loss_of(batch); });
  };
  EXPECT_TRUE(parity(make, words(24), kRounding,
                     Variant().steps(3).stages({1, 2}).devices(3).micro_batches(2)));
}

TEST(SplitOptions, TheNormIsThatOfAllPieces) {
  for (int replicas : {1, 2}) {
    const Variant variant = split_over(2, 2, replicas).clip_norm(0.05);
    EXPECT_TRUE(parity(net(), words(24), kRounding, variant)) << replicas;
    EXPECT_TRUE(parity(net(), words(24), kRounding, Variant(variant).clip_after())) << replicas;
  }
  EXPECT_TRUE(parity(net(3), words(24), kRounding, split_over(3).clip_norm(0.05, INFINITY)));
  EXPECT_TRUE(parity(net(3), words(24), kRounding, split_over(3).clip_norm(0.05, 1)));
}

TEST(SplitOptions, ValuesAreClipped) {
  const Variant variant = split_over(2, 2, 2).clip_value(0.003);
  EXPECT_TRUE(parity(net(), words(24), kRounding, variant));
  EXPECT_TRUE(parity(net(), words(24), kRounding, Variant(variant).clip_after()));
}

TEST(SplitOptions, GradientsAreSummed) {
  for (int replicas : {1, 2}) {
    EXPECT_TRUE(parity(net(), words(24), kRounding, split_over(2, 3, replicas).sum())) << replicas;
  }
}

TEST(SplitOptions, TheUpdateRunsInGroups) {
  for (int groups : {2, 100}) {
    EXPECT_TRUE(parity(net(), words(24), kRounding, split_over(2, 2).apply_groups(groups)));
  }
}

TEST(SplitOptions, MicroBatchesComeFromASource) {
  EXPECT_TRUE(parity(net(), words(24), kRounding, split_over(2, 2).from_source()));
}

TEST(SplitOptions, StepsAreVerified) {
  EXPECT_TRUE(parity(net(), words(24), kRounding, split_over(2, 2).with("debug.verify_steps", 3)));
}

TEST(SplitOptions, ABatchOfAnotherShapeComesInBetween) {
  const MakeBatch batch = [](int step) { return words(step == 1 ? 7 : step == 3 ? 40 : 24)(step); };
  EXPECT_TRUE(parity(net(), batch, kRounding, split_over(2).steps(6)));
}

// --- optimizers ---------------------------------------------------------------------------------

template <typename Optimizer, typename Options>
MakeOptimizer make(Options options) {
  return [options](std::vector<Tensor> parameters) {
    return std::make_shared<Optimizer>(std::move(parameters), options);
  };
}

TEST(SplitOptions, EveryOptimizerUpdatesPieces) {
  using namespace torch::optim;  // NOLINT: short names for five optimizers
  const std::pair<const char*, MakeOptimizer> optimizers[] = {
      {"adam", make<Adam>(AdamOptions(0.01).weight_decay(0.1))},
      {"amsgrad", make<Adam>(AdamOptions(0.01).amsgrad(true))},
      {"adamw", make<AdamW>(AdamWOptions(0.01).weight_decay(0.1))},
      {"rmsprop", make<RMSprop>(RMSpropOptions(0.01).momentum(0.9).centered(true))},
      {"adagrad", make<Adagrad>(AdagradOptions(0.01).lr_decay(0.1))},
      {"nesterov", make<SGD>(SGDOptions(0.1).momentum(0.9).nesterov(true))},
  };
  for (const auto& [name, optimizer] : optimizers) {
    EXPECT_TRUE(parity(net_with(optimizer), words(24), within(5e-5, "quotients of small sums"),
                       split_over(2)))
        << name;
  }
}

// An optimizer that EPL has never seen, with state of its own.
class SignSgd : public torch::optim::Optimizer {
 public:
  explicit SignSgd(std::vector<Tensor> parameters)
      : Optimizer({torch::optim::OptimizerParamGroup(std::move(parameters))},
                  std::make_unique<torch::optim::SGDOptions>(0.01)) {}

  Tensor step(LossClosure = nullptr) override {
    const torch::NoGradGuard no_grad;
    for (Tensor& parameter : param_groups_[0].params()) {
      if (!parameter.grad().defined()) continue;
      parameter.sub_(0.01 * parameter.grad() / (0.1 + parameter.grad().norm()));
    }
    return {};
  }
  void save(torch::serialize::OutputArchive&) const override {}
  void load(torch::serialize::InputArchive&) override {}
};

TEST(SplitOptions, AnOptimizerOfTheUsersOwnSeesWholeParameters) {
  const MakeOptimizer optimizer = [](std::vector<Tensor> parameters) {
    return std::make_shared<SignSgd>(std::move(parameters));
  };
  EXPECT_TRUE(parity(net_with(optimizer), words(24), kRounding, split_over(2)));
}

// --- modules ------------------------------------------------------------------------------------

TEST(SplitOptions, FrozenLayersStay) {
  const MakeProgram frozen = [] {
    auto net = std::make_shared<Net>();
    net->up->weight.set_requires_grad(false);
    net->table->weight.set_requires_grad(false);
    return program(net, sgd(*net, 0.1), in_split(net, 2));
  };
  EXPECT_TRUE(parity(frozen, words(24), kRounding, split_over(2)));
}

struct Twice : torch::nn::Module {
  Twice() {
    layer = register_module("layer", torch::nn::Linear(12, 12));
    head = register_module("head", torch::nn::Linear(12, 10));
  }
  Tensor forward(const Tensor& x) { return head(layer(torch::relu(layer(x)))); }
  torch::nn::Linear layer{nullptr}, head{nullptr};
};

// Layers in a row whose forward stands in a split scope; `dtype` of all of it.
template <typename Module>
MakeProgram of(int devices, torch::Dtype dtype = torch::kFloat) {
  return [=] {
    auto net = std::make_shared<Module>();
    net->to(dtype);
    return program(net, sgd(*net, 0.1), in_split(net, devices));
  };
}

MakeBatch vectors(int64_t rows, torch::Dtype dtype = torch::kFloat) {
  return [=](int) -> Batch { return {torch::randn({rows, 12}).to(dtype), classes(10, {rows})}; };
}

TEST(SplitOptions, AModuleIsCalledTwice) {
  for (int devices : {2, 3}) {
    EXPECT_TRUE(parity(of<Twice>(devices), vectors(24), kRounding, split_over(devices, 2)));
  }
}

TEST(SplitOptions, DoublesAreExactToTheirRounding) {
  EXPECT_TRUE(parity(of<Twice>(2, torch::kDouble), vectors(24, torch::kDouble),
                     within(1e-12, "sums over devices have another order"), split_over(2)));
}

struct Normed : torch::nn::Module {
  Normed() {
    layer = register_module("layer", torch::nn::Linear(12, 16));
    norm = register_module("norm", torch::nn::BatchNorm1d(16));
    head = register_module("head", torch::nn::Linear(16, 10));
  }
  Tensor forward(const Tensor& x) { return head(torch::relu(norm(layer(x)))); }
  torch::nn::Linear layer{nullptr}, head{nullptr};
  torch::nn::BatchNorm1d norm{nullptr};
};

TEST(SplitOptions, RunningStatisticsAreThoseOfAllRows) {
  EXPECT_TRUE(parity(of<Normed>(2), vectors(24), kRounding, split_over(2)));
  EXPECT_TRUE(parity(of<Normed>(3), vectors(24), kRounding, split_over(3, 2)));
}

// --- random numbers -----------------------------------------------------------------------------

struct Dropping : torch::nn::Module {
  explicit Dropping(double p) : p(p) {
    up = register_module("up", torch::nn::Linear(12, 16));
    down = register_module("down", torch::nn::Linear(16, 12));
    head = register_module("head", torch::nn::Linear(12, 10));
  }
  Tensor forward(const Tensor& x) {
    const Tensor hidden = torch::dropout(torch::relu(up(x)), p, true);
    return head(torch::dropout(x + down(hidden), p, true));
  }
  double p;
  torch::nn::Linear up{nullptr}, down{nullptr}, head{nullptr};
};

TEST(SplitOptions, DropoutOfNothingChangesNothing) {
  const MakeProgram make = [] {
    auto net = std::make_shared<Dropping>(0.0);
    return program(net, sgd(*net, 0.1), in_split(net, 2));
  };
  EXPECT_TRUE(parity(make, vectors(24), kRounding, split_over(2)));
}

// What is whole is the same on every device: were it not, a loss that is computed from the rows of
// one device and gradients of another would not fit together, and training would not converge.
TEST(SplitOptions, DropoutTrains) {
  for (int devices : {2, 3}) {
    const OnDevices on(devices);
    epl::init();
    torch::manual_seed(1);
    auto net = std::make_shared<Dropping>(0.2);
    torch::optim::Adam optimizer(net->parameters(), 0.01);
    Trainer trainer(net, optimizer, in_split(net, devices));
    const Batch batch = vectors(32)(0);
    const double before = trainer.step(batch).loss;
    double after = before;
    for (int i = 0; i < 60; ++i) {
      after = trainer.step(batch).loss;
      ASSERT_TRUE(std::isfinite(after)) << i;
    }
    EXPECT_LT(after, before / 2) << devices;
  }
}

// --- metrics ------------------------------------------------------------------------------------

TEST(SplitOptions, MetricsOverCutClassesAreThoseOfAllClasses) {
  for (const auto& [devices, replicas] : {std::pair(2, 1), std::pair(3, 1), std::pair(2, 2)}) {
    const OnDevices on(devices * replicas);
    epl::init(Config{{"pipeline.num_micro_batch", 2}});
    torch::manual_seed(1);
    auto net = std::make_shared<Net>();
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    Trainer trainer(net, optimizer, [net, devices = devices](const Batch& batch) {
      const With scope(split(devices, "all"));
      const Tensor logits = net->forward(batch[0]);
      const Tensor best = logits.argmax(1);
      const Tensor right = best.eq(batch[1]).to(torch::kFloat);
      add_to_collection(collections::kGlobalMean, right.mean(), "accuracy");
      add_to_collection(collections::kGlobalSum, right.sum(), "right");
      add_to_collection(collections::kGlobalConcat, best, "best");
      add_to_collection(collections::kGlobalConcat, logits, "logits");
      add_to_collection(collections::kLocalConcat, std::get<1>(logits.topk(3, 1)), "three");
      return cross_entropy(logits, batch[1]);
    });
    for (int step = 0; step < 3; ++step) {
      const Batch batch = words(24)(step);
      const Tensor logits = [&] {
        const torch::NoGradGuard no_grad;
        return net->forward(batch[0]);
      }();
      const Tensor right = logits.argmax(1).eq(batch[1]).to(torch::kFloat);
      const auto metrics = trainer.step(batch).metrics;
      EXPECT_TRUE(torch::allclose(metrics.at("accuracy"), right.mean())) << devices;
      EXPECT_TRUE(torch::allclose(metrics.at("right"), right.sum())) << devices;
      EXPECT_TRUE(metrics.at("best").equal(logits.argmax(1))) << devices;
      EXPECT_TRUE(torch::allclose(metrics.at("logits"), logits, 1e-5, 1e-6)) << devices;
      const Tensor three = std::get<1>(logits.topk(3, 1)).slice(0, 0, 24 / replicas);
      EXPECT_TRUE(metrics.at("three").equal(three)) << devices;
    }
  }
}

// --- files --------------------------------------------------------------------------------------

std::string file(const std::string& name) {
  return (std::filesystem::temp_directory_path() /
          ("epl_split_" + std::to_string(::getpid()) + "_" + name))
      .string();
}

// A net, its optimizer and batches, the same whenever it is made.
struct Training {
  explicit Training(int devices) : devices(devices) {
    torch::manual_seed(1);
    net = std::make_shared<Net>();
    optimizer = std::make_shared<torch::optim::Adam>(net->parameters(), 0.01);
    trainer = std::make_unique<Trainer>(net, *optimizer, in_split(net, devices));
  }
  void train(int from, int to) {
    for (int i = from; i < to; ++i) {
      torch::manual_seed(static_cast<uint64_t>(100 + i));
      trainer->step(words(24)(i));
    }
  }
  int devices;
  std::shared_ptr<Net> net;
  std::shared_ptr<torch::optim::Adam> optimizer;
  std::unique_ptr<Trainer> trainer;
};

TEST(SplitOptions, FilesHoldWholeTensorsThatAnyNumberOfDevicesGoesOnFrom) {
  const std::string state = file("state"), weights = file("weights");
  Tensor expected;
  {
    const OnDevices on(2);
    epl::init();
    Training run(2);
    run.train(0, 3);
    run.trainer->save(state);
    torch::save(run.net, weights);
    run.train(3, 5);
    expected = run.net->up->weight.detach().clone();
  }
  for (int devices : {1, 2, 3}) {
    const OnDevices on(devices);
    epl::init();
    Training run(devices);
    torch::nn::init::zeros_(run.net->up->weight);
    run.trainer->load(state);
    auto plain = std::make_shared<Net>();
    torch::load(plain, weights);
    EXPECT_TRUE(same_modules(*plain, *run.net, bit_equal())) << devices;
    run.train(3, 5);
    EXPECT_TRUE(torch::allclose(run.net->up->weight, expected, 1e-4, 1e-6)) << devices;
  }
  std::remove(state.c_str());
  std::remove(weights.c_str());
}

// --- memory -------------------------------------------------------------------------------------

// "s4 f32[11,22] = "up.weight" [0:11 of 22 in dim 0]" in the plan is what a device is given.
TEST(SplitOptions, ADeviceIsGivenItsPieceOfEachMatrixAndNoMore) {
  for (int devices : {2, 4}) {
    const OnDevices on(devices);
    epl::init();
    auto net = std::make_shared<Twice>();
    torch::optim::Adam optimizer(net->parameters(), 0.01);
    Trainer trainer(net, optimizer, in_split(net, devices));
    trainer.step(vectors(24)(0));
    std::istringstream lines(trainer.plan());
    int pieces = 0;
    int roles = 1;  // that share a program
    for (std::string line; std::getline(lines, line);) {
      const size_t shared = line.rfind("program ", 0) == 0 ? line.find(" roles, ") : 0;
      if (shared == std::string::npos) roles = 1;
      if (shared != 0 && shared != std::string::npos) roles = std::stoi(line.substr(11));
      for (const char* name : {"= \"layer.weight\"", "= \"head.weight\""}) {
        if (line.find(name) == std::string::npos) continue;
        pieces += roles;
        const std::string whole = name[3] == 'l' ? " of 12 in dim " : " in dim ";
        EXPECT_NE(line.find(whole), std::string::npos) << line;
      }
    }
    EXPECT_EQ(pieces, 2 * devices) << trainer.plan();
  }
}

// --- attention ----------------------------------------------------------------------------------

// As most people write it: rows before heads.
struct Attention : torch::nn::Module {
  Attention() {
    for (auto [name, layer] : {std::pair("q", &q), std::pair("k", &k), std::pair("v", &v)}) {
      *layer =
          register_module(name, torch::nn::Linear(torch::nn::LinearOptions(16, 16).bias(false)));
    }
    out = register_module("out", torch::nn::Linear(16, 10));
  }
  Tensor heads(torch::nn::Linear& layer, const Tensor& x) {
    return layer(x).view({x.size(0), x.size(1), 4, 4}).transpose(1, 2);
  }
  Tensor forward(const Tensor& x) {
    const Tensor scores = torch::matmul(heads(q, x), heads(k, x).transpose(-2, -1)) / 2;
    const Tensor seen = torch::matmul(torch::softmax(scores, -1), heads(v, x));
    return out(seen.transpose(1, 2).reshape({x.size(0), x.size(1), 16})).mean(1);
  }
  torch::nn::Linear q{nullptr}, k{nullptr}, v{nullptr}, out{nullptr};
};

// LibTorch's own: [tokens, rows, width], one matrix for queries, keys and values.
struct Multihead : torch::nn::Module {
  Multihead() {
    using Options = torch::nn::MultiheadAttentionOptions;
    attention =
        register_module("attention", torch::nn::MultiheadAttention(Options(16, 4).bias(false)));
    head = register_module("head", torch::nn::Linear(16, 10));
  }
  Tensor forward(const Tensor& rows) {
    const Tensor x = rows.transpose(0, 1);
    return head(std::get<0>(attention(x, x, x)).mean(0));
  }
  torch::nn::MultiheadAttention attention{nullptr};
  torch::nn::Linear head{nullptr};
};

struct Encoder : torch::nn::Module {
  Encoder() {
    using Options = torch::nn::TransformerEncoderLayerOptions;
    layer = register_module(
        "layer", torch::nn::TransformerEncoderLayer(Options(16, 4).dim_feedforward(32).dropout(0)));
    // Its gradient is zero but for rounding: softmax does not see what all keys have in common.
    layer->self_attn->in_proj_bias.set_requires_grad(false);
    head = register_module("head", torch::nn::Linear(16, 10));
  }
  Tensor forward(const Tensor& rows) { return head(layer(rows.transpose(0, 1)).mean(0)); }
  torch::nn::TransformerEncoderLayer layer{nullptr};
  torch::nn::Linear head{nullptr};
};

MakeBatch sequences(int64_t rows) {
  return [=](int) -> Batch { return {torch::randn({rows, 5, 16}), classes(10, {rows})}; };
}

TEST(SplitOptions, AttentionIsCutHoweverItIsWritten) {
  for (int devices : {2, 3, 4}) {
    EXPECT_TRUE(parity(of<Attention>(devices), sequences(12), kRounding, split_over(devices)));
  }
}

TEST(SplitOptions, MultiheadAttentionIsCut) {
  for (int devices : {2, 3}) {
    EXPECT_TRUE(parity(of<Multihead>(devices), sequences(12), kRounding, split_over(devices)));
  }
}

TEST(SplitOptions, ATransformerEncoderLayerIsCut) {
  EXPECT_TRUE(parity(of<Encoder>(2), sequences(12), within(1e-4, "norms of sums"), split_over(2)));
}

}  // namespace
}  // namespace epl::parity
