#include "sharding/slice_cuts.h"

#include <algorithm>
#include <functional>
#include <numeric>

#include "ops/facts.h"
#include "ops/rule_parts.h"

namespace epl {
namespace {

// In the order of elements a tensor that is cut is [before, parts, behind], and a view keeps that
// order: the layout of the same elements in other sizes.
std::optional<Layout> shown_in(const Sizes& from, Layout layout, const Sizes& to, int parts) {
  const int64_t before =
      std::accumulate(from.begin(), from.begin() + layout.dim, layout.runs, std::multiplies<>());
  int64_t prefix = 1;
  for (size_t dim = 0; dim < to.size() && prefix <= before; prefix *= to[dim++]) {
    if (prefix == 0) break;  // nothing is in it
    if (before % prefix != 0) continue;
    const int64_t runs = before / prefix;
    if (runs > 0 && to[dim] % (runs * parts) == 0) return Layout::cut(static_cast<int>(dim), runs);
  }
  return std::nullopt;
}

bool same_argument(const Argument& a, const Argument& b) {
  if (a.kind != b.kind || a.values != b.values) return false;
  return a.kind != Argument::Kind::kConstant || a.constant == b.constant;
}

bool same_nodes(const Graph& a, const Graph& b) {
  return std::equal(a.nodes.begin(), a.nodes.end(), b.nodes.begin(), b.nodes.end(),
                    [](const Node& x, const Node& y) {
                      return op_name(x) == op_name(y) &&
                             std::equal(x.arguments.begin(), x.arguments.end(), y.arguments.begin(),
                                        y.arguments.end(), same_argument);
                    });
}

// An operator that writes in place is cut as the one that makes something new, where that runs on a
// piece as it is.
Node as_pure(const Node& node) {
  const auto pure = functional_variant(node.op);
  if (!pure || find_rule(node.op) != nullptr) return node;
  const OperatorRow* const rule = find_rule(*pure);
  const bool as_it_is = rule != nullptr && rule->localize == nullptr && rule->expand == nullptr;
  const bool same_arguments =
      pure->schema().arguments().size() == node.op.schema().arguments().size();
  if (!as_it_is || !same_arguments) return node;
  Node result = node;
  result.op = *pure;
  return result;
}

bool cuts_something(const Cut& cut) {
  const auto is_cut = [](Layout layout) { return layout.is_cut(); };
  return std::any_of(cut.inputs.begin(), cut.inputs.end(), is_cut) ||
         std::any_of(cut.outputs.begin(), cut.outputs.end(), is_cut);
}

}  // namespace

// Pieces of one size, so that all devices run the same.
bool SliceCuts::in_even_runs(ValueId id, Layout layout) const {
  if (!layout.is_cut()) return true;
  return sizes_of(graph_, id)[static_cast<size_t>(layout.dim)] % (layout.runs * parts_) == 0;
}

bool SliceCuts::with_runs(const Node& node, int64_t runs, Cut& cut) const {
  const auto set = [&](const std::vector<ValueId>& ids, std::vector<Layout>& layouts) {
    for (size_t i = 0; i < ids.size(); ++i) {
      if (layouts[i].is_cut()) layouts[i].runs = runs;
      if (!in_even_runs(ids[i], layouts[i])) return false;
    }
    return true;
  };
  return set(inputs_of(node), cut.inputs) && set(outputs_of(node), cut.outputs);
}

// Those of the largest input that is cut there; none where there is no such input.
std::optional<int64_t> SliceCuts::runs_of(const Node& node, const std::vector<Layout>& read,
                                          const Cut& cut) const {
  const auto ids = inputs_of(node);
  std::optional<int64_t> runs;
  int64_t largest = -1;
  for (size_t i = 0; i < ids.size(); ++i) {
    const bool along =
        read[i].is_cut() && cut.inputs[i].is_cut() && read[i].dim == cut.inputs[i].dim;
    const int64_t elements = graph_.value(ids[i]).type.numel();
    if (!along || elements <= largest) continue;
    largest = elements;
    runs = read[i].runs;
  }
  return runs;
}

// What it emits for the first device and for the last.
bool SliceCuts::same_on_all_parts(const Node& node, const Cut& cut) const {
  const OperatorRow* const rule = find_rule(node.op);
  if (rule == nullptr || (rule->localize == nullptr && rule->expand == nullptr)) return true;
  const auto emitted = [&](int part) {
    Graph scratch;
    LocalNode at{graph_, node, cut, parts_, part, {}};
    for_each_input(node, [&](ValueId id) {
      TensorType local = graph_.value(id).type;
      local.sizes = local_sizes(local.sizes, cut.inputs[at.inputs.size()], parts_, part);
      local.strides = contiguous_strides(local.sizes);
      local.offset = 0;
      at.inputs.push_back(scratch.add_value(local));
    });
    Emitter emitter(scratch);
    emit_local(at, emitter);
    return scratch;
  };
  return same_nodes(emitted(0), emitted(parts_ - 1));
}

std::vector<Cut> SliceCuts::of_view(const Node& node, const Layout& read) const {
  const ValueId shown = inputs_of(node)[0];
  const ValueId made = outputs_of(node)[0];
  const auto layout = shown_in(sizes_of(graph_, shown), read, sizes_of(graph_, made), parts_);
  if (!layout || (layout->runs > 1 && !runs_)) return {};
  return {Cut{kRows, {read}, {*layout}}};
}

std::vector<Cut> SliceCuts::along(const Node& node, const std::vector<Layout>& read) const {
  if (reshapes(node.op) && read[0].is_cut()) return of_view(node, read[0]);
  std::vector<Cut> found;
  for (Cut& cut : cuts_of(graph_, as_pure(node), parts_)) {
    if (cut.letter == 0) {
      bool sums = false;
      for (size_t i = 0; i < read.size(); ++i) {
        sums |= read[i].is_partial() && cut.inputs[i].is_partial();
      }
      if (sums) found.push_back(std::move(cut));
      continue;
    }
    const auto runs = runs_of(node, read, cut);
    const bool fits = runs && with_runs(node, *runs, cut) && same_on_all_parts(node, cut);
    if (fits) found.push_back(std::move(cut));
  }
  return found;
}

Layout SliceCuts::like_inputs(const Node& node, const std::vector<Layout>& read,
                              ValueId output) const {
  const auto ids = inputs_of(node);
  const Sizes& made = sizes_of(graph_, output);
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!read[i].is_cut()) continue;
    const auto dim = static_cast<size_t>(read[i].dim);
    if (dim < made.size() && made[dim] == sizes_of(graph_, ids[i])[dim]) return read[i];
  }
  return Layout::whole();
}

bool SliceCuts::trains_batch_norm(const Node& node) {
  const std::string name = op_name(node);
  if (name == "aten::native_batch_norm") return node.arguments[5].constant.toBool();
  return name == "aten::native_batch_norm_backward" && node.arguments[7].constant.toBool();
}

// Its statistics are those of the device, and nobody's but its derivative's; gradients of weight
// and bias are sums.
std::optional<Cut> SliceCuts::of_batch_norm(const Node& node, const std::vector<Layout>& read,
                                            const std::set<ValueId>& own) const {
  if (!trains_batch_norm(node)) return std::nullopt;
  const bool backward = op_name(node) == "aten::native_batch_norm_backward";
  const size_t input = backward ? 1 : 0;
  if (!read[input].is_cut() || read[input].dim == 1) return std::nullopt;
  Cut cut{kRows, std::vector<Layout>(read.size()), {}};
  cut.inputs[0] = cut.inputs[input] = read[input];
  const auto ids = inputs_of(node);
  for (size_t i = input + 1; i < ids.size(); ++i) {
    if (own.count(ids[i]) != 0) cut.inputs[i] = read[i];
  }
  const auto made = outputs_of(node);
  for (ValueId id : made) {
    const bool like_input = sizes_of(graph_, id) == sizes_of(graph_, ids[input]);
    cut.outputs.push_back(like_input ? read[input] : Layout::partial());
  }
  return cut;
}

std::optional<Cut> SliceCuts::that_makes(const Node& node,
                                         const std::vector<std::optional<Layout>>& wanted) const {
  const auto made = outputs_of(node);
  if (reshapes(node.op)) {
    const ValueId shown = inputs_of(node)[0];
    if (!wanted[0]->is_cut()) return std::nullopt;
    const auto layout =
        shown_in(sizes_of(graph_, made[0]), *wanted[0], sizes_of(graph_, shown), parts_);
    if (!layout) return std::nullopt;
    return Cut{kRows, {*layout}, {*wanted[0]}};
  }
  const auto first = std::find_if(wanted.begin(), wanted.end(),
                                  [](const auto& layout) { return layout->is_cut(); });
  for (Cut& cut : cuts_of(graph_, node, parts_)) {
    const bool fits = cut.letter != 0 && with_runs(node, (*first)->runs, cut);
    if (!fits) continue;
    bool makes = true;
    for (size_t i = 0; i < made.size(); ++i) {
      makes &= wanted[i]->is_partial() || *wanted[i] == cut.outputs[i];
    }
    if (makes && cuts_something(cut) && same_on_all_parts(node, cut)) return cut;
  }
  return std::nullopt;
}

}  // namespace epl
