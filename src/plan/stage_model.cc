#include "plan/stage_model.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/check.h"
#include "ir/makers.h"
#include "ops/facts.h"

namespace epl {
namespace {

// What a piece of memory holds from one write to the next, and who reads it.
struct Contents {
  int64_t bytes = 0;
  const Leaf* leaf = nullptr;  // undefined where the step makes it
  Phase phase = Phase::kForward;
  int home = 0;  // the position that makes it; an input of the batch arrives at the first one
  std::set<int> readers;
  std::set<int> backward_readers;
};

// The innermost module that contains both, "" where only the model does.
std::string common_module(const std::string& a, const std::string& b) {
  size_t common = 0;
  for (size_t i = 0; i <= std::min(a.size(), b.size()); ++i) {
    const bool a_ends = i == a.size() || a[i] == '.';
    const bool b_ends = i == b.size() || b[i] == '.';
    if (a_ends && b_ends) common = i;
    if (i == a.size() || i == b.size() || a[i] != b[i]) break;
  }
  return a.substr(0, common);
}

// The nodes that add up the gradients of several uses of a parameter. Each stage keeps the sum of
// its own uses (passes/tied_gradients.h), so what they read does not cross with every micro batch.
std::set<const Node*> sums_over_uses(const Graph& graph) {
  const Makers makers(graph);
  std::vector<ValueId> open;
  for (const Gradient& gradient : graph.gradients) open.push_back(gradient.value);
  std::set<const Node*> sums;
  while (!open.empty()) {
    const Node* const maker = makers.of(open.back());
    open.pop_back();
    if (maker == nullptr || maker->phase != Phase::kBackward) continue;
    const std::string name = op_name(*maker);
    if (name != "aten::add.Tensor" && name != "aten::add_.Tensor") continue;
    if (!sums.insert(maker).second) continue;
    for_each_input(*maker, [&](ValueId id) { open.push_back(id); });
  }
  return sums;
}

class Builder {
 public:
  Builder(const Graph& graph, const NodeCosts& costs)
      : graph_(graph), costs_(costs), sums_over_uses_(sums_over_uses(graph)) {}

  StageModel build() {
    find_positions();
    find_memory();
    for (size_t i = 0; i < graph_.nodes.size(); ++i) add(graph_.nodes[i], costs_.seconds[i]);
    for (const Contents& contents : contents_) describe(contents);
    find_divided_modules();
    for (Growths* growths : {&model_.received, &model_.parameters, &model_.state, &model_.saved}) {
      std::stable_sort(growths->begin(), growths->end(),
                       [](const Growth& a, const Growth& b) { return a.position < b.position; });
    }
    return std::move(model_);
  }

 private:
  void find_positions() {
    std::map<int, int> user_calls;
    for (const Node& node : graph_.nodes) {
      if (node.phase != Phase::kForward || node.origin.call < 0) continue;
      user_calls.emplace(node.origin.call, node.origin.user_call);
    }
    int before = -1;
    for (const auto& [call, user_call] : user_calls) {
      model_.calls.push_back(call);
      model_.inside.push_back(user_call >= 0 && user_call == before);
      before = user_call;
    }
    model_.seconds.resize(model_.calls.size());
    model_.operators.resize(model_.calls.size());
    model_.ops.resize(model_.calls.size());
    model_.parameter_names.resize(model_.calls.size());
  }

  // A node that a pass made without an origin goes with the node before it; one whose forward
  // operator is gone goes with what ran before that.
  int position_of(const Node& node) {
    if (node.origin.call >= 0) {
      const auto next =
          std::upper_bound(model_.calls.begin(), model_.calls.end(), node.origin.call);
      last_position_ = std::max(0, static_cast<int>(next - model_.calls.begin()) - 1);
    }
    return last_position_;
  }

  void find_memory() {
    bytes_.resize(static_cast<size_t>(graph_.value_count()));
    current_.resize(static_cast<size_t>(graph_.value_count()), -1);
    for (ValueId id = 0; id < graph_.value_count(); ++id) {
      const TensorType& type = graph_.value(id).type;
      const int64_t bytes =
          type.layout == c10::kStrided ? type.extent_bytes() : type.numel() * type.item_bytes();
      int64_t& of_storage = bytes_[static_cast<size_t>(graph_.value(id).storage)];
      of_storage = std::max(of_storage, bytes);
    }
    for (const Leaf& leaf : graph_.leaves) {
      const ValueId storage = graph_.value(leaf.value).storage;
      // What shares memory with a parameter is that parameter.
      if (contents_of(storage) >= 0 && leaf.kind != Leaf::Kind::kParameter) continue;
      new_contents(storage, Phase::kForward, 0, &leaf);
    }
  }

  int& contents_of(ValueId storage) { return current_[static_cast<size_t>(storage)]; }

  void new_contents(ValueId storage, Phase phase, int home, const Leaf* leaf = nullptr) {
    contents_of(storage) = static_cast<int>(contents_.size());
    Contents contents;
    contents.bytes = bytes_[static_cast<size_t>(storage)];
    contents.leaf = leaf;
    contents.phase = phase;
    contents.home = home;
    contents_.push_back(std::move(contents));
  }

  void add(const Node& node, double seconds) {
    const int position = position_of(node);
    const auto index = static_cast<size_t>(position);
    model_.seconds[index] += seconds;
    if (node.phase == Phase::kForward) {
      ++model_.operators[index];
      if (!is_view(graph_, node)) model_.ops[index] = op_name(node);
    }
    if (sums_over_uses_.count(&node) == 0) {
      for_each_input(node, [&](ValueId id) { read(node, position, graph_.value(id).storage); });
    }
    for (size_t argument : written_arguments(node)) {
      for (ValueId id : node.arguments[argument].values) {
        if (id != kNoValue) new_contents(graph_.value(id).storage, node.phase, position);
      }
    }
    for_each_output(node, [&](ValueId id) {
      const ValueId storage = graph_.value(id).storage;
      if (contents_of(storage) < 0) new_contents(storage, node.phase, position);
    });
  }

  void read(const Node& node, int position, ValueId storage) {
    if (contents_of(storage) < 0) return;
    Contents& contents = contents_[static_cast<size_t>(contents_of(storage))];
    contents.readers.insert(position);
    if (node.phase == Phase::kBackward) contents.backward_readers.insert(position);
    std::string& name = model_.parameter_names[static_cast<size_t>(position)];
    if (node.phase == Phase::kForward && contents.leaf != nullptr && name.empty() &&
        contents.leaf->kind != Leaf::Kind::kConstant) {
      name = contents.leaf->name;  // empty for inputs
    }
  }

  void find_divided_modules() {
    const auto& names = model_.parameter_names;
    std::vector<std::string> behind(names.size());  // the module of the next parameter
    for (size_t i = names.size(); i-- > 0;) {
      if (!names[i].empty()) behind[i] = module_of(names[i]);
      if (names[i].empty() && i + 1 < names.size()) behind[i] = behind[i + 1];
    }
    std::string before;
    for (size_t i = 0; i < names.size(); ++i) {
      model_.divided_modules.push_back(common_module(before, behind[i]));
      if (!names[i].empty()) before = module_of(names[i]);
    }
  }

  void describe(const Contents& contents) {
    if (contents.bytes == 0) return;
    const bool given = contents.leaf == nullptr || contents.leaf->kind == Leaf::Kind::kInput;
    if (given) {
      add_received(contents);
      if (contents.phase == Phase::kForward) {
        add_once(model_.saved, contents.backward_readers, contents.bytes);
      }
    } else if (contents.leaf->kind == Leaf::Kind::kParameter) {
      add_once(model_.parameters, contents.readers, contents.bytes);
    } else if (contents.leaf->kind != Leaf::Kind::kSeed) {
      add_once(model_.state, contents.readers, contents.bytes);
    }
  }

  // A part takes it with the first of its readers.
  static void add_once(Growths& growths, const std::set<int>& readers, int64_t bytes) {
    int before = -1;
    for (int reader : readers) {
      growths.push_back({reader, before + 1, reader, bytes});
      before = reader;
    }
  }

  // The same, but not where it is made, and no longer once the part contains that position.
  void add_received(const Contents& contents) {
    const int home = contents.home;
    int before = -1;
    int last_before_home = -1;
    for (int reader : contents.readers) {
      const int first = (reader > home ? std::max(home, before) : before) + 1;
      if (reader != home && first <= reader) {
        model_.received.push_back({reader, first, reader, contents.bytes});
      }
      if (reader < home) last_before_home = reader;
      before = reader;
    }
    if (last_before_home >= 0) {
      model_.received.push_back({home, 0, last_before_home, -contents.bytes});
    }
  }

  const Graph& graph_;
  const NodeCosts& costs_;
  const std::set<const Node*> sums_over_uses_;
  StageModel model_;
  int last_position_ = 0;
  std::vector<int64_t> bytes_;  // by storage
  std::vector<int> current_;    // by storage: its contents, -1 where it has none yet
  std::vector<Contents> contents_;
};

}  // namespace

std::string module_of(const std::string& parameter) {
  const size_t dot = parameter.rfind('.');
  return dot == std::string::npos ? parameter : parameter.substr(0, dot);
}

int StageModel::awkwardness(int position) const {
  constexpr int kInsideOfAnOperator = 10;
  const auto index = static_cast<size_t>(position);
  if (inside[index]) return kInsideOfAnOperator;
  const std::string& divided = divided_modules[index];
  if (divided.empty()) return 0;
  return 1 + static_cast<int>(std::count(divided.begin(), divided.end(), '.'));
}

StageModel make_stage_model(const Graph& graph, const NodeCosts& costs) {
  EPL_ASSERT(costs.seconds.size() == graph.nodes.size(), "costs of another graph");
  const bool numbered = std::any_of(graph.nodes.begin(), graph.nodes.end(), [](const Node& node) {
    return node.phase == Phase::kForward && node.origin.call >= 0;
  });
  EPL_ASSERT(numbered, "a graph whose forward operators have no numbers cannot be cut");
  return Builder(graph, costs).build();
}

int64_t bytes_of_part(const Growths& growths, int begin, int end) {
  int64_t bytes = 0;
  for (const Growth& growth : growths) {
    const bool inside = begin <= growth.position && growth.position < end;
    if (inside && growth.first_begin <= begin && begin <= growth.last_begin) bytes += growth.bytes;
  }
  return bytes;
}

PartBytes::PartBytes(const Growths& growths, int positions)
    : growths_(growths), bytes_(static_cast<size_t>(positions)) {}

void PartBytes::extend() {
  for (; next_ < growths_.size() && growths_[next_].position == end_; ++next_) {
    const Growth& growth = growths_[next_];
    const auto first = bytes_.begin() + growth.first_begin;
    const auto last = bytes_.begin() + growth.last_begin + 1;
    std::for_each(first, last, [&](int64_t& bytes) { bytes += growth.bytes; });
  }
  ++end_;
}

}  // namespace epl
