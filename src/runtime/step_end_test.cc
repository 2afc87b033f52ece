#include "runtime/step_end.h"

#include <gtest/gtest.h>
#include <torch/optim/sgd.h>

#include "base/check.h"
#include "ir/text.h"
#include "model/torch_optimizer.h"
#include "plan/test_lower.h"

namespace epl {
namespace {

// loss = sum(x * a * b), so that the gradient of "a" is x * b, and that of "b" x * a.
constexpr const char* kGraph = R"(graph
  %0: f32[4] = input 0
  %1: f32[] = seed
  %2: f32[4] = parameter "a"
  %3: f32[4] = parameter "b"
  %4: f32[4] = aten::mul.Tensor(%0, %2) {forward}
  %5: f32[4] = aten::mul.Tensor(%4, %3) {forward}
  %6: f32[] = aten::sum(%5, none) {forward}
  %7: f32[4] = aten::mul.Tensor(%0, %3) {backward}
  %8: f32[4] = aten::mul.Tensor(%7, %1) {backward}
  %9: f32[4] = aten::mul.Tensor(%4, %1) {backward}
  return loss %6, gradient "a" %8, gradient "b" %9
)";

// A worker that is alone, with devices that each are a replica.
struct OneWorker {
  explicit OneWorker(int devices)
      : team(std::vector<CoreShare>(static_cast<size_t>(devices))),
        connections(
            {cluster_of(devices), watch, team, nullptr, nullptr, routes, std::chrono::seconds(60)},
            placement_of(devices)),
        replicas(team, c10::kCPU, 0) {}

  const Cluster& cluster_of(int devices) {
    cluster.total_gpu_num = devices;
    cluster.worker_devices = {devices};
    return cluster;
  }
  static Placement placement_of(int devices) {
    Placement placement;
    placement.replicas = devices;
    return placement;
  }

  Cluster cluster;
  Watch watch;
  DeviceTeam team;
  std::vector<Route> routes;
  Connections connections;
  LocalReplicas replicas;
};

class Ending final : public StepEnd {
 public:
  using StepEnd::StepEnd;
  bool accepts = true;
  std::vector<Instruction::Kind> phases;

 private:
  void report() override {}
  bool accepts_loss() override { return accepts; }
  void after(const EndPhase& phase) override { phases.push_back(phase.kind); }
};

// Two parameters of four ones, trained with a rate of 1: an update takes their gradient off them.
class Training {
 public:
  Training(int devices, const StepEndOptions& end, const std::function<void(Plan&)>& change = {})
      : worker_(devices), plan_(planned(devices, end)) {
    if (change) change(plan_);
    for (at::Tensor* parameter : {&a, &b}) parameter->set_requires_grad(true);
    optimizer_ = std::make_unique<torch::optim::SGD>(std::vector<at::Tensor>{a, b}, 1.0);
    update_ = make_update(*optimizer_);
    BoundLeaves leaves;
    leaves.users = {at::Tensor(), at::Tensor(), a, b};
    leaves.of_roles = {{{at::Tensor(), false}, {at::Tensor(), false}, {a, true}, {b, true}}};
    step_ = std::make_unique<BoundStep>(
        plan_, leaves, BoundStep::Where{worker_.replicas, worker_.connections, {}});
    StepOptimizers optimizers;
    optimizers.of = [this](const at::Tensor&) -> const std::vector<size_t>& { return first_; };
    optimizers.fused = [](size_t) { return true; };
    step_->bind_updates(optimizers, Gather::kAll);
  }

  // Each device has rows of one number, one after the other.
  void step(const std::vector<float>& rows, StepEndRequest request, bool accepts = true) {
    std::vector<std::vector<Batch>> batches;
    for (float row : rows) batches.push_back({{at::full({4}, row)}});
    std::vector<DeviceRun> runs(rows.size());
    step_->hand_out_state();
    step_->begin({0});
    worker_.team.run([&](int device) {
      const auto number = static_cast<size_t>(device);
      step_->run(device, &batches[number], runs[number]);
    });
    step_->finish();
    const at::NoGradGuard no_grad;
    request.update_of = [this](size_t) -> Update& { return *update_; };
    Ending end(*step_, request);
    end.accepts = accepts;
    updated = end.run();
    norm = end.gradient_norm();
    phases = end.phases;
  }

  at::Tensor a = at::ones({4});
  at::Tensor b = at::ones({4}).mul_(2);
  bool updated = false;
  double norm = 0;
  std::vector<Instruction::Kind> phases;

 private:
  static Plan planned(int devices, const StepEndOptions& end) {
    LowerOptions options;
    options.replicas = devices;
    options.end = end;
    return lower(parse_graph(kGraph), options);
  }

  OneWorker worker_;
  Plan plan_;
  const std::vector<size_t> first_ = {0};
  std::unique_ptr<torch::optim::SGD> optimizer_;
  std::unique_ptr<Update> update_;
  std::unique_ptr<BoundStep> step_;
};

float first_of(const at::Tensor& tensor) { return tensor.detach()[0].item<float>(); }

void clip_only(const std::vector<int>& gradients, Plan& plan) {
  for (auto& each : plan.programs[0].instructions) {
    if (each.kind == Instruction::Kind::kClip) each.gradients = gradients;
  }
}

TEST(StepEnd, ClipsTheGradientsThatItsInstructionNames) {
  StepEndOptions end;
  end.clips_reduced = true;
  StepEndRequest request;
  request.clip.value = 0.25;
  Training both(1, end);
  both.step({1}, request);
  EXPECT_EQ(first_of(both.a), 1 - 0.25);
  EXPECT_EQ(first_of(both.b), 2 - 0.25);
  Training one(1, end, [](Plan& plan) { clip_only({1}, plan); });
  one.step({1}, request);
  EXPECT_EQ(first_of(one.a), 1 - 2) << "its gradient is not named";
  EXPECT_EQ(first_of(one.b), 2 - 0.25);
}

TEST(StepEnd, TakesTheNormOfTheGradientsThatItsInstructionNames) {
  StepEndOptions end;
  end.clips_reduced = true;
  StepEndRequest request;
  request.clip.norm = 1000;
  Training one(2, end, [](Plan& plan) { clip_only({0}, plan); });
  one.step({1, 2}, request);
  EXPECT_EQ(one.norm, 12) << "4 times (1 * 2 + 2 * 2), squared, and the root of it";
}

TEST(StepEnd, ClipsEachReplicaBeforeTheSum) {
  StepEndOptions end;
  end.clips_each_replica = true;
  StepEndRequest request;
  request.clip.value = 1.5;
  Training training(2, end, [](Plan& plan) { clip_only({1}, plan); });
  training.step({1, 2}, request);
  EXPECT_EQ(first_of(training.a), 1 - (2 + 4));
  EXPECT_EQ(first_of(training.b), 2 - (1 + 1.5));
}

// What the update sums as it reads is what it is given as a sum.
TEST(StepEnd, UpdatesByTheSumOfAllDevices) {
  for (bool keeps_sums : {false, true}) {
    StepEndRequest request;
    request.keeps_sums = keeps_sums;
    Training training(3, {});
    training.step({1, 2, 4}, request);
    EXPECT_EQ(first_of(training.a), 1 - 14) << keeps_sums;
    EXPECT_EQ(first_of(training.b), 2 - 7) << keeps_sums;
  }
}

TEST(StepEnd, LeavesParametersAsTheyAreWhereTheLossIsRefused) {
  StepEndOptions end;
  end.clips_reduced = true;
  StepEndRequest request;
  request.clip.norm = 1;
  Training training(2, end);
  training.step({1, 1}, request, /*accepts=*/false);
  EXPECT_FALSE(training.updated);
  EXPECT_EQ(training.norm, 0);
  EXPECT_EQ(first_of(training.a), 1);
  using Kind = Instruction::Kind;
  EXPECT_EQ(training.phases, (std::vector<Kind>{Kind::kReport, Kind::kAwait, Kind::kCheck}));
  training.step({1, 1}, request);
  EXPECT_TRUE(training.updated);
}

// Some devices would clip what others add unclipped.
TEST(StepEnd, RefusesToBindAClipOfAPartOfAParameter) {
  Plan plan = [] {
    LowerOptions options;
    options.end.clips_reduced = true;
    const Graph graph = parse_graph(kGraph);
    return lower(graph, {{&graph}, {&graph}}, {}, options);
  }();
  for (auto& each : plan.programs[1].instructions) {
    if (each.kind == Instruction::Kind::kClip) each.gradients.clear();
  }
  OneWorker worker(2);
  Placement placement;
  placement.role_devices = {1, 1};
  placement.role_stages = {0, 0};
  placement.role_asked_by = {"", ""};
  Connections connections({worker.cluster, worker.watch, worker.team, nullptr, nullptr,
                           worker.routes, std::chrono::seconds(60)},
                          placement);
  const at::Tensor a = at::ones({4});
  const at::Tensor b = at::ones({4});
  BoundLeaves leaves;
  leaves.users = {at::Tensor(), at::Tensor(), a, b};
  leaves.of_roles.assign(2, {{at::Tensor(), false}, {at::Tensor(), false}, {a, true}, {b, true}});
  EXPECT_THROW(BoundStep(plan, leaves, {worker.replicas, connections, {}}), InternalError);
}

}  // namespace
}  // namespace epl
