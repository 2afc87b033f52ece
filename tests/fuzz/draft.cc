#include "tests/fuzz/draft.h"

#include <algorithm>
#include <stdexcept>

namespace epl::fuzz {

Draft::Draft(uint64_t seed, const DraftOptions& options) : dice(seed), options_(options) {
  recipe_.seed = seed;
  recipe_.dtype = options.dtype;
  torch::manual_seed(seed);
}

const Value& Draft::at(int id) const {
  return *std::find_if(values_.begin(), values_.end(),
                       [&](const Value& value) { return value.id == id; });
}

const Value* Draft::find(const Test& test) {
  std::vector<const Value*> fitting;
  for (const Value& value : values_) {
    if (test(value)) fitting.push_back(&value);
  }
  if (fitting.empty()) return nullptr;
  // Later values rather, so that programs grow deep.
  const auto count = static_cast<int64_t>(fitting.size());
  const int64_t one = dice.below(count), other = dice.below(count);
  return fitting[static_cast<size_t>(dice.chance(0.6) ? std::max(one, other) : one)];
}

const Value* Draft::floats(int64_t min_dim, int64_t max_dim) {
  return find([&](const Value& value) {
    return value.floating() && value.dim() >= min_dim && value.dim() <= max_dim;
  });
}

const Value* Draft::with_dim(int64_t& d, int64_t min_size) {
  const auto touchable = [&](const Value& value, int64_t i) { return value.size(i) >= min_size; };
  const Value* x = find([&](const Value& value) {
    if (!value.floating()) return false;
    for (int64_t i = value.first(); i < value.dim(); ++i) {
      if (touchable(value, i)) return true;
    }
    return false;
  });
  if (x == nullptr) return nullptr;
  do {
    d = free_dim(*x);
  } while (!touchable(*x, d));
  return x;
}

const Value* Draft::with_free_dims(int64_t count) {
  return find(
      [&](const Value& value) { return value.floating() && value.dim() - value.first() >= count; });
}

std::vector<int64_t> Draft::sizes(const Value& value) const {
  std::vector<int64_t> sizes = value.tensor.sizes().vec();
  if (value.rows) sizes[0] = kRows;
  return sizes;
}

int Draft::add_leaf(Leaf leaf) {
  leaf.value = recipe_.values++;
  std::vector<int64_t> shape = leaf.shape;
  Value value;
  value.id = leaf.value;
  value.leaf = true;
  value.range = leaf.range;
  value.rows = leaf.role == Leaf::Role::kBatch;
  if (value.rows) shape[0] = rows_;
  value.tensor = leaf.range > 0 ? torch::randint(leaf.range, shape, torch::kLong)
                                : (torch::randn(shape) * leaf.scale).to(options_.dtype);
  if (leaf.role == Leaf::Role::kParameter) value.tensor.requires_grad_(!leaf.frozen);
  values_.push_back(value);
  recipe_.leaves.push_back(leaf);
  return leaf.value;
}

int Draft::parameter(std::vector<int64_t> shape, double scale) {
  Leaf leaf;
  leaf.shape = std::move(shape);
  leaf.scale = scale;
  leaf.frozen = dice.chance(0.08);
  leaf.hooked = !leaf.frozen && may(Group::kLeaves) && dice.chance(0.2);
  return add_leaf(leaf);
}

int Draft::buffer(std::vector<int64_t> shape) {
  Leaf leaf;
  leaf.role = Leaf::Role::kBuffer;
  leaf.shape = std::move(shape);
  leaf.scale = 0.5;
  return add_leaf(leaf);
}

void Draft::add_batch() {
  // No size of another dim, so that rows are not taken for something else.
  rows_ =
      options_.row_parts * dice.between(6 / options_.row_parts + 1, 12 / options_.row_parts + 1);
  const int64_t floats = dice.between(1, 2);
  for (int64_t i = 0; i < floats; ++i) {
    Leaf leaf;
    leaf.role = Leaf::Role::kBatch;
    leaf.shape = {kRows};
    const int64_t dims = dice.between(1, 3);
    for (int64_t d = 0; d < dims; ++d) leaf.shape.push_back(dice.between(2, 5));
    add_leaf(leaf);
  }
  Leaf labels;
  labels.role = Leaf::Role::kBatch;
  labels.shape = {kRows};
  labels.range = dice.between(2, 3);
  if (dice.chance(0.6)) add_leaf(labels);
  labels.shape = {kRows, dice.between(2, 4)};
  labels.range = dice.between(3, 6);
  if (dice.chance(0.3)) add_leaf(labels);
}

bool Draft::sensible(const Tensor& tensor) const {
  if (!tensor.defined() || tensor.numel() == 0 || tensor.numel() > 4000 || tensor.dim() > 5) {
    return false;
  }
  if (!tensor.is_floating_point()) return true;
  return tensor.detach().abs().max().item<double>() < 50 &&
         tensor.detach().isfinite().all().item<bool>();
}

bool Draft::take(Node& node) {
  Tensors inputs(static_cast<size_t>(recipe_.values));
  for (const Value& value : values_) inputs[static_cast<size_t>(value.id)] = value.tensor;
  Tensors results;
  try {
    results = run_node(node, inputs);
  } catch (const std::exception&) {
    return false;
  }
  if (results.size() > 3) results.resize(3);
  if (!std::all_of(results.begin(), results.end(), [&](const Tensor& t) { return sensible(t); })) {
    return false;
  }
  bool rows = false;
  for (int id : node.in) rows = rows || at(id).rows;
  for (const Tensor& tensor : results) {
    Value value;
    value.id = recipe_.values++;
    value.tensor = tensor;
    value.range = node.range;
    value.rows = rows && tensor.dim() > 0 && tensor.size(0) == rows_;
    node.out.push_back(value.id);
    values_.push_back(value);
  }
  recipe_.nodes.push_back(node);
  return true;
}

bool Draft::try_node(const Kind& kind) {
  if (!may(kind.group)) return false;
  const size_t leaves = recipe_.leaves.size(), values = values_.size();
  const int ids = recipe_.values;
  Node node;
  node.kind = &kind;
  if (dice.chance(0.04)) node.region = Node::Region::kNoGrad;
  if (kind.propose(*this, node) && take(node)) return true;
  recipe_.leaves.resize(leaves);
  values_.resize(values);
  recipe_.values = ids;
  return false;
}

void Draft::draw_loss() {
  const Family& family = options_.sums ? sum_losses() : mean_losses();
  const int64_t wanted = dice.between(1, 3);
  for (int tries = 0; tries < 60 && static_cast<int64_t>(recipe_.loss.size()) < wanted; ++tries) {
    const Kind& kind = dice.pick(family);
    Node node;
    if (!kind.propose(*this, node)) continue;
    if (options_.sums && !at(node.in[0]).rows) continue;  // a sum of rows alone
    const double weight = recipe_.loss.empty() ? 1 : dice.real(0.1, 1);
    recipe_.loss.push_back({&kind, node.in, weight});
  }
  if (recipe_.loss.empty()) throw std::runtime_error("no value to make a loss of");
}

void Draft::draw_metrics() {
  const int64_t count = dice.between(0, 2);
  for (int64_t i = 0; i < count; ++i) {
    const Value* value = find([](const Value& any) { return any.floating(); });
    const bool whole = options_.metrics_of_rows && dice.chance(0.5);
    recipe_.metrics.push_back({value->id, whole});
  }
}

void Draft::draw_training() {
  static const std::vector<std::string> kOptimizers = {
      "sgd", "momentum", "nesterov", "adam", "amsgrad", "adamw", "rmsprop", "centered", "adagrad"};
  Training& how = recipe_.training;
  how.optimizer = dice.pick(kOptimizers);
  how.lr = dice.pick(std::vector<double>{0.1, 0.03, 0.01});
  if (dice.chance(0.3)) how.weight_decay = 0.02;
  how.two_groups = dice.chance(0.25);
  if (dice.chance(0.2)) how.clip_norm = dice.pick(std::vector<double>{0.05, 0.5});
  if (dice.chance(0.1)) how.clip_value = 0.05;
  if (may(Group::kLeaves) && recipe_.loss.size() > 1 && dice.chance(0.4)) how.turns = 2;
  how.rows = {rows_};
  if (options_.other_rows && dice.chance(0.25))
    how.rows = {rows_, rows_ - options_.row_parts, rows_};
  std::vector<int> parameters;
  for (const Leaf& leaf : recipe_.leaves) {
    if (leaf.role == Leaf::Role::kParameter) parameters.push_back(leaf.value);
  }
  if (dice.chance(0.2)) {
    how.events.push_back({Event::What::kLearningRate, options_.steps - 1, 0, 0.5});
  }
  if (dice.chance(0.2) && !parameters.empty()) {
    const Event freeze{Event::What::kFreeze, 1, dice.pick(parameters), 1};
    how.events.push_back(freeze);
    if (dice.chance(0.5)) how.events.push_back({Event::What::kThaw, 2, freeze.value, 1});
  }
}

Recipe Draft::make() {
  add_batch();
  if (dice.chance(0.3)) buffer({dice.between(2, 5)});
  const int64_t wanted = dice.between(4, options_.max_nodes);
  for (int tries = 0; tries < 20 && recipe_.nodes.empty(); ++tries) {
    try_node(families()[3][static_cast<size_t>(dice.below(3))]);
  }
  for (int tries = 0; tries < 400 && static_cast<int64_t>(recipe_.nodes.size()) < wanted; ++tries) {
    try_node(dice.pick(dice.pick(families())));
  }
  draw_loss();
  draw_metrics();
  draw_training();
  return recipe_;
}

Recipe make_recipe(uint64_t seed, const DraftOptions& options) {
  return Draft(seed, options).make();
}

}  // namespace epl::fuzz
