// A random program as data: what it reads, its operators in order, its loss, and how it is trained.
//
// A Recipe is made from a seed (draft.h), runs as an ordinary step function over an ordinary module
// (Net), prints as text, and can be made smaller (shrink.cc). Values have numbers: leaves first,
// then what the nodes give.
//
//   p0 = parameter float [4, 3] * 0.5
//   x1 = batch float [rows, 3]
//   v2 = linear(x1, p0)
//   v3 = narrow(v2; 1, 0, 2)
//   loss = 1 * square_mean(v3)
#pragma once

#include <epl/epl.h>

#include <functional>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

namespace epl::fuzz {

using torch::Tensor;
using Tensors = std::vector<Tensor>;

// Stands in sizes for the rows of the batch at hand.
constexpr int64_t kRows = -1000;

struct Kind;

struct Leaf {
  enum class Role : uint8_t { kParameter, kBuffer, kBatch };

  int value = 0;
  Role role = Role::kParameter;
  std::vector<int64_t> shape;  // may begin with kRows
  int64_t range = 0;           // integers in [0, range); 0: floating point
  double scale = 1;
  bool frozen = false;  // needs no gradient
  bool hooked = false;  // a hook halves its gradient
  std::string name() const;
  std::string str() const;
};

struct Node {
  enum class Region : uint8_t { kPlain, kNoGrad };

  const Kind* kind = nullptr;
  std::vector<int> in;
  std::vector<int64_t> n;
  std::vector<double> f;
  std::vector<int> out;
  int64_t range = 0;  // of integers that it gives
  Region region = Region::kPlain;
  std::string str() const;
};

struct LossTerm {
  const Kind* kind = nullptr;
  std::vector<int> in;
  double weight = 1;
};

struct Metric {
  int value = 0;
  bool whole = false;  // as it is, instead of its mean
};

// What the user's loop does before a step.
struct Event {
  enum class What : uint8_t { kLearningRate, kFreeze, kThaw };

  What what = What::kLearningRate;
  int step = 0;
  int value = 0;  // the parameter
  double factor = 1;
  std::string str() const;
};

struct Training {
  std::string optimizer = "sgd";
  double lr = 0.05;
  double weight_decay = 0;
  bool two_groups = false;
  double clip_norm = 0;
  double clip_value = 0;
  std::vector<int64_t> rows;  // of each step
  std::vector<Event> events;
  int turns = 1;  // trainers that share the optimizer, each with a part of the loss
  std::string str() const;
};

// Where scopes begin: nodes from `first` on stand in the scope, until the next one.
struct Scope {
  size_t first = 0;
  Strategy strategy;
};

struct Recipe {
  uint64_t seed = 0;
  torch::ScalarType dtype = torch::kFloat;
  std::vector<Leaf> leaves;
  std::vector<Node> nodes;
  std::vector<LossTerm> loss;
  std::vector<Metric> metrics;
  Training training;
  std::vector<Scope> scopes;
  int values = 0;

  std::string str() const;
};

// The module of a recipe: its parameters and buffers, by the names of the leaves.
struct Net : torch::nn::Module {
  explicit Net(const Recipe& recipe);
  std::vector<Tensor> leaves;  // by leaf; undefined for the batch
};

// One call of a node.
struct Call {
  const Node& node;
  Tensors in;

  const Tensor& x(size_t i = 0) const { return in[i]; }
  int64_t n(size_t i) const { return node.n[i]; }
  double f(size_t i = 0) const { return node.f[i]; }
  // Integers from `first` on as sizes: kRows becomes the rows of input 0.
  std::vector<int64_t> sizes(size_t first = 0) const;
};

Tensors run_node(const Node& node, const Tensors& values);
Tensor run_term(const LossTerm& term, const Tensors& values);
// `see` is shown each value that a node or a term of the loss gives.
using See = std::function<void(const Tensor& value)>;
StepOutput run_recipe(const Recipe& recipe, const Net& net, const Batch& batch, int turn = 0,
                      const See& see = nullptr);

Batch make_batch(const Recipe& recipe, int step);
std::shared_ptr<torch::optim::Optimizer> make_optimizer(const Recipe& recipe, const Net& net);

}  // namespace epl::fuzz
