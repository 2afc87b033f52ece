#include "tests/rules/run_cut.h"

#include <ATen/core/LegacyTypeDispatch.h>
#include <gtest/gtest.h>

#include <map>
#include <thread>

#include "base/check.h"
#include "comm/communicator.h"
#include "comm/test_threads.h"
#include "ir/text.h"
#include "ops/facts.h"
#include "runtime/collectives.h"

namespace epl::testing {
namespace {

using Tensors = std::map<ValueId, at::Tensor>;

// --- the device's tensors ---------------------------------------------------------------------

// Random parts that sum up to the whole.
std::vector<at::Tensor> partial_sums(const at::Tensor& whole, int parts) {
  std::vector<at::Tensor> sums;
  at::Tensor rest = whole;
  for (int part = 1; part < parts; ++part) {
    sums.push_back(whole.is_floating_point() ? reals(whole.sizes()).to(whole.scalar_type())
                                             : wholes(5, whole.sizes()).to(whole.scalar_type()));
    rest = rest - sums.back();
  }
  sums.push_back(rest);
  return sums;
}

// Which inputs the node writes, by their place in for_each_input.
std::vector<size_t> written_inputs(const Node& node) {
  std::vector<size_t> written;
  for (size_t argument : written_arguments(node)) {
    size_t place = 0;
    for (size_t i = 0; i < argument; ++i) {
      for (ValueId id : node.arguments[i].values) place += id != kNoValue ? 1 : 0;
    }
    written.push_back(place);
  }
  return written;
}

at::Tensor laid_out(const at::Tensor& tensor, Places places) {
  const int64_t dim = places == Places::kRowGaps ? tensor.dim() - 1 : 1;
  if (places == Places::kPieces || dim < 0 || dim >= tensor.dim()) return tensor;
  auto sizes = tensor.sizes().vec();
  sizes[static_cast<size_t>(dim)] += 2;
  // What lies in the gaps would be seen.
  const at::Tensor larger = at::full(sizes, 77, tensor.options());
  const at::Tensor place = larger.narrow(dim, 1, tensor.size(dim));
  place.copy_(tensor);
  return place;
}

// The inputs of each device.
std::vector<std::vector<at::Tensor>> deal_out(const WholeCall& call, const Cut& cut,
                                              const Axis& parts, Places places) {
  std::vector<std::vector<at::Tensor>> dealt(static_cast<size_t>(parts.size));
  for (size_t i = 0; i < call.inputs().size(); ++i) {
    const at::Tensor& whole = call.inputs()[i];
    const Layout layout = cut.inputs[i];
    std::vector<at::Tensor> pieces(static_cast<size_t>(parts.size), whole);
    if (layout.is_partial()) pieces = partial_sums(whole, parts.size);
    for (int part = 0; part < parts.size; ++part) {
      at::Tensor& mine = pieces[static_cast<size_t>(part)];
      if (layout.is_cut()) {
        const Piece piece = piece_of(whole.size(layout.dim), parts, part);
        mine = whole.narrow(layout.dim, piece.begin, piece.length);
      }
      mine = laid_out(mine, places);
      dealt[static_cast<size_t>(part)].push_back(mine);
    }
  }
  for (auto& mine : dealt) {
    for (size_t i : written_inputs(call.node())) mine[i] = mine[i].clone();
  }
  return dealt;
}

at::Tensor put_together(const std::vector<at::Tensor>& pieces, Layout layout) {
  if (layout.is_cut()) return at::cat(pieces, layout.dim);
  at::Tensor result = pieces[0];
  for (size_t part = 1; part < pieces.size(); ++part) {
    if (layout.is_partial()) {
      result = result + pieces[part];
    } else {
      EXPECT_TRUE(at::allclose(result, pieces[part], 1e-9, 1e-12, /*equal_nan=*/true))
          << "device " << part << " has another whole";
    }
  }
  return result;
}

// --- running a device's graph -----------------------------------------------------------------

c10::IValue list_of(const std::vector<ValueId>& ids, const Tensors& tensors,
                    const c10::TypePtr& type) {
  const bool optionals = type->str().find("?") != std::string::npos;
  c10::List<c10::optional<at::Tensor>> optional_list;
  c10::List<at::Tensor> list;
  for (ValueId id : ids) {
    const at::Tensor tensor = id == kNoValue ? at::Tensor() : tensors.at(id);
    list.push_back(tensor);
    optional_list.push_back(tensor.defined() ? c10::make_optional(tensor) : c10::nullopt);
  }
  return optionals ? c10::IValue(optional_list) : c10::IValue(list);
}

void expect_type(const Graph& graph, ValueId id, const at::Tensor& tensor, const Node& node) {
  const Value& value = graph.value(id);
  const std::string where = print_node(graph, node);
  EXPECT_EQ(value.type.sizes, tensor.sizes().vec()) << where;
  EXPECT_EQ(value.type.dtype, tensor.scalar_type()) << where;
  if (value.storage == id) return;
  EXPECT_EQ(value.type.strides, tensor.strides().vec()) << where;
  EXPECT_EQ(value.type.offset, tensor.storage_offset()) << where;
}

void run_node(const Graph& graph, const Node& node, Tensors& tensors) {
  std::vector<c10::IValue> stack;
  for (size_t i = 0; i < node.arguments.size(); ++i) {
    const Argument& argument = node.arguments[i];
    if (argument.kind == Argument::Kind::kConstant) {
      stack.push_back(argument.constant);
    } else if (argument.kind == Argument::Kind::kValue) {
      stack.emplace_back(tensors.at(argument.values[0]));
    } else {
      stack.push_back(list_of(argument.values, tensors, node.op.schema().arguments()[i].type()));
    }
  }
  node.op.callBoxed(&stack);
  std::vector<at::Tensor> made;
  for (const auto& value : stack) {
    if (value.isTensor()) made.push_back(value.toTensor());
    if (value.isTensorList()) {
      for (const auto& item : value.toListRef()) made.push_back(item.toTensor());
    }
  }
  size_t next = 0;
  for (const auto& result : node.results) {
    for (ValueId id : result.values) {
      const at::Tensor tensor = made.at(next++);
      if (id == kNoValue) continue;
      tensors[id] = tensor;
      expect_type(graph, id, tensor, node);
    }
  }
}

struct Device {
  Graph graph;
  Tensors tensors;
  std::vector<ValueId> outputs;
  std::vector<std::string> communication;

  void run() {
    const at::AutoDispatchBelowADInplaceOrView below_autograd;
    for (const Node& node : graph.nodes) run_node(graph, node, tensors);
  }
};

Device make_device(const WholeCall& call, const Cut& cut, const Axis& parts, int part,
                   const std::vector<at::Tensor>& inputs) {
  Device device;
  std::vector<ValueId> ids;
  for (const auto& tensor : inputs) {
    ids.push_back(device.graph.add_value(type_of(tensor)));
    device.tensors[ids.back()] = tensor;
  }
  Emitter to(device.graph);
  device.outputs = emit_local({call.graph(), call.node(), cut, parts, part, ids}, to);
  for (const Node& node : device.graph.nodes) {
    if (op_name(node).rfind("epl::", 0) == 0) device.communication.push_back(op_name(node));
  }
  return device;
}

void run_together(std::vector<Device>& devices) {
  Watch watch;
  const auto ends = make_local_communicators(static_cast<int>(devices.size()), watch,
                                             {"rules", std::chrono::seconds(30)});
  expect_no_errors(run_members(ends, [&](Communicator& end) {
    const CollectiveScope scope({{kPartAxis, &end}});
    devices[static_cast<size_t>(end.rank())].run();
  }));
}

}  // namespace

// --- the whole call ---------------------------------------------------------------------------

WholeCall::WholeCall(const Example& example) {
  Node node{find_op(example.op), {}, {}, Phase::kForward, -1, {}};
  const auto& schema = node.op.schema();
  std::vector<c10::IValue> stack = example.arguments;
  for (size_t i = stack.size(); i < schema.arguments().size(); ++i) {
    const auto& left_out = schema.arguments()[i];
    EPL_ASSERT(left_out.default_value(), concat("argument ", left_out.name(), " of ", example.op));
    stack.push_back(*left_out.default_value());
  }
  for (const auto& value : stack) node.arguments.push_back(add_argument(value));
  graph_.nodes.push_back(node);
  std::vector<at::Tensor> written;
  for (size_t i : written_arguments(node)) {
    written.push_back(stack[i].toTensor().clone());
    stack[i] = written.back();
  }
  const at::AutoDispatchBelowADInplaceOrView below_autograd;
  node.op.callBoxed(&stack);
  take_results(stack);
  outputs_.insert(outputs_.end(), written.begin(), written.end());
}

Argument WholeCall::add_argument(const c10::IValue& value) {
  if (value.isTensor()) {
    const bool defined = value.toTensor().defined();
    return value_argument(defined ? add_input(value.toTensor()) : kNoValue);
  }
  const bool is_list = value.isList() && !value.isIntList() && !value.isDoubleList() &&
                       !value.isBoolList() && !value.toListRef().empty();
  if (!is_list) return constant_argument(value);
  std::vector<ValueId> ids;
  for (const auto& item : value.toListRef()) {
    const bool defined = item.isTensor() && item.toTensor().defined();
    ids.push_back(defined ? add_input(item.toTensor()) : kNoValue);
  }
  return list_argument(ids);
}

ValueId WholeCall::add_input(const at::Tensor& tensor) {
  ValueId id = kNoValue;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (inputs_[i].is_same(tensor)) id = ids_[i];
  }
  if (id == kNoValue) id = graph_.add_value(type_of(tensor));
  inputs_.push_back(tensor);
  ids_.push_back(id);
  return id;
}

ValueId WholeCall::add_output(const at::Tensor& tensor) {
  if (!tensor.defined()) return kNoValue;
  ValueId storage = kNoValue;
  for (size_t i = 0; i < inputs_.size(); ++i) {
    if (tensor.storage().is_alias_of(inputs_[i].storage())) storage = ids_[i];
  }
  outputs_.push_back(tensor);
  return graph_.add_value(type_of(tensor), storage);
}

void WholeCall::take_results(const std::vector<c10::IValue>& stack) {
  for (const auto& value : stack) {
    Result result;
    if (value.isTensor()) {
      result.values = {add_output(value.toTensor())};
    } else if (value.isTensorList()) {
      result.is_list = true;
      for (const auto& item : value.toListRef()) {
        result.values.push_back(add_output(item.toTensor()));
      }
    }
    graph_.nodes[0].results.push_back(result);
  }
}

std::vector<at::Tensor> run_cut(const WholeCall& call, const Cut& cut, const Axis& parts,
                                Places places) {
  const auto inputs = deal_out(call, cut, parts, places);
  std::vector<Device> devices;
  for (int part = 0; part < parts.size; ++part) {
    devices.push_back(make_device(call, cut, parts, part, inputs[static_cast<size_t>(part)]));
    EXPECT_EQ(devices.back().communication, devices[0].communication)
        << "devices communicate in the same order";
  }
  if (devices[0].communication.empty()) {
    for (Device& device : devices) device.run();
  } else {
    run_together(devices);
  }
  std::vector<at::Tensor> results;
  for (size_t i = 0; i < cut.outputs.size(); ++i) {
    std::vector<at::Tensor> pieces;
    for (const Device& device : devices) pieces.push_back(device.tensors.at(device.outputs[i]));
    const bool compare = has_contents(call.node(), i);
    results.push_back(compare ? put_together(pieces, cut.outputs[i]) : pieces[0]);
  }
  for (size_t i : written_inputs(call.node())) {
    std::vector<at::Tensor> pieces;
    for (const auto& mine : inputs) pieces.push_back(mine[i]);
    results.push_back(put_together(pieces, cut.inputs[i]));
  }
  return results;
}

bool has_contents(const Node& node, size_t output) {
  const bool bag = op_name(node) == "aten::_embedding_bag";
  const bool unused = bag && output == 3 && node.arguments[4].constant.toInt() != 2;
  return !unused && !is_workspace(node, output);
}

std::string print_cut(const Cut& cut) {
  std::string text = cut.letter == 0 ? "sum:" : std::string(1, cut.letter) + ":";
  for (const Layout layout : cut.inputs) text += " " + layout.str();
  text += " ->";
  for (const Layout layout : cut.outputs) text += " " + layout.str();
  return text;
}

}  // namespace epl::testing
