#include "ops/emit.h"

#include <ATen/Functions.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/List.h>
#include <ATen/core/jit_type.h>

#include <algorithm>
#include <map>
#include <numeric>

#include "base/check.h"
#include "ops/facts.h"

namespace epl {
namespace {

// Tensors without contents that lie as the values of a graph do. Values of one storage share one,
// so that a view of them is known by its storage.
class Shapes {
 public:
  explicit Shapes(const Graph& graph) : graph_(graph) {}

  at::Tensor of(ValueId id) {
    if (id == kNoValue) return at::Tensor();
    const TensorType& type = graph_.value(id).type;
    EPL_ASSERT(type.layout == c10::kStrided, "only strided tensors are worked out by their shapes");
    const auto options = at::TensorOptions().dtype(type.dtype).device(c10::kMeta);
    const int64_t length = type.extent_bytes() / type.item_bytes();
    const at::Tensor tensor =
        at::empty({length}, options).as_strided(type.sizes, type.strides, type.offset);
    roots_[tensor.storage().unsafeGetStorageImpl()] = graph_.value(id).storage;
    kept_.push_back(tensor);
    return tensor;
  }

  // The storage that `result` is a view of, kNoValue where it is new.
  ValueId root_of(const at::Tensor& result) const {
    const auto known = roots_.find(result.storage().unsafeGetStorageImpl());
    return known == roots_.end() ? kNoValue : known->second;
  }

 private:
  const Graph& graph_;
  std::map<const c10::StorageImpl*, ValueId> roots_;
  std::vector<at::Tensor> kept_;
};

bool holds_optionals(const c10::TypePtr& type) {
  c10::TypePtr inner = type;
  if (auto optional = inner->cast<c10::OptionalType>()) inner = optional->getElementType();
  return inner->expectRef<c10::ListType>().getElementType()->kind() == c10::TypeKind::OptionalType;
}

c10::IValue shape_argument(const Argument& argument, const c10::Argument& schema, Shapes& shapes) {
  if (argument.kind == Argument::Kind::kConstant) {
    return schema.name() == "device" ? c10::IValue(c10::Device(c10::kMeta)) : argument.constant;
  }
  if (argument.kind == Argument::Kind::kValue) return shapes.of(argument.values[0]);
  if (holds_optionals(schema.type())) {
    c10::List<c10::optional<at::Tensor>> list;
    for (ValueId id : argument.values) {
      list.push_back(id == kNoValue ? c10::nullopt : c10::make_optional(shapes.of(id)));
    }
    return list;
  }
  c10::List<at::Tensor> list;
  for (ValueId id : argument.values) list.push_back(shapes.of(id));
  return list;
}

// The tensors that the node makes, without contents.
std::vector<at::Tensor> run_on_shapes(const Node& node, Shapes& shapes) {
  std::vector<c10::IValue> stack;
  const auto& arguments = node.op.schema().arguments();
  for (size_t i = 0; i < node.arguments.size(); ++i) {
    stack.push_back(shape_argument(node.arguments[i], arguments[i], shapes));
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  node.op.callBoxed(&stack);
  std::vector<at::Tensor> results;
  for (const auto& value : stack) {
    if (value.isTensor() && value.toTensor().defined()) {
      results.push_back(value.toTensor());
    } else if (value.isTensorList()) {
      for (const auto& item : value.toListRef()) results.push_back(item.toTensor());
    }
  }
  return results;
}

TensorType contiguous_type(c10::ScalarType dtype, std::vector<int64_t> sizes) {
  TensorType type;
  type.dtype = dtype;
  type.strides = contiguous_strides(sizes);
  type.sizes = std::move(sizes);
  return type;
}

// Dense, in the order of dimensions that the strides of `whole` tell.
TensorType like_whole(const TensorType& whole, std::vector<int64_t> sizes) {
  if (whole.layout != c10::kStrided) {
    TensorType type = whole;
    type.sizes = std::move(sizes);
    return type;
  }
  std::vector<size_t> order(sizes.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return whole.strides[a] > whole.strides[b]; });
  TensorType type = contiguous_type(whole.dtype, std::move(sizes));
  int64_t next = 1;
  for (auto dim = order.rbegin(); dim != order.rend(); ++dim) {
    type.strides[*dim] = next;
    next *= std::max<int64_t>(type.sizes[*dim], 1);
  }
  return type;
}

// Whether an output lies in the storage of what the node reads.
bool shows_an_input(const Graph& graph, const Node& node) {
  bool shows = false;
  for_each_output(node, [&](ValueId made) {
    for_each_input(node, [&](ValueId read) {
      shows |= graph.value(made).storage == graph.value(read).storage;
    });
  });
  return shows;
}

bool of_sizes(const std::vector<Value>& values, const std::vector<std::vector<int64_t>>& sizes) {
  return std::equal(values.begin(), values.end(), sizes.begin(), sizes.end(),
                    [](const Value& value, const auto& of) { return value.type.sizes == of; });
}

}  // namespace

c10::OperatorHandle find_op(const std::string& name) {
  const size_t dot = name.find('.', name.find("::") + 2);
  const std::string overload = dot == std::string::npos ? "" : name.substr(dot + 1);
  return c10::Dispatcher::singleton().findSchemaOrThrow(name.substr(0, dot).c_str(),
                                                        overload.c_str());
}

Argument value_argument(ValueId id) {
  Argument argument;
  argument.kind = Argument::Kind::kValue;
  argument.values = {id};
  return argument;
}

Argument list_argument(std::vector<ValueId> ids) {
  Argument argument;
  argument.kind = Argument::Kind::kList;
  argument.values = std::move(ids);
  return argument;
}

Argument constant_argument(c10::IValue constant) {
  Argument argument;
  argument.constant = std::move(constant);
  return argument;
}

void Emitter::stand_for(const Node& node) {
  phase_ = node.phase;
  taskgraph_ = node.taskgraph;
  chunk_ = node.chunk;
  origin_ = node.origin.beside();
  origin_.marked = node.origin.marked;
}

ValueId Emitter::call(const std::string& op, std::vector<Argument> arguments) {
  Node node = node_of(op, std::move(arguments));
  Shapes shapes(graph_);
  const auto made = run_on_shapes(node, shapes);
  EPL_ASSERT(made.size() == 1, op + " makes one tensor");
  return append(std::move(node), {type_of(made[0]), shapes.root_of(made[0])});
}

ValueId Emitter::call_for(const std::string& op, std::vector<Argument> arguments,
                          std::vector<int64_t> sizes) {
  Node node = node_of(op, std::move(arguments));
  const auto dtype = graph_.value(node.arguments.at(0).values.at(0)).type.dtype;
  return append(std::move(node), {contiguous_type(dtype, std::move(sizes)), kNoValue});
}

ValueId Emitter::call_like(const std::string& op, std::vector<Argument> arguments) {
  Node node = node_of(op, std::move(arguments));
  const TensorType& type = graph_.value(node.arguments.at(0).values.at(0)).type;
  return append(std::move(node), {like_whole(type, type.sizes), kNoValue});
}

// The arguments that are left out have their defaults.
Node Emitter::node_of(const std::string& op, std::vector<Argument> arguments) const {
  Node node{find_op(op), std::move(arguments), {}, phase_, taskgraph_, {}, origin_, chunk_};
  const auto& schema = node.op.schema();
  EPL_ASSERT(schema.returns().size() == 1, op + " makes one tensor");
  for (size_t i = node.arguments.size(); i < schema.arguments().size(); ++i) {
    const auto& left_out = schema.arguments()[i];
    EPL_ASSERT(left_out.default_value(), concat("argument ", left_out.name(), " of ", op));
    node.arguments.push_back(constant_argument(*left_out.default_value()));
  }
  return node;
}

ValueId Emitter::append(Node node, const Value& made) {
  Result result;
  result.values = {graph_.add_value(made.type, made.storage)};
  node.results = {result};
  graph_.nodes.push_back(std::move(node));
  return result.values[0];
}

ValueId Emitter::dense(ValueId id) {
  return graph_.value(id).type.dense() ? id : contiguous_copy(id);
}

ValueId Emitter::dense_rows(ValueId id) {
  const TensorType& type = graph_.value(id).type;
  const bool side_by_side =
      type.sizes.empty() || type.sizes.back() == 1 || type.strides.back() == 1;
  return side_by_side ? id : contiguous_copy(id);
}

ValueId Emitter::contiguous_copy(ValueId id) {
  const auto contiguous = static_cast<int64_t>(c10::MemoryFormat::Contiguous);
  return call("aten::clone", {value_argument(id), constant_argument(contiguous)});
}

// What a node makes that shows the memory of what it reads. Nothing where LibTorch cannot tell: the
// result is a tensor of its own then, and whoever runs the node copies it there.
std::vector<Value> Emitter::views_of(Node& node) {
  for (bool copied : {false, true}) {
    Shapes shapes(graph_);
    try {
      std::vector<Value> views;
      for (const auto& tensor : run_on_shapes(node, shapes)) {
        views.push_back({type_of(tensor), shapes.root_of(tensor)});
      }
      return views;
    } catch (const c10::Error&) {
      ValueId& shown = node.arguments[0].values.at(0);
      const TensorType& type = graph_.value(shown).type;
      if (copied || type.strides == contiguous_strides(type.sizes)) break;
      shown = contiguous_copy(shown);
    }
  }
  return {};
}

// What a node writes in place lies where the argument lies.
std::vector<Value> Emitter::written_by(const Node& node, const Graph& like_graph,
                                       const Node& like) const {
  std::vector<ValueId> local;
  for_each_input(node, [&](ValueId id) { local.push_back(id); });
  std::vector<Value> made;
  for_each_output(like, [&](ValueId output) {
    const Value& whole = like_graph.value(output);
    size_t at = 0;
    bool found = false;
    for_each_input(like, [&](ValueId input) {
      const Value& read = like_graph.value(input);
      if (!found && read.storage == whole.storage && read.type.same_place(whole.type)) {
        made.push_back(graph_.value(local[at]));
        found = true;
      }
      ++at;
    });
  });
  return made;
}

std::vector<ValueId> Emitter::add(Node node, const std::vector<std::vector<int64_t>>& sizes,
                                  const Graph& like_graph, const Node& like) {
  std::vector<Value> made;
  if (shows_an_input(like_graph, like)) {
    const bool writes = !written_arguments(like).empty();
    made = writes ? written_by(node, like_graph, like) : views_of(node);
  }
  if (made.empty()) {
    for_each_output(like, [&](ValueId id) {
      made.push_back({like_whole(like_graph.value(id).type, sizes.at(made.size())), kNoValue});
    });
  }
  EPL_ASSERT(of_sizes(made, sizes), concat(op_name(node), " makes what was expected of it, not ",
                                           made.empty() ? "nothing" : print_type(made[0].type)));
  std::vector<ValueId> outputs;
  node.results = like.results;
  for_each_output(node, [&](ValueId& id) {
    const Value& value = made[outputs.size()];
    id = graph_.add_value(value.type, value.storage);
    outputs.push_back(id);
  });
  graph_.nodes.push_back(std::move(node));
  return outputs;
}

}  // namespace epl
