// What moves between devices where operators are cut, as text: how the parameters lie, and every
// collective of every device, forward and backward. None is there that need not be.
//
//   EPL_UPDATE_GOLDEN=1 build/bin/test_golden
#include <epl/epl.h>
#include <gtest/gtest.h>

#include <regex>

#include "base/text.h"
#include "config/test_environment.h"
#include "examples/moe/moe_layer.h"
#include "program/parse.h"
#include "program/text.h"
#include "tests/golden/golden_file.h"

namespace epl {
namespace {

using golden::expect_golden;
using torch::Tensor;

// The notes of a plan, and what each program moves: without the numbers of slots and their places,
// which change with anything.
std::string what_moves(const std::string& plan) {
  static const std::regex kNumbers(R"( *\bs[0-9]+\b,? ?|@[0-9]+ |  free s[0-9]+)");
  std::istringstream lines(plan);
  std::string text;
  for (std::string line; std::getline(lines, line);) {
    const bool program = line.rfind("program", 0) == 0;
    const bool note = line.rfind("note", 0) == 0;
    if (note || program) text += line + "\n";
    if (line.find("epl::") == std::string::npos) continue;
    text += "  " + std::regex_replace(line, kNumbers, "") + "\n";
  }
  return text;
}

// How often an operator stands in the text, in one phase of the programs of all roles.
int count(const std::string& text, const std::string& op, const std::string& phase) {
  std::istringstream lines(text);
  static const std::regex kShared(R"(program \d+  (\d+) roles, .*)");
  int found = 0;
  int roles = 1;
  for (std::string line; std::getline(lines, line);) {
    std::smatch several;
    if (line.rfind("program", 0) == 0) {
      roles = std::regex_match(line, several, kShared) ? std::stoi(several[1]) : 1;
    }
    const bool here =
        line.find(op) != std::string::npos && line.find(")  " + phase) != std::string::npos;
    if (here) found += roles;
  }
  return found;
}

struct SplitGolden : EnvironmentFixture {
  ~SplitGolden() override {
    clear();
    init();
  }

  static constexpr int kDevices = 2;

  static std::string plan_of(const std::shared_ptr<torch::nn::Module>& net,
                             const StepFunction& step, const Batch& batch, bool colocated = false) {
    set("EPL_DEVICES", std::to_string(kDevices));
    init(Config{{"cluster.colocate_split_and_replicate", colocated}});
    torch::optim::SGD optimizer(net->parameters(), 0.1);
    Trainer trainer(net, optimizer, step);
    trainer.step(batch);
    const std::string text = trainer.plan();
    EXPECT_EQ(print_plan(parse_plan(text)), text);
    return what_moves(text);
  }
};

// --- two linear layers --------------------------------------------------------------------------

// Two layers after a norm, beside what they are added to: a block of a transformer without its
// attention.
struct Block : torch::nn::Module {
  Block(int64_t width, int64_t hidden) : norm(torch::nn::LayerNormOptions({width})) {
    register_module("norm", norm);
    up = register_module("up", torch::nn::Linear(width, hidden));
    down = register_module("down", torch::nn::Linear(hidden, width));
  }
  Tensor forward(const Tensor& x) { return x + down(torch::relu(up(norm(x)))); }
  torch::nn::LayerNorm norm;
  torch::nn::Linear up{nullptr}, down{nullptr};
};

struct Blocks : torch::nn::Module {
  Blocks(int64_t width, int64_t hidden) {
    for (auto* each : {&first, &second}) *each = std::make_shared<Block>(width, hidden);
    register_module("first", first);
    register_module("second", second);
  }
  Tensor loss(const Batch& batch) {
    return (second->forward(first->forward(batch[0])) - batch[1]).square().mean();
  }
  std::shared_ptr<Block> first, second;
};

std::string plan_of_blocks(int64_t rows, int64_t width) {
  torch::manual_seed(1);
  auto net = std::make_shared<Blocks>(width, 4 * width);
  return SplitGolden::plan_of(net,
                              [net](const Batch& batch) {
                                const With scope(split(SplitGolden::kDevices, "mlp"));
                                return net->loss(batch);
                              },
                              {torch::randn({rows, width}), torch::randn({rows, width})});
}

// Once forward for each block, and once backward for the second. Before the first there is only a
// norm, whose small gradients the update sums.
TEST_F(SplitGolden, TwoLinearLayersReduceOnceForwardAndOnceBackward) {
  expect_golden("split_mlp.plan", plan_of_blocks(64, 256));
}

TEST_F(SplitGolden, TwoLinearLayersReduceOnceWhateverTheirSizes) {
  for (int64_t rows : {32, 64}) {
    for (int64_t width : {64, 256}) {
      const std::string text = plan_of_blocks(rows, width);
      EXPECT_EQ(count(text, "epl::all_reduce", "forward"), 2 * kDevices) << text;
      EXPECT_EQ(count(text, "epl::all_reduce", "backward"), kDevices) << text;
      EXPECT_EQ(count(text, "epl::", ""), 3 * kDevices) << text;
    }
  }
}

// --- very many classes --------------------------------------------------------------------------

struct Classifier : torch::nn::Module {
  Classifier(int64_t width, int64_t features, int64_t classes) {
    body = register_module("body", torch::nn::Linear(width, features));
    head = register_module("head", torch::nn::Linear(features, classes));
  }
  torch::nn::Linear body{nullptr}, head{nullptr};
};

constexpr int64_t kRows = 64, kWidth = 128, kFeatures = 256, kClasses = 10000;

Batch images() {
  return {torch::randn({kRows, kWidth}), torch::randint(kClasses, {kRows}, torch::kLong)};
}

// What has the sizes of the logits or of a piece of them does not move.
void expect_no_logits(const std::string& text) {
  EXPECT_EQ(text.find("all_to_all"), std::string::npos) << text;
  std::istringstream lines(text);
  for (std::string line; std::getline(lines, line);) {
    if (line.find("epl::") == std::string::npos) continue;
    for (const char* classes : {",10000]", ",5000]"}) {
      EXPECT_EQ(line.find(classes), std::string::npos) << line;
    }
  }
}

TEST_F(SplitGolden, TheLossOfManyClassesMovesANumberOfEachRow) {
  torch::manual_seed(1);
  auto net = std::make_shared<Classifier>(kWidth, kFeatures, kClasses);
  const std::string text = plan_of(
      net,
      [net](const Batch& batch) {
        const With scope(split(kDevices, "all"));
        const Tensor x = torch::relu(net->body(batch[0]));
        return torch::nn::functional::cross_entropy(net->head(x), batch[1]);
      },
      images());
  expect_no_logits(text);
  expect_golden("split_classifier.plan", text);
}

TEST_F(SplitGolden, FeaturesUnderReplicateAreGatheredAndTheirGradientsScattered) {
  torch::manual_seed(1);
  auto net = std::make_shared<Classifier>(kWidth, kFeatures, kClasses);
  const std::string text = plan_of(
      net,
      [net](const Batch& batch) {
        Tensor x;
        {
          const With scope(replicate(kDevices, "body"));
          x = torch::relu(net->body(batch[0]));
        }
        const With scope(split(kDevices, "head"));
        return torch::nn::functional::cross_entropy(net->head(x), batch[1]);
      },
      images(), /*colocated=*/true);
  expect_no_logits(text);
  EXPECT_EQ(count(text, "epl::all_gather", "forward"), kDevices);
  EXPECT_EQ(count(text, "epl::reduce_scatter", "backward"), kDevices);
  expect_golden("split_colocated_classifier.plan", text);
}

// --- a mixture of experts -----------------------------------------------------------------------

struct Mixture : torch::nn::Module {
  Mixture(const moe::ExpertOptions& options) {
    before = register_module("before", torch::nn::Linear(options.width, options.width));
    layer = register_module("layer", moe::MoeLayer(options));
  }
  Tensor loss(const Batch& batch) {
    const Tensor x = before(batch[0]);
    const auto [y, balance] = layer->forward(x, torch::ones({x.size(0), x.size(1)}));
    return torch::mse_loss(x + y, batch[1]) + 0.01 * balance;
  }
  torch::nn::Linear before{nullptr};
  moe::MoeLayer layer{nullptr};
};

std::string plan_of_mixture(moe::Gating gating) {
  torch::manual_seed(1);
  moe::ExpertOptions options{64, 256, 8, gating};
  options.split = SplitGolden::kDevices;
  auto net = std::make_shared<Mixture>(options);
  return SplitGolden::plan_of(net,
                              [net](const Batch& batch) {
                                set_default_strategy(replicate(SplitGolden::kDevices));
                                return net->loss(batch);
                              },
                              {torch::randn({32, 16, 64}), torch::randn({32, 16, 64})});
}

void expect_tokens_to_travel_twice(const std::string& text) {
  for (const char* phase : {"forward", "backward"}) {
    EXPECT_EQ(count(text, "epl::all_to_all", phase), 2 * SplitGolden::kDevices) << text;
    EXPECT_EQ(count(text, "epl::", phase), 2 * SplitGolden::kDevices) << text;
  }
}

TEST_F(SplitGolden, TokensGoToTheirExpertsAndComeBack) {
  const std::string text = plan_of_mixture(moe::Gating::kTop2);
  expect_tokens_to_travel_twice(text);
  expect_golden("split_moe.plan", text);
}

TEST_F(SplitGolden, TokensGoToTheirOnlyExpertAndComeBack) {
  const std::string text = plan_of_mixture(moe::Gating::kSwitch);
  expect_tokens_to_travel_twice(text);
  expect_golden("split_moe_switch.plan", text);
}

}  // namespace
}  // namespace epl
