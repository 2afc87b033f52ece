// What a pipeline keeps of its schedule's promises when it runs, and what the trainer shows of it.
#include <map>

#include "base/text.h"
#include "driver/test_trainer.h"

namespace epl {
namespace {

using torch::Tensor;

// Layers of one width, a stage each.
struct Chain : torch::nn::Module {
  explicit Chain(int stages) {
    for (int i = 0; i < stages; ++i) layers->push_back(torch::nn::Linear(3, 3));
    register_module("layers", layers);
  }
  Tensor forward(Tensor x) {
    for (size_t i = 0; i < layers->size(); ++i) {
      const With scope(replicate(1, concat("stage ", i)));
      x = torch::tanh(layers[i]->as<torch::nn::Linear>()->forward(x));
    }
    return x;
  }

  torch::nn::ModuleList layers{};
};

struct Pipeline : TrainerFixture {
  Pipeline() { torch::manual_seed(1); }

  void make(int stages, const std::string& strategy, int micro_batches, int devices) {
    set("EPL_DEVICES", std::to_string(devices));
    init(Config{{"pipeline.num_micro_batch", micro_batches}, {"pipeline.strategy", strategy}});
    net = std::make_shared<Chain>(stages);
    optimizer = std::make_unique<torch::optim::SGD>(net->parameters(), 0.1);
    trainer = std::make_unique<Trainer>(net, *optimizer, [net = net](const Batch& batch) {
      return net->forward(batch[0]).square().mean();
    });
  }
  ~Pipeline() override { trainer.reset(); }

  std::shared_ptr<Chain> net;
  std::unique_ptr<torch::optim::SGD> optimizer;
  std::unique_ptr<Trainer> trainer;
};

// The most micro batches that were under way at once: from their forward to their last task.
int most_in_flight(const std::vector<Span>& spans) {
  std::map<int, size_t> last;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (spans[i].chunk >= 0) last[spans[i].micro_batch] = i;
  }
  size_t most = 0;
  std::set<int> live;
  for (size_t i = 0; i < spans.size(); ++i) {
    if (spans[i].chunk < 0) continue;
    live.insert(spans[i].micro_batch);
    most = std::max(most, live.size());
    if (last[spans[i].micro_batch] == i) live.erase(spans[i].micro_batch);
  }
  return static_cast<int>(most);
}

std::vector<int> measured_in_flight(const Timeline& timeline) {
  std::vector<int> result;
  for (const auto& device : timeline.devices) result.push_back(most_in_flight(device.spans));
  return result;
}

TEST_F(Pipeline, HoldsAsManyMicroBatchesAsItsScheduleSays) {
  const std::map<std::string, std::vector<int>> promised = {
      {"PreferBackward", {4, 3, 2, 1}},
      {"PreferForward", {8, 8, 8, 8}},
      {"PreferBackwardOptimizer", {5, 4, 3, 1}}};
  for (const auto& [strategy, expected] : promised) {
    make(4, strategy, 8, 4);
    trainer->step({torch::randn({16, 3})});
    EXPECT_EQ(measured_in_flight(trainer->timeline()), expected) << strategy;
  }
}

TEST_F(Pipeline, HoldsNoMoreThanThereAre) {
  make(4, "PreferBackward", 2, 4);
  trainer->step({torch::randn({16, 3})});
  EXPECT_EQ(measured_in_flight(trainer->timeline()), (std::vector<int>{2, 2, 2, 1}));
}

// Bytes of each program's arena, as the plan says.
std::vector<double> arenas(const std::string& plan) {
  std::vector<double> found;
  const std::string mark = ", arena ";
  // The first is the largest of all.
  for (size_t at = plan.find(mark, plan.find("program 0")); at != std::string::npos;
       at = plan.find(mark, at + 1)) {
    const std::string text = plan.substr(at + mark.size(), 12);
    const bool kilo = text.find("KiB") < text.find('\n');
    found.push_back(std::stod(text) * (kilo ? 1024 : 1));
  }
  return found;
}

TEST_F(Pipeline, NeedsLessMemoryWhereBackwardComesFirst) {
  make(4, "PreferForward", 8, 4);
  trainer->step({torch::randn({256, 3})});
  const std::vector<double> all = arenas(trainer->plan());
  make(4, "PreferBackward", 8, 4);
  trainer->step({torch::randn({256, 3})});
  const std::vector<double> few = arenas(trainer->plan());
  ASSERT_EQ(all.size(), 4u);
  ASSERT_EQ(few.size(), 4u);
  EXPECT_LT(few[0], 0.7 * all[0]);
  EXPECT_LT(few[3], few[0]);
  EXPECT_LT(few[3], 0.5 * all[3]);
}

TEST_F(Pipeline, TheTimelineHasEveryTaskOnceInOrder) {
  make(2, "ZeroBubble", 4, 4);
  trainer->step({torch::randn({16, 3})});
  const Timeline timeline = trainer->timeline();
  EXPECT_EQ(timeline.title, "step 0, ZeroBubble, 2 stages, 4 micro batches");
  ASSERT_EQ(timeline.devices.size(), 4u);
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(timeline.devices[i].name, concat("device ", i, ", stage ", i % 2));
    std::map<std::pair<Span::Kind, int>, int> counts;
    double end = 0;
    for (const auto& span : timeline.devices[i].spans) {
      EXPECT_GE(span.begin, end);
      EXPECT_GE(span.end, span.begin);
      end = span.end;
      if (span.chunk < 0) continue;
      ++counts[{span.kind, span.micro_batch}];
      EXPECT_EQ(span.chunk, static_cast<int>(i % 2));
    }
    EXPECT_EQ(counts.size(), 12u);
    EXPECT_LE(end, timeline.seconds);
  }
}

TEST_F(Pipeline, IsSimulatedByTheTasksThatWereMeasured) {
  make(2, "PreferBackward", 4, 2);
  EXPECT_NE(error_of([&] { trainer->simulated(); }), "no error");
  trainer->step({torch::randn({16, 3})});
  const Timeline simulated = trainer->simulated();
  EXPECT_EQ(simulated.title, "simulated " + trainer->timeline().title);
  ASSERT_EQ(simulated.devices.size(), 2u);
  EXPECT_EQ(measured_in_flight(simulated), (std::vector<int>{2, 1}));
}

// By the costs that stand in its plan: forward, backward and the update.
TEST_F(Pipeline, StepWithoutStagesIsSimulatedToo) {
  make(1, "PreferBackward", 2, 1);
  trainer->step({torch::randn({16, 3})});
  const Timeline simulated = trainer->simulated();
  EXPECT_EQ(simulated.title, "simulated, 1 role, 2 micro batches");
  ASSERT_EQ(simulated.devices.size(), 1u);
  std::vector<Span::Kind> kinds;
  for (const auto& span : simulated.devices[0].spans) kinds.push_back(span.kind);
  using Kind = Span::Kind;
  EXPECT_EQ(kinds, (std::vector<Kind>{Kind::kForward, Kind::kBackward, Kind::kForward,
                                      Kind::kBackward, Kind::kUpdate}));
}

// What is thrown on a stage's device comes out with its number; the next step is right.
TEST_F(Pipeline, AStageThatThrowsStopsTheOthers) {
  make(3, "PreferBackward", 4, 3);
  Tensor table = torch::randn({5, 3}).requires_grad_();
  Trainer picky(net, *optimizer, [&](const Batch& batch) {
    Tensor x = net->forward(batch[0]);
    const With scope(replicate(1, "stage 2"));
    return (x + torch::embedding(table, batch[1])).square().mean();
  });
  const auto good = [] { return Batch{torch::randn({8, 3}), torch::zeros({8}, torch::kLong)}; };
  picky.step(good());
  Batch bad = good();
  bad[1][5] = 99;
  const Tensor before = net->layers[0]->as<torch::nn::Linear>()->weight.detach().clone();
  const std::string message = error_of([&] { picky.step(bad); });
  EXPECT_EQ(message.substr(0, message.find(':', 5)), "epl: device 2, micro batch 2") << message;
  EXPECT_TRUE(before.equal(net->layers[0]->as<torch::nn::Linear>()->weight));
  for (int i = 0; i < 3; ++i) picky.step(good());
}

// A value that is read back: the step is recorded again where it changes.
TEST_F(Pipeline, FollowsValuesThatAreReadBack) {
  make(2, "PreferBackward", 2, 2);
  for (int replicas : {1, 2}) {
    make(2, "PreferBackward", 2, 2 * replicas);
    auto twin = std::make_shared<Chain>(2);
    for (size_t i = 0; i < net->parameters().size(); ++i) {
      torch::NoGradGuard no_grad;
      twin->parameters()[i].copy_(net->parameters()[i]);
    }
    torch::optim::SGD plain(twin->parameters(), 0.1);
    const auto step = [](Chain& chain, const Batch& batch) {
      const Tensor x = chain.forward(batch[0]);
      const bool large = batch[1].max().item<float>() > 0;
      return large ? x.square().mean() : x.abs().mean();
    };
    Trainer reads(net, *optimizer, [&](const Batch& batch) { return step(*net, batch); });
    for (double sign : {1.0, -1.0, -1.0, 1.0}) {
      const Batch batch{torch::randn({8, 3}), torch::full({8}, sign)};
      reads.step(batch);
      plain.zero_grad();
      step(*twin, batch).backward();
      plain.step();
      for (size_t i = 0; i < net->parameters().size(); ++i) {
        EXPECT_TRUE(net->parameters()[i].allclose(twin->parameters()[i], 1e-5, 1e-6)) << sign;
      }
    }
  }
}

}  // namespace
}  // namespace epl
