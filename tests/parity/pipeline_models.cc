#include "tests/parity/pipeline_models.h"

namespace epl::parity {
namespace {

using torch::Tensor;

// Two stages of code, each in its scope, then the loss in none.
using Part = std::function<Tensor(Parts& net, const Tensor& x)>;

MakeProgram chain(const std::vector<Part>& stages) {
  return parts(static_cast<int>(stages.size()), [stages](Parts& net, const Batch& batch) {
    Tensor x = batch[0];
    for (size_t i = 0; i < stages.size(); ++i) {
      const With scope(stage(static_cast<int>(i)));
      x = stages[i](net, x);
    }
    return cross_entropy(x, batch[1]);
  });
}

Part layer(int number) {
  return [number](Parts& net, const Tensor& x) { return net(number, x); };
}

const Exactness kTied = within(2e-6, "each stage sums its own uses over the micro batches first");

MakeBatch tokens(int64_t count) {
  return [count](int) -> Batch { return {classes(10, {count}), classes(10, {count})}; };
}

StepOutput tied_embedding(Parts& net, const Batch& batch) {
  Tensor x;
  {
    const With scope(stage(0));
    x = net(0, net.table(batch[0]));
  }
  {
    const With scope(stage(1));
    x = net(1, x);
  }
  const With scope(stage(2));
  return cross_entropy(torch::matmul(net(2, x), net.table->weight.t()), batch[1]);
}

StepOutput module_in_two_stages(Parts& net, const Batch& batch) {
  Tensor x;
  {
    const With scope(stage(0));
    x = net(0, batch[0]);
  }
  const With scope(stage(1));
  return cross_entropy(net(0, net(1, x)), batch[1]);
}

// The stages that have no part in the table must not be waited for.
StepOutput tied_in_three_of_four(Parts& net, const Batch& batch) {
  Tensor x = batch[0];
  for (int i : {0, 1, 2, 3}) {
    const With scope(stage(i));
    x = net(i, i == 2 ? x : x + net.table(batch[1]));
  }
  return cross_entropy(x, batch[1]);
}

// As an encoder hands its steps to a decoder: over two stages, over one, to the next.
StepOutput skips(Parts& net, const Batch& batch) {
  Tensor a, b, c;
  {
    const With scope(stage(0));
    a = net(0, batch[0]);
  }
  {
    const With scope(stage(1));
    b = net(1, a);
  }
  {
    const With scope(stage(2));
    c = net(2, b) + b;
  }
  const With scope(stage(3));
  return cross_entropy(net(3, torch::cat({c, a}, 1).slice(1, 3, 9) * a), batch[1]);
}

StepOutput one_value_for_all(Parts& net, const Batch& batch) {
  Tensor shared, x;
  {
    const With scope(stage(0));
    shared = net(0, batch[0]);
    x = shared * 2;
  }
  for (int i : {1, 2, 3}) {
    const With scope(stage(i));
    x = net(i, x) * shared + shared;
  }
  return cross_entropy(x, batch[1]);
}

// Booleans and integers go from stage to stage; so do the batch's own tensors.
StepOutput masks(Parts& net, const Batch& batch) {
  Tensor x, mask, numbers;
  {
    const With scope(stage(0));
    mask = batch[0] > 0;
    numbers = batch[1] + 1;
    x = net(0, batch[0]).masked_fill(mask, 0.5);
  }
  {
    const With scope(stage(1));
    x = net(1, x) + net.table(numbers);
  }
  const With scope(stage(2));
  x = torch::where(mask, net(2, x), x) + net.table(batch[1]) + batch[0];
  return cross_entropy(x * numbers.unsqueeze(1), batch[1]);
}

// Made before all scopes: of the batch, of nothing, of a parameter.
StepOutput code_outside(Parts& net, const Batch& batch) {
  const Tensor scaled = batch[0] * 3;
  const Tensor of_nothing = torch::ones({6, 6}).triu();
  const Tensor of_parameter = net.table->weight.sum();
  Tensor x;
  {
    const With scope(stage(0));
    x = net(0, batch[0]);
  }
  x = x * 0.5;
  {
    const With scope(stage(1));
    x = net(1, torch::matmul(x, of_nothing) + scaled);
  }
  {
    const With scope(stage(2));
    x = net(2, torch::matmul(x, of_nothing) + of_parameter);
  }
  x = x + of_parameter;
  return cross_entropy(x, batch[1]) + x.pow(2).mean();
}

StepOutput loss_of_all_stages(Parts& net, const Batch& batch) {
  Tensor x = batch[0];
  Tensor penalty = torch::zeros({});
  for (int i : {0, 1, 2}) {
    const With scope(stage(i));
    x = net(i, x);
    penalty = penalty + x.pow(2).mean();
  }
  return cross_entropy(x, batch[1]) + 0.1 * penalty;
}

StepOutput default_strategies(Parts& net, const Batch& batch) {
  set_default_strategy(replicate(1));
  Tensor x = net(0, batch[0]);
  set_default_strategy(replicate(1));
  x = net(1, x);
  set_default_strategy(replicate(1));
  return cross_entropy(net(2, x), batch[1]);
}

// A, B, A, B: the model goes round twice.
StepOutput scopes_entered_again(Parts& net, const Batch& batch) {
  Tensor x = batch[0];
  for (int i : {0, 1, 2, 3}) {
    const With scope(stage(i % 2));
    x = net(i, x);
  }
  return cross_entropy(x, batch[1]);
}

StepOutput first_scope_again(Parts& net, const Batch& batch) {
  Tensor x = batch[0];
  for (int i : {0, 1, 2}) {
    const With scope(stage(i % 2));
    x = net(i, x);
  }
  return cross_entropy(x, batch[1]);
}

// Skips between the chunks of one stage, and values that only a chunk behind the next one reads.
StepOutput skips_between_rounds(Parts& net, const Batch& batch) {
  Tensor x = batch[0], first;
  const Tensor mask = batch[0] > 0;
  for (int i : {0, 1, 2, 3}) {
    const With scope(stage(i % 2));
    x = net(i, i < 2 ? x : x.masked_fill(mask, 0.5) + first);
    if (i == 0) first = x;
  }
  return cross_entropy(x, batch[1]);
}

StepOutput module_in_both_rounds(Parts& net, const Batch& batch) {
  Tensor x = batch[0];
  for (int i : {0, 1, 2, 3}) {
    const With scope(stage(i % 2));
    x = net(i % 3, x) + net.table(batch[1]);
  }
  return cross_entropy(x, batch[1]);
}

// Autograd saves values of one stage for the backward of another.
StepOutput products_across(Parts& net, const Batch& batch) {
  Tensor a, b;
  {
    const With scope(stage(0));
    a = net(0, batch[0]);
  }
  {
    const With scope(stage(1));
    b = net(1, batch[0].flip(1));
  }
  const With scope(stage(2));
  return cross_entropy(net(2, a * b + torch::sigmoid(b)), batch[1]);
}

Program frozen(const std::vector<int>& layers) {
  auto net = std::make_shared<Parts>(3);
  for (int i : layers) {
    for (Tensor& each : net->layers[static_cast<size_t>(i)]->parameters()) {
      each.requires_grad_(false);
    }
  }
  return program(net, sgd(*net, 0.1, 0.9), [net](const Batch& batch) {
    Tensor x = batch[0];
    for (int i : {0, 1, 2}) {
      const With scope(stage(i));
      x = (*net)(i, x);
    }
    return cross_entropy(x, batch[1]);
  });
}

// The layer of stage 1 is updated with zero gradients from step 1 on, and learns again in step 2.
Program frozen_in_mid_training() {
  Program made = frozen({});
  auto net = std::dynamic_pointer_cast<Parts>(made.turns[0].modules[0].module);
  made.before_step = [net](int i) {
    for (Tensor& each : net->layers[1]->parameters()) each.requires_grad_(i != 1);
  };
  return made;
}

Program one_optimizer_a_stage() {
  auto net = std::make_shared<Parts>(2);
  Turn turn;
  turn.modules = {{"", net}};
  turn.optimizers = {
      std::make_shared<torch::optim::SGD>(net->layers[1]->parameters(), 0.1),
      std::make_shared<torch::optim::AdamW>(net->layers[0]->parameters(), 0.01),
      std::make_shared<torch::optim::SGD>(net->table->parameters(), 0.2),
  };
  turn.step = [net](const Batch& batch) {
    Tensor x;
    {
      const With scope(stage(0));
      x = (*net)(0, batch[0]) + net->table(batch[1]);
    }
    const With scope(stage(1));
    return cross_entropy((*net)(1, x), batch[1]);
  };
  return Program{{turn}};
}

}  // namespace

const std::map<std::string, StagedModel>& staged_ways() {
  const Part nothing = [](Parts&, const Tensor& x) { return x; };
  const Part no_parameters = [](Parts&, const Tensor& x) { return torch::relu(x) + 1; };
  const Part alias = [](Parts&, const Tensor& x) { return x.view({-1, 2, 3}).flatten(1); };
  const Part thick = [](Parts& net, const Tensor& x) { return net(1, net(2, net(1, x))); };
  static const std::map<std::string, StagedModel> models = {
      {"tied embedding", {3, parts(3, tied_embedding), kTied, tokens(32)}},
      {"tied in three of four", {4, parts(4, tied_in_three_of_four), kTied}},
      {"module in two stages", {2, parts(2, module_in_two_stages), kTied}},
      {"skips", {4, parts(4, skips)}},
      {"one value for all stages", {4, parts(4, one_value_for_all)}},
      {"masks", {3, parts(3, masks), kTied}},
      {"code outside", {3, parts(3, code_outside), kTied}},
      {"loss of all stages", {3, parts(3, loss_of_all_stages)}},
      {"default strategies", {3, parts(3, default_strategies)}},
      {"scopes entered again", {2, parts(4, scopes_entered_again)}},
      {"first scope again", {2, parts(3, first_scope_again)}},
      {"skips between rounds", {2, parts(4, skips_between_rounds)}},
      {"module in both rounds", {2, parts(3, module_in_both_rounds), kTied}},
      {"products across stages", {3, parts(3, products_across)}},
      {"stage that does nothing", {3, chain({layer(0), nothing, layer(2)})}},
      {"stages that do nothing", {4, chain({nothing, layer(1), layer(2), nothing})}},
      {"stage of views", {3, chain({layer(0), alias, layer(2)})}},
      {"stage without parameters", {3, chain({layer(0), no_parameters, layer(2)})}},
      {"first and last without", {4, chain({no_parameters, layer(1), layer(2), no_parameters})}},
      {"uneven stages", {3, chain({layer(0), thick, nothing})}},
      {"frozen first stage", {3, [] { return frozen({0}); }}},
      {"frozen middle", {3, [] { return frozen({1}); }}},
      {"frozen last stage", {3, [] { return frozen({2}); }}},
      {"only the last learns",
       {3,
        [] {
          return frozen({0, 1});
        }}},
      {"frozen in mid training", {3, frozen_in_mid_training}},
      {"one optimizer a stage",
       {2, one_optimizer_a_stage, within(1e-5, "AdamW's update is one fused pass")}},
  };
  return models;
}

}  // namespace epl::parity
