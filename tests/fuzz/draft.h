// Makes random programs: operators are tried on tensors while they are drawn, so that shapes are
// always known, and what LibTorch refuses is not taken.
#pragma once

#include <functional>
#include <random>
#include <set>
#include <vector>

#include "tests/fuzz/kinds.h"
#include "tests/fuzz/recipe.h"

namespace epl::fuzz {

class Dice {
 public:
  explicit Dice(uint64_t seed) : engine_(seed * 0x9E3779B97F4A7C15ull + 1) {}
  int64_t below(int64_t count) {
    return static_cast<int64_t>(engine_() % static_cast<uint64_t>(count));
  }
  int64_t between(int64_t low, int64_t high) { return low + below(high - low + 1); }  // inclusive
  bool chance(double share) { return static_cast<double>(engine_() % 10000) < share * 10000; }
  double real(double low, double high) {
    return low + (high - low) * static_cast<double>(below(1001)) / 1000;
  }
  template <typename T>
  const T& pick(const std::vector<T>& from) {
    return from[static_cast<size_t>(below(static_cast<int64_t>(from.size())))];
  }

 private:
  std::mt19937_64 engine_;  // the same everywhere, unlike the distributions of the library
};

struct DraftOptions {
  std::set<Group> groups = {Group::kApart};
  torch::ScalarType dtype = torch::kFloat;
  int steps = 3;
  int64_t row_parts = 1;  // rows are a multiple of this
  bool sums = false;      // losses that are sums over rows
  bool metrics_of_rows = false;
  bool other_rows = false;  // a step may have another number of rows
  int max_nodes = 18;
};

// Throws where no program that trains came out.
Recipe make_recipe(uint64_t seed, const DraftOptions& options);

struct Value {
  int id = 0;
  Tensor tensor;
  int64_t range = 0;
  bool rows = false;  // its first dim is the batch's rows
  bool leaf = false;
  bool floating() const { return tensor.is_floating_point(); }
  bool boolean() const { return tensor.scalar_type() == torch::kBool; }
  bool integer() const { return !floating() && !boolean(); }
  int64_t dim() const { return tensor.dim(); }
  int64_t size(int64_t d) const { return tensor.size(d); }
  int64_t first() const { return rows ? 1 : 0; }  // the first dim that operators may touch
};

class Draft {
 public:
  Draft(uint64_t seed, const DraftOptions& options);
  Recipe make();

  Dice dice;
  using Test = std::function<bool(const Value&)>;
  // A value that fits, later ones rather; null where there is none.
  const Value* find(const Test& test);
  const Value* floats(int64_t min_dim = 0, int64_t max_dim = 5);
  // A floating value with a dim that an operator may touch; `d` is that dim.
  const Value* with_dim(int64_t& d, int64_t min_size = 1);
  // As `with_dim`, and so many dims that may be touched.
  const Value* with_free_dims(int64_t count);
  int64_t free_dim(const Value& value) { return dice.between(value.first(), value.dim() - 1); }
  bool may(Group group) const { return options_.groups.count(group) > 0; }
  const Value& at(int id) const;
  int parameter(std::vector<int64_t> shape, double scale);
  int buffer(std::vector<int64_t> shape);
  // kRows for the first dim of a value that has rows, then its other sizes.
  std::vector<int64_t> sizes(const Value& value) const;
  int64_t rows() const { return rows_; }

 private:
  int add_leaf(Leaf leaf);
  void add_batch();
  bool try_node(const Kind& kind);
  bool take(Node& node);
  bool sensible(const Tensor& tensor) const;
  void draw_loss();
  void draw_metrics();
  void draw_training();

  DraftOptions options_;
  Recipe recipe_;
  std::vector<Value> values_;
  int64_t rows_ = 0;
};

}  // namespace epl::fuzz
