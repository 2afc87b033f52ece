// What autograd does where gradients arrive: hooks of parameters run, and a backward() inside of a
// Function's backward adds to them. EPL once asked for the gradients in front of all this, so that
// masks of pruned weights had no effect and checkpointed layers were not trained.
#include "tests/models/mlp.h"
#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

using torch::Tensor;
using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

Batch batch(int) { return {torch::randn({8, 8}), classes(4, {8})}; }

using Hook = std::function<Tensor(Tensor)>;

// Every weight of the net has a hook, made once.
MakeProgram with_hooks(std::function<Hook(const Tensor& weight)> make) {
  return [make] {
    auto net = std::make_shared<models::Mlp>(8, 16, 3, 4);
    for (Tensor& weight : net->parameters()) weight.register_hook(make(weight));
    return program(net, sgd(*net, 0.1, 0.9), classification(net));
  };
}

Hook mask(const Tensor& weight) {
  const Tensor kept = (torch::rand_like(weight) > 0.5).to(torch::kFloat);
  return [kept](const Tensor& gradient) { return gradient * kept; };
}

TEST(HookOfAParameter, MasksItsGradient) {
  EXPECT_TRUE(parity(with_hooks(mask), batch, within(1e-6, "fused momentum")));
}

TEST(HookOfAParameter, RunsForEachMicroBatch) {
  EXPECT_TRUE(parity(with_hooks([](const Tensor&) -> Hook {
                       return [](const Tensor& gradient) { return gradient.clamp(-0.01, 0.01); };
                     }),
                     batch, within(1e-6, "fused momentum"),
                     Variant().micro_batches(2).differs_by_rows("a clamp sees one micro batch")));
}

TEST(HookOfAParameter, MasksItsGradientOnTwoDevices) {
  EXPECT_TRUE(
      parity(with_hooks(mask), batch, within(1e-5, "sums in another order"), Variant().devices(2)));
}

// Each hook gets what the one before it gave; one that gives nothing changes nothing.
TEST(HookOfAParameter, GetsWhatTheHookBeforeItGave) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::Mlp>(8, 16, 3, 4);
        for (Tensor& weight : net->parameters()) {
          weight.register_hook([](const Tensor& gradient) { return gradient * 2; });
          weight.register_hook([](const Tensor&) {});
          weight.register_hook([](const Tensor& gradient) { return gradient + 0.01; });
        }
        return program(net, sgd(*net, 0.1), classification(net));
      },
      batch, bit_equal()));
}

TEST(HookOfAParameter, ChangesASparseGradient) {
  EXPECT_TRUE(parity(
      [] {
        auto table = std::make_shared<torch::nn::EmbeddingImpl>(
            torch::nn::EmbeddingOptions(11, 4).sparse(true));
        table->weight.register_hook([](const Tensor& gradient) { return gradient * 0.5; });
        return program(table, sgd(*table, 0.1), [table](const Batch& rows) {
          return table->forward(rows[0]).square().mean();
        });
      },
      [](int) { return Batch{classes(11, {8})}; }, bit_equal()));
}

// The user's own code on the way back gets the gradient of a whole weight that is used twice.
TEST(HookOfAParameter, SeesTheSumOfAllUses) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<torch::nn::LinearImpl>(8, 8);
        net->weight.register_hook([](const Tensor& gradient) { return gradient.tanh(); });
        return program(net, sgd(*net, 0.1), [net](const Batch& rows) {
          return net->forward(net->forward(rows[0])).square().mean();
        });
      },
      batch, bit_equal()));
}

// Checkpointing as Python's torch.utils.checkpoint does it.
struct Checkpoint : torch::autograd::Function<Checkpoint> {
  static Tensor forward(AutogradContext* context, const Tensor& x, torch::nn::SequentialImpl* net) {
    context->save_for_backward({x});
    context->saved_data["net"] = reinterpret_cast<int64_t>(net);
    const at::NoGradGuard no_grad;
    return net->forward(x);
  }
  static variable_list backward(AutogradContext* context, variable_list gradients) {
    auto* const net =
        reinterpret_cast<torch::nn::SequentialImpl*>(context->saved_data["net"].toInt());
    const Tensor x = context->get_saved_variables()[0].detach().requires_grad_();
    const at::AutoGradMode with_grad(true);
    torch::autograd::backward({net->forward(x)}, {gradients[0]});
    return {x.grad(), Tensor()};
  }
};

struct Checkpointed : torch::nn::Module {
  Checkpointed() {
    register_module("first", first);
    register_module("inner", inner);
    register_module("last", last);
  }
  Tensor forward(const Tensor& x) { return last(Checkpoint::apply(first(x).relu(), inner.get())); }

  torch::nn::Linear first{8, 16};
  torch::nn::Sequential inner{torch::nn::Linear(16, 16), torch::nn::Tanh(),
                              torch::nn::Linear(16, 16)};
  torch::nn::Linear last{16, 4};
};

Program checkpointed() {
  auto net = std::make_shared<Checkpointed>();
  return program(net, sgd(*net, 0.1), classification(net));
}

TEST(BackwardInsideOfAFunction, TrainsTheLayersInside) {
  EXPECT_TRUE(parity(checkpointed, batch, bit_equal()));
}

TEST(BackwardInsideOfAFunction, TrainsThemWithMicroBatchesAndOnTwoDevices) {
  EXPECT_TRUE(parity(checkpointed, batch, bit_equal(), Variant().micro_batches(2)));
  EXPECT_TRUE(
      parity(checkpointed, batch, within(1e-5, "sums in another order"), Variant().devices(2)));
}

// The first layers need an input that requires a gradient; a tensor that nobody trains serves.
TEST(BackwardInsideOfAFunction, RunsWhereOnlyALeafThatNobodyTrainsLeadsThere) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<Checkpointed>();
        const Tensor dummy = torch::zeros({}).requires_grad_();
        return program(net, sgd(*net, 0.1), [net, dummy](const Batch& rows) {
          const Tensor x = net->first(rows[0]).relu().detach() + dummy;
          return cross_entropy(net->last(Checkpoint::apply(x, net->inner.get())), rows[1]);
        });
      },
      batch, bit_equal()));
}

// Layers that are used inside and outside of the Function get both gradients.
TEST(BackwardInsideOfAFunction, AddsToTheGradientOfOtherUses) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<Checkpointed>();
        return program(net, sgd(*net, 0.1), [net](const Batch& rows) {
          const Tensor x = net->first(rows[0]).relu();
          const Tensor y = Checkpoint::apply(net->inner->forward(x), net->inner.get());
          return cross_entropy(net->last(y), rows[1]);
        });
      },
      batch, within(1e-6, "sums in another order")));
}

// A penalty on the gradient in the input, beside a hook.
TEST(GradientPenalty, WorksBesideHooks) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::Mlp>(8, 16, 3, 4);
        for (Tensor& weight : net->parameters()) weight.register_hook(mask(weight));
        return program(net, sgd(*net, 0.1), [net](const Batch& rows) {
          const Tensor x = rows[0].detach().requires_grad_();
          const Tensor y = net->forward(x).tanh();
          const Tensor slope =
              torch::autograd::grad({y.sum()}, {x}, {}, /*retain_graph=*/true, true)[0];
          return cross_entropy(y, rows[1]) + (slope.norm() - 1).square();
        });
      },
      batch, within(1e-6, "sums in another order")));
}

}  // namespace
}  // namespace epl::parity
