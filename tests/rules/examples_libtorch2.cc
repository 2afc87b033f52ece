// Examples of operators that LibTorch 2 has added: attention, and what PReLU becomes.
#include <limits>

#include "config/libtorch.h"
#include "tests/rules/examples.h"

namespace epl::testing {

#if EPL_TORCH_AT_LEAST(2, 5)

namespace {

struct Asked {
  at::Tensor query, key, value;
  bool causal = false;
  c10::IValue mask = {};
  c10::IValue scale = {};
};

void add(Examples& examples, const Asked& asked) {
  const c10::optional<at::Tensor> mask =
      asked.mask.isNone() ? c10::nullopt : c10::make_optional(asked.mask.toTensor());
  const c10::optional<double> scale =
      asked.scale.isNone() ? c10::nullopt : c10::make_optional(asked.scale.toDouble());
  const auto [out, sums] = at::_scaled_dot_product_flash_attention_for_cpu(
      asked.query, asked.key, asked.value, 0, asked.causal, mask, scale);
  examples.push_back(
      {"aten::_scaled_dot_product_flash_attention_for_cpu",
       {asked.query, asked.key, asked.value, 0.0, asked.causal, asked.mask, asked.scale}});
  examples.push_back({"aten::_scaled_dot_product_flash_attention_for_cpu_backward",
                      {reals(out.sizes()), asked.query, asked.key, asked.value, out, sums, 0.0,
                       asked.causal, asked.mask, asked.scale}});
}

}  // namespace

Examples libtorch2_examples() {
  Examples examples;
  // As most programs have them: heads behind the rows in memory.
  const auto by_head = [](int64_t length) { return reals({3, length, 4, 8}).transpose(1, 2); };
  at::Tensor padded = at::zeros({3, 1, 1, 7}, at::kDouble);
  padded[1].slice(-1, 4).fill_(-std::numeric_limits<double>::infinity());
  add(examples, {by_head(5), by_head(5), by_head(5), /*causal=*/true});
  add(examples, {reals({3, 4, 5, 8}), reals({3, 4, 7, 8}), reals({3, 4, 7, 8})});
  add(examples, {by_head(5), by_head(7), by_head(7), false, reals({5, 7})});
  add(examples, {by_head(5), by_head(7), by_head(7), false, reals({3, 4, 5, 7}), 0.5});
  add(examples, {by_head(5), by_head(7), by_head(7), false, reals({1, 4, 5, 7})});
  add(examples, {by_head(5), by_head(7), by_head(7), false, padded});

  at::Tensor scores = reals({4, 3, 5});
  scores[1][2].fill_(-std::numeric_limits<double>::infinity());
  examples.push_back({"aten::_safe_softmax", {scores, -1}});
  examples.push_back({"aten::_safe_softmax", {scores, 0}});
  examples.push_back({"aten::_prelu_kernel", {reals({4, 3, 5}), reals({1, 3, 1})}});
  examples.push_back(
      {"aten::_prelu_kernel_backward", {reals({4, 3, 5}), reals({4, 3, 5}), reals({1, 3, 1})}});
  return examples;
}

#else

Examples libtorch2_examples() { return {}; }

#endif

}  // namespace epl::testing
