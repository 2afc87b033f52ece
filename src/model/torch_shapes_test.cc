// A whole program on shapes alone: the graph of a real run, and what parameters, gradients and any
// optimizer hold.
#include "model/torch_shapes.h"

#include <epl/error.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "ir/text.h"
#include "model/test_optimizers.h"
#include "tests/models/steps.h"

namespace epl {
namespace {

using ::testing::HasSubstr;
using torch::Tensor;

ShapeProgram program_of(const models::ModelStep& step) {
  return {step.net, step.step, step.batch, {}};
}

TEST(TorchShapes, GiveTheGraphOfTheRealRun) {
  torch::manual_seed(1);
  const std::string real = print_graph(models::gpt_step().capture());
  const ProgramShapes shapes = shapes_of([] { return program_of(models::gpt_step()); });
  EXPECT_EQ(print_graph(shapes.graph), real);
  EXPECT_EQ(shapes.parameter_bytes, 4 * shapes.parameters);
  EXPECT_EQ(shapes.gradient_bytes, shapes.parameter_bytes);
  EXPECT_EQ(shapes.optimizer_bytes, 0);
  EXPECT_TRUE(shapes.assumptions.empty());
}

TEST(TorchShapes, KnowWhatEveryOptimizerHolds) {
  for (const OptimizerCase& optimizer : optimizer_cases()) {
    SCOPED_TRACE(optimizer.name);
    const ProgramShapes shapes = shapes_of([&] {
      ShapeProgram program = program_of(models::mlp_step());
      program.optimizer = optimizer.make;
      return program;
    });
    const auto tensors = static_cast<int64_t>(optimizer.tensors.size());
    EXPECT_EQ(shapes.optimizer_bytes, tensors * shapes.parameter_bytes);
  }
}

// No row of EPL's knows it: a matrix of two rows for each parameter, and one number.
class Strange : public torch::optim::Optimizer {
 public:
  explicit Strange(std::vector<Tensor> parameters)
      : Optimizer(std::move(parameters), std::make_unique<OwnOptions>()) {}

  Tensor step(LossClosure = nullptr) override {
    for (const Tensor& parameter : param_groups()[0].params()) {
      const Tensor rows = torch::stack({parameter.grad(), parameter.detach()});
      held_.push_back(rows.cumsum(0).abs());
      held_.push_back(rows.norm());
      parameter.data().sub_(held_.back() * 0.1);
    }
    return {};
  }

 private:
  std::vector<Tensor> held_;
};

TEST(TorchShapes, KnowWhatAnOptimizerOfTheProgramsOwnHolds) {
  const ProgramShapes shapes = shapes_of([] {
    ShapeProgram program = program_of(models::mlp_step());
    program.optimizer = [](std::vector<Tensor> parameters) {
      return std::make_unique<Strange>(std::move(parameters));
    };
    return program;
  });
  const auto count = static_cast<int64_t>(models::mlp_step().net->parameters().size());
  EXPECT_EQ(shapes.optimizer_bytes, 2 * shapes.parameter_bytes + 4 * count);
}

std::string error_of(const std::function<Tensor(const Tensor&)>& use, ShapeOptions options = {}) {
  try {
    shapes_of(
        [&] {
          auto net = std::make_shared<torch::nn::LinearImpl>(1000, 1000);
          const StepFunction step = [net, use](const Batch& batch) {
            return use(net->forward(batch[0])).mean();
          };
          return ShapeProgram{net, step, {torch::randn({64, 1000})}, {}};
        },
        options);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

TEST(TorchShapes, RefuseContentsByName) {
  EXPECT_EQ(error_of([](const Tensor& x) { return x * x.max().item<float>(); }),
            "epl: aten::_local_scalar_dense reads contents of a tensor that has a shape alone, "
            "behind aten::addmm of `weight`\n"
            "  asked by: a run on shapes alone (plan.only)\n"
            "  try:      plan.read_back = \"zero\" or \"one\", which every number that the program "
            "reads back is then taken for, or a step that does not read it");
  EXPECT_THAT(error_of([](const Tensor& x) { return x.masked_select(x > 0); }),
              HasSubstr("aten::masked_select reads contents"));
  EXPECT_THAT(error_of([](const Tensor& x) { return x.index({x > 0}); }),
              HasSubstr("aten::index.Tensor reads contents"));
  EXPECT_THAT(error_of([](const Tensor& x) { return x + std::get<0>(torch::_unique(x)).sum(); }),
              HasSubstr("aten::_unique reads contents"));
  EXPECT_THAT(error_of([](const Tensor& x) { return x * x.data_ptr<float>()[0]; }),
              HasSubstr("C++ reads or writes the memory of a tensor"));
  EXPECT_THAT(error_of([](const Tensor& x) { return x * x.accessor<float, 2>()[0][0]; }),
              HasSubstr("C++ reads or writes the memory of a tensor"));
}

TEST(TorchShapes, RefuseOperatorsWithoutAShapeFunctionByName) {
  EXPECT_THAT(
      error_of([](const Tensor& x) { return x + torch::histc(x.detach()).sum(); }),
      HasSubstr("epl: aten::histc of f32[64,1000] has no shape function, behind aten::addmm "
                "of `weight`"));
}

TEST(TorchShapes, TakeWhatIsReadBackForTheNumberThatWasAskedFor) {
  for (const ReadBack read_back : {ReadBack::kZero, ReadBack::kOne}) {
    ShapeOptions options;
    options.read_back = read_back;
    const bool one = read_back == ReadBack::kOne;
    int64_t picked = -1;
    double read = -1;
    const std::string error = error_of(
        [&](const Tensor& x) {
          read = x.max().item<double>();
          picked = x.masked_select(x > 0).size(0) + x.index({x > 1}).size(0) + x.nonzero().size(0);
          return x;
        },
        options);
    EXPECT_EQ(error, "no error");
    EXPECT_EQ(read, one ? 1 : 0);
    EXPECT_EQ(picked, one ? 3 * 64 * 1000 : 0);
  }
}

// Contents that are there are read.
TEST(TorchShapes, PickByRealMasks) {
  int64_t picked = 0;
  const std::string error = error_of([&](const Tensor& x) {
    const Tensor mask = torch::arange(1000) < 10;
    picked = x.masked_select(mask).size(0) + x.index({torch::indexing::Slice(), mask}).size(1);
    return x;
  });
  EXPECT_EQ(error, "no error");
  EXPECT_EQ(picked, 64 * 10 + 10);
}

TEST(TorchShapes, SayWhatWasAssumed) {
  ShapeOptions options;
  options.read_back = ReadBack::kOne;
  const ProgramShapes shapes = shapes_of(
      [] {
        auto net = std::make_shared<torch::nn::LinearImpl>(1000, 1000);
        const StepFunction step = [net](const Batch& batch) {
          const Tensor x = net->forward(batch[0]);
          return (x * x.max().item<double>()).mean();
        };
        return ShapeProgram{net, step, {torch::randn({64, 1000})}, {}};
      },
      options);
  EXPECT_EQ(shapes.assumptions, std::vector<std::string>{"item() of f32[] gives 1"});
}

// Sizes that do not fit are the program's own error, in LibTorch's words.
TEST(TorchShapes, LeaveErrorsOfTheProgramAsTheyAre) {
  const auto make = [] {
    auto net = std::make_shared<torch::nn::LinearImpl>(1000, 1000);
    const StepFunction step = [net](const Batch& batch) {
      return (net->forward(batch[0]) + torch::ones({64, 999})).mean();
    };
    return ShapeProgram{net, step, {torch::randn({64, 1000})}, {}};
  };
  EXPECT_THROW(shapes_of(make), c10::Error);
}

}  // namespace
}  // namespace epl
