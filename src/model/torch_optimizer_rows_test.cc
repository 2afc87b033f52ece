// Each row against what LibTorch makes and writes.
#include "model/torch_optimizer_rows.h"

#include <gmock/gmock.h>

#include <set>

#include "config/libtorch.h"
#include "model/test_optimizers.h"

namespace epl {
namespace {

using testing::UnorderedElementsAreArray;
using torch::Tensor;
using torch::optim::Optimizer;
using torch::optim::OptimizerOptions;
using torch::serialize::InputArchive;

InputArchive part_of(InputArchive& archive, const std::string& key) {
  InputArchive part;
  archive.read(key, part);
  return part;
}

// The names that torch::save writes for the state of each parameter that has one.
std::vector<std::vector<std::string>> written_states(const Optimizer& optimizer) {
  InputArchive all = written(optimizer);
  InputArchive states = part_of(all, "state");
  std::vector<std::vector<std::string>> names;
  for (const std::string& key : states.keys()) names.push_back(part_of(states, key).keys());
  return names;
}

// The options of the first group as torch::save writes them.
InputArchive written_options(const Optimizer& optimizer) {
  InputArchive all = written(optimizer);
  InputArchive groups = part_of(all, "param_groups");
  InputArchive group = part_of(groups, "param_groups/0");
  return part_of(group, "options");
}

// What is written as a number, a switch or a pair, as numbers.
std::vector<double> numbers_of(const c10::IValue& value) {
  if (value.isDouble()) return {value.toDouble()};
  if (value.isBool()) return {value.toBool() ? 1.0 : 0.0};
  std::vector<double> numbers;
  for (const c10::IValue& each : value.toTupleRef().elements()) numbers.push_back(each.toDouble());
  return numbers;
}

class OptimizerTable : public testing::TestWithParam<OptimizerCase> {
 protected:
  const TorchOptimizerRow& known() const {
    const TorchOptimizerRow* const found = torch_row_of(*optimizer_);
    EXPECT_NE(found, nullptr);
    return *found;
  }
  const OptimizerRow& row() const { return *known().row; }
  const OptimizerOptions& options() const { return optimizer_->param_groups()[0].options(); }
  OptionValues values() const { return known().values_of(options()); }

  const std::vector<Tensor> parameters_ = some_parameters();
  const OptimizerPointer optimizer_ = GetParam().make(parameters_);
};

TEST_P(OptimizerTable, KnowsTheClassesOfAnOptimizer) {
  train(*optimizer_, 1);
  const std::string name = GetParam().name;
  EXPECT_EQ(row().name, name.substr(0, name.find(',')));
  EXPECT_EQ(torch_row_of(options()), &known());
  for (const auto& [key, state] : optimizer_->state()) EXPECT_EQ(torch_row_of(*state), &known());
}

TEST_P(OptimizerTable, SaysWhenStatesAreMade) {
  const size_t before = optimizer_->state().size();
  EXPECT_EQ(before, row().begins == StateBegins::kWithOptimizer ? parameters_.size() : 0);
  train(*optimizer_, 1);
  EXPECT_EQ(optimizer_->state().size(), row().keeps_state(values()) ? parameters_.size() : 0);
}

TEST_P(OptimizerTable, NamesWhatTorchSaveWritesOfAState) {
  train(*optimizer_, 2);
  std::vector<std::string> names;
  for (const StateTensor& each : row().tensors) {
    if (each.exists(values())) names.emplace_back(each.name);
  }
  EXPECT_EQ(names, GetParam().tensors);
  if (row().counts_steps) names.emplace_back("step");
  const auto states = written_states(*optimizer_);
  EXPECT_EQ(states.size(), row().keeps_state(values()) ? parameters_.size() : 0);
  for (const auto& state : states) EXPECT_THAT(state, UnorderedElementsAreArray(names));
}

TEST_P(OptimizerTable, FindsTensorsThatLieAsTheirParameter) {
  train(*optimizer_, 2);
  for (const Tensor& parameter : parameters_) {
    const auto found = optimizer_->state().find(state_key(parameter));
    if (found == optimizer_->state().end()) continue;  // SGD without momentum keeps nothing
    for (size_t i = 0; i < row().tensors.size(); ++i) {
      const StateTensor& each = row().tensors[i];
      const Tensor& tensor = known().tensors[i](*found->second);
      ASSERT_EQ(tensor.defined(), each.exists(values())) << each.name;
      if (!tensor.defined()) continue;
      EXPECT_EQ(tensor.sizes(), parameter.sizes()) << each.name;
      EXPECT_EQ(tensor.strides(), parameter.strides()) << each.name;
      EXPECT_EQ(tensor.dtype(), parameter.dtype()) << each.name;
    }
  }
}

// By name: exp_avg_sq is not taken for exp_avg.
TEST_P(OptimizerTable, FindsTheTensorsThatTorchSaveWritesUnderTheirNames) {
  train(*optimizer_, 2);
  for (const auto& [key, state] : optimizer_->state()) {
    torch::serialize::OutputArchive out;
    state->serialize(out);
    std::stringstream stream;
    out.save_to(stream);
    InputArchive in;
    in.load_from(stream);
    for (size_t i = 0; i < row().tensors.size(); ++i) {
      const StateTensor& each = row().tensors[i];
      if (!each.exists(values())) continue;
      c10::IValue value;
      in.read(each.name, value);
      EXPECT_TRUE(value.toTensor().equal(known().tensors[i](*state))) << each.name;
    }
    c10::IValue steps;
    EXPECT_EQ(in.try_read("step", steps), row().counts_steps);
    ASSERT_EQ(known().step != nullptr, row().counts_steps);
    if (!row().counts_steps) continue;
    EXPECT_EQ(known().step(*state), steps.toInt());
    EXPECT_EQ(known().step(*state), 2);
  }
}

TEST_P(OptimizerTable, MakesAnEmptyState) {
  const auto state = known().make_state();
  EXPECT_EQ(torch_row_of(*state), &known());
  for (const auto& tensor_in : known().tensors) EXPECT_FALSE(tensor_in(*state).defined());
  if (known().step != nullptr) {
    EXPECT_EQ(known().step(*state), 0);
  }
}

TEST_P(OptimizerTable, ReadsTheOptionsThatTorchSaveWrites) {
  InputArchive archive = written_options(*optimizer_);
  std::map<std::string, std::vector<double>> expected;
  for (const std::string& key : archive.keys()) {
    c10::IValue value;
    archive.read(key, value);
    if (key != "initial_accumulator_value") expected[key] = numbers_of(value);
  }
  std::map<std::string, std::vector<double>> read;
  ASSERT_EQ(row().options.size(), known().options.size());
  for (size_t i = 0; i < row().options.size(); ++i) {
    read[row().options[i]].push_back(values()[i]);
  }
  EXPECT_EQ(read, expected);
}

INSTANTIATE_TEST_SUITE_P(All, OptimizerTable, testing::ValuesIn(optimizer_cases()),
                         [](const auto& info) {
                           std::string name = info.param.name;
                           name.erase(std::remove_if(name.begin(), name.end(), ispunct),
                                      name.end());
                           std::replace(name.begin(), name.end(), ' ', '_');
                           return name;
                         });

TEST(OptimizerRows, HaveAKernelEach) {
  std::set<UpdateKernel> kernels;
  for (const TorchOptimizerRow& known : torch_optimizer_rows()) kernels.insert(known.row->kernel);
  EXPECT_EQ(kernels.size(), optimizer_table().size());
  EXPECT_EQ(torch_optimizer_rows().size(), optimizer_table().size());
}

TEST(OptimizerRows, DoNotHoldForOptimizersOfTheUsersOwn) {
  const OwnOptimizer own(some_parameters(), std::make_unique<OwnOptions>());
  EXPECT_EQ(torch_row_of(own), nullptr);
  EXPECT_EQ(torch_row_of(own.param_groups()[0].options()), nullptr);
  EXPECT_EQ(torch_row_of(OwnState()), nullptr);
  EXPECT_EQ(torch_row_of(OwnAdam(some_parameters())), nullptr);
  EXPECT_EQ(torch_row_of(torch::optim::LBFGS(some_parameters())), nullptr);
}

TEST(OptimizerRows, HoldForLibTorchsOptionsInAnOptimizerOfTheUsersOwn) {
  const OwnOptimizer own(some_parameters(), std::make_unique<torch::optim::SGDOptions>(0.1));
  EXPECT_EQ(torch_row_of(own), nullptr);
  const TorchOptimizerRow* const known = torch_row_of(own.param_groups()[0].options());
  ASSERT_NE(known, nullptr);
  EXPECT_EQ(known->row->name, "SGD");
}

}  // namespace
}  // namespace epl
