// A recording leaves no trace, whether it ends well or by an exception.
#include <ATen/CPUGeneratorImpl.h>
#include <epl/epl.h>
#include <gtest/gtest.h>

#include "capture/test_capture.h"
#include "config/scopes.h"
#include "config/test_environment.h"

namespace epl {
namespace {

using torch::Tensor;

struct Thrown : std::runtime_error {
  using std::runtime_error::runtime_error;
};

// Hands its input on; throws on the way back.
struct ThrowInBackward : torch::autograd::Function<ThrowInBackward> {
  static Tensor forward(torch::autograd::AutogradContext*, Tensor x) { return x * 1; }
  static torch::autograd::variable_list backward(torch::autograd::AutogradContext*,
                                                 torch::autograd::variable_list) {
    throw Thrown("in backward");
  }
};

// Writes wherever a step can: statistics, the weight of an embedding, a buffer, a parameter, a
// tensor that it closes over, a view of one, its batch, two random generators.
struct Writer : torch::nn::Module {
  Writer() {
    register_module("words", words);
    register_module("norm", norm);
    register_module("drop", drop);
    scale = register_parameter("scale", torch::ones({4}));
    seen = register_buffer("seen", torch::zeros({}, torch::kLong));
    for (Tensor& parameter : parameters()) parameter.mutable_grad() = torch::ones_like(parameter);
  }

  Tensor forward(const Batch& batch) {
    {
      torch::NoGradGuard no_grad;
      seen += 1;
      scale.clamp_(0, 0.5);
    }
    counters.select(0, 1).add_(batch[1].sum());
    auto x = drop(norm(words(batch[0])) * scale);
    Tensor rows = batch[1];
    rows.mul_(2);
    return x + rows + torch::rand({4}, generator);
  }

  torch::nn::Embedding words{torch::nn::EmbeddingOptions(11, 4).max_norm(0.1)};
  torch::nn::BatchNorm1d norm{4};
  torch::nn::Dropout drop{0.5};
  Tensor scale, seen;
  Tensor counters = torch::zeros({3});
  at::Generator generator = at::make_generator<at::CPUGeneratorImpl>(5);
};

struct NoTrace : testing::Test {
  NoTrace() { torch::manual_seed(1); }

  // All that a recording could change, and how often each tensor was written.
  std::vector<Tensor> tensors() const {
    std::vector<Tensor> all = net.parameters();
    for (const Tensor& parameter : net.parameters()) all.push_back(parameter.grad());
    for (const Tensor& buffer : net.buffers()) all.push_back(buffer);
    all.push_back(net.counters);
    all.insert(all.end(), batch.begin(), batch.end());
    all.push_back(net.generator.get_state());
    all.push_back(at::detail::getDefaultCPUGenerator().get_state());
    return all;
  }

  void expect_no_trace(const std::function<void()>& record) {
    std::vector<Tensor> before;
    for (const Tensor& tensor : tensors()) before.push_back(tensor.detach().clone());
    record();
    const std::vector<Tensor> after = tensors();
    ASSERT_EQ(after.size(), before.size());
    for (size_t i = 0; i < after.size(); ++i) EXPECT_TRUE(after[i].equal(before[i])) << i;
    EXPECT_FALSE(is_recording_taskgraphs());
    EXPECT_EQ(describe_current_scope(), "the step function, outside of any scope");
    EXPECT_FALSE(c10::impl::tls_is_dispatch_key_included(c10::DispatchKey::Fake));
    EXPECT_TRUE(torch::GradMode::is_enabled());
  }

  void expect_no_trace_of_exception(const StepFunction& step) {
    expect_no_trace([&] { EXPECT_THROW(graph_of(net, step, batch), Thrown); });
    EXPECT_EQ(ops_of(graph_of(net, good, batch), Phase::kForward), good_ops);
  }

  Writer net;
  const Batch batch{torch::randint(11, {6}, torch::kLong), torch::ones({6, 4})};
  const StepFunction good = [this](const Batch& batch) { return net.forward(batch).sum(); };
  const std::string good_ops = ops_of(graph_of(net, good, batch), Phase::kForward);
};

TEST_F(NoTrace, IsLeftByARecording) {
  expect_no_trace([&] {
    const Graph graph = graph_of(net, good, batch);
    for (const char* op : {"aten::embedding_renorm_", "aten::native_batch_norm", "aten::clamp_",
                           "aten::bernoulli_.float", "aten::rand.generator"}) {
      EXPECT_EQ(count_ops(graph, op), 1) << op;
    }
  });
}

TEST_F(NoTrace, IsLeftByAnExceptionInTheForwardPass) {
  expect_no_trace_of_exception([&](const Batch& batch) -> StepOutput {
    net.forward(batch);
    throw Thrown("in forward");
  });
}

TEST_F(NoTrace, IsLeftByAnExceptionInsideOfAScope) {
  expect_no_trace_of_exception([&](const Batch& batch) -> StepOutput {
    const With scope(replicate(1, "stage"));
    add_to_collection(collections::kLocalSum, net.forward(batch));
    throw Thrown("in a scope");
  });
}

TEST_F(NoTrace, IsLeftByAnExceptionUnderNoGrad) {
  expect_no_trace_of_exception([&](const Batch& batch) -> StepOutput {
    const torch::NoGradGuard no_grad;
    net.forward(batch);
    throw Thrown("under no_grad");
  });
}

TEST_F(NoTrace, IsLeftByAnExceptionInTheBackwardPass) {
  expect_no_trace_of_exception(
      [&](const Batch& batch) { return ThrowInBackward::apply(net.forward(batch)).sum(); });
}

TEST_F(NoTrace, IsLeftByAnErrorOfLibTorch) {
  expect_no_trace([&] {
    EXPECT_THROW(graph_of(
                     net,
                     [&](const Batch& batch) {
                       return torch::matmul(net.forward(batch), torch::ones({7})).sum();
                     },
                     batch),
                 c10::Error);
  });
}

TEST_F(NoTrace, IsLeftByALossThatIsRefused) {
  expect_no_trace([&] {
    EXPECT_THROW(graph_of(
                     net, [&](const Batch& batch) { return net.forward(batch); }, batch),
                 Error);
  });
}

// Where backward runs the user's code it runs as a whole, also to leaves that no optimizer has.
TEST_F(NoTrace, IsLeftInTheGradientOfALeafThatNobodyTrains) {
  const Tensor untrained = torch::ones({4}).requires_grad_();
  const Tensor fresh = torch::ones({4}).requires_grad_();
  untrained.mutable_grad() = torch::full({4}, 3.0f);
  net.scale.register_hook([](const Tensor& gradient) { return gradient * 2; });
  expect_no_trace([&] {
    const Graph graph = graph_of(
        net, [&](const Batch& batch) { return (net.forward(batch) * untrained * fresh).sum(); },
        batch);
    EXPECT_EQ(graph.gradients.size(), net.parameters().size());
  });
  EXPECT_TRUE(untrained.grad().equal(torch::full({4}, 3.0f)));
  EXPECT_FALSE(fresh.grad().defined());
}

TEST_F(NoTrace, OfTheRecordingIsInTheAutogradNodesOfTensorsThatTheUserKeeps) {
  Tensor kept;
  capture_with(
      net,
      [&](const Batch& batch) {
        kept = net.scale + 1;
        return (net.forward(batch) * kept).sum();
      },
      batch, /*may_keep_tensors=*/true);
  net.scale.mutable_grad() = Tensor();
  kept.sum().backward();
  EXPECT_TRUE(net.scale.grad().equal(torch::ones({4})));
}

TEST_F(NoTrace, OfTheRecordingIsInAutogradNodesFromBeforeTheStep) {
  const Tensor shifted = net.scale + 1;
  const StepFunction step = [&](const Batch& batch) {
    return (net.forward(batch) * shifted).sum();
  };
  EXPECT_EQ(print_graph(graph_of(net, step, batch)), print_graph(graph_of(net, step, batch)));
}

}  // namespace
}  // namespace epl
