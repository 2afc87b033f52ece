// What the trainer refuses, by its exact words; and that it goes on afterwards.
#include "driver/test_trainer.h"

namespace epl {
namespace {

using torch::Tensor;

using Errors = TrainerFixture;

// The message of one step of a fresh task whose step function is `step`.
std::string error_of_step(const StepFunction& step, const Batch& batch = rows(4)) {
  SmallTask task;
  Trainer trainer(task.net, *task.optimizer, step);
  const auto before = task.tensors();
  const std::string message = error_of([&] { trainer.step(batch); });
  EXPECT_TRUE(same(task.tensors(), before));
  return message;
}

// --- making a trainer ---------------------------------------------------------------------------

TEST(ErrorsDeathTest, TrainerBeforeInit) {
  testing::FLAGS_gtest_death_test_style = "threadsafe";  // a process in which nobody called init()
  EXPECT_EXIT(
      {
        SmallTask task;
        std::cerr << error_of([&] { task.trainer(); });
        std::exit(0);
      },
      testing::ExitedWithCode(0),
      "epl: a trainer is made before epl::init\\(\\)\n"
      "  asked by: epl::Trainer\n"
      "  try:      call epl::init\\(\\) at the beginning of main\\(\\)");
}

TEST_F(Errors, NullModule) {
  SmallTask task;
  std::shared_ptr<SmallNet> nothing;
  EXPECT_EQ(error_of([&] { Trainer(nothing, *task.optimizer, task.step()); }),
            "epl: the module \"\" is null\n"
            "  asked by: epl::Trainer\n"
            "  try:      make the module before the trainer");
  EXPECT_EQ(
      error_of([&] {
        Trainer({{"encoder", task.net}, {"decoder", nullptr}}, {*task.optimizer}, task.step());
      }),
      "epl: the module \"decoder\" is null\n"
      "  asked by: epl::Trainer\n"
      "  try:      make the module before the trainer");
}

TEST_F(Errors, EmptyHolder) {
  SmallTask task;
  torch::nn::Linear nothing{nullptr};
  EXPECT_EQ(error_of([&] { Trainer(nothing, *task.optimizer, task.step()); }),
            "epl: the module \"\" is null\n"
            "  asked by: epl::Trainer\n"
            "  try:      make the module before the trainer");
}

TEST_F(Errors, NoOptimizer) {
  SmallTask task;
  EXPECT_EQ(error_of([&] {
              Trainer({{"", task.net}}, {}, task.step());
            }),
            "epl: a trainer without an optimizer cannot train\n"
            "  asked by: epl::Trainer");
}

TEST_F(Errors, EmptyStepFunction) {
  SmallTask task;
  EXPECT_EQ(error_of([&] { Trainer(task.net, *task.optimizer, StepFunction()); }),
            "epl: the step function is empty\n"
            "  asked by: epl::Trainer");
}

TEST_F(Errors, ClipOptions) {
  const auto with = [](double norm, double type, double value) {
    return error_of([&] {
      TrainerOptions options;
      options.clip_grad_norm = norm;
      options.clip_norm_type = type;
      options.clip_grad_value = value;
      SmallTask().trainer(options);
    });
  };
  EXPECT_EQ(with(-1, 2, 0),
            "epl: cannot clip gradients to a norm of -1\n"
            "  asked by: TrainerOptions::clip_grad_norm\n"
            "  try:      a positive number, or 0 for no clipping");
  EXPECT_EQ(with(NAN, 2, 0),
            "epl: cannot clip gradients to a norm of nan\n"
            "  asked by: TrainerOptions::clip_grad_norm\n"
            "  try:      a positive number, or 0 for no clipping");
  EXPECT_EQ(with(1, 0, 0),
            "epl: there is no norm of type 0\n"
            "  asked by: TrainerOptions::clip_norm_type\n"
            "  try:      2, 1 or infinity");
  EXPECT_EQ(with(0, 2, -0.5),
            "epl: cannot clip gradients to a value of -0.5\n"
            "  asked by: TrainerOptions::clip_grad_value\n"
            "  try:      a positive number, or 0 for no clipping");
  EXPECT_EQ(with(1, INFINITY, 0.5), "no error");
}

TEST_F(Errors, PlanAndGraphBeforeTheFirstStep) {
  SmallTask task;
  Trainer trainer = task.trainer();
  EXPECT_EQ(error_of([&] { trainer.plan(); }),
            "epl: there is no plan before the first step\n"
            "  asked by: epl::Trainer::plan\n"
            "  try:      call it after step()");
  EXPECT_EQ(error_of([&] { trainer.graph(); }),
            "epl: there is no graph before the first step\n"
            "  asked by: epl::Trainer::graph\n"
            "  try:      call it after step()");
  EXPECT_EQ(error_of([&] { trainer.state(); }),
            "epl: nothing has a place before the first step\n"
            "  asked by: epl::Trainer::state\n"
            "  try:      call it after step()");
  trainer.step(rows(4));
  EXPECT_EQ(trainer.graph().substr(0, 6), "graph\n");
  EXPECT_NE(trainer.plan(), "");
}

// --- the loss -----------------------------------------------------------------------------------

TEST_F(Errors, LossOfSeveralNumbers) {
  EXPECT_EQ(error_of_step(
                [](const Batch& batch) { return batch[0] * torch::ones({3}).requires_grad_(); }),
            "epl: the step function returned a loss of shape [4, 3], but a loss is one number\n"
            "  asked by: epl::Trainer\n"
            "  try:      the mean or the sum of it");
}

TEST_F(Errors, UndefinedLoss) {
  EXPECT_EQ(error_of_step([](const Batch&) { return Tensor(); }),
            "epl: the step function returned an undefined loss\n"
            "  asked by: epl::Trainer\n"
            "  try:      return the loss as a tensor of one element");
}

TEST_F(Errors, UndefinedMetric) {
  EXPECT_EQ(error_of_step([](const Batch& batch) {
              return StepOutput(batch[0].sum() * torch::ones({}).requires_grad_(),
                                {{"accuracy", Tensor()}});
            }),
            "epl: the metric \"accuracy\" is undefined\n"
            "  asked by: epl::Trainer");
}

TEST_F(Errors, MetricReturnedAndCollected) {
  EXPECT_EQ(error_of_step([](const Batch& batch) {
              const Tensor total = batch[0].sum();
              add_to_collection(collections::kLocalSum, total, "total");
              return StepOutput(total * torch::ones({}).requires_grad_(), {{"total", total}});
            }),
            "epl: the metric \"total\" is returned by the step and collected too\n"
            "  asked by: epl::add_to_collection");
}

TEST_F(Errors, BackwardInsideOfTheStep) {
  SmallTask task;
  Trainer trainer(task.net, *task.optimizer, [&](const Batch& batch) {
    const Tensor loss = task.step()(batch).loss;
    loss.backward();
    return loss;
  });
  EXPECT_EQ(error_of([&] { trainer.step(rows(4)); }),
            "epl: the step function calls backward() itself\n"
            "  asked by: epl::Trainer\n"
            "  try:      return the loss: epl::Trainer::step runs backward and the update");
  for (const Tensor& parameter : task.net->parameters()) EXPECT_FALSE(parameter.grad().defined());
}

TEST_F(Errors, ATensorThatTheStepKeeps) {
  SmallTask task;
  Tensor kept;
  const StepFunction step = [&](const Batch& batch) {
    kept = task.net->forward(batch[0]).tanh();
    return kept.mean();
  };
  Trainer trainer(task.net, *task.optimizer, step);
  EXPECT_EQ(error_of([&] { trainer.step(rows(4)); }),
            "epl: the step function keeps a tensor that it computed, f32[4,2] from aten::tanh, "
            "after it has returned: replayed steps would never change it\n"
            "  asked by: epl::Trainer\n"
            "  try:      return it as a metric, write it by copy_() into a tensor that lives "
            "outside of the step, or set debug.kept_tensor = \"ignore\" where nobody reads it");
  init(Config{{"debug.kept_tensor", "ignore"}});
  Trainer ignoring(task.net, *task.optimizer, step);
  EXPECT_EQ(error_of([&] { ignoring.step(rows(4)); }), "no error");
}

const std::string kNoGradient =
    "epl: the loss depends on no parameter that requires a gradient\n"
    "  asked by: epl::Trainer\n"
    "  try:      look for a detach(), a NoGradGuard or parameters that are all frozen";

TEST_F(Errors, LossThatNoParameterTakesPartIn) {
  EXPECT_EQ(error_of_step([](const Batch& batch) { return batch[0].sum(); }), kNoGradient);
}

TEST_F(Errors, LossOfFrozenParameters) {
  SmallTask task;
  Trainer trainer = task.trainer();
  for (Tensor& parameter : task.net->parameters()) parameter.requires_grad_(false);
  EXPECT_EQ(error_of([&] { trainer.step(rows(4)); }), kNoGradient);
  for (Tensor& parameter : task.net->parameters()) parameter.requires_grad_(true);
  EXPECT_EQ(error_of([&] { trainer.step(rows(4)); }), "no error");
}

// The network was made anew, and the optimizer is that of the old one: nothing would be trained.
TEST_F(Errors, OptimizerOfAnotherNetwork) {
  SmallTask task;
  SmallTask other;
  Trainer trainer(other.net, *task.optimizer, other.step());
  const auto before = task.tensors();
  EXPECT_EQ(error_of([&] { trainer.step(rows(4)); }),
            "epl: the loss depends on none of the 6 parameters of the optimizers, but on 6 that no "
            "optimizer of the trainer has: `first.weight`, `first.bias`, `norm.weight` and 3 more\n"
            "  asked by: epl::Trainer\n"
            "  try:      an optimizer that is made of the parameters of the network that the step "
            "uses, after that network");
  EXPECT_TRUE(same(task.tensors(), before));
}

TEST_F(Errors, LossOfParametersThatNoOptimizerHas) {
  SmallTask task;
  SmallTask other;
  Trainer trainer(task.net, *task.optimizer, other.step());
  const auto before = task.tensors();
  EXPECT_EQ(error_of([&] { trainer.step(rows(4)); }), "no error");
  EXPECT_TRUE(same(task.tensors(), before)) << "as in the plain loop, nothing is to be updated";
}

TEST_F(Errors, ParametersThatNoOptimizerHasAreNamedOnce) {
  SmallTask task;
  torch::optim::SGD optimizer(task.net->head->parameters(), 0.1);
  Trainer trainer(task.net, optimizer, task.step());
  testing::internal::CaptureStderr();
  for (int64_t count : {4, 4, 6}) trainer.step(rows(count));
  EXPECT_EQ(testing::internal::GetCapturedStderr(),
            "epl: the step reads 4 parameters that could be trained but that no optimizer of the "
            "trainer has: `first.weight`, `first.bias`, `norm.weight` and 1 more; as in the plain "
            "loop they stay\n");
}

TEST_F(Errors, OptimizerWithoutParameters) {
  SmallTask task;
  torch::optim::SGD optimizer(std::vector<Tensor>{}, 0.1);
  Trainer trainer(task.net, optimizer, task.step());
  EXPECT_EQ(error_of([&] { trainer.step(rows(4)); }),
            "epl: the optimizer has no parameters\n"
            "  asked by: epl::Trainer\n"
            "  try:      register the modules and parameters before the optimizer is made of "
            "net->parameters()");
}

TEST_F(Errors, OptimizersWhoseParametersAreFrozen) {
  SmallTask task;
  SmallTask other;
  for (Tensor& parameter : task.net->parameters()) parameter.requires_grad_(false);
  Trainer trainer(task.net, *task.optimizer, other.step());
  EXPECT_EQ(error_of([&] { trainer.step(rows(4)); }),
            "epl: no parameter of the optimizers requires a gradient\n"
            "  asked by: epl::Trainer\n"
            "  try:      look for parameters that are all frozen");
}

// --- the batch ----------------------------------------------------------------------------------

TEST_F(Errors, UndefinedTensorInTheBatch) {
  EXPECT_EQ(error_of_step(SmallTask().step(), {torch::ones({4, 3}), Tensor()}),
            "epl: tensor 1 of the batch is undefined\n"
            "  asked by: epl::Trainer::step\n"
            "  try:      leave it out, or pass an empty tensor");
}

struct MicroBatchErrors : Errors {
  MicroBatchErrors() {
    init(Config{{"pipeline.num_micro_batch", 4}});
    asked_by = "  asked by: " + Env::get().config.asked_by("pipeline.num_micro_batch") + "\n";
  }
  std::string asked_by;
};

TEST_F(MicroBatchErrors, RowsThatCannotBeShared) {
  EXPECT_EQ(error_of_step(SmallTask().step(), rows(10)),
            "epl: cannot cut a batch of 10 rows evenly into 4 micro batches\n" + asked_by +
                "  try:      a batch size that 4 divides, such as 12");
}

TEST_F(MicroBatchErrors, TensorsThatDifferInRows) {
  EXPECT_EQ(error_of_step(SmallTask().step(), {torch::ones({8, 3}), torch::ones({4, 2})}),
            "epl: cannot cut a batch whose tensors differ in rows: tensor 0 has 8, tensor 1 has "
            "4\n" +
                asked_by +
                "  try:      rows in dim 0 of every tensor, or epl::Trainer::step(source)");
}

TEST_F(MicroBatchErrors, ASingleNumber) {
  EXPECT_EQ(error_of_step(SmallTask().step(), {torch::ones({8, 3}), torch::ones({})}),
            "epl: cannot cut tensor 1 of the batch, a single number, into 4 micro batches\n" +
                asked_by + "  try:      one number a row, or epl::Trainer::step(source)");
}

TEST_F(MicroBatchErrors, SourcesThatDiffer) {
  const auto error_of_source = [](const std::vector<Batch>& batches) {
    SmallTask task;
    Trainer trainer = task.trainer();
    size_t next = 0;
    const auto source = [&] { return batches[next++ % batches.size()]; };
    const auto before = task.tensors();
    const std::string message = error_of([&] { trainer.step(source); });
    EXPECT_TRUE(same(task.tensors(), before));
    return message;
  };
  EXPECT_EQ(error_of_source({rows(4), rows(5)}),
            "epl: tensor 0 of micro batch 1 is float[5, 3], that of micro batch 0 is float[4, "
            "3]\n" +
                asked_by + "  try:      micro batches of one shape within a step");
  EXPECT_EQ(error_of_source({rows(4), rows(4), {rows(4)[0], rows(4)[1].to(torch::kDouble)}}),
            "epl: tensor 1 of micro batch 2 is double[4, 2], that of micro batch 0 is float[4, "
            "2]\n" +
                asked_by + "  try:      micro batches of one shape within a step");
  EXPECT_EQ(error_of_source({rows(4), {rows(4)[0]}}),
            "epl: micro batch 1 has 1 tensors, micro batch 0 has 2\n" +
                asked_by.substr(0, asked_by.size() - 1));
  EXPECT_EQ(error_of_source({{rows(4)[0], Tensor()}}),
            "epl: tensor 1 of the batch is undefined\n"
            "  asked by: epl::Trainer::step\n"
            "  try:      leave it out, or pass an empty tensor");
}

// No recording is right for all of them, so the step runs as the plain program would.
TEST_F(MicroBatchErrors, MicroBatchesThatTakeDifferentWaysAreNoError) {
  Batch batch = rows(8);
  batch[0].copy_(torch::arange(8).unsqueeze(1).expand({8, 3}));
  SmallTask task;
  SmallTask plain;
  const auto step = [](const SmallTask& of, const Batch& micro_batch) {
    const Tensor loss = of.step()(micro_batch).loss;
    return micro_batch[0].max().gt(4).item<bool>() ? loss * 2 : loss;
  };
  Trainer trainer(task.net, *task.optimizer, [&](const Batch& each) { return step(task, each); });
  for (int i = 0; i < 3; ++i) {
    trainer.step(batch);
    plain.optimizer->zero_grad();
    for (int part = 0; part < 4; ++part) {
      const auto cut = [&](const Tensor& tensor) { return tensor.narrow(0, 2 * part, 2); };
      (step(plain, {cut(batch[0]), cut(batch[1])}) / 4).backward();
    }
    plain.optimizer->step();
  }
  EXPECT_TRUE(close(task.tensors(), plain.tensors()));
}

// --- strategies on one device -------------------------------------------------------------------

TEST_F(Errors, ScopesThatNest) {
  const Strategy outer = replicate(1, "outer");
  const Strategy inner = split(1, "inner");
  EXPECT_EQ(error_of_step([&](const Batch&) -> StepOutput {
              With scope(outer);
              With nested(inner);
              return Tensor();
            }),
            "epl: scopes do not nest: epl::split(1, \"inner\") inside of epl::replicate(1, "
            "\"outer\")\n  asked by: " +
                inner.asked_by() + ", inside of " + outer.asked_by() +
                "\n  try:      end the outer scope before the inner one begins");
}

TEST_F(Errors, AStepInsideOfAStep) {
  SmallTask inner_task;
  Trainer inner = inner_task.trainer();
  EXPECT_EQ(
      error_of_step([&](const Batch& batch) { return torch::tensor(inner.step(batch).loss); }),
      "epl: a step is asked for while another one runs\n"
      "  asked by: this thread, which is inside of a step function\n"
      "  try:      call Trainer::step() outside of step functions");
}

// --- memory that nobody sees, exceptions --------------------------------------------------------

TEST_F(Errors, MemoryThatTheStepFillsThroughAPointer) {
  SmallTask task;
  Tensor table = torch::zeros({1});
  bool broken = true;
  Trainer trainer(task.net, *task.optimizer, [&](const Batch& batch) {
    if (broken) table.data_ptr<float>()[0] = 3;
    const Tensor loss = table.sum() + 0 * task.net->forward(batch[0]).sum();
    if (broken) table.data_ptr<float>()[0] = 0;
    return loss;
  });
  const Batch batch = rows(4);
  EXPECT_EQ(error_of([&] { trainer.step(batch); }),
            "epl: the recorded step gives a loss of 0 when it is replayed, but gave 3 when it was "
            "recorded\n"
            "  asked by: epl::Trainer::step\n"
            "  try:      tensors that the step fills through data_ptr() or accessor() belong into "
            "the batch");
  broken = false;
  EXPECT_EQ(error_of([&] { trainer.step(batch); }), "no error");
}

struct Thrown : std::runtime_error {
  using std::runtime_error::runtime_error;
};

TEST_F(Errors, AnExceptionOfTheStepPassesThroughAndTheNextStepWorks) {
  SmallTask task;
  SmallTask plain;
  int calls = 0;
  Trainer trainer(task.net, *task.optimizer, [&](const Batch& batch) {
    const StepOutput output = task.step()(batch);
    if (++calls == 1) throw Thrown("first call");
    return output;
  });
  const auto before = task.tensors();
  EXPECT_THROW(trainer.step(rows(4)), Thrown);
  EXPECT_TRUE(same(task.tensors(), before));
  for (int i = 0; i < 2; ++i) {
    EXPECT_NEAR(trainer.step(rows(4)).loss, plain.train_plainly(rows(4)), 1e-6);
  }
  EXPECT_TRUE(close(task.tensors(), plain.tensors()));
  EXPECT_EQ(calls, 3);  // it threw, was recorded, and was looked at again
}

TEST_F(Errors, AnExceptionAtAnotherShapeLeavesTheFirstShapeReady) {
  SmallTask task;
  SmallTask plain;
  Trainer trainer(task.net, *task.optimizer, [&](const Batch& batch) {
    if (batch[0].size(0) == 5) throw Thrown("five rows");
    return task.step()(batch);
  });
  for (const int64_t count : {4, 5, 4, 6, 5, 6}) {
    if (count == 5) {
      EXPECT_THROW(trainer.step(rows(count)), Thrown);
    } else {
      EXPECT_NEAR(trainer.step(rows(count)).loss, plain.train_plainly(rows(count)), 1e-6);
    }
  }
  EXPECT_TRUE(close(task.tensors(), plain.tensors()));
}

}  // namespace
}  // namespace epl
