// Examples of what reads and writes by numbers, of gating, joins and random operators.
#include "tests/rules/examples.h"

namespace epl::testing {
namespace {

c10::List<at::Tensor> list(const std::vector<at::Tensor>& tensors) {
  return c10::List<at::Tensor>(tensors);
}

c10::IValue indices(const std::vector<at::Tensor>& tensors) {
  c10::List<c10::optional<at::Tensor>> result;
  for (const auto& tensor : tensors) {
    result.push_back(tensor.defined() ? c10::make_optional(tensor) : c10::nullopt);
  }
  return result;
}

// Numbers without repetitions in each row: what is written twice depends on the order.
at::Tensor places(int64_t rows, int64_t columns, int64_t below) {
  return reals({rows, below}).argsort(int64_t{1}).slice(1, 0, columns);
}

}  // namespace

Examples gather_examples() {
  return {
      {"aten::gather", {reals({4, 7}), 1, wholes(7, {4, 3})}},
      {"aten::gather", {reals({4, 7}), -2, wholes(4, {6, 7})}},
      {"aten::gather", {reals({6, 7}), 1, wholes(7, {4, 3})}},
      {"aten::scatter.src", {reals({4, 7}), 1, places(4, 3, 7), reals({4, 3})}},
      {"aten::scatter.src", {reals({5, 7}), 1, places(4, 3, 7), reals({4, 3})}},
      {"aten::scatter.value", {reals({4, 7}), 1, wholes(7, {4, 1}), 1}},
      {"aten::scatter.value", {wholes(9, {4, 7, 3}), 1, wholes(7, {4, 2, 3}), 0}},
      {"aten::scatter_add", {reals({4, 7}), 1, wholes(7, {4, 9}), reals({4, 9})}},
      {"aten::scatter_add", {reals({7, 4}), 0, wholes(7, {9, 4}), reals({9, 4})}},
      {"aten::scatter_reduce.two",
       {reals({4, 7}), 1, wholes(7, {4, 9}), reals({4, 9}), "amax", false}},
      {"aten::scatter_reduce.two", {reals({7, 4}), 0, wholes(7, {9, 4}), reals({9, 4}), "mean"}},
      {"aten::index_fill.int_Scalar", {reals({4, 7}), 1, wholes(7, {3}), 2.5}},
      {"aten::index_select", {reals({4, 7, 3}), 1, wholes(7, {5})}},
      {"aten::index_select", {reals({4, 7}), 0, wholes(4, {})}},
      {"aten::index_add", {reals({4, 7}), 1, wholes(7, {9}), reals({4, 9}), 0.5}},
      {"aten::index_copy", {reals({4, 7}), 1, places(1, 3, 7).view({3}), reals({4, 3})}},
  };
}

Examples index_examples() {
  const at::Tensor none;
  return {
      {"aten::index.Tensor", {reals({7, 4}), indices({wholes(7, {5})})}},
      {"aten::index.Tensor", {reals({7, 4}), indices({wholes(14, {9}) - 7})}},
      {"aten::index.Tensor", {reals({3, 7, 4}), indices({none, wholes(7, {5, 2})})}},
      {"aten::index.Tensor", {reals({6, 7, 4}), indices({wholes(6, {5}), wholes(7, {5})})}},
      {"aten::index.Tensor", {reals({6, 7, 4}), indices({wholes(6, {5, 1}), wholes(7, {3})})}},
      {"aten::index.Tensor", {reals({6, 7, 4}), indices({wholes(6, {5}), none, wholes(4, {5})})}},
      {"aten::index_put",
       {reals({7, 4}), indices({places(1, 5, 7).view({5})}), reals({5, 4}), false}},
      {"aten::index_put", {reals({7, 4}), indices({wholes(7, {9})}), reals({9, 4}), true}},
      {"aten::index_put", {reals({7, 4}), indices({wholes(14, {9}) - 7}), reals({9, 4}), true}},
      {"aten::index_put", {reals({3, 7}), indices({none, wholes(7, {9})}), reals({3, 1}), true}},
      {"aten::_index_put_impl",
       {reals({6, 7, 4}), indices({wholes(6, {5}), wholes(7, {5})}), reals({5, 4}), true, true}},
  };
}

Examples gating_examples() {
  Examples examples;
  const at::Tensor ties = wholes(3, {4, 9});
  const auto add = [&](const char* ops, const std::vector<c10::IValue>& arguments) {
    std::istringstream names(ops);
    for (std::string name; names >> name;) examples.push_back({"aten::" + name, arguments});
  };
  add("argmax argmin max.dim min.dim", {reals({4, 7, 3}), 1, false});
  add("argmax argmin max.dim min.dim", {ties, -1, true});
  add("argmax argmin max.dim min.dim", {ties, 0, false});
  add("argmax", {reals({7})});
  add("argmax", {reals({4, 7})});
  add("topk", {reals({4, 7}), 2, 1});
  add("sort", {reals({4, 7}), 1, true});
  add("sort.stable", {ties, true, 1, false});
  add("cumsum", {reals({4, 7}), 0});
  add("cumsum", {ties, 1});
  add("cumprod", {reals({4, 7}), 1});
  add("logcumsumexp", {reals({4, 7}), 1});
  add("cummax cummin", {ties, 1});
  add("kthvalue", {reals({4, 7}), 3, 1, true});
  add("median.dim mode", {reals({4, 7}), 0});
  return examples;
}

Examples join_examples() {
  const c10::IValue split = ints({2, 5});
  return {
      {"aten::cat", {list({reals({4, 3}), reals({4, 5})}), 1}},
      {"aten::cat", {list({reals({0}), reals({4, 5}), reals({2, 5})}), 0}},
      {"aten::stack", {list({reals({4, 3}), reals({4, 3})}), 1}},
      {"aten::split.Tensor", {reals({4, 7}), 3, 1}},
      {"aten::split_with_sizes", {reals({4, 7}), split, -1}},
      {"aten::unsafe_split.Tensor", {reals({4, 7}), 3, 1}},
      {"aten::unsafe_split_with_sizes", {reals({4, 7}), split, 1}},
      {"aten::unbind.int", {reals({4, 3, 5}), 1}},
      {"aten::slice_backward", {reals({4, 3}), ints({4, 7}), 1, 1, 7, 2}},
      {"aten::select_backward", {reals({4, 5}), ints({4, 7, 5}), 1, 3}},
      {"aten::slice_scatter", {reals({4, 7}), reals({4, 2}), 1, 2, 4}},
      {"aten::select_scatter", {reals({4, 7, 3}), reals({4, 3}), 1, 2}},
      {"aten::diagonal", {reals({4, 6, 5, 6}), 1, 1, -1}},
      {"aten::diagonal_backward", {reals({4, 6}), ints({6, 4, 6}), 0, 0, 2}},
      {"aten::unfold", {reals({4, 7, 3}), 1, 3, 2}},
      {"aten::unfold_backward", {reals({4, 3, 5, 3}), ints({4, 7, 5}), 1, 3, 2}},
      {"aten::repeat", {reals({4, 5}), ints({2, 1, 3})}},
      {"aten::flip", {reals({4, 5, 3}), ints({1})}},
      {"aten::roll", {reals({4, 5}), ints({2}), ints({1})}},
      {"aten::tril", {reals({4, 5, 6})}},
      {"aten::triu", {reals({4, 5, 6}), 1}},
      {"aten::constant_pad_nd", {reals({4, 5, 3}), ints({1, 2, 0, 0}), 0}},
      {"aten::constant_pad_nd", {reals({4, 5, 3}), ints({1, 2}), 2.5}},
      {"aten::glu", {reals({4, 6}), 1}},
      {"aten::glu_backward", {reals({4, 3}), reals({4, 6}), 1}},
  };
}

Examples random_examples() {
  const c10::IValue sizes = ints({4, 7});
  return {
      {"aten::native_dropout", {reals({4, 7}), 0.5, true}},
      {"aten::native_dropout_backward", {reals({4, 7}), truths({4, 7}), 2.0}},
      {"aten::bernoulli", {positives({4, 7})}},
      {"aten::bernoulli.p", {reals({4, 7}), 0.5}},
      {"aten::bernoulli.Tensor", {reals({4, 7}), positives({4, 7})}},
      {"aten::rand_like", {reals({4, 7})}},
      {"aten::randn_like", {reals({4, 7})}},
      {"aten::randint_like", {reals({4, 7}), 9}},
      {"aten::uniform", {reals({4, 7})}},
      {"aten::normal_functional", {reals({4, 7})}},
      {"aten::exponential", {reals({4, 7})}},
      {"aten::poisson", {positives({4, 7})}},
      {"aten::binomial", {positives({4, 7}) * 9, positives({4, 7})}},
      {"aten::_standard_gamma", {positives({4, 7})}},
      {"aten::_sample_dirichlet", {positives({4, 7})}},
      {"aten::multinomial", {positives({4, 7}), 3}},
      {"aten::rrelu_with_noise", {reals({4, 7}), reals({4, 7}), 0.1, 0.3, true}},
      {"aten::rand", {sizes}},
      {"aten::randn", {sizes}},
      {"aten::randint", {9, sizes}},
      {"aten::randint.low", {2, 9, sizes}},
  };
}

}  // namespace epl::testing
