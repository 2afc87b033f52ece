// Shape rows of operators that one version of LibTorch has and another has not.
#include <ATen/Functions.h>
#include <ATen/OpMathType.h>

#include "config/libtorch.h"
#include "ops/emit.h"
#include "ops/shape_rows.h"

namespace epl {
namespace shapes {
namespace {

// prelu_backward(grad_output, self, weight)
ShapeResults prelu_backward(ShapeArguments arguments) {
  return {plain_as(arguments[1].toTensor()), plain_as(arguments[2].toTensor())};
}

// _prelu_kernel_backward(grad_output, self, weight): of self, and of the weight at each element.
ShapeResults prelu_kernel_backward(ShapeArguments arguments) {
  const at::Tensor& self = arguments[1].toTensor();
  const std::vector<at::Tensor> all = {self, arguments[2].toTensor(), arguments[0].toTensor()};
  return {pointwise_of(self.scalar_type(), all), pointwise_of(self.scalar_type(), all)};
}

// Heads stand behind the tokens in memory.
at::Tensor heads_last(c10::ScalarType dtype, std::vector<int64_t> sizes) {
  std::swap(sizes[1], sizes[2]);
  return plain_of(dtype, sizes).transpose(1, 2);
}

// _scaled_dot_product_flash_attention_for_cpu(query, key, value, ...): the result, and logarithms
// of sums of exponentials.
ShapeResults attention(ShapeArguments arguments) {
  const at::Tensor& query = arguments[0].toTensor();
  return {dense_as(query), heads_last(at::toOpMathType(query.scalar_type()),
                                      {query.size(0), query.size(1), query.size(2)})};
}

// ..._backward(grad_out, query, key, value, ...)
ShapeResults attention_backward(ShapeArguments arguments) {
  ShapeResults results;
  for (size_t i = 1; i <= 3; ++i) {
    const at::Tensor& read = arguments[i].toTensor();
    results.emplace_back(heads_last(read.scalar_type(), read.sizes().vec()));
  }
  return results;
}

// How many bytes the workspace has only the kernel knows: it runs, on zeros.
int64_t bytes_of_workspace(ShapeArguments arguments) {
  constexpr size_t kWorkspace = 3;
  std::vector<c10::IValue> stack(arguments.begin(), arguments.end());
  for (c10::IValue& value : stack) {
    if (!value.isTensor() || !value.toTensor().defined()) continue;
    const at::Tensor& meta = value.toTensor();
    value = at::zeros(meta.sizes(), at::TensorOptions(meta.scalar_type()));
  }
  find_op("aten::mkldnn_rnn_layer").callBoxed(&stack);
  return stack.at(kWorkspace).toTensor().numel();
}

// mkldnn_rnn_layer(input, four weights, hx_, cx_, reverse, batch_sizes, mode, hidden_size, ...)
ShapeResults recurrent_layer(ShapeArguments arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  return {plain_of(input, {input.size(0), input.size(1), arguments[10].toInt()}),
          plain_as(arguments[5].toTensor()), plain_as(arguments[6].toTensor()),
          plain_of(c10::kByte, {bytes_of_workspace(arguments)})};
}

// oneDNN gives gradients in single precision.
ShapeResults recurrent_layer_backward(ShapeArguments arguments) {
  ShapeResults results;
  for (size_t i = 0; i <= 6; ++i) {
    results.emplace_back(plain_of(c10::kFloat, arguments[i].toTensor().sizes()));
  }
  return results;
}

ShapeRows rows_of_libtorch2() {
  if (!EPL_TORCH_AT_LEAST(2, 0)) return {};
  return {
      {"aten::_prelu_kernel", pointwise_of_two},
      {"aten::_prelu_kernel_backward", prelu_kernel_backward},
      {"aten::_scaled_dot_product_flash_attention_for_cpu", attention},
      {"aten::_scaled_dot_product_flash_attention_for_cpu_backward", attention_backward},
      {"aten::mkldnn_rnn_layer", recurrent_layer},
      {"aten::mkldnn_rnn_layer_backward", recurrent_layer_backward},
      {"aten::replication_pad2d", pad2d},
  };
}

// What LibTorch 2 makes of others.
ShapeRows rows_of_libtorch1() {
  if (EPL_TORCH_AT_LEAST(2, 0)) return {};
  return {
      {"aten::prelu", plain_like_first},
      {"aten::prelu_backward", prelu_backward},
  };
}

}  // namespace
}  // namespace shapes

const ShapeRows& shape_rows_of_versions() {
  static const auto* const rows = [] {
    auto* all = new ShapeRows(shapes::rows_of_libtorch1());
    for (const ShapeRow& row : shapes::rows_of_libtorch2()) all->push_back(row);
    return all;
  }();
  return *rows;
}

}  // namespace epl
