// Examples of operators that LibTorch 2 has added: attention, what PReLU becomes, and layers of
// LSTM.
#include <ATen/core/LegacyTypeDispatch.h>

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

// Single precision alone.
void add_recurrent(Examples& examples, bool reverse) {
  const auto numbers = [](at::IntArrayRef sizes) { return reals(sizes).to(at::kFloat); };
  const std::vector<at::Tensor> read = {numbers({5, 6, 8}), numbers({24, 8}), numbers({24, 6}),
                                        numbers({24}),      numbers({24}),    numbers({6, 6}),
                                        numbers({6, 6})};
  constexpr int64_t kLstm = 2;
  const auto [output, state, cell, workspace] = [&] {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    return at::mkldnn_rnn_layer(read[0], read[1], read[2], read[3], read[4], read[5], read[6],
                                reverse, {}, kLstm, 6, 1, true, false, false, true);
  }();
  const c10::IValue no_sizes = c10::List<int64_t>();
  std::vector<c10::IValue> forward(read.begin(), read.end());
  forward.insert(forward.end(), {reverse, no_sizes, kLstm, 6, 1, true, false, false, true});
  examples.push_back({"aten::mkldnn_rnn_layer", forward});
  std::vector<c10::IValue> backward(read.begin(), read.end());
  backward.insert(backward.end(),
                  {output, state, cell, numbers({5, 6, 6}), numbers({6, 6}), numbers({6, 6}),
                   reverse, kLstm, 6, 1, true, true, false, no_sizes, false, workspace});
  examples.push_back({"aten::mkldnn_rnn_layer_backward", backward});
}

}  // namespace

Examples libtorch2_examples() {
  Examples examples;
  for (bool reverse : {false, true}) add_recurrent(examples, reverse);
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
