#include "tests/fuzz/recipe.h"

#include <sstream>

#include "tests/fuzz/kinds.h"

namespace epl::fuzz {
namespace {

template <typename T>
std::string list(const std::vector<T>& items) {
  std::ostringstream text;
  for (size_t i = 0; i < items.size(); ++i) text << (i > 0 ? ", " : "") << items[i];
  return text.str();
}

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string text = list(shape);
  const std::string rows = std::to_string(kRows);
  if (const size_t at = text.find(rows); at != std::string::npos) {
    text.replace(at, rows.size(), "rows");
  }
  return "[" + text + "]";
}

std::string values_text(const std::vector<int>& values) {
  std::vector<std::string> names;
  for (int value : values) names.push_back("v" + std::to_string(value));
  return list(names);
}

Tensor fresh(const Leaf& leaf, std::vector<int64_t> shape, torch::ScalarType dtype) {
  if (leaf.range > 0) return torch::randint(leaf.range, shape, torch::kLong);
  return (torch::randn(shape, torch::kDouble) * leaf.scale).to(dtype);
}

}  // namespace

std::string Leaf::name() const {
  static const char* const letters[] = {"p", "b", "x"};
  return letters[static_cast<int>(role)] + std::to_string(value);
}

std::string Leaf::str() const {
  static const char* const words[] = {"parameter", "buffer", "batch"};
  std::ostringstream text;
  text << "v" << value << " = " << words[static_cast<int>(role)] << " " << name() << " "
       << shape_text(shape);
  if (range > 0) {
    text << " of integers below " << range;
  } else {
    text << " * " << scale;
  }
  if (frozen) text << ", frozen";
  if (hooked) text << ", hooked";
  return text.str();
}

std::string Node::str() const {
  std::ostringstream text;
  text << values_text(out) << " = " << kind->name << "(" << values_text(in);
  if (!n.empty()) text << "; " << list(n);
  if (!f.empty()) text << "; " << list(f);
  text << ")";
  if (region == Region::kNoGrad) text << "  under NoGradGuard";
  return text.str();
}

std::string Event::str() const {
  std::ostringstream text;
  text << "before step " << step << ": ";
  if (what == What::kLearningRate) {
    text << "learning rate * " << factor;
  } else {
    text << (what == What::kFreeze ? "freeze" : "thaw") << " v" << value;
  }
  return text.str();
}

std::string Training::str() const {
  std::ostringstream text;
  text << optimizer << " lr " << lr << " weight decay " << weight_decay
       << (two_groups ? " in two groups" : "") << ", clip norm " << clip_norm << " value "
       << clip_value << ", rows " << list(rows) << ", " << turns << " trainers\n";
  for (const Event& event : events) text << event.str() << "\n";
  return text.str();
}

std::string Recipe::str() const {
  std::ostringstream text;
  text << "seed " << seed << ", " << torch::toString(dtype) << "\n";
  for (const Leaf& leaf : leaves) text << leaf.str() << "\n";
  for (size_t i = 0; i < nodes.size(); ++i) {
    for (const Scope& scope : scopes) {
      if (scope.first == i) text << "-- " << scope.strategy.str() << "\n";
    }
    text << nodes[i].str() << "\n";
  }
  text << "loss =";
  for (const LossTerm& term : loss) {
    text << " + " << term.weight << " * " << term.kind->name << "(" << values_text(term.in) << ")";
  }
  text << "\n";
  for (const Metric& metric : metrics) {
    text << "metric v" << metric.value << (metric.whole ? "" : ".mean()") << "\n";
  }
  text << training.str();
  return text.str();
}

Net::Net(const Recipe& recipe) {
  for (const Leaf& leaf : recipe.leaves) {
    Tensor tensor;
    if (leaf.role == Leaf::Role::kParameter) {
      tensor = register_parameter(leaf.name(), fresh(leaf, leaf.shape, recipe.dtype), !leaf.frozen);
      if (leaf.hooked) tensor.register_hook([](const Tensor& gradient) { return gradient * 0.5; });
    } else if (leaf.role == Leaf::Role::kBuffer) {
      tensor = register_buffer(leaf.name(), fresh(leaf, leaf.shape, recipe.dtype));
    }
    leaves.push_back(tensor);
  }
}

std::vector<int64_t> Call::sizes(size_t first) const {
  std::vector<int64_t> sizes(node.n.begin() + static_cast<std::ptrdiff_t>(first), node.n.end());
  for (int64_t& size : sizes) {
    if (size == kRows) size = in[0].size(0);
  }
  return sizes;
}

Tensors run_node(const Node& node, const Tensors& values) {
  Call call{node, {}};
  for (int id : node.in) call.in.push_back(values[static_cast<size_t>(id)]);
  if (node.region == Node::Region::kPlain) return node.kind->compute(call);
  const torch::NoGradGuard no_grad;
  return node.kind->compute(call);
}

Tensor run_term(const LossTerm& term, const Tensors& values) {
  const Node none;
  Call call{none, {}};
  for (int id : term.in) call.in.push_back(values[static_cast<size_t>(id)]);
  return term.kind->compute(call)[0] * term.weight;
}

StepOutput run_recipe(const Recipe& recipe, const Net& net, const Batch& batch, int turn,
                      const See& see) {
  Tensors values(static_cast<size_t>(recipe.values));
  size_t next = 0;
  for (size_t i = 0; i < recipe.leaves.size(); ++i) {
    const bool from_batch = recipe.leaves[i].role == Leaf::Role::kBatch;
    values[static_cast<size_t>(recipe.leaves[i].value)] =
        from_batch ? batch[next++] : net.leaves[i];
  }
  std::optional<With> scope;
  for (size_t i = 0; i < recipe.nodes.size(); ++i) {
    for (const Scope& begins : recipe.scopes) {
      if (begins.first != i) continue;
      scope.reset();
      scope.emplace(begins.strategy);
    }
    const Tensors results = run_node(recipe.nodes[i], values);
    for (size_t j = 0; j < recipe.nodes[i].out.size(); ++j) {
      values[static_cast<size_t>(recipe.nodes[i].out[j])] = results[j];
      if (see) see(results[j]);
    }
  }
  Tensor loss;
  for (size_t i = 0; i < recipe.loss.size(); ++i) {
    if (static_cast<int>(i) % recipe.training.turns != turn) continue;
    const Tensor one = run_term(recipe.loss[i], values);
    if (see) see(one);
    loss = loss.defined() ? loss + one : one;
  }
  std::map<std::string, Tensor> metrics;
  for (const Metric& metric : recipe.metrics) {
    const Tensor value = values[static_cast<size_t>(metric.value)].detach();
    // Each trainer's own: a trace knows metrics by name.
    const std::string name = "m" + std::to_string(metric.value) + "." + std::to_string(turn);
    metrics[name] = metric.whole ? value : value.mean();
  }
  return {loss, metrics};
}

Batch make_batch(const Recipe& recipe, int step) {
  Batch batch;
  const std::vector<int64_t>& rows = recipe.training.rows;
  for (const Leaf& leaf : recipe.leaves) {
    if (leaf.role != Leaf::Role::kBatch) continue;
    std::vector<int64_t> shape = leaf.shape;
    shape[0] = rows[static_cast<size_t>(step) % rows.size()];
    batch.push_back(fresh(leaf, shape, recipe.dtype));
  }
  return batch;
}

std::shared_ptr<torch::optim::Optimizer> make_optimizer(const Recipe& recipe, const Net& net) {
  namespace optim = torch::optim;
  const Training& how = recipe.training;
  std::vector<optim::OptimizerParamGroup> groups{optim::OptimizerParamGroup(std::vector<Tensor>())};
  const std::vector<Tensor> all = net.parameters();
  for (size_t i = 0; i < all.size(); ++i) {
    if (how.two_groups && i == all.size() / 2 && i > 0) groups.emplace_back(std::vector<Tensor>());
    groups.back().params().push_back(all[i]);
  }
  const auto with = [&](auto options) -> std::shared_ptr<optim::Optimizer> {
    options.lr(how.lr).weight_decay(how.weight_decay);
    for (size_t i = 0; i < groups.size(); ++i) {
      auto own = std::make_unique<decltype(options)>(options);
      if (i > 0) own->lr(how.lr / 2);
      groups[i].set_options(std::move(own));
    }
    using Options = decltype(options);
    if constexpr (std::is_same_v<Options, optim::SGDOptions>) {
      return std::make_shared<optim::SGD>(groups, options);
    } else if constexpr (std::is_same_v<Options, optim::AdamOptions>) {
      return std::make_shared<optim::Adam>(groups, options);
    } else if constexpr (std::is_same_v<Options, optim::AdamWOptions>) {
      return std::make_shared<optim::AdamW>(groups, options);
    } else if constexpr (std::is_same_v<Options, optim::RMSpropOptions>) {
      return std::make_shared<optim::RMSprop>(groups, options);
    } else {
      return std::make_shared<optim::Adagrad>(groups, options);
    }
  };
  const std::string& name = how.optimizer;
  if (name == "momentum") return with(optim::SGDOptions(how.lr).momentum(0.9));
  if (name == "nesterov") return with(optim::SGDOptions(how.lr).momentum(0.8).nesterov(true));
  if (name == "adam") return with(optim::AdamOptions());
  if (name == "amsgrad") return with(optim::AdamOptions().amsgrad(true));
  if (name == "adamw") return with(optim::AdamWOptions());
  if (name == "rmsprop") return with(optim::RMSpropOptions());
  if (name == "centered") return with(optim::RMSpropOptions().centered(true).momentum(0.5));
  if (name == "adagrad") return with(optim::AdagradOptions());
  return with(optim::SGDOptions(how.lr));
}

}  // namespace epl::fuzz
