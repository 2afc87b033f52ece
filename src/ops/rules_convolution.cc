// Convolutions and pooling, cut over samples and channels; places of the image stay together.
#include "ops/facts.h"
#include "ops/rule_parts.h"
#include "ops/rules.h"

namespace epl {
namespace {

// convolution(input, weight, bias?, stride, padding, dilation, transposed, output_padding, groups)
// and convolution_backward(grad, input, weight, bias_sizes?, the same ..., mask) name alike what
// their channels are:
//   one group ........ input n c, weight o c, result n o
//   transposed ....... input n c, weight c o, result n o
//   a group a channel  input n c, weight c 1, result n c
struct ConvolutionWords {
  std::string input;
  std::string weight;
  std::string result;
  std::string bias;
};

std::optional<ConvolutionWords> convolution_words(const Sizes& input, bool transposed,
                                                  int64_t groups) {
  const std::string places(input.size() - 2, '1');
  if (groups == 1) {
    return ConvolutionWords{"nc" + places, (transposed ? "co" : "oc") + places, "no" + places, "o"};
  }
  if (groups != input[1] || transposed) return std::nullopt;
  return ConvolutionWords{"nc" + places, "c1" + places, "nc" + places, "c"};
}

std::optional<Pattern> convolution(const Graph& graph, const Node& node) {
  const auto words = convolution_words(input_sizes(graph, node, 0),
                                       node.arguments[6].constant.toBool(), int_at(node, 8));
  if (!words) return std::nullopt;
  Pattern pattern{{words->input, words->weight}, {words->result}, "", ""};
  add_input(pattern, node, 2, words->bias);
  const bool has_bias = has_tensor(node, 2);
  const bool sums = words->result.find('c') == std::string::npos;
  if (has_bias && sums) pattern.expanded = "c";
  pattern.partial = has_bias ? InputSets() : InputSets{{0}, {1}};
  return pattern;
}

// Where channels are cut and there are several groups, each channel is one.
void localize_convolution(const LocalNode& at, Node& local) {
  const bool cut = at.cut.inputs[0] == Layout::cut(1);
  if (cut && int_at(local, 8) != 1) set(local, 8, input_sizes_here(at, 0)[1]);
}

// Every device would add the bias again.
std::vector<ValueId> split_convolution(const LocalNode& at, Emitter& to) {
  Node local = local_copy(at);
  if (at.part != 0) local.arguments[2] = constant_argument({});
  return to.add(std::move(local), {at.output_sizes(0)}, at.graph, at.node);
}

std::optional<Pattern> convolution_backward(const Graph& graph, const Node& node) {
  const auto words = convolution_words(input_sizes(graph, node, 1),
                                       node.arguments[7].constant.toBool(), int_at(node, 9));
  if (!words) return std::nullopt;
  Pattern pattern{{words->result, words->input, words->weight}, {}, "", ""};
  // The gradient of the bias does not look at the input channels. One that was not asked for
  // (asked_for) may have a dimension of size 1 more: the kernel's view of a 1-d convolution.
  const std::pair<std::string, std::string> made[] = {
      {words->input, ""}, {words->weight, ""}, {words->bias, words->bias == "c" ? "" : "c"}};
  for (size_t i = 0; i < 3; ++i) {
    const ValueId id = node.results[i].values.at(0);
    if (id == kNoValue) continue;
    std::string word = made[i].first;
    if (!asked_for(node, i)) word.resize(sizes_of(graph, id).size(), '1');
    pattern.outputs.push_back(std::move(word));
    pattern.same.push_back(made[i].second);
  }
  return pattern;
}

void localize_convolution_backward(const LocalNode& at, Node& local) {
  if (!ints_at(local, 3).empty()) set(local, 3, Sizes{input_sizes_here(at, 0)[1]});
  const bool cut = at.cut.inputs[1] == Layout::cut(1);
  if (cut && int_at(local, 9) != 1) set(local, 9, input_sizes_here(at, 1)[1]);
}

// --- pooling: all but the last `places` dimensions go one to one ------------------------------

std::optional<Pattern> pool(const Graph& graph, const Node& node, size_t places) {
  Pattern pattern;
  const auto word_of = [&](ValueId id) {
    const size_t others = sizes_of(graph, id).size() - places;
    return letters(others) + std::string(places, '1');
  };
  for (ValueId id : inputs_of(node)) pattern.inputs.push_back(word_of(id));
  for (ValueId id : outputs_of(node)) pattern.outputs.push_back(word_of(id));
  return pattern;
}

std::optional<Pattern> pool1d(const Graph& graph, const Node& node) { return pool(graph, node, 1); }
std::optional<Pattern> pool2d(const Graph& graph, const Node& node) { return pool(graph, node, 2); }
std::optional<Pattern> pool3d(const Graph& graph, const Node& node) { return pool(graph, node, 3); }

// upsample_*_backward(grad, output_size, input_size, ...)
void localize_input_size(const LocalNode& at, Node& local) { set(local, 2, at.output_sizes(0)); }

}  // namespace

Rules convolution_rules() {
  constexpr Linear kNo = Linear::kNo;
  constexpr Linear kFirst = Linear::kFirst;
  constexpr Wants kDense = Wants::kDense;
  static const OperatorRow rows[] = {
      // operator, facts, inputs, outputs, linear, pattern, localize, expand
      {"aten::convolution", in_lower().convolves(0, 6, 1), "", "", kNo, convolution,
       localize_convolution, split_convolution},
      {"aten::convolution_backward", in_lower().convolves(1, 7, 2), "", "", kFirst,
       convolution_backward, localize_convolution_backward},
      {"aten::max_pool2d_with_indices", in_widest().seconds_each(6e-9), "", "", kNo, pool2d,
       nullptr, nullptr, kDense},
      {"aten::max_pool2d_with_indices_backward", in_widest(), "", "", kFirst, pool2d, nullptr,
       nullptr, kDense},
      {"aten::max_pool3d_with_indices", in_float32(), "", "", kNo, pool3d, nullptr, nullptr,
       kDense},
      {"aten::max_pool3d_with_indices_backward", in_float32(), "", "", kFirst, pool3d, nullptr,
       nullptr, kDense},
      {"aten::adaptive_max_pool2d", in_widest(), "", "", kNo, pool2d, nullptr, nullptr, kDense},
      {"aten::adaptive_max_pool2d_backward", in_widest(), "", "", kFirst, pool2d, nullptr, nullptr,
       kDense},
      {"aten::avg_pool2d", in_widest(), "", "", kFirst, pool2d, nullptr, nullptr, kDense},
      {"aten::avg_pool2d_backward", in_widest(), "", "", kFirst, pool2d, nullptr, nullptr, kDense},
      {"aten::avg_pool3d", in_float32(), "", "", kFirst, pool3d, nullptr, nullptr, kDense},
      {"aten::avg_pool3d_backward", in_float32(), "", "", kFirst, pool3d, nullptr, nullptr, kDense},
      {"aten::_adaptive_avg_pool2d", in_widest(), "", "", kFirst, pool2d, nullptr, nullptr, kDense},
      {"aten::_adaptive_avg_pool2d_backward", in_widest(), "", "", kFirst, pool2d, nullptr, nullptr,
       kDense},
      {"aten::upsample_nearest1d", in_widest(), "", "", kFirst, pool1d, nullptr, nullptr, kDense},
      {"aten::upsample_nearest1d_backward", in_widest(), "", "", kFirst, pool1d,
       localize_input_size, nullptr, kDense},
      {"aten::upsample_nearest2d", in_widest(), "", "", kFirst, pool2d, nullptr, nullptr, kDense},
      {"aten::upsample_nearest2d_backward", in_widest(), "", "", kFirst, pool2d,
       localize_input_size, nullptr, kDense},
      {"aten::upsample_bilinear2d", in_widest(), "", "", kFirst, pool2d, nullptr, nullptr, kDense},
      {"aten::upsample_bilinear2d_backward", in_widest(), "", "", kFirst, pool2d,
       localize_input_size, nullptr, kDense},
      {"aten::reflection_pad2d", in_float32(), "", "", kFirst, pool2d, nullptr, nullptr, kDense},
      {"aten::reflection_pad2d_backward", in_float32(), "", "", kFirst, pool2d, nullptr, nullptr,
       kDense},
      {"aten::replication_pad2d", in_float32(), "", "", kFirst, pool2d, nullptr, nullptr, kDense},
      {"aten::replication_pad2d_backward", in_float32(), "", "", kFirst, pool2d, nullptr, nullptr,
       kDense},
  };
  return rows;
}

}  // namespace epl
