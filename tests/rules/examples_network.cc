// Examples of reductions, softmax, losses, normalisations and embeddings.
#include <limits>

#include "base/text.h"
#include "tests/rules/examples.h"

namespace epl::testing {

Examples reduction_examples() {
  at::Tensor empty_rows = reals({4, 7});
  empty_rows[1].fill_(-std::numeric_limits<double>::infinity());
  return {
      {"aten::sum", {reals({4, 7})}},
      {"aten::sum", {wholes(9, {7})}},
      {"aten::sum.dim_IntList", {reals({4, 7, 3}), ints({1}), false}},
      {"aten::sum.dim_IntList", {reals({4, 7, 3}), ints({-1, 0}), true}},
      {"aten::sum.dim_IntList", {reals({4, 7}), c10::IValue(), false}},
      {"aten::count_nonzero", {wholes(3, {4, 7}), c10::IValue()}},
      {"aten::count_nonzero", {wholes(3, {4, 7}), 0}},
      {"aten::count_nonzero.dim_IntList", {wholes(3, {4, 7, 3}), ints({0, 2})}},
      {"aten::mean", {reals({4, 7})}},
      {"aten::mean.dim", {reals({4, 7, 3}), ints({1}), false}},
      {"aten::mean.dim", {reals({4, 7, 3}), ints({-1, 0}), true}},
      {"aten::amax", {reals({4, 7, 3}), ints({1}), true}},
      {"aten::amax", {wholes(9, {4, 7}), ints({}), false}},
      {"aten::amin", {reals({4, 7, 3}), ints({0, 1}), false}},
      {"aten::max", {reals({4, 7})}},
      {"aten::max", {truths({4, 7})}},
      {"aten::min", {reals({4, 7})}},
      {"aten::logsumexp", {reals({4, 7}) * 300, ints({1}), false}},
      {"aten::logsumexp", {empty_rows, ints({1}), true}},
      {"aten::norm.ScalarOpt_dim", {reals({4, 7}), 2, ints({1}), true}},
      {"aten::linalg_vector_norm", {reals({4, 7}), 2, ints({0}), false}},
      {"aten::var.correction", {reals({4, 7}), ints({1}), 1, true}},
      {"aten::std.correction", {reals({4, 7}), ints({1}), 1, true}},
      {"aten::var_mean.correction", {reals({4, 7}), ints({1}), 0, false}},
      {"aten::std_mean.correction", {reals({4, 7}), ints({1}), 0, false}},
      {"aten::prod.dim_int", {reals({4, 7}), 1}},
      {"aten::any.dim", {truths({4, 7}), 1}},
      {"aten::all.dim", {truths({4, 7}), 0, true}},
  };
}

Examples softmax_examples() {
  const at::Tensor logits = reals({4, 7});
  const at::Tensor probabilities = at::softmax(logits, 1);
  const at::Tensor spread = reals({2, 5, 3}) * 300;
  const at::Tensor cube = reals({3, 4, 5});
  const auto half = at::kBFloat16;
  return {
      {"aten::_softmax", {logits, 1, false}},
      {"aten::_softmax", {spread, -2, false}},
      {"aten::_softmax", {reals({4, 7}).to(half), 1, false}},
      {"aten::_log_softmax", {logits, 1, false}},
      {"aten::_log_softmax", {spread, 1, false}},
      {"aten::_softmax_backward_data", {reals({3, 4, 5}), at::softmax(cube, 2), 2, at::kDouble}},
      {"aten::_softmax_backward_data", {reals({3, 4, 5}), at::softmax(cube, 1), 1, at::kDouble}},
      {"aten::_log_softmax_backward_data",
       {reals({3, 4, 5}), at::log_softmax(cube, 2), 2, at::kDouble}},
      {"aten::_softmax_backward_data", {reals({4, 7}), probabilities, 1, at::kDouble}},
      {"aten::_log_softmax_backward_data", {reals({4, 7}), probabilities.log(), 1, at::kDouble}},
      {"aten::_log_softmax_backward_data",
       {reals({4, 7}), at::log_softmax(logits, 0), 0, at::kDouble}},
  };
}

Examples class_loss_examples() {
  Examples examples;
  const at::Tensor logits = reals({6, 7});
  at::Tensor target = wholes(7, {6});
  target[2] = -100;
  target[4] = 5;
  const at::Tensor weight = positives({7});
  for (int64_t reduction : {0, 1, 2}) {
    const at::Tensor gradient = reduction == 0 ? reals({6}) : reals({});
    examples.push_back(
        {"aten::nll_loss_forward", {logits, target, c10::IValue(), reduction, -100}});
    examples.push_back(
        {"aten::nll_loss_forward", {logits, target.abs() % 7, weight, reduction, 5}});
    for (const c10::IValue& weights : {c10::IValue(), c10::IValue(weight)}) {
      examples.push_back({"aten::nll_loss_backward",
                          {gradient, logits, target, weights, reduction, -100, positives({})}});
    }
    const at::Tensor places = wholes(5, {3, 2, 4});
    examples.push_back({"aten::nll_loss2d_forward",
                        {reals({3, 5, 2, 4}), places, c10::IValue(), reduction, -100}});
    examples.push_back({"aten::nll_loss2d_backward",
                        {reduction == 0 ? reals({3, 2, 4}) : reals({}), reals({3, 5, 2, 4}), places,
                         positives({5}), reduction, -100, positives({})}});
  }
  examples.push_back(
      {"aten::nll_loss_forward", {reals({7}), wholes(7, {}), c10::IValue(), 1, -100}});
  examples.push_back({"aten::nll_loss_backward",
                      {reals({}), reals({7}), wholes(7, {}), weight, 1, -100, positives({})}});
  return examples;
}

Examples pair_loss_examples() {
  Examples examples;
  const at::Tensor x = positives({4, 7}) * 0.9;
  const at::Tensor target = positives({4, 7}) * 0.9;
  const c10::IValue none;
  for (int64_t reduction : {0, 1, 2}) {
    const at::Tensor gradient = reduction == 0 ? reals({4, 7}) : reals({});
    const auto add = [&](const char* op, std::vector<c10::IValue> more) {
      more.insert(more.begin(), {x, target});
      examples.push_back({concat("aten::", op), more});
    };
    const auto add_backward = [&](const char* op, std::vector<c10::IValue> more) {
      more.insert(more.begin(), {gradient, x, target});
      examples.push_back({concat("aten::", op, "_backward"), more});
    };
    for (const char* op : {"mse_loss", "soft_margin_loss"}) {
      add(op, {reduction});
      add_backward(op, {reduction});
    }
    for (const char* op : {"smooth_l1_loss", "huber_loss"}) {
      add(op, {reduction, 0.3});
      add_backward(op, {reduction, 0.3});
    }
    add("binary_cross_entropy", {positives({4, 7}), reduction});
    add_backward("binary_cross_entropy", {none, reduction});
    add("binary_cross_entropy_with_logits", {none, positives({7}), reduction});
  }
  return examples;
}

Examples norm_examples() {
  const at::Tensor x = reals({4, 3, 6});
  const at::Tensor weight = reals({6});
  const auto forward = at::native_layer_norm(x, {6}, weight, reals({6}), 1e-5);
  const at::Tensor mean = std::get<1>(forward);
  const at::Tensor rstd = std::get<2>(forward);
  const auto mask = [](bool x, bool w, bool b) { return c10::List<bool>({x, w, b}); };
  return {
      {"aten::native_layer_norm", {x, ints({6}), weight, reals({6}), 1e-5}},
      {"aten::native_layer_norm", {x, ints({3, 6}), c10::IValue(), c10::IValue(), 1e-5}},
      {"aten::native_layer_norm_backward",
       {reals({4, 3, 6}), x, ints({6}), mean, rstd, weight, reals({6}), mask(true, true, true)}},
      {"aten::native_layer_norm_backward",
       {reals({4, 3, 6}), x, ints({6}), mean, rstd, weight, reals({6}), mask(false, true, true)}},
      {"aten::native_layer_norm_backward",
       {reals({4, 3, 6}), x, ints({6}), mean, rstd, c10::IValue(), c10::IValue(),
        mask(true, false, false)}},
  };
}

Examples embedding_examples() {
  return {
      {"aten::embedding", {reals({7, 5}), wholes(7, {4, 3})}},
      {"aten::embedding", {reals({6, 4}), wholes(6, {})}},
      {"aten::embedding_dense_backward", {reals({4, 3, 5}), wholes(7, {4, 3}), 7, -1, false}},
      {"aten::embedding_dense_backward", {reals({9, 5}), wholes(7, {9}), 7, 2, false}},
      {"aten::embedding_dense_backward", {reals({9, 5}), wholes(7, {9}), 7, -1, true}},
  };
}

Examples bag_examples() {
  Examples examples;
  const at::Tensor table = reals({7, 4});
  const at::Tensor indices = wholes(7, {11});
  const at::Tensor offsets = at::tensor({0, 3, 3, 8, 9}, at::kLong);  // the second bag is empty
  const c10::IValue none;
  const auto add = [&](int64_t mode, const c10::IValue& weights, int64_t padding, bool by_count) {
    const c10::optional<at::Tensor> each =
        weights.isNone() ? c10::nullopt : c10::make_optional(weights.toTensor());
    const auto [made, bag_of_each, sizes, largest] =
        at::_embedding_bag(table, indices, offsets, by_count, mode, false, each, false, padding);
    examples.push_back({"aten::_embedding_bag",
                        {table, indices, offsets, by_count, mode, false, weights, false, padding}});
    examples.push_back({"aten::_embedding_bag_dense_backward",
                        {reals(made.sizes()), indices, bag_of_each.slice(0, 0, 11), sizes, largest,
                         7, by_count, mode, weights, padding}});
    examples.push_back({"aten::_embedding_bag_backward",
                        {reals(made.sizes()), indices, offsets, bag_of_each, sizes, largest, 7,
                         by_count, mode, false, weights, padding}});
  };
  for (int64_t mode : {0, 1, 2}) {
    add(mode, none, -1, false);
    add(mode, none, 2, false);
  }
  add(1, none, -1, /*by_count=*/true);
  add(0, reals({11}), -1, false);
  const at::Tensor bag_of_each = at::tensor({0, 0, 0, 2, 2, 2, 2, 2, 3, 4, 4}, at::kLong);
  examples.push_back({"aten::_embedding_bag_per_sample_weights_backward",
                      {reals({5, 4}), table, indices, offsets, bag_of_each, 0, 2}});
  return examples;
}

}  // namespace epl::testing
