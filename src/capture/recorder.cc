#include "capture/recorder.h"

#include <ATen/CPUGeneratorImpl.h>
#include <ATen/Functions.h>
#include <ATen/SequenceNumber.h>
#include <ATen/core/List.h>
#include <c10/core/GradMode.h>

#include <algorithm>
#include <chrono>
#include <limits>

#include "base/check.h"
#include "capture/ghost.h"
#include "capture/watched_inputs.h"
#include "config/scopes.h"
#include "ops/facts.h"

namespace epl {
namespace {

bool has_storage(const at::Tensor& tensor) { return tensor.layout() == c10::kStrided; }

c10::StorageImpl* storage_of(const at::Tensor& tensor) {
  return tensor.storage().unsafeGetStorageImpl();
}

// The same bytes at the same place of a storage of their own.
at::Tensor copy_in_place(const at::Tensor& tensor) {
  if (is_ghost(tensor)) return make_ghost_like(tensor);
  const auto bytes = static_cast<int64_t>(tensor.storage().nbytes());
  const auto options = tensor.options().requires_grad(false);
  const at::Tensor whole =
      at::empty({0}, options.dtype(at::kByte)).set_(tensor.storage(), 0, {bytes}, {1});
  return at::empty({0}, options)
      .set_(whole.clone().storage(), tensor.storage_offset(), tensor.sizes(), tensor.strides());
}

// one_hot looks for class numbers out of range. Where it was not told the number of classes, it
// also makes as many columns as it finds.
bool reads_back_for_checks(const std::vector<EnclosingOp>& enclosing) {
  return std::any_of(enclosing.begin(), enclosing.end(), [](const EnclosingOp& op) {
    return op.name == "aten::one_hot" && op.inputs.size() == 2 && op.inputs[1].isInt() &&
           op.inputs[1].toInt() > 0;
  });
}

bool returns_tensors(const c10::FunctionSchema& schema) {
  return std::any_of(schema.returns().begin(), schema.returns().end(), [](const auto& r) {
    const auto kind = r.type()->kind();
    return kind == c10::TypeKind::TensorType || kind == c10::TypeKind::ListType ||
           kind == c10::TypeKind::OptionalType;
  });
}

template <typename Visit>
void for_each_tensor(const c10::IValue& value, Visit visit) {
  if (value.isTensor()) {
    visit(value.toTensor());
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    for (const auto& item : value.toListRef())
      visit(item.isNone() ? at::Tensor() : item.toTensor());
  }
}

double seconds_of(const Recorder::Kernel& kernel) {
  const auto start = std::chrono::steady_clock::now();
  kernel();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace

bool Recorder::Place::operator<(const Place& other) const {
  return std::tie(storage, type.offset, type.sizes, type.strides, type.dtype) <
         std::tie(other.storage, other.type.offset, other.type.sizes, other.type.strides,
                  other.type.dtype);
}

void Recorder::remember(const at::Tensor& tensor, ValueId id) {
  by_impl_[tensor.unsafeGetTensorImpl()] = id;
  impls_.emplace_back(tensor.getIntrusivePtr());
  if (!has_storage(tensor)) return;
  by_place_[Place{storage_of(tensor), type_of(tensor)}] = id;
  if (roots_.emplace(storage_of(tensor), graph_.value(id).storage).second) {
    storages_.emplace_back(tensor.storage().getWeakStorageImpl());
  }
}

ValueId Recorder::root_of(const at::Tensor& tensor) const {
  if (!has_storage(tensor)) return kNoValue;
  const auto root = roots_.find(storage_of(tensor));
  return root == roots_.end() ? kNoValue : root->second;
}

ValueId Recorder::find(const at::Tensor& tensor) const {
  const auto seen = by_impl_.find(tensor.unsafeGetTensorImpl());
  const bool strided = has_storage(tensor);
  // A TensorImpl can be pointed at other memory (set_data): then its old value is not what it
  // holds.
  if (seen != by_impl_.end() &&
      (!strided || (graph_.value(seen->second).type.same_place(type_of(tensor)) &&
                    graph_.value(seen->second).storage == root_of(tensor)))) {
    return seen->second;
  }
  if (!strided) return kNoValue;
  const auto place = by_place_.find(Place{storage_of(tensor), type_of(tensor)});
  return place == by_place_.end() ? kNoValue : place->second;
}

void Recorder::declare(Leaf leaf, const at::Tensor& tensor) {
  if (find(tensor) != kNoValue) return;
  if (tensor.is_conj() || tensor.is_neg()) {
    cannot_be_replayed(concat("`", leaf.name, "`, ", print_type(type_of(tensor)), ", is the ",
                              tensor.is_conj() ? "conjugate" : "negative",
                              " of what lies in its memory, by a bit that LibTorch keeps for it: "
                              "resolve_conj() or resolve_neg() makes it an ordinary tensor"));
  }
  leaf.value = graph_.add_value(type_of(tensor), root_of(tensor));
  varies_.push_back(leaf.kind != Leaf::Kind::kConstant);
  producer_.push_back(-1);
  remember(tensor, leaf.value);
  graph_.leaves.push_back(std::move(leaf));
}

ValueId Recorder::value_of(const at::Tensor& tensor) {
  if (!tensor.defined()) return kNoValue;
  ValueId id = find(tensor);
  if (id == kNoValue) {
    const std::string foreign = foreign_.maker_of(tensor);
    if (!foreign.empty()) {
      cannot_be_replayed(
          concat("it reads ", print_type(type_of(tensor)), " that ", foreign,
                 " computed on another thread: a replay would not compute it again"));
    }
    if (is_unasked(tensor)) {
      cannot_be_replayed(concat("it reads ", print_type(type_of(tensor)),
                                ", a gradient that it did not ask its operator for"));
    }
    Leaf leaf;
    leaf.kind = Leaf::Kind::kConstant;
    leaf.name = "constant." + std::to_string(graph_.leaves.size());
    leaf.tensor = tensor.detach();
    const bool borrowed = has_storage(tensor) && tensor.storage().allocator() == nullptr;
    const at::Tensor contents = borrowed ? copy_in_place(leaf.tensor) : at::Tensor();
    // A number that C++ wrapped takes part in type promotion as a number: keep that.
    if (tensor.unsafeGetTensorImpl()->is_wrapped_number()) {
      leaf.tensor.unsafeGetTensorImpl()->set_wrapped_number(true);
    }
    declare(std::move(leaf), tensor);
    id = graph_.leaves.back().value;
    // The user may change it in place between steps; numbers cannot change. Whether borrowed memory
    // is the user's, as all that torch::load() read, or the step's own is known when it has ended.
    varies_.back() = !tensor.unsafeGetTensorImpl()->is_wrapped_number();
    if (borrowed) temporaries_[id] = {graph_.leaves.size() - 1, contents, /*borrowed=*/true, false};
  } else {
    remember(tensor, id);
  }
  return id;
}

Argument Recorder::read(const c10::IValue& value) {
  Argument argument;
  if (value.isTensor()) {
    argument.kind = Argument::Kind::kValue;
    argument.values = {value_of(value.toTensor())};
  } else if (value.isTensorList() || value.isOptionalTensorList()) {
    argument.kind = Argument::Kind::kList;
    for_each_tensor(value, [&](const at::Tensor& t) { argument.values.push_back(value_of(t)); });
  } else {
    // Lists are shared by reference and kernels may move out of them: keep a copy of our own.
    argument.constant = value.isList() ? c10::IValue(value.deepcopy()) : value;
  }
  return argument;
}

ValueId Recorder::define(const at::Tensor& tensor) {
  if (!tensor.defined()) return kNoValue;
  const ValueId id = graph_.add_value(type_of(tensor), root_of(tensor));
  varies_.push_back(false);
  producer_.push_back(static_cast<int>(graph_.nodes.size()));
  remember(tensor, id);
  return id;
}

Result Recorder::define(const c10::IValue& value) {
  Result result;
  result.is_list = value.isTensorList();
  for_each_tensor(value, [&](const at::Tensor& t) { result.values.push_back(define(t)); });
  return result;
}

// Whether a kernel makes what it was not asked for depends on the sizes of its inputs and on the
// threads of a device: nobody may wait for it, nor read it.
Result Recorder::leave_out(const c10::IValue& value) {
  for_each_tensor(value, [&](const at::Tensor& t) {
    if (t.defined() && has_storage(t)) unasked_.emplace_back(t.storage().getWeakStorageImpl());
  });
  return Result{false, {kNoValue}};
}

bool Recorder::is_unasked(const at::Tensor& tensor) const {
  if (!has_storage(tensor)) return false;
  return std::any_of(unasked_.begin(), unasked_.end(), [&](const WeakStorage& storage) {
    return storage._unsafe_get_target() == storage_of(tensor) && !storage.expired();
  });
}

bool Recorder::varies(const Node& node) const {
  if (is_random(node.op)) return true;
  bool result = false;
  for_each_input(node, [&](ValueId id) { result |= varies_[static_cast<size_t>(id)]; });
  return result;
}

// What lies in the storage that a varying node wrote varies from now on.
void Recorder::spread_variation(const Node& node) {
  std::set<ValueId> written;
  for (size_t i : written_arguments(node)) {
    for (ValueId id : node.arguments[i].values) {
      if (id != kNoValue) written.insert(graph_.value(id).storage);
    }
  }
  if (written.empty()) return;
  for (ValueId id = 0; id < graph_.value_count(); ++id) {
    if (written.count(graph_.value(id).storage) != 0) varies_[static_cast<size_t>(id)] = true;
  }
}

// Whether C++ got a number from the contents of a tensor, and may have gone one way or another by
// it.
bool Recorder::reads_back(const Node& node) const {
  const auto& schema = node.op.schema();
  if (schema.returns().empty() || returns_tensors(schema)) return false;
  if (reads_metadata_only(node.op) || !varies(node)) return false;
  // MultiheadAttention tells self-attention by equal(query, key): the same value is always equal.
  const bool same = node.op.operator_name().name == "aten::equal" &&
                    node.arguments[0].values == node.arguments[1].values;
  return !same && !reads_back_for_checks(enclosing_ops_);
}

void Recorder::filled_by_cpp(ValueId root) {
  const auto found = uninitialized_.find(root);
  if (found == uninitialized_.end()) return;
  if (found->second.resized) {
    cannot_be_replayed(concat("it reads ", print_type(type_of(found->second.tensor)),
                              ", which resize_() made larger and no operator filled"));
    uninitialized_.erase(found);
    return;
  }
  Leaf leaf;
  leaf.value = root;
  leaf.name = "constant." + std::to_string(graph_.leaves.size());
  leaf.tensor = found->second.tensor;
  producer_[static_cast<size_t>(root)] = -1;
  dropped_.insert(found->second.node);
  Temporary temporary{graph_.leaves.size(), at::Tensor(), /*borrowed=*/false, false};
  if (found->second.filled > 0) {
    temporary.contents = copy_in_place(leaf.tensor);
    temporary.written = true;
  }
  temporaries_[root] = std::move(temporary);
  graph_.leaves.push_back(std::move(leaf));
  uninitialized_.erase(found);
}

ValueId Recorder::returned(const at::Tensor& tensor) {
  const ValueId id = value_of(tensor);
  if (id == kNoValue) return id;
  check_made(graph_.value(id).storage);
  filled_by_cpp(graph_.value(id).storage);
  return id;
}

// The node that wrote it last makes it.
void Recorder::mark(const at::Tensor& tensor) {
  const ValueId id = find(tensor);
  if (id == kNoValue) return;
  for (auto node = graph_.nodes.rbegin(); node != graph_.nodes.rend(); ++node) {
    bool makes = false;
    for_each_output(*node, [&](ValueId made) { makes |= made == id; });
    if (!makes) continue;
    node->origin.marked = true;
    return;
  }
}

bool Recorder::is_input(ValueId root) const {
  return std::any_of(graph_.leaves.begin(), graph_.leaves.end(), [&](const Leaf& leaf) {
    return leaf.kind == Leaf::Kind::kInput && graph_.value(leaf.value).storage == root;
  });
}

void Recorder::save_written(const Node& node, const torch::jit::Stack& stack, size_t first) {
  for (size_t i : written_arguments(node)) {
    for_each_tensor(stack[first + i], [&](const at::Tensor& tensor) {
      const ValueId id = find(tensor);
      if (id == kNoValue || !has_storage(tensor)) return;
      const ValueId root = graph_.value(id).storage;
      const auto temporary = temporaries_.find(root);
      if (temporary != temporaries_.end() && !temporary->second.written) {
        temporary->second.written = true;
        const Leaf& leaf = graph_.leaves[temporary->second.leaf];
        if (!temporary->second.borrowed) temporary->second.contents = copy_in_place(leaf.tensor);
      }
      const bool made_here = producer_[static_cast<size_t>(root)] != -1;
      if (!made_here && changes_place_only(node.op) && !is_input(root)) {
        cannot_be_replayed(concat("it changes in place how a tensor that outlives it is seen (",
                                  op_name(node), " of ", print_type(type_of(tensor)), ")"));
      }
      if (made_here || saved_.count(root) != 0) return;
      if (uninitialized_.count(root) != 0) return;
      // The whole storage, whatever part of it this node writes.
      const auto bytes = static_cast<int64_t>(tensor.storage().nbytes());
      const at::Tensor all =
          at::empty({0}, tensor.options().dtype(at::kByte)).set_(tensor.storage(), 0, {bytes}, {1});
      saved_.emplace(root, Saved{all, is_ghost(all) ? at::Tensor() : all.clone()});
    });
  }
}

// The generator that an operator draws from; none for nearly all operators.
std::optional<at::Generator> Recorder::drawn_from(const Node& node) {
  if (!is_random(node.op)) return std::nullopt;
  for (const Argument& argument : node.arguments) {
    if (argument.constant.isGenerator()) return argument.constant.toGenerator();
  }
  return at::detail::getDefaultCPUGenerator();
}

void Recorder::restore_written() {
  const c10::AutoGradMode no_grad(false);
  for (auto& [root, saved] : saved_) {
    if (saved.contents.defined()) saved.tensor.copy_(saved.contents);
  }
  generators_.restore();
}

bool Recorder::writes(const at::Tensor& tensor) const { return saved_.count(root_of(tensor)) != 0; }

void Recorder::describe_written(RunEffects& effects) const {
  for (const auto& [root, saved] : saved_) {
    if (!is_ghost(saved.tensor)) effects.written.emplace_back(saved.tensor, saved.tensor.clone());
  }
  effects.generators = generators_.states();
}

Recorder::Recorder() : left_at_(at::sequence_number::peek()) {}

bool needs_inputs(const std::string& composite) {
  return composite == "aten::one_hot" || computes_unseen(composite) ||
         !contents_read_while_composing(composite).empty();
}

void Recorder::enter_op(EnclosingOp op) {
  if (watched_ != nullptr) watched_->open();
  if (enclosing_ops_.empty()) ++user_calls_;
  enclosing_ops_.push_back(std::move(op));
  const EnclosingOp& entered = enclosing_ops_.back();
  for (size_t i : contents_read_while_composing(entered.name)) {
    if (i < entered.inputs.size() && entered.inputs[i].isTensor()) {
      expect_contents(entered.inputs[i].toTensor());
    }
  }
}

void Recorder::leave_op(const std::vector<c10::IValue>& outputs) {
  if (enclosing_ops_.empty()) return;  // it was entered before the recording began
  if (computes_unseen(enclosing_ops_.back().name)) take_for_one_op(enclosing_ops_.back(), outputs);
  enclosing_ops_.pop_back();
  if (watched_ != nullptr && enclosing_ops_.empty()) watched_->close();
  if (!recorded_in_op_) return;
  // By now autograd has made its nodes for the operator; for one that writes into a view the last
  // of them comes after the kernel.
  recorded_in_op_ = false;
  left_at_ = at::sequence_number::peek();
}

// The step goes on by what the tensor holds: the rest of the graph is right only where it holds the
// same again.
void Recorder::expect_contents(const at::Tensor& tensor) {
  const ValueId id = value_of(tensor);
  if (id == kNoValue) return;
  filled_by_cpp(graph_.value(id).storage);
  if (!varies_[static_cast<size_t>(id)]) return;
  if (is_ghost(tensor)) throw_without_contents(enclosing_ops_.back().name, this);
  Leaf leaf;
  leaf.name = "constant." + std::to_string(graph_.leaves.size());
  leaf.tensor = tensor.detach().clone();
  const at::Tensor contents = leaf.tensor;
  declare(std::move(leaf), contents);
  const auto equal = c10::Dispatcher::singleton().findSchemaOrThrow("aten::equal", "");
  Node node{equal, {read(tensor), read(contents)}, {Result()}, phase_, -1, true};
  place(node);
  graph_.nodes.push_back(std::move(node));
  recorded_in_op_ = true;
}

// A composite operator that filled the memory of its results by itself is a node of its own. What
// it called meanwhile is read by nobody.
void Recorder::take_for_one_op(const EnclosingOp& op, const std::vector<c10::IValue>& outputs) {
  const auto dot = op.name.find('.');
  const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(
      op.name.substr(0, dot).c_str(),
      dot == std::string::npos ? "" : op.name.substr(dot + 1).c_str());
  const auto for_each_made = [&](const auto& visit) {
    for (const auto& output : outputs) for_each_tensor(output, visit);
  };
  bool unseen = false;
  for_each_made(
      [&](const at::Tensor& made) { unseen |= uninitialized_.count(root_of(made)) != 0; });
  if (!unseen) return;
  for_each_made([&](const at::Tensor& made) {
    uninitialized_.erase(root_of(made));
    roots_.erase(storage_of(made));
  });
  Node node{handle, {}, {}, phase_, -1, {}};
  for (const auto& input : op.inputs) node.arguments.push_back(read(input));
  place(node);
  settle_uninitialized(node);
  add(std::move(node), outputs);
}

int Recorder::call_at(uint64_t sequence) const {
  const bool is_leaf =
      sequence == std::numeric_limits<uint64_t>::max();  // autograd's AccumulateGrad
  if (is_leaf) return -1;
  const auto next = std::upper_bound(first_sequences_.begin(), first_sequences_.end(), sequence);
  return static_cast<int>(next - first_sequences_.begin()) - 1;
}

// Numbers a forward operator.
void Recorder::start_call(Node& node) {
  node.origin.call = static_cast<int>(first_sequences_.size());
  node.origin.user_call = user_calls_ - 1;
  first_sequences_.push_back(left_at_);
  node.taskgraph = current_taskgraph();
}

// Its TaskGraph and its number.
void Recorder::place(Node& node) {
  if (phase_ == Phase::kForward) {
    start_call(node);
  } else if (backward_of_) {
    node.taskgraph = backward_of_->taskgraph;
    node.origin.call = backward_of_->call;
  }
}

// Gives the bytes that the kernel held besides its results, where that is counted.
int64_t Recorder::run_measured(const Kernel& kernel, const torch::jit::Stack& stack, size_t returns,
                               Node& node) const {
  const auto run = [&] {
    const double seconds = seconds_of(kernel);
    if (ShapesOnly::current() == nullptr) node.origin.seconds = seconds;
  };
  if (memory_ == nullptr) return run(), 0;
  return memory_->bytes_besides(run, [&] {
    std::vector<const void*> made;
    for (size_t i = stack.size() - returns; i < stack.size(); ++i) {
      for_each_tensor(stack[i], [&](const at::Tensor& tensor) {
        if (tensor.defined() && has_storage(tensor)) made.push_back(storage_of(tensor)->data());
      });
    }
    return made;
  });
}

void Recorder::note_workspace(int64_t bytes) {
  Node& node = graph_.nodes.back();
  const int64_t touched = bytes_of(graph_, node);
  if (touched > 0)
    node.origin.workspace = static_cast<double>(bytes) / static_cast<double>(touched);
}

void Recorder::record(const c10::OperatorHandle& op, torch::jit::Stack* stack,
                      const Kernel& kernel) {
  if (watched_ != nullptr) watched_->open();  // profiling does not show every operator
  Node node{op, {}, {}, phase_, -1, {}};
  const size_t first = stack->size() - op.schema().arguments().size();
  for (size_t i = first; i < stack->size(); ++i) node.arguments.push_back(read((*stack)[i]));
  place(node);
  settle_uninitialized(node);
  save_written(node, *stack, first);
  const std::optional<at::Generator> generator = drawn_from(node);
  if (generator) generators_.before_draw(*generator);

  int64_t workspace = 0;
  try {
    workspace = run_measured(kernel, *stack, op.schema().returns().size(), node);
  } catch (...) {
    // Of use where the step catches it and goes on, another way than where nothing is thrown.
    cannot_be_replayed(concat("it goes on after an error that it caught, of ", op_name(node)));
    throw;
  }
  recorded_in_op_ = true;  // set behind the kernel: what runs inside of it is left as well
  if (generator) generators_.after_draw(*generator);

  if (reads_back(node)) node.expects = stack->back();
  const int index = static_cast<int>(graph_.nodes.size());
  const ValueId before = graph_.value_count();
  add(std::move(node),
      {stack->end() - static_cast<std::ptrdiff_t>(op.schema().returns().size()), stack->end()});
  note_workspace(workspace);
  if (makes_uninitialized(op) && !stack->empty() && stack->back().isTensor()) {
    const at::Tensor made = stack->back().toTensor();
    uninitialized_.emplace(graph_.value(before).storage, Uninitialized{index, made});
  }
  if (phase_ == Phase::kForward) note_made(graph_.nodes.back(), index);
  if (resizes(op) && grows(graph_.nodes.back())) {
    const at::Tensor made = stack->back().toTensor();
    uninitialized_[graph_.value(before).storage] = Uninitialized{index, made, 0, true};
  }
}

bool Recorder::grows(const Node& node) const {
  const ValueId from = node.arguments[0].values.at(0);
  const ValueId to = node.results[0].values.at(0);
  return graph_.value(to).type.numel() > graph_.value(from).type.numel();
}

// The last node so far, with the values of what it made.
void Recorder::add(Node node, const std::vector<c10::IValue>& outputs) {
  const bool changes = varies(node);
  const ValueId before = graph_.value_count();
  for (size_t i = 0; i < outputs.size(); ++i) {
    node.results.push_back(asked_for(node, i) ? define(outputs[i]) : leave_out(outputs[i]));
  }
  for (ValueId id = before; id < graph_.value_count(); ++id) {
    varies_[static_cast<size_t>(id)] = changes;
  }
  if (changes) spread_variation(node);
  if (phase_ == Phase::kBackward && !backward_of_) {
    unclaimed_.insert(static_cast<int>(graph_.nodes.size()));
  }
  graph_.nodes.push_back(std::move(node));
}

void Recorder::claim(const at::Tensor& tensor, const ForwardPlace& forward) {
  if (tensor.defined()) claim_value(find(tensor), forward);
}

// A leaf belongs where the first node that reads it does.
ForwardPlace Recorder::owner_of(ValueId storage) const {
  for (const auto& node : graph_.nodes) {
    bool reads = false;
    for_each_input(node, [&](ValueId id) { reads |= graph_.value(id).storage == storage; });
    if (reads && node.phase == Phase::kForward) return {node.taskgraph, node.origin.call};
  }
  return {};
}

void Recorder::claim_gradient(const at::Tensor& parameter, const at::Tensor& gradient) {
  if (!unclaimed_.empty()) claim(gradient, owner_of(root_of(parameter)));
}

void Recorder::claim_value(ValueId id, const ForwardPlace& forward) {
  if (id == kNoValue) return;
  const int index = producer_[static_cast<size_t>(id)];
  if (index < 0 || unclaimed_.erase(index) == 0) return;
  Node& node = graph_.nodes[static_cast<size_t>(index)];
  ForwardPlace place = forward;
  bool found = false;
  for_each_input(node, [&](ValueId input) {
    claim_value(input, forward);
    const int maker = producer_[static_cast<size_t>(input)];
    if (maker < 0 || graph_.nodes[static_cast<size_t>(maker)].phase != Phase::kBackward) return;
    const Node& part = graph_.nodes[static_cast<size_t>(maker)];
    if (part.origin.call < 0 || (found && part.origin.call >= place.call)) return;
    place = {part.taskgraph, part.origin.call};
    found = true;
  });
  node.taskgraph = place.taskgraph;
  node.origin.call = place.call;
}

bool Recorder::reads_for_checks() const { return reads_back_for_checks(enclosing_ops_); }

void Recorder::cannot_be_replayed(const std::string& why) {
  if (unreplayable_.empty()) unreplayable_ = why;
}

}  // namespace epl
