// Shape rows of operators that work element by element, of reductions, and of what indices pick.
#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>
#include <ATen/TensorIterator.h>

#include "ops/shape_rows.h"

namespace epl {
namespace shapes {

at::Tensor dense_as(const at::Tensor& like) { return at::empty_like(like); }

at::Tensor dense_as(const at::Tensor& like, at::MemoryFormat format) {
  return at::empty_like(like, like.options(), format);
}

at::Tensor channels_as(const at::Tensor& like) {
  return dense_as(like, like.suggest_memory_format());
}

at::Tensor channels_as(const at::Tensor& like, at::IntArrayRef sizes) {
  return at::empty(sizes, like.options(), like.suggest_memory_format());
}

at::Tensor plain_as(const at::Tensor& like) { return plain_of(like, like.sizes()); }

at::Tensor plain_of(const at::Tensor& like, at::IntArrayRef sizes) {
  return at::empty(sizes, like.options());
}

at::Tensor plain_of(c10::ScalarType dtype, at::IntArrayRef sizes) {
  return at::empty(sizes, at::TensorOptions(dtype).device(c10::kMeta));
}

at::Tensor pointwise_of(c10::ScalarType dtype, const std::vector<at::Tensor>& inputs) {
  at::TensorIteratorConfig config;
  config.set_check_mem_overlap(false)
      .check_all_same_dtype(false)
      .declare_static_dtype_and_device(dtype, c10::kMeta)
      .add_owned_output(at::Tensor());
  for (const at::Tensor& input : inputs) config.add_owned_input(input);
  return config.build().output();
}

ShapeResults dense_like_first(ShapeArguments arguments) {
  return {dense_as(arguments[0].toTensor())};
}

ShapeResults dense_like_second(ShapeArguments arguments) {
  return {dense_as(arguments[1].toTensor())};
}

ShapeResults plain_like_first(ShapeArguments arguments) {
  return {plain_as(arguments[0].toTensor())};
}

ShapeResults plain_like_second(ShapeArguments arguments) {
  return {plain_as(arguments[1].toTensor())};
}

ShapeResults channels_like_second(ShapeArguments arguments) {
  return {channels_as(arguments[1].toTensor())};
}

ShapeResults pointwise_of_two(ShapeArguments arguments) {
  const at::Tensor& first = arguments[0].toTensor();
  const at::Tensor& second = arguments[1].toTensor();
  return {pointwise_of(at::result_type(first, second), {first, second})};
}

ShapeResults asked_for_by(const c10::IValue& mask, const std::vector<at::Tensor>& results) {
  const auto asked = mask.toBoolList();
  ShapeResults given;
  for (size_t i = 0; i < results.size(); ++i) {
    given.emplace_back(asked.get(i) ? results[i] : at::Tensor());
  }
  return given;
}

std::vector<int64_t> numbers_of(const c10::IValue& list, size_t count) {
  std::vector<int64_t> numbers = list.toIntVector();
  if (numbers.size() == 1) numbers.resize(count, numbers[0]);
  return numbers;
}

std::vector<int64_t> with_last(const at::Tensor& tensor, at::IntArrayRef last) {
  std::vector<int64_t> sizes = tensor.sizes().vec();
  std::copy(last.begin(), last.end(), sizes.end() - static_cast<std::ptrdiff_t>(last.size()));
  return sizes;
}

namespace {

c10::ScalarType floating(c10::ScalarType dtype) {
  const bool whole = c10::isIntegralType(dtype, /*includeBool=*/true);
  return whole ? c10::typeMetaToScalarType(c10::get_default_dtype()) : dtype;
}

// Whole numbers become floating ones.
ShapeResults floating_like_first(ShapeArguments arguments) {
  const at::Tensor& first = arguments[0].toTensor();
  return {pointwise_of(floating(first.scalar_type()), {first})};
}

// Of complex numbers, real ones, in memory of their own making.
ShapeResults abs(ShapeArguments arguments) {
  const at::Tensor& first = arguments[0].toTensor();
  if (!first.is_complex()) return {pointwise_of(first.scalar_type(), {first})};
  return {plain_of(c10::toRealValueType(first.scalar_type()), first.sizes())};
}

ShapeResults angle(ShapeArguments arguments) {
  return arguments[0].toTensor().is_complex() ? abs(arguments) : floating_like_first(arguments);
}

// complex(real, imag)
ShapeResults complex_of_two(ShapeArguments arguments) {
  const at::Tensor& first = arguments[0].toTensor();
  return {pointwise_of(c10::toComplexType(first.scalar_type()), {first, arguments[1].toTensor()})};
}

ShapeResults truth_of_two(ShapeArguments arguments) {
  return {pointwise_of(c10::kBool, {arguments[0].toTensor(), arguments[1].toTensor()})};
}

// remainder(self, other) of a number and a tensor.
ShapeResults remainder_of_number(ShapeArguments arguments) {
  const at::Tensor& other = arguments[1].toTensor();
  return {pointwise_of(at::result_type(arguments[0].toScalar(), other), {other})};
}

ShapeResults truth_of_first(ShapeArguments arguments) {
  return {pointwise_of(c10::kBool, {arguments[0].toTensor()})};
}

// rsub(self, other, alpha)
ShapeResults reverse_difference(ShapeArguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  if (arguments[1].isScalar()) return {at::add(self, arguments[1].toScalar())};
  return {at::sub(arguments[1].toTensor(), self)};
}

ShapeResults floor_divide(ShapeArguments arguments) {
  return {at::div(arguments[0].toTensor(), arguments[1].toTensor(), "floor")};
}

// where(condition, self, other)
ShapeResults where(ShapeArguments arguments) {
  const at::Tensor& self = arguments[1].toTensor();
  const at::Tensor& other = arguments[2].toTensor();
  return {pointwise_of(at::result_type(self, other), {arguments[0].toTensor(), self, other})};
}

ShapeResults log_sigmoid(ShapeArguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  return {plain_as(self), plain_as(self)};
}

// native_dropout(input, p, train): what is left, and which.
ShapeResults dropout(ShapeArguments arguments) {
  const at::Tensor& input = arguments[0].toTensor();
  return {dense_as(input), at::empty_like(input, input.options().dtype(c10::kBool))};
}

// --- reductions -------------------------------------------------------------------------------

// var(self, dim, correction, keepdim): as a sum of it, in real numbers.
at::Tensor moment(ShapeArguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const auto dims = arguments[1].isNone() ? std::vector<int64_t>() : arguments[1].toIntVector();
  return at::sum(self, dims, arguments[3].toBool());
}

ShapeResults variance(ShapeArguments arguments) {
  const at::Tensor sum = moment(arguments);
  return {at::empty_like(sum, sum.options().dtype(c10::toRealValueType(sum.scalar_type())))};
}

ShapeResults variance_and_mean(ShapeArguments arguments) {
  ShapeResults results = variance(arguments);
  results.emplace_back(moment(arguments));
  return results;
}

// count_nonzero(self, dim)
ShapeResults count_nonzero(ShapeArguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const bool of_all = arguments[1].isNone();
  std::vector<int64_t> dims;
  if (arguments[1].isInt()) dims = {arguments[1].toInt()};
  if (arguments[1].isIntList()) dims = arguments[1].toIntVector();
  return {at::sum(self, of_all ? std::vector<int64_t>() : dims, /*keepdim=*/false, c10::kLong)};
}

// mode(self, dim, keepdim), and those that pick an element of each row.
ShapeResults picked_of_rows(const at::Tensor& self, int64_t dim, bool keepdim) {
  std::vector<int64_t> sizes = self.sizes().vec();
  if (!sizes.empty()) {
    const auto at = static_cast<std::ptrdiff_t>(dim < 0 ? dim + self.dim() : dim);
    sizes[static_cast<size_t>(at)] = 1;
    if (!keepdim) sizes.erase(sizes.begin() + at);
  }
  return {plain_of(self, sizes), plain_of(c10::kLong, sizes)};
}

ShapeResults mode(ShapeArguments arguments) {
  return picked_of_rows(arguments[0].toTensor(), arguments[1].toInt(), arguments[2].toBool());
}

// kthvalue(self, k, dim, keepdim)
ShapeResults kth_value(ShapeArguments arguments) {
  return picked_of_rows(arguments[0].toTensor(), arguments[2].toInt(), arguments[3].toBool());
}

// cummax(self, dim): values and their places.
ShapeResults running_extreme(ShapeArguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  return {plain_as(self), plain_of(c10::kLong, self.sizes())};
}

// logsumexp(self, dim, keepdim)
ShapeResults log_sum_exp(ShapeArguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  const at::Tensor sum = at::sum(self, arguments[1].toIntVector(), arguments[2].toBool());
  return {plain_of(floating(self.scalar_type()), sum.sizes())};
}

ShapeResults scalar_like_first(ShapeArguments arguments) {
  return {plain_of(arguments[0].toTensor(), {})};
}

// --- indices ----------------------------------------------------------------------------------

// index_select(self, dim, index)
ShapeResults index_select(ShapeArguments arguments) {
  const at::Tensor& self = arguments[0].toTensor();
  std::vector<int64_t> sizes = self.sizes().vec();
  if (!sizes.empty()) {
    const int64_t dim = arguments[1].toInt();
    sizes[static_cast<size_t>(dim < 0 ? dim + self.dim() : dim)] = arguments[2].toTensor().numel();
  }
  return {plain_of(self, sizes)};
}

// take(self, index)
ShapeResults take(ShapeArguments arguments) {
  return {plain_of(arguments[0].toTensor(), arguments[1].toTensor().sizes())};
}

// bucketize(self, boundaries, out_int32, right)
ShapeResults bucketize(ShapeArguments arguments) {
  return {
      plain_of(arguments[2].toBool() ? c10::kInt : c10::kLong, arguments[0].toTensor().sizes())};
}

// multinomial(self, num_samples, replacement, generator)
ShapeResults multinomial(ShapeArguments arguments) {
  return {plain_of(c10::kLong, with_last(arguments[0].toTensor(), {arguments[1].toInt()}))};
}

// unfold_backward(grad_in, input_sizes, dim, size, step)
ShapeResults unfold_backward(ShapeArguments arguments) {
  return {plain_of(arguments[0].toTensor(), arguments[1].toIntVector())};
}

}  // namespace
}  // namespace shapes

const ShapeRows& shape_rows_of_elements() {
  using namespace shapes;
  static const auto* const rows = new ShapeRows{
      {"aten::relu", dense_like_first},
      {"aten::hardswish", dense_like_first},
      {"aten::hardtanh", dense_like_first},
      {"aten::flip", dense_like_first},
      {"aten::nan_to_num", dense_like_first},
      {"aten::_conj_physical", dense_like_first},
      {"aten::logit", floating_like_first},
      {"aten::angle", angle},
      {"aten::abs", abs},
      {"aten::complex", complex_of_two},
      {"aten::polar", complex_of_two},
      {"aten::logical_and", truth_of_two},
      {"aten::logical_or", truth_of_two},
      {"aten::logical_xor", truth_of_two},
      {"aten::remainder.Scalar_Tensor", remainder_of_number},
      {"aten::isnan", truth_of_first},
      {"aten::isinf", truth_of_first},
      {"aten::logical_not", truth_of_first},
      {"aten::hardswish_backward", pointwise_of_two},
      {"aten::hardtanh_backward", pointwise_of_two},
      {"aten::mish_backward", pointwise_of_two},
      {"aten::native_dropout_backward", pointwise_of_two},
      {"aten::rsub.Tensor", reverse_difference},
      {"aten::rsub.Scalar", reverse_difference},
      {"aten::floor_divide", floor_divide},
      {"aten::where.self", where},
      {"aten::log_sigmoid_forward", log_sigmoid},
      {"aten::log_sigmoid_backward", dense_like_first},
      {"aten::native_dropout", dropout},
      {"aten::rrelu_with_noise", plain_like_first},
      {"aten::glu_backward", plain_like_second},
      {"aten::_standard_gamma", plain_like_first},
      {"aten::_standard_gamma_grad", plain_like_first},
      {"aten::_sample_dirichlet", plain_like_first},
      {"aten::_dirichlet_grad", plain_like_first},
      {"aten::poisson", plain_like_first},
      {"aten::binomial", plain_like_first},
      {"aten::var.correction", variance},
      {"aten::std.correction", variance},
      {"aten::var_mean.correction", variance_and_mean},
      {"aten::std_mean.correction", variance_and_mean},
      {"aten::count_nonzero", count_nonzero},
      {"aten::count_nonzero.dim_IntList", count_nonzero},
      {"aten::mode", mode},
      {"aten::median.dim", mode},
      {"aten::kthvalue", kth_value},
      {"aten::cummax", running_extreme},
      {"aten::cummin", running_extreme},
      {"aten::logcumsumexp", plain_like_first},
      {"aten::logsumexp", log_sum_exp},
      {"aten::max", scalar_like_first},
      {"aten::min", scalar_like_first},
      {"aten::dot", scalar_like_first},
      {"aten::roll", runs_in_parts},
      {"aten::index_select", index_select},
      {"aten::take", take},
      {"aten::bucketize.Tensor", bucketize},
      {"aten::multinomial", multinomial},
      {"aten::unfold_backward", unfold_backward},
  };
  return *rows;
}

}  // namespace epl
