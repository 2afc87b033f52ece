// Every operator that EPL knows, run on shapes alone, makes what its kernel makes: sizes, strides,
// types and whose memory it shows.
#include <ATen/core/LegacyTypeDispatch.h>
#include <epl/error.h>
#include <gtest/gtest.h>

#include <map>
#include <set>

#include "base/text.h"
#include "capture/ghost.h"
#include "capture/stand_ins.h"
#include "config/libtorch.h"
#include "layout/tensor_type.h"
#include "ops/emit.h"
#include "ops/facts.h"
#include "ops/shape.h"
#include "tests/rules/examples.h"

namespace epl::testing {
namespace {

using torch::jit::Stack;

// How the arguments lie in memory.
enum class Lying : uint8_t { kAsGiven, kTransposed, kWithGaps };

at::Tensor laid(const at::Tensor& tensor, Lying lying) {
  if (lying == Lying::kAsGiven || tensor.dim() < 2) return tensor.clone(at::MemoryFormat::Preserve);
  if (lying == Lying::kTransposed) {
    return tensor.transpose(0, 1).clone(at::MemoryFormat::Contiguous).transpose(0, 1);
  }
  auto sizes = tensor.sizes().vec();
  sizes.back() += 2;
  const at::Tensor place = at::zeros(sizes, tensor.options()).narrow(-1, 1, tensor.size(-1));
  return place.copy_(tensor);
}

at::Tensor ghost_of(const at::Tensor& tensor) {
  const at::Tensor ghost = make_ghost_like(tensor);
  if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
    ghost.unsafeGetTensorImpl()->set_wrapped_number(true);
  }
  return ghost;
}

template <typename Visit>
void for_each_tensor_of(const Stack& stack, const Visit& visit) {
  for (size_t i = 0; i < stack.size(); ++i) {
    with_tensors(stack[i], [&](const at::Tensor& tensor) { return visit(i, tensor), tensor; });
  }
}

at::Tensor cast(const at::Tensor& tensor, c10::ScalarType real) {
  return tensor.scalar_type() == at::kDouble ? tensor.to(real) : tensor;
}

Stack arguments_of(const Example& example, const c10::OperatorHandle& op, Lying lying,
                   c10::ScalarType real) {
  Stack stack = example.arguments;
  const auto& schema = op.schema().arguments();
  for (size_t i = stack.size(); i < schema.size(); ++i) {
    stack.push_back(schema[i].default_value().value_or(c10::IValue()));
  }
  std::map<c10::TensorImpl*, at::Tensor> known;  // one that is given twice stays one
  for (c10::IValue& value : stack) {
    value = with_tensors(value, [&](const at::Tensor& tensor) {
      at::Tensor& copy = known[tensor.unsafeGetTensorImpl()];
      if (!copy.defined()) copy = laid(cast(tensor, real), lying);
      return copy;
    });
  }
  return stack;
}

Stack ghosts_of(const Stack& real) {
  std::map<c10::TensorImpl*, at::Tensor> known;
  Stack stack;
  for (const c10::IValue& value : real) {
    stack.push_back(with_tensors(value, [&](const at::Tensor& tensor) {
      at::Tensor& ghost = known[tensor.unsafeGetTensorImpl()];
      if (!ghost.defined()) ghost = ghost_of(tensor);
      return ghost;
    }));
  }
  return stack;
}

bool is_asked_for(const c10::OperatorHandle& op, const Stack& arguments, size_t result) {
  Node node{op, {}, {}, Phase::kForward, -1, {}};
  for (const c10::IValue& value : arguments) node.arguments.push_back(constant_argument(value));
  return asked_for(node, result) && !is_workspace(node, result);
}

// "f64[4,7] strides 7,1; f64[4] strides 1 of argument 0".
std::string run(const c10::OperatorHandle& op, const Stack& arguments) {
  Stack stack = arguments;
  {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    op.callBoxed(&stack);
  }
  std::vector<std::string> made;
  for_each_tensor_of(stack, [&](size_t result, const at::Tensor& tensor) {
    if (!is_asked_for(op, arguments, result)) return;
    made.push_back(concat(print_type(type_of(tensor)), " strides ", join(tensor.strides(), ","),
                          "+", tensor.storage_offset()));
    for_each_tensor_of(arguments, [&](size_t argument, const at::Tensor& read) {
      if (read.is_alias_of(tensor)) made.back() += concat(" of argument ", argument);
    });
  });
  for (const c10::IValue& value : stack) {
    if (value.isTensor() && !value.toTensor().defined()) made.emplace_back("none");
  }
  return join(made, "; ");
}

std::string run_or_error(const c10::OperatorHandle& op, const Stack& arguments) {
  try {
    return run(op, arguments);
  } catch (const Error& error) {
    return error.what();
  } catch (const c10::Error& error) {
    return concat("LibTorch: ", error.what_without_backtrace());
  } catch (const std::exception& error) {
    return concat("LibTorch: ", error.what());  // of oneDNN
  }
}

std::string check(const Example& example, Lying lying, c10::ScalarType type) {
  const c10::OperatorHandle op = find_op(example.op);
  const Stack real = arguments_of(example, op, lying, type);
  const Stack ghosts = ghosts_of(real);
  const std::string makes = run_or_error(op, real);
  if (makes.rfind("LibTorch: ", 0) == 0) return "";  // the example is of another place in memory
  const ShapesOnly shapes({/*real_up_to=*/0});
  const std::string is_said = run_or_error(op, ghosts);
  if (is_said == makes) return "";
  return concat(example.op, "\n    makes ", makes, "\n    said  ", is_said);
}

// What the rules of operators have no use for: channels that lie last, transposed convolutions, and
// operators that are no part of a step.
Examples more_examples() {
  const auto last = [](at::IntArrayRef sizes) {
    return reals(sizes).contiguous(at::MemoryFormat::ChannelsLast);
  };
  const c10::IValue none;
  const at::Tensor statistics = reals({4});
  const at::Tensor image = last({3, 4, 6, 6});
  const at::Tensor filters = reals({5, 4, 3, 3});
  // Half precision with parameters of single precision, as mixed precision has it.
  const at::Tensor half = reals({3, 4, 6, 6}).to(at::kBFloat16);
  const at::Tensor rows = reals({6, 4}).to(at::kBFloat16);
  const at::Tensor single = positives({4}).to(at::kFloat);
  const auto mask = [](bool a, bool b, bool c) { return c10::List<bool>({a, b, c}); };
  return {
      {"aten::addbmm", {reals({4, 6}), reals({3, 4, 5}), reals({3, 5, 6})}},
      {"aten::convolution",
       {image, filters, reals({5}), ints({1, 1}), ints({1, 1}), ints({1, 1}), false, ints({0, 0}),
        1}},
      {"aten::convolution",
       {reals({3, 4, 6, 6}), reals({4, 5, 3, 3}), none, ints({2, 2}), ints({1, 1}), ints({1, 1}),
        true, ints({1, 1}), 1}},
      {"aten::convolution",
       {reals({3, 4, 5, 6, 6}), reals({2, 4, 3, 3, 3}), reals({2}), ints({1}), ints({0}), ints({1}),
        false, ints({0}), 1}},
      {"aten::convolution_backward",
       {last({3, 5, 6, 6}), image, filters, ints({5}), ints({1, 1}), ints({1, 1}), ints({1, 1}),
        false, ints({0, 0}), 1, mask(true, true, true)}},
      {"aten::convolution_backward",
       {reals({3, 5, 12, 12}), reals({3, 4, 6, 6}), reals({4, 5, 3, 3}), ints({5}), ints({2, 2}),
        ints({1, 1}), ints({1, 1}), true, ints({1, 1}), 1, mask(true, true, true)}},
      {"aten::native_batch_norm",
       {image, statistics, statistics, reals({4}), positives({4}), true, 0.1, 1e-5}},
      {"aten::native_batch_norm",
       {image, statistics, statistics, reals({4}), positives({4}), false, 0.1, 1e-5}},
      {"aten::_adaptive_avg_pool2d", {image, ints({2, 2})}},
      {"aten::avg_pool2d", {image, ints({2, 2}), ints({2, 2})}},
      {"aten::max_pool2d_with_indices", {image, ints({2, 2}), ints({2, 2})}},
      {"aten::reflection_pad2d", {image, ints({1, 1, 1, 1})}},
      {"aten::upsample_nearest2d", {image, ints({12, 12})}},
      {"aten::pixel_shuffle", {last({3, 4, 6, 6}), 2}},
      {"aten::pixel_unshuffle", {last({3, 4, 6, 6}), 2}},
      {"aten::_adaptive_avg_pool2d_backward", {last({3, 4, 2, 2}), image}},
      {"aten::reflection_pad2d_backward", {last({3, 4, 8, 8}), image, ints({1, 1, 1, 1})}},
      {"aten::replication_pad2d", {image, ints({1, 1, 1, 1})}},
      {"aten::replication_pad2d_backward", {last({3, 4, 8, 8}), image, ints({1, 1, 1, 1})}},
      {"aten::native_batch_norm_backward",
       {image, image, statistics, statistics, positives({4}), reals({4}), positives({4}), true,
        1e-5, mask(true, true, true)}},
      {"aten::native_group_norm", {image, statistics, statistics, 3, 4, 36, 2, 1e-5}},
      {"aten::native_group_norm_backward",
       {image, image, reals({3, 2}), positives({3, 2}), statistics, 3, 4, 36, 2,
        mask(true, true, true)}},
      {"aten::native_batch_norm", {half, none, none, single, single, true, 0.1, 1e-5}},
      {"aten::native_batch_norm", {half, single, single, single, single, true, 0.1, 1e-5}},
      {"aten::native_batch_norm_backward",
       {half, half, single, single, single, single, single, true, 1e-5, mask(true, true, true)}},
      {"aten::native_group_norm", {half, single, single, 3, 4, 36, 2, 1e-5}},
      {"aten::native_layer_norm", {rows, ints({4}), single, single, 1e-5}},
      {"aten::native_layer_norm", {rows, ints({4}), none, none, 1e-5}},
      {"aten::native_layer_norm_backward",
       {rows, rows, ints({4}), reals({6, 1}).to(at::kFloat), positives({6, 1}).to(at::kFloat),
        single, single, mask(true, true, true)}},
      {"aten::native_channel_shuffle", {image, 2}},
      {"aten::max_unpool2d", {last({3, 4, 3, 3}), wholes(36, {3, 4, 3, 3}), ints({6, 6})}},
      {"aten::max_pool2d_with_indices_backward",
       {last({3, 4, 3, 3}), image, ints({2, 2}), ints({2, 2}), ints({0, 0}), ints({1, 1}), false,
        wholes(36, {3, 4, 3, 3})}},
      {"aten::nll_loss2d_forward", {image, wholes(4, {3, 6, 6}), none, 1, -100}},
      {"aten::nll_loss2d_backward",
       {reals({}), image, wholes(4, {3, 6, 6}), none, 1, -100, positives({})}},
      {"aten::grid_sampler_2d", {image, reals({3, 5, 5, 2}), 0, 0, false}},
      {"aten::binary_cross_entropy", {positives({4, 7}), positives({4, 7}), none, 0}},
      {"aten::huber_loss", {reals({4, 7}), reals({4, 7}), 0, 1.0}},
      {"aten::relu", {image}},
      {"aten::cat", {c10::List<at::Tensor>({image, last({3, 2, 6, 6})}), 1}},
      {"aten::sum.dim_IntList", {image, ints({2, 3}), true}},
      {"aten::topk", {reals({4, 7}), 3}},
      {"aten::sort", {reals({4, 7})}},
      {"aten::cumsum", {reals({4, 7}), 1}},
      {"aten::index.Tensor",
       {reals({4, 7}),
        c10::List<c10::optional<at::Tensor>>({c10::optional<at::Tensor>(wholes(4, {3}))})}},
  };
}

// Names of those that were tried.
std::set<std::string> check_all(Lying lying, c10::ScalarType type) {
  Examples examples = all_examples();
  for (Example& example : more_examples()) examples.push_back(std::move(example));
  std::set<std::string> tried;
  std::set<std::string> faults;
  for (const Example& example : examples) {
    if (example.op.rfind("aten::", 0) != 0) continue;  // EPL's own are in no program
    const std::string fault = check(example, lying, type);
    if (!fault.empty()) faults.insert(fault);
    tried.insert(example.op);
  }
  EXPECT_TRUE(faults.empty()) << faults.size() << " faults, tensors of " << type << " lie "
                              << static_cast<int>(lying) << "\n  " << join(faults, "\n  ");
  return tried;
}

// Kernels of oneDNN, for single precision, and those of half precision lay out results of their
// own.
TEST(ShapesTest, EveryRowGivesWhatTheKernelGives) {
  std::set<std::string> tried;
  for (const Lying lying : {Lying::kAsGiven, Lying::kTransposed, Lying::kWithGaps}) {
    for (const c10::ScalarType type : {at::kDouble, at::kFloat, at::kBFloat16}) {
      tried = check_all(lying, type);
    }
  }
  std::vector<std::string> untried;
  for (const std::string& op : operators_with_shape_rows()) {
    if (tried.count(op) == 0) untried.push_back(op);
  }
  EXPECT_EQ(untried, std::vector<std::string>());
}

}  // namespace
}  // namespace epl::testing
