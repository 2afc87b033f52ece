#include "passes/purify.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cstdlib>
#include <map>
#include <set>

#include "base/check.h"
#include "ops/facts.h"

namespace epl {
namespace {

struct Dim {
  int64_t size;
  int64_t stride;
};

// Whether `distance` is a sum of k_i * stride_i with |k_i| < size_i; dims from large to small
// strides, each stride larger than what the dims after it span.
bool reaches(int64_t distance, const std::vector<Dim>& dims, size_t next) {
  if (next == dims.size()) return distance == 0;
  const auto [size, stride] = dims[next];
  const int64_t steps = distance / stride;
  for (int64_t k : {steps, steps + 1}) {
    if (k < size && reaches(std::abs(distance - k * stride), dims, next + 1)) return true;
  }
  return false;
}

bool nested(const std::vector<Dim>& dims) {
  int64_t span = 0;
  for (size_t i = dims.size(); i-- > 0;) {
    if (dims[i].stride <= span) return false;
    span += (dims[i].size - 1) * dims[i].stride;
  }
  return true;
}

std::vector<Dim> dims_of(const TensorType& type) {
  std::vector<Dim> dims;
  for (size_t i = 0; i < type.sizes.size(); ++i) {
    if (type.sizes[i] > 1) dims.push_back({type.sizes[i], type.strides[i]});
  }
  std::sort(dims.begin(), dims.end(),
            [](const Dim& a, const Dim& b) { return a.stride > b.stride; });
  return dims;
}

c10::OperatorHandle op_named(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "");
}

Argument value_argument(ValueId id) {
  Argument argument;
  argument.kind = Argument::Kind::kValue;
  argument.values = {id};
  return argument;
}

Argument constant_argument(c10::IValue constant) {
  Argument argument;
  argument.constant = std::move(constant);
  return argument;
}

// The place that a view operator gives on a tensor of this place, found on LibTorch's meta device.
std::vector<TensorType> infer_view(const Graph& graph, const Node& node) {
  torch::jit::Stack stack;
  for (const auto& argument : node.arguments) {
    if (argument.kind != Argument::Kind::kValue) {
      stack.push_back(argument.constant);
      continue;
    }
    const TensorType& type = graph.value(argument.values[0]).type;
    at::Tensor base = at::empty_strided(type.sizes, type.strides,
                                        at::TensorOptions().dtype(type.dtype).device(at::kMeta));
    stack.push_back(at::as_strided(base, type.sizes, type.strides, 0));
  }
  node.op.callBoxed(&stack);
  std::vector<TensorType> types;
  const auto add = [&](const at::Tensor& tensor) {
    types.push_back(type_of(tensor));
    types.back().offset += graph.value(node.arguments[0].values[0]).type.offset;
  };
  for (const auto& result : stack) {
    if (result.isTensor()) {
      add(result.toTensor());
    } else {
      for (const auto& item : result.toListRef()) add(item.toTensor());
    }
  }
  return types;
}

class Purifier {
 public:
  explicit Purifier(Graph& graph) : graph_(graph) {}

  bool run() {
    find_what_outlives();
    const bool moved = become_views();
    find_writes();
    if (pure_roots_.empty()) return moved;
    for (auto& node : graph_.nodes) {
      ++time_;
      rewrite(node);
    }
    for_each_returned(graph_, [&](ValueId& id) { id = read(id); });
    graph_.nodes = std::move(out_);
    return true;
  }

 private:
  struct Write {
    TensorType place;
    ValueId value;
    int time;
  };

  ValueId root(ValueId id) const { return graph_.value(id).storage; }

  void find_what_outlives() {
    for (const auto& leaf : graph_.leaves) {
      if (leaf.kind != Leaf::Kind::kInput) outlives_.insert(root(leaf.value));
    }
  }

  // transpose_ and its like change how a tensor is seen, not its contents: as views they leave the
  // tensor that they are given as it is, which a replay meets again in the next step.
  bool become_views() {
    bool any = false;
    for (Node& node : graph_.nodes) {
      const auto target = changes_place_only(node.op) ? pure_target(node) : std::nullopt;
      const auto functional = target ? functional_variant(node.op) : std::nullopt;
      if (!functional || outlives_.count(root(node.arguments[*target].values[0])) != 0) continue;
      node.op = *functional;
      node.arguments.resize(functional->schema().arguments().size());
      any = true;
    }
    return any;
  }

  // The one argument that an in-place or out= node writes, if it is one that can be made pure.
  static std::optional<size_t> pure_target(const Node& node) {
    const auto written = written_arguments(node);
    if (written.size() != 1 || node.arguments[written[0]].kind != Argument::Kind::kValue) return {};
    if (node.results.size() != 1 || node.results[0].is_list) return {};
    return written[0];
  }

  // The pure operator must give the dtype of what was written, though types are promoted.
  bool keeps_dtype(const Node& node, ValueId target) const {
    if (overwrites(node.op)) return true;
    const auto dtype = graph_.value(target).type.dtype;
    if (gives_truth(node.op)) return dtype == c10::ScalarType::Bool;
    const bool single = graph_.value(target).type.sizes.empty();
    bool keeps = true;
    for_each_input(node, [&](ValueId id) {
      const auto other = graph_.value(id).type.dtype;
      const bool weaker = c10::isFloatingType(dtype) && c10::isIntegralType(other, true);
      const bool number = !single && graph_.value(id).type.sizes.empty() &&
                          c10::isFloatingType(dtype) == c10::isFloatingType(other);
      keeps &= other == dtype || weaker || number;
    });
    return keeps;
  }

  bool can_be_pure(const Node& node) const {
    const auto target = pure_target(node);
    if (!target) return false;
    const ValueId id = node.arguments[*target].values[0];
    const TensorType& whole = graph_.value(root(id)).type;
    if (!whole.dense() || whole.offset != 0 || graph_.value(id).type.dtype != whole.dtype) {
      return false;
    }
    const auto functional = functional_variant(node.op);
    if (!functional) return false;
    // Which element gets which number depends on how the tensor lies.
    if (is_random(node.op) && !graph_.value(id).type.dense()) return false;
    // LibTorch gives an out= of another shape the shape of the result.
    const TensorType& result = graph_.value(node.results[0].values[0]).type;
    return result.same_place(graph_.value(id).type) && keeps_dtype(node, id);
  }

  // Whether the view would show something else on a new value, which is dense and begins at 0.
  bool depends_on_place(const Node& node) const {
    const std::string& name = node.op.operator_name().name;
    const bool anywhere = name == "aten::as_strided";
    if (!anywhere && name != "aten::_reshape_alias") return false;
    const ValueId id = node.arguments[0].values[0];
    const TensorType& type = graph_.value(id).type;
    return !type.dense() || (anywhere && !type.same_place(graph_.value(root(id)).type));
  }

  // Which storages are written in place, and which of those can be made pure.
  void find_writes() {
    std::set<ValueId> impure;
    for (const auto& node : graph_.nodes) {
      for (size_t i : written_arguments(node)) {
        for (ValueId id : node.arguments[i].values) {
          if (id == kNoValue) continue;
          pure_roots_.insert(root(id));
          if (outlives_.count(root(id)) != 0 || !can_be_pure(node)) impure.insert(root(id));
        }
      }
      if (depends_on_place(node)) impure.insert(root(node.arguments[0].values[0]));
    }
    for (ValueId id = 0; id < graph_.value_count(); ++id) {
      const ValueId whole = root(id);  // none for a number that no value has
      if (whole == kNoValue || graph_.value(id).type.dtype == graph_.value(whole).type.dtype)
        continue;
      impure.insert(whole);
    }
    for (ValueId id : impure) pure_roots_.erase(id);
  }

  void rewrite(Node& node) {
    const auto written = written_arguments(node);
    const bool pure = written.size() == 1 && !node.arguments[written[0]].values.empty() &&
                      node.arguments[written[0]].values[0] != kNoValue &&
                      pure_roots_.count(root(node.arguments[written[0]].values[0])) != 0;
    if (pure) {
      rewrite_write(node, written[0]);
    } else {
      rewrite_reads(node);
    }
  }

  void rewrite_write(const Node& node, size_t target) {
    const ValueId id = node.arguments[target].values[0];
    const ValueId result = node.results[0].values[0];
    const auto functional = *functional_variant(node.op);
    Node pure{functional, {}, {}, node.phase, node.taskgraph, {}, node.origin};
    for (size_t i = 0; i < functional.schema().arguments().size(); ++i) {
      pure.arguments.push_back(node.arguments[i]);
    }
    for_each_input(pure, [&](ValueId& input) { input = read(input); });
    TensorType type = graph_.value(id).type;
    const TensorType place = type;
    if (!type.dense()) type.strides = contiguous_strides(type.sizes);
    type.offset = 0;
    Result made;
    made.values = {graph_.add_value(type)};
    pure.results = {made};
    out_.push_back(std::move(pure));
    add_write(root(id), place, made.values[0]);
    set_now(result, made.values[0]);
  }

  void rewrite_reads(Node& node) {
    bool changed = false;
    for_each_input(node, [&](ValueId& id) {
      const ValueId current = read(id);
      changed |= current != id;
      id = current;
    });
    std::vector<ValueId> results;
    bool views = false;
    for_each_output(node, [&](ValueId id) {
      results.push_back(id);
      created_[id] = time_;
      views |= pure_roots_.count(root(id)) != 0 && root(id) != id;
    });
    if (changed && views) {
      emit_view(std::move(node), results);
    } else {
      out_.push_back(std::move(node));
    }
  }

  // A view node whose argument is another value than recorded makes values at other places.
  void emit_view(Node node, const std::vector<ValueId>& recorded) {
    const ValueId base = node.arguments[0].values[0];
    const std::vector<TensorType> types = infer_view(graph_, node);
    EPL_ASSERT(types.size() == recorded.size(), "a view gives as many values as recorded");
    std::vector<ValueId> made;
    for (const auto& type : types) made.push_back(graph_.add_value(type, root(base)));
    if (node.results.empty()) node.results.emplace_back();
    node.results[0].values = made;
    out_.push_back(std::move(node));
    for (size_t i = 0; i < made.size(); ++i) set_now(recorded[i], made[i]);
  }

  void set_now(ValueId recorded, ValueId pure) {
    now_[recorded] = pure;
    created_[recorded] = time_;
  }

  void add_write(ValueId storage, const TensorType& place, ValueId value) {
    auto& writes = writes_[storage];
    if (place.same_place(graph_.value(storage).type)) writes.clear();  // all of it is new
    writes.push_back({place, value, time_});
  }

  ValueId now(ValueId id) const {
    const auto found = now_.find(id);
    return found == now_.end() ? id : found->second;
  }

  // The pure value that has the contents of `id` at this moment.
  ValueId read(ValueId id) {
    const auto writes = writes_.find(root(id));
    if (writes == writes_.end()) return now(id);
    const TensorType place = graph_.value(id).type;
    const auto created = created_.find(id);
    const int since = created == created_.end() ? 0 : created->second;
    for (auto write = writes->second.rbegin(); write != writes->second.rend(); ++write) {
      if (write->time <= since) break;
      if (write->place.same_place(place)) return write->value;
      if (may_overlap(write->place, place)) return view_of_whole(id, place);
    }
    return now(id);
  }

  ValueId view_of_whole(ValueId id, const TensorType& place) {
    const ValueId whole = put_together(root(id));
    if (place.same_place(graph_.value(root(id)).type)) return whole;
    Node view{op_named("aten::as_strided"), {}, {}, Phase::kForward, -1, {}};
    view.arguments = {value_argument(whole), constant_argument(place.sizes),
                      constant_argument(place.strides), constant_argument(place.offset)};
    tag_like_current(view);
    Result made;
    made.values = {graph_.add_value(place, whole)};
    view.results = {made};
    out_.push_back(std::move(view));
    set_now(id, made.values[0]);
    return made.values[0];
  }

  ValueId put_together(ValueId storage) {
    auto& writes = writes_[storage];
    const TensorType type = graph_.value(storage).type;
    ValueId whole = now(storage);
    for (const auto& write : writes) {
      if (write.place.same_place(type)) {
        whole = write.value;
        continue;
      }
      Node scatter{op_named("aten::as_strided_scatter"), {}, {}, Phase::kForward, -1, {}};
      scatter.arguments = {
          value_argument(whole), value_argument(write.value), constant_argument(write.place.sizes),
          constant_argument(write.place.strides), constant_argument(write.place.offset)};
      tag_like_current(scatter);
      Result made;
      made.values = {graph_.add_value(type)};
      scatter.results = {made};
      whole = made.values[0];
      out_.push_back(std::move(scatter));
    }
    writes = {{type, whole, time_}};
    return whole;
  }

  void tag_like_current(Node& node) const {
    const size_t index = std::min(static_cast<size_t>(time_), graph_.nodes.size()) - 1;
    node.phase = graph_.nodes[index].phase;
    node.taskgraph = graph_.nodes[index].taskgraph;
    node.origin = graph_.nodes[index].origin.beside();
  }

  Graph& graph_;
  std::vector<Node> out_;
  int time_ = 0;
  std::set<ValueId> outlives_;  // storages that are there after the step
  std::set<ValueId> pure_roots_;
  std::map<ValueId, ValueId> now_;
  std::map<ValueId, int> created_;
  std::map<ValueId, std::vector<Write>> writes_;  // by root, oldest first
};

}  // namespace

bool may_overlap(const TensorType& a, const TensorType& b) {
  if (a.numel() == 0 || b.numel() == 0) return false;
  const int64_t item_a = a.item_bytes(), item_b = b.item_bytes();
  if (a.extent_bytes() <= b.offset * item_b || b.extent_bytes() <= a.offset * item_a) return false;
  if (a.sizes != b.sizes || a.strides != b.strides || item_a != item_b) return true;
  const std::vector<Dim> dims = dims_of(a);
  return !nested(dims) || reaches(std::abs(a.offset - b.offset), dims, 0);
}

bool Purify::run(Graph& graph) { return Purifier(graph).run(); }

}  // namespace epl
