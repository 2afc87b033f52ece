// Convolutions, cut over samples and channels; places of the image stay together.
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
//   other groups ..... input n 1, weight 1 1, result n 1
struct ConvolutionWords {
  std::string input;
  std::string weight;
  std::string result;
  std::string bias;
};

ConvolutionWords convolution_words(const Sizes& input, bool transposed, int64_t groups) {
  const std::string places(input.size() - 2, '1');
  if (groups == 1) {
    return {"nc" + places, (transposed ? "co" : "oc") + places, "no" + places, "o"};
  }
  const bool one_each = groups == input[1] && !transposed;
  if (one_each) return {"nc" + places, "c1" + places, "nc" + places, "c"};
  return {"n1" + places, "11" + places, "n1" + places, "1"};
}

std::optional<Pattern> convolution(const Graph& graph, const Node& node) {
  const ConvolutionWords words = convolution_words(
      input_sizes(graph, node, 0), node.arguments[6].constant.toBool(), int_at(node, 8));
  Pattern pattern{{words.input, words.weight}, {words.result}, "", ""};
  add_input(pattern, node, 2, words.bias);
  const bool has_bias = has_tensor(node, 2);
  const bool sums = words.result.find('c') == std::string::npos;
  if (has_bias && sums) pattern.expanded = "c";
  pattern.partial = has_bias ? InputSets() : InputSets{{0}, {1}};
  return pattern;
}

// Where channels are cut and there are several groups, each channel is one.
void localize_convolution(const LocalNode& at, Node& local) {
  const bool cut = at.cut.inputs[0].is_cut() && at.cut.inputs[0].dim == 1;
  if (cut && int_at(local, 8) != 1) set(local, 8, input_sizes_here(at, 0)[1]);
}

// Every device would add the bias again.
std::vector<ValueId> split_convolution(const LocalNode& at, Emitter& to) {
  Node local = local_copy(at);
  if (at.part != 0) local.arguments[2] = constant_argument({});
  return to.add(std::move(local), {at.output_sizes(0)}, at.graph, at.node);
}

std::optional<Pattern> convolution_backward(const Graph& graph, const Node& node) {
  const ConvolutionWords words = convolution_words(
      input_sizes(graph, node, 1), node.arguments[7].constant.toBool(), int_at(node, 9));
  Pattern pattern{{words.result, words.input, words.weight}, {}, "", ""};
  // The gradient of the bias does not look at the input channels. One that was not asked for
  // (asked_for) may have a dimension of size 1 more: the kernel's view of a 1-d convolution.
  const std::pair<std::string, std::string> made[] = {
      {words.input, ""}, {words.weight, ""}, {words.bias, words.bias == "c" ? "" : "c"}};
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
  const bool cut = at.cut.inputs[1].is_cut() && at.cut.inputs[1].dim == 1;
  if (cut && int_at(local, 9) != 1) set(local, 9, input_sizes_here(at, 1)[1]);
}

}  // namespace

Rules convolution_rules() {
  constexpr Linear kNo = Linear::kNo;
  constexpr Linear kFirst = Linear::kFirst;
  static const OperatorRow rows[] = {
      // operator, facts, inputs, outputs, linear, pattern, localize, expand
      {"aten::convolution", in_lower().convolves(0, 6, 1), "", "", kNo, convolution,
       localize_convolution, split_convolution},
      {"aten::_convolution", in_lower().convolves(0, 6, 1), "", "", kNo, convolution,
       localize_convolution, split_convolution},
      {"aten::convolution_backward", in_lower().convolves(1, 7, 2), "", "", kFirst,
       convolution_backward, localize_convolution_backward},
  };
  return rows;
}

}  // namespace epl
