#include "ops/rule.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "ops/facts.h"
#include "ops/rule_parts.h"

namespace epl {
namespace {

constexpr char kBroadcast = '1';

// --- from a row's text to words ---------------------------------------------------------------

std::vector<std::string> split_words(const std::string& text) {
  std::vector<std::string> words = {""};
  for (char c : text) {
    if (c == ',') {
      words.emplace_back();
    } else if (c != ' ') {
      words.back() += c;
    }
  }
  return words;
}

// Takes the marks out of a word and notes what they say.
std::string without_marks(const std::string& marked, Pattern& pattern) {
  std::string word;
  for (char c : marked) {
    if (c != '!' && c != '*') {
      word += c;
      continue;
    }
    std::string& letters = c == '!' ? pattern.whole : pattern.expanded;
    if (letters.find(word.back()) == std::string::npos) letters += word.back();
  }
  return word;
}

bool is_tensor(const c10::Argument& argument) {
  return argument.type()->isSubtypeOf(*c10::OptionalType::ofTensor());
}

Pattern pattern_from_text(const OperatorRow& rule, const Graph& graph, const Node& node) {
  if (std::string(rule.inputs) == "...") return pointwise_pattern(graph, node);
  Pattern pattern;
  const auto& arguments = node.op.schema().arguments();
  size_t argument = 0;
  for (const auto& marked : split_words(rule.inputs)) {
    while (argument < arguments.size() && !is_tensor(arguments[argument])) ++argument;
    EPL_ASSERT(argument < arguments.size(), concat(rule.op, " reads fewer tensors than its words"));
    const std::string word = without_marks(marked, pattern);
    add_input(pattern, node, argument++, word);
  }
  size_t result = 0;
  for (const auto& marked : split_words(rule.outputs)) {
    const std::string word = without_marks(marked, pattern);
    const auto& made = node.results.at(result++).values;
    if (made.empty() || made[0] == kNoValue) continue;
    const size_t same = word.find('=');
    pattern.outputs.push_back(word.substr(0, same));
    pattern.same.push_back(same == std::string::npos ? "" : word.substr(same + 1));
  }
  return pattern;
}

void check_pattern(const Graph& graph, const Node& node, const Pattern& pattern) {
  const auto check = [&](const std::vector<ValueId>& ids, const std::vector<std::string>& words) {
    EPL_ASSERT(ids.size() == words.size(),
               concat(op_name(node), " has ", words.size(), " words for ", ids.size(), " tensors"));
    for (size_t i = 0; i < ids.size(); ++i) {
      EPL_ASSERT(sizes_of(graph, ids[i]).size() == words[i].size(),
                 concat(op_name(node), ": word \"", words[i], "\" for ",
                        print_type(graph.value(ids[i]).type)));
    }
  };
  check(inputs_of(node), pattern.inputs);
  check(outputs_of(node), pattern.outputs);
}

// --- from words to cuts -----------------------------------------------------------------------

InputSets partial_sets(Linear linear, size_t inputs) {
  InputSets sets;
  if (inputs == 0 || linear == Linear::kNo) return sets;
  if (linear == Linear::kAll) {
    sets.emplace_back();
    for (size_t i = 0; i < inputs; ++i) sets.back().push_back(i);
    return sets;
  }
  const size_t count = linear == Linear::kFirst ? 1 : inputs;
  for (size_t i = 0; i < count; ++i) sets.push_back({i});
  return sets;
}

// The pieces of two sizes hold the same share of their dimension on each device: heads and the
// columns of heads.
bool cut_alike(int64_t a, int64_t b, const Axis& parts) {
  if (a == b) return true;
  const std::vector<int64_t> of_a = pieces_of(a, parts);
  const std::vector<int64_t> of_b = pieces_of(b, parts);
  return std::equal(of_a.begin(), of_a.end(), of_b.begin(),
                    [&](int64_t here, int64_t there) { return here * b == there * a; });
}

class Cutter {
 public:
  Cutter(const Graph& graph, const Node& node, const Pattern& pattern, const Axis& parts)
      : graph_(graph), node_(node), pattern_(pattern), parts_(parts) {}

  std::vector<Cut> cuts() const {
    std::vector<Cut> cuts;
    for (char letter : all_letters()) {
      if (!may_cut(letter)) continue;
      Cut cut = cut_along(letter);
      if (may_sum_up(cut)) cuts.push_back(std::move(cut));
    }
    for (const auto& set : *pattern_.partial) {
      if (!may_be_partial(set)) continue;
      Cut cut = partial_cut(set);
      if (may_sum_up(cut)) cuts.push_back(std::move(cut));
    }
    return cuts;
  }

 private:
  std::string all_letters() const {
    std::string letters;
    for (const auto* words : {&pattern_.inputs, &pattern_.outputs}) {
      for (const auto& word : *words) {
        for (char c : word) {
          if (c != kBroadcast && letters.find(c) == std::string::npos) letters += c;
        }
      }
    }
    return letters;
  }

  bool may_cut(char letter) const {
    if (pattern_.whole.find(letter) != std::string::npos) return false;
    Sizes sizes;
    const auto collect = [&](const std::vector<ValueId>& ids,
                             const std::vector<std::string>& words) {
      for (size_t i = 0; i < ids.size(); ++i) {
        const size_t dim = words[i].find(letter);
        if (dim != std::string::npos) sizes.push_back(sizes_of(graph_, ids[i])[dim]);
      }
    };
    collect(inputs_of(node_), pattern_.inputs);
    collect(outputs_of(node_), pattern_.outputs);
    return std::all_of(sizes.begin(), sizes.end(), [&](int64_t size) {
      return size >= parts_.size && cut_alike(size, sizes[0], parts_);
    });
  }

  Cut cut_along(char letter) const {
    Cut cut;
    cut.letter = letter;
    for (const auto& word : pattern_.inputs) {
      const size_t dim = word.find(letter);
      cut.inputs.push_back(dim == std::string::npos ? Layout::whole()
                                                    : Layout::cut(static_cast<int>(dim)));
    }
    for (size_t i = 0; i < pattern_.outputs.size(); ++i) {
      const size_t dim = pattern_.outputs[i].find(letter);
      const bool same =
          i < pattern_.same.size() && pattern_.same[i].find(letter) != std::string::npos;
      const Layout without = same ? Layout::whole() : Layout::partial();
      cut.outputs.push_back(dim == std::string::npos ? without
                                                     : Layout::cut(static_cast<int>(dim)));
    }
    return cut;
  }

  // Draws are no sums of other draws, and devices do not sum up complex numbers.
  bool may_sum_up(const Cut& cut) const {
    const auto ids = outputs_of(node_);
    for (size_t i = 0; i < ids.size(); ++i) {
      if (!cut.outputs[i].is_partial()) continue;
      if (is_random(node_.op) || c10::isComplexType(graph_.value(ids[i]).type.dtype)) return false;
    }
    return true;
  }

  // Sums go through only where numbers stay numbers, and where no other argument is the same
  // value: x * x is not linear in x. A number that is broadcast takes no part in a sum of tensors.
  bool may_be_partial(const std::vector<size_t>& set) const {
    const auto inputs = inputs_of(node_);
    bool all_whole_numbers = true;
    for (size_t i : set) {
      const TensorType& type = graph_.value(inputs[i]).type;
      if (type.dtype == c10::ScalarType::Bool) return false;
      all_whole_numbers &= c10::isIntegralType(type.dtype, /*includeBool=*/true);
      if (set.size() > 1 && type.sizes.empty() != graph_.value(inputs[set[0]]).type.sizes.empty()) {
        return false;
      }
      for (size_t other = 0; other < inputs.size(); ++other) {
        const bool in_set = std::find(set.begin(), set.end(), other) != set.end();
        if (!in_set && inputs[other] == inputs[i]) return false;
      }
    }
    for (ValueId id : outputs_of(node_)) {
      const auto dtype = graph_.value(id).type.dtype;
      if (dtype == c10::ScalarType::Bool) return false;
      if (c10::isIntegralType(dtype, /*includeBool=*/true) && !all_whole_numbers) return false;
    }
    return true;
  }

  Cut partial_cut(const std::vector<size_t>& set) const {
    Cut cut;
    cut.inputs.assign(pattern_.inputs.size(), Layout::whole());
    for (size_t i : set) cut.inputs[i] = Layout::partial();
    cut.outputs.assign(pattern_.outputs.size(), Layout::partial());
    return cut;
  }

  const Graph& graph_;
  const Node& node_;
  const Pattern& pattern_;
  const Axis& parts_;
};

// as_strided and its kin name places in memory: what they read lies as it did when recorded.
void lay_as_recorded(const LocalNode& at, Node& local, Emitter& to) {
  if (op_name(local).rfind("aten::as_strided", 0) != 0) return;
  const TensorType& recorded = at.graph.value(tensor_at(at.node, 0)).type;
  ValueId& shown = local.arguments[0].values[0];
  if (to.graph().value(shown).type.same_place(recorded)) return;
  EPL_CHECK(recorded.dense() && recorded.offset == 0,
            concat(op_name(local),
                   " names places in memory around a part of a tensor, which lies "
                   "elsewhere where the step is cut over devices"),
            "the step function", "slice(), select() or a view");
  Sizes order(recorded.sizes.size());  // the outermost dimension first
  std::iota(order.begin(), order.end(), int64_t{0});
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return recorded.strides[static_cast<size_t>(a)] > recorded.strides[static_cast<size_t>(b)];
  });
  Sizes back(order.size());
  for (size_t i = 0; i < order.size(); ++i) {
    back[static_cast<size_t>(order[i])] = static_cast<int64_t>(i);
  }
  Expression e(to);
  const auto contiguous = static_cast<int64_t>(c10::MemoryFormat::Contiguous);
  const ValueId copy = e.scalar("aten::clone", e.scalar("aten::permute", shown, order), contiguous);
  shown = e.scalar("aten::permute", copy, back);
}

bool is_expanded(const OperatorRow& rule, const LocalNode& at) {
  if (rule.expand == nullptr) return false;
  const auto pattern = pattern_of(at.graph, at.node);
  const char letter = at.cut.letter == 0 ? kNothingCut : at.cut.letter;
  return pattern && pattern->expanded.find(letter) != std::string::npos;
}

void lay_as_wanted(Wants wants, Node& local, Emitter& to) {
  if (wants == Wants::kAnyPlaces) return;
  for_each_input(
      local, [&](ValueId& id) { id = wants == Wants::kDense ? to.dense(id) : to.dense_rows(id); });
}

}  // namespace

std::vector<int64_t> LocalNode::output_sizes(size_t index) const {
  return local_sizes(sizes_of(graph, outputs_of(node).at(index)), cut.outputs.at(index), parts,
                     part);
}

std::optional<Pattern> pattern_of(const Graph& graph, const Node& node) {
  const OperatorRow* rule = find_rule(node.op);
  if (rule == nullptr) return std::nullopt;
  std::optional<Pattern> pattern =
      rule->pattern != nullptr ? rule->pattern(graph, node) : pattern_from_text(*rule, graph, node);
  if (!pattern) return std::nullopt;
  check_pattern(graph, node, *pattern);
  if (!pattern->partial) pattern->partial = partial_sets(rule->linear, pattern->inputs.size());
  return pattern;
}

std::vector<Cut> cuts_of(const Graph& graph, const Node& node, const Axis& parts) {
  const auto pattern = pattern_of(graph, node);
  if (!pattern || parts.size < 2) return {};
  return Cutter(graph, node, *pattern, parts).cuts();
}

std::vector<ValueId> emit_local(const LocalNode& at, Emitter& to) {
  to.stand_for(at.node);
  const OperatorRow* rule = find_rule(at.node.op);
  if (rule != nullptr && is_expanded(*rule, at)) return rule->expand(at, to);
  Node local = local_copy(at);
  if (rule != nullptr && rule->localize != nullptr) rule->localize(at, local);
  lay_as_recorded(at, local, to);
  if (rule != nullptr) lay_as_wanted(rule->wants, local, to);
  std::vector<std::vector<int64_t>> sizes;
  for (size_t i = 0; i < at.cut.outputs.size(); ++i) sizes.push_back(at.output_sizes(i));
  return to.add(std::move(local), sizes, at.graph, at.node);
}

}  // namespace epl
