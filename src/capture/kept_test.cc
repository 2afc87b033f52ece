// A step function runs only while it is recorded. What it stores elsewhere, or does besides
// returning its loss, would happen once and never again.
#include <epl/epl.h>
#include <gtest/gtest.h>

#include "capture/test_capture.h"

namespace epl {
namespace {

using torch::Tensor;

std::string error_of(const torch::nn::Module& net, const StepFunction& step, const Batch& batch) {
  try {
    capture_with(net, step, batch);
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

struct KeptTensor : testing::Test {
  torch::nn::LinearImpl net{4, 4};
  const Batch batch{torch::ones({2, 4})};
};

TEST_F(KeptTensor, ThatReplacesAHiddenStateIsAnError) {
  Tensor state = torch::zeros({2, 4});
  EXPECT_EQ(
      error_of(
          net,
          [&](const Batch& rows) {
            state = torch::tanh(net.forward(rows[0]) + state).detach();
            return net.forward(state).sum();
          },
          batch),
      "epl: the step function keeps a tensor that it computed, f32[2,4] from aten::detach, "
      "after it has returned: replayed steps would never change it\n"
      "  asked by: epl::Trainer\n"
      "  try:      return it as a metric, write it by copy_() into a tensor that lives outside "
      "of the step, or set debug.kept_tensor = \"ignore\" where nobody reads it");
}

// The tensor that detach() returns is seen by no operator, unless one reads it.
TEST_F(KeptTensor, ThatIsDetachedAndReadInTheNextStepIsAnError) {
  Tensor state = torch::zeros({2, 4});
  const std::string error = error_of(
      net,
      [&](const Batch& rows) {
        const Tensor next = torch::tanh(net.forward(rows[0]) + state);
        state = next.detach();
        return next.sum();
      },
      batch);
  EXPECT_EQ(error.substr(0, 82),
            "epl: the step function keeps a tensor that it computed, f32[2,4] from aten::detach");
}

// One at a time would be mended one at a time.
TEST_F(KeptTensor, IsNamedWithAllOthers) {
  Tensor first, second;
  const std::string error = error_of(
      net,
      [&](const Batch& rows) {
        first = net.forward(rows[0]).detach().clone();
        const With scope(replicate(1, "stage"));
        second = rows[0].exp();
        return net.forward(second).sum();
      },
      batch);
  EXPECT_EQ(error.substr(0, error.find('\n')),
            "epl: the step function keeps 2 tensors that it computed, f32[2,4] from aten::clone, "
            "f32[2,4] from aten::exp in TaskGraph 0, after it has returned: replayed steps would "
            "never change them");
}

// A table that is made from a buffer once and then kept.
TEST_F(KeptTensor, IsFineWhereItDependsOnABufferAlone) {
  const Tensor frequencies = net.register_buffer("frequencies", torch::rand({4}));
  Tensor table;
  EXPECT_EQ(error_of(
                net,
                [&](const Batch& rows) {
                  if (!table.defined()) table = torch::outer(torch::arange(2), frequencies).cos();
                  return (net.forward(rows[0]) * table).sum();
                },
                batch),
            "no error");
}

TEST_F(KeptTensor, InAMemberIsAnErrorToo) {
  std::vector<Tensor> seen;
  const std::string error = error_of(
      net,
      [&](const Batch& rows) {
        seen.push_back(net.forward(rows[0]));
        return seen.back().sum();
      },
      batch);
  EXPECT_EQ(error.substr(0, 79),
            "epl: the step function keeps a tensor that it computed, f32[2,4] from aten::add");
}

TEST_F(KeptTensor, IsFineWhereItDoesNotDependOnData) {
  Tensor mask;
  EXPECT_EQ(error_of(
                net,
                [&](const Batch& rows) {
                  if (!mask.defined()) mask = torch::ones({2, 4}).triu();
                  return (net.forward(rows[0]) * mask).sum();
                },
                batch),
            "no error");
}

TEST_F(KeptTensor, IsFineWhereItIsWrittenIntoStateOfTheUsersOwn) {
  const Tensor state = torch::zeros({2, 4});
  EXPECT_EQ(error_of(
                net,
                [&](const Batch& rows) {
                  const Tensor next = torch::tanh(net.forward(rows[0]) + state);
                  state.copy_(next.detach());
                  return next.sum();
                },
                batch),
            "no error");
  EXPECT_TRUE(state.equal(torch::zeros({2, 4})));
}

// What hooks keep was made once and never again.
TEST_F(KeptTensor, ThatAHookMadeIsAnError) {
  Tensor saved;
  const std::string error = error_of(
      net,
      [&](const Batch& rows) {
        const Tensor hidden = net.forward(rows[0]);
        hidden.register_hook([&](Tensor gradient) { saved = gradient.detach().clone(); });
        return hidden.square().sum();
      },
      batch);
  EXPECT_EQ(error.substr(0, error.find('\n')),
            "epl: the step function keeps a tensor that it computed, f32[2,4] from aten::clone of "
            "the backward pass, after it has returned: replayed steps would never change it");
}

TEST_F(KeptTensor, ThatAHookOfAParameterMadeIsAnError) {
  Tensor saved;
  net.weight.register_hook([&](Tensor gradient) { saved = gradient.detach().clone(); });
  const std::string error = error_of(
      net, [&](const Batch& rows) { return net.forward(rows[0]).square().sum(); }, batch);
  EXPECT_EQ(error.substr(0, 81),
            "epl: the step function keeps a tensor that it computed, f32[4,4] from aten::clone");
}

TEST_F(KeptTensor, ThatIsTheGradientItselfIsAnError) {
  Tensor saved;
  const std::string error = error_of(
      net,
      [&](const Batch& rows) {
        const Tensor hidden = net.forward(rows[0]);
        hidden.register_hook([&](Tensor gradient) { saved = gradient; });
        return hidden.square().sum();
      },
      batch);
  EXPECT_EQ(error.substr(0, 54), "epl: the step function keeps a tensor that it computed");
}

// Gradients that autograd leaves in .grad() are the trainer's, or are dropped.
TEST_F(KeptTensor, IsFineWhereAHookKeepsNothing) {
  const Tensor other = torch::ones({4}).requires_grad_();
  double norm = 0;
  EXPECT_EQ(
      error_of(
          net,
          [&](const Batch& rows) {
            const Tensor hidden = net.forward(rows[0]) * other;
            hidden.register_hook([&](Tensor gradient) { norm += gradient.norm().item<double>(); });
            return hidden.square().sum();
          },
          batch),
      "no error");
  EXPECT_GT(norm, 0);
}

TEST_F(KeptTensor, ThatShowsWhatWasWrittenThroughAViewIsAnError) {
  const Tensor bank = net.register_buffer("bank", torch::zeros({3, 4}));
  Tensor last;
  const std::string error = error_of(
      net,
      [&](const Batch& rows) {
        const Tensor z = net.forward(rows[0]);
        bank[0].copy_(z.detach().mean(0));
        last = bank.clone();
        return z.sum();
      },
      batch);
  EXPECT_EQ(error.substr(0, 81),
            "epl: the step function keeps a tensor that it computed, f32[3,4] from aten::clone");
}

TEST(StepFunction, ThatCallsBackwardItselfIsAnError) {
  torch::nn::LinearImpl net(4, 4);
  EXPECT_EQ(error_of(net,
                     [&](const Batch& rows) {
                       const Tensor loss = net.forward(rows[0]).sum();
                       loss.backward({}, /*retain_graph=*/true);
                       return loss;
                     },
                     {torch::ones({2, 4})}),
            "epl: the step function calls backward() itself\n"
            "  asked by: epl::Trainer\n"
            "  try:      return the loss: epl::Trainer::step runs backward and the update");
  EXPECT_FALSE(net.weight.grad().defined());
}

TEST(StepFunction, MayCallZeroGrad) {
  torch::nn::LinearImpl net(4, 4);
  net.weight.mutable_grad() = torch::ones({4, 4});
  EXPECT_EQ(error_of(net,
                     [&](const Batch& rows) {
                       net.zero_grad();
                       return net.forward(rows[0]).sum();
                     },
                     {torch::ones({2, 4})}),
            "no error");
  EXPECT_TRUE(net.weight.grad().equal(torch::ones({4, 4})));
}

}  // namespace
}  // namespace epl
