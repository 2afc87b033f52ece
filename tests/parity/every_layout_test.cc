// Layers that LibTorch computes by one operator of its own, in every layout: recurrent ones and,
// from LibTorch 2 on, attention.
#include "config/libtorch.h"
#include "tests/models/attention.h"
#include "tests/models/programs.h"
#include "tests/models/recurrent.h"
#include "tests/models/transformer.h"
#include "tests/parity/on_devices.h"
#include "tests/parity/pipelines.h"

namespace epl::parity::every_layout {

using models::token_loss;
using torch::Tensor;

constexpr int64_t kVocabulary = 11;
constexpr int64_t kLength = 6;

// A network in two halves.
struct Halves {
  std::shared_ptr<torch::nn::Module> net;
  std::function<Tensor(const Tensor& ids)> first;
  std::function<Tensor(const Tensor& x, const Tensor& ids)> last;
};
using MakeHalves = std::function<Halves()>;

template <typename Net>
MakeHalves recurrent(int64_t layers) {
  return [layers]() -> Halves {
    auto net = std::make_shared<Net>(kVocabulary, 16, layers);
    return {net, [net](const Tensor& ids) { return net->tokens(ids); },
            [net](const Tensor& x, const Tensor&) {
              return net->head(std::get<0>(net->recurrent->forward(x)));
            }};
  };
}

// Read forwards and backwards, and with a state of each row's own.
MakeHalves bidirectional() {
  return []() -> Halves {
    using Options = torch::nn::LSTMOptions;
    auto tokens = torch::nn::Embedding(kVocabulary, 12);
    auto lstm = torch::nn::LSTM(Options(12, 8).bidirectional(true).bias(false));
    auto head = torch::nn::Linear(16, kVocabulary);
    auto net = std::make_shared<torch::nn::Module>();
    net->register_module("tokens", tokens);
    net->register_module("lstm", lstm);
    net->register_module("head", head);
    return {net, [tokens](const Tensor& ids) mutable { return tokens(ids); },
            [lstm, head](const Tensor& x, const Tensor& ids) mutable {
              const Tensor state = ids.slice(1, 0, 1).to(x.dtype()).div(kVocabulary);
              const Tensor states = state.unsqueeze(0).expand({2, x.size(0), 8}).contiguous();
              const auto [seen, ends] =
                  lstm->forward(x.transpose(0, 1), std::make_tuple(states, states * 0.5));
              const Tensor last = std::get<0>(ends).transpose(0, 1).flatten(1).unsqueeze(1);
              return head(seen.transpose(0, 1) + last);
            }};
  };
}

#if EPL_TORCH_AT_LEAST(2, 5)
MakeHalves fused(models::Fused kind) {
  return [kind]() -> Halves {
    auto net = std::make_shared<models::FusedLanguageModel>(kind);
    return {net, [net](const Tensor& ids) { return net->first_half(ids); },
            [net](const Tensor& x, const Tensor& ids) { return net->last_half(x, ids); }};
  };
}
#endif

std::map<std::string, MakeHalves> networks() {
  std::map<std::string, MakeHalves> all = {
      {"lstm", recurrent<models::LstmLanguageModel>(1)},
      {"stacked lstm", recurrent<models::LstmLanguageModel>(2)},
      {"gru", recurrent<models::GruLanguageModel>(1)},
      {"bidirectional lstm", bidirectional()},
  };
#if EPL_TORCH_AT_LEAST(2, 5)
  for (const auto& [name, kind] : models::fused_kinds()) all[name] = fused(kind);
#endif
  return all;
}

std::vector<std::string> names() {
  std::vector<std::string> all;
  for (const auto& entry : networks()) all.push_back(entry.first);
  return all;
}

Batch text(int) {
  return {classes(kVocabulary, {24, kLength}), classes(kVocabulary, {24, kLength})};
}

const Exactness kRounding = within(2e-5, "sums over devices have another order");

class EveryLayout : public testing::TestWithParam<std::string> {
 protected:
  // With scopes around the halves, or none.
  static MakeProgram scoped(const std::vector<Strategy>& strategies) {
    return [strategies] {
      const Halves halves = networks().at(GetParam())();
      return program(halves.net, sgd(*halves.net, 0.1, 0.9), [=](const Batch& batch) {
        std::optional<With> scope;
        if (!strategies.empty()) scope.emplace(strategies.front());
        const Tensor x = halves.first(batch[0]);
        scope.reset();
        if (!strategies.empty()) scope.emplace(strategies.back());
        return token_loss(halves.last(x, batch[0]), batch[1]);
      });
    };
  }
  static MakeProgram plain() { return scoped({}); }
  // Stages and devices that share an operator draw numbers of their own.
  static bool draws() { return GetParam() == "dropped attention"; }
};

TEST_P(EveryLayout, OneDevice) {
  EXPECT_TRUE(parity(plain(), text, GetParam() == "gru" ? kRounding : bit_equal()));
}
TEST_P(EveryLayout, MicroBatches) {
  EXPECT_TRUE(parity(plain(), text, kRounding, Variant().steps(3).micro_batches(3)));
}
TEST_P(EveryLayout, Devices) {
  EXPECT_TRUE(parity(plain(), text, kRounding, Variant().steps(3).devices(2).micro_batches(2)));
}
TEST_P(EveryLayout, Workers) {
  EXPECT_TRUE(parity(plain(), text, kRounding, Variant().steps(3).workers({2, 1})));
}
TEST_P(EveryLayout, Slices) {
  EXPECT_TRUE(
      parity(plain(), text, kRounding, Variant().steps(3).devices(2).slices(2).micro_batches(2)));
}
TEST_P(EveryLayout, Pipeline) {
  if (draws()) GTEST_SKIP() << "stages draw numbers of their own";
  EXPECT_TRUE(parity(scoped({stage(0), stage(1)}), text, kRounding, pipeline(2, 4)));
}
TEST_P(EveryLayout, PipelineOfSlices) {
  if (draws()) GTEST_SKIP() << "stages draw numbers of their own";
  EXPECT_TRUE(parity(scoped({stage(0, 1), stage(1, 2)}), text, kRounding,
                     Variant().steps(3).stages({1, 2}).devices(3).micro_batches(2)));
}
TEST_P(EveryLayout, Split) {
  if (draws()) GTEST_SKIP() << "devices draw numbers of their own for what they share";
  for (int devices : {2, 3}) {
    EXPECT_TRUE(parity(scoped({split(devices, "all")}), text, kRounding,
                       Variant().steps(3).stages(devices).devices(devices).micro_batches(2)))
        << devices << " devices";
  }
}

INSTANTIATE_TEST_SUITE_P(All, EveryLayout, testing::ValuesIn(names()), models::test_name);

#if EPL_TORCH_AT_LEAST(2, 5)
// Each of two devices attends with half of the heads, forward and backward.
TEST(FusedAttention, IsCutOverHeads) {
  const OnDevices devices(2);
  init();
  auto net = std::make_shared<models::FusedLanguageModel>(models::Fused::kBiased);
  torch::optim::SGD optimizer(net->parameters(), 0.1);
  Trainer trainer(net, optimizer, [net](const Batch& batch) {
    const With scope(split(2, "all"));
    return token_loss(net->forward(batch[0]), batch[1]);
  });
  trainer.step(text(0));
  int cut = 0;
  std::istringstream lines(trainer.plan());
  for (std::string line; std::getline(lines, line);) {
    if (line.find("aten::_scaled_dot_product_flash_attention_for_cpu") == std::string::npos) {
      continue;
    }
    EXPECT_NE(line.find("f32[24,2,6,8]"), std::string::npos) << line;
    ++cut;
  }
  EXPECT_EQ(cut, 2 * 2 * 2) << "of two layers, forward and backward, on two devices\n"
                            << trainer.plan();
}
#endif

}  // namespace epl::parity::every_layout
