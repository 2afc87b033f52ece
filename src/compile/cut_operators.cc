#include "compile/cut_operators.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "compile/cut_rows.h"
#include "cost/machine.h"
#include "ir/makers.h"
#include "sharding/sharding.h"

namespace epl {
namespace {

// Of sums that devices make in another order than the recorded run.
constexpr double kRounding = 1e-4;
// A number that changes by so little from step to step is rather taken for another one.
constexpr double kRoundingOfRows = 1e-6;

// Parameters are cut over the devices of the step, however many their scope asked for: it has to be
// those.
void check_made_cut(const StepRecording& recording, const std::vector<bool>& made_cut, int parts) {
  const Graph& graph = recording.whole;
  for (size_t i = 0; i < made_cut.size(); ++i) {
    if (!made_cut[i]) continue;
    const Strategy& scope = recording.made_under.at(graph.leaves[i].value);
    EPL_CHECK(scope.device_count == parts,
              concat("`", graph.leaves[i].name, "` was made to be cut over ", scope.device_count,
                     " devices, but a model replica has ", parts),
              scope.asked_by(), concat("epl::split(", parts, ") around it"));
    const TensorType& type = graph.value(graph.leaves[i].value).type;
    EPL_CHECK(!type.sizes.empty() && type.sizes[0] >= parts,
              concat("cannot cut dim 0 of `", graph.leaves[i].name, "` ", print_type(type),
                     " over ", parts, " devices"),
              scope.asked_by(),
              concat("at least ", parts, " rows, or make it outside of the scope"));
  }
}

std::vector<std::optional<Layout>> homes_of_leaves(const Graph& graph, const StateMap& state) {
  std::vector<std::optional<Layout>> homes;
  for (const auto& leaf : graph.leaves) {
    const bool parameter = leaf.kind == Leaf::Kind::kParameter;
    homes.push_back(parameter ? state.layout_of(leaf.name) : std::nullopt);
  }
  return homes;
}

void check_strided(const ShardingRequest& request) {
  const Graph& graph = request.graph;
  const Makers makers(graph);
  for (const auto& gradient : graph.gradients) {
    const auto maker = makers.index_of(gradient.value);
    if (!maker || !request.is_inside(*maker)) continue;
    EPL_CHECK(
        graph.value(gradient.value).type.layout == c10::kStrided,
        concat("the gradient of `", graph.leaves[static_cast<size_t>(gradient.parameter)].name,
               "` is sparse, which cannot be cut over devices"),
        request.asked_by,
        "EmbeddingOptions::sparse(false), or the table outside of the split scope");
  }
}

// The devices that the operators of a stage are cut over, as the first replica has them.
Machine machine_of_stage(const Placement& placement, const ClusterShape& cluster, int stage) {
  std::vector<int> devices;
  for (int role : placement.roles_of(stage)) devices.push_back(placement.device({0, role, 0}));
  return machine_of(cluster, devices);
}

// A part is as fast as the slowest device that has it, in whatever replica: it has what is its due.
Axis parts_by_speed(const Placement& placement, const ClusterShape& cluster, int stage) {
  std::vector<double> speeds;
  for (int role : placement.roles_of(stage)) {
    const std::vector<int> devices =
        placement.group_along(kReplicaAxis, placement.device({0, role, 0}));
    speeds.push_back(machine_of(cluster, devices).device.flops_per_second);
  }
  const auto count = static_cast<int>(speeds.size());
  const bool alike =
      std::all_of(speeds.begin(), speeds.end(), [&](double speed) { return speed == speeds[0]; });
  return alike ? Axis(count) : Axis(count, std::move(speeds));
}

// Whether parameters that earlier steps have cut over so many devices are cut into the same pieces.
bool keeps_pieces(const Graph& graph, const StateMap& state, const Axis& parts) {
  for (const auto& leaf : graph.leaves) {
    const StateEntry* entry = state.find(leaf.name);
    const bool lies = leaf.kind == Leaf::Kind::kParameter && entry != nullptr && entry->home;
    if (!lies || entry->home->shards.size() != static_cast<size_t>(parts.size)) continue;
    const auto& shards = entry->home->shards;
    const std::vector<int64_t> lengths = pieces_of(shards[0].whole, parts);
    const bool same = std::equal(shards.begin(), shards.end(), lengths.begin(),
                                 [](const Shard& shard, int64_t length) {
                                   return !shard.is_cut() || shard.piece.length == length;
                                 });
    if (!same) return false;
  }
  return true;
}

// Whether the first stage lies on several workers, each of which has rows of its own.
bool inputs_are_cut(const Placement& placement, const ClusterShape& cluster) {
  for (int worker = 0; worker < cluster.worker_num; ++worker) {
    const size_t here = placement.devices_of_stage(0, worker, cluster).size();
    if (here > 0 && here < static_cast<size_t>(placement.parts(0))) return true;
  }
  return false;
}

// What is made outside of the stage is the business of the stage that makes it.
std::vector<bool> gradients_of_all(const ShardingRequest& request, const Sharding& sharding) {
  std::set<ValueId> outside;
  for (size_t i = 0; i < request.graph.nodes.size(); ++i) {
    if (request.is_inside(i)) continue;
    for_each_output(request.graph.nodes[i], [&](ValueId id) { outside.insert(id); });
  }
  std::vector<bool> of_all;
  for (size_t i = 0; i < request.graph.gradients.size(); ++i) {
    const bool elsewhere = outside.count(request.graph.gradients[i].value) != 0;
    of_all.push_back(!elsewhere && sharding.gradients[i].is_whole());
  }
  return of_all;
}

class OperatorCutter {
 public:
  OperatorCutter(const StepRecording& recording, const Placement& placement,
                 const ClusterShape& cluster, const Config& config, const StateMap& state)
      : recording_(recording),
        placement_(placement),
        cluster_(cluster),
        config_(config),
        state_(state) {}

  CutStep run() {
    cut_.parts.resize(static_cast<size_t>(placement_.roles()));
    cut_.repeated.resize(cut_.parts.size());
    cut_.is_cut.resize(cut_.parts.size(), false);
    for (int stage = 0; stage < placement_.stages(); ++stage) {
      if (placement_.parts(stage) > 1) cut(stage);
    }
    return std::move(cut_);
  }

 private:
  void cut(int stage) {
    const std::vector<int> roles = placement_.roles_of(stage);
    const ShardingRequest request = request_for(stage, roles);
    check_strided(request);
    const Sharding sharding = choose_layouts(request);
    const std::vector<bool> of_all = gradients_of_all(request, sharding);
    for (size_t part = 0; part < roles.size(); ++part) {
      const auto role = static_cast<size_t>(roles[part]);
      cut_.is_cut[role] = true;
      cut_.parts[role] = local_graph(request, sharding, static_cast<int>(part));
      if (part > 0) cut_.repeated[role] = of_all;
    }
    for (const auto& remark : sharding.remarks) {
      const bool named = placement_.is_pipeline();
      cut_.remarks.push_back(named ? concat("stage ", stage, ": ", remark) : remark);
    }
    if (placement_.is_pipeline()) return;
    cut_.loss = sharding.loss;
    cut_.metrics = sharding.metrics;
  }

  ShardingRequest request_for(int stage, const std::vector<int>& roles) const {
    const Graph& whole = recording_.whole;
    ShardingRequest request{whole, static_cast<int>(roles.size())};
    request.homes = homes_of_leaves(whole, state_);
    request.machine = machine_of_stage(placement_, cluster_, stage);
    if (!placement_.is_pipeline()) {
      request.asked_by = placement_.asked_by;
      request.inputs_are_cut = inputs_are_cut(placement_, cluster_);
      ask_for_slices(request);
      share_by_speed(stage, request);
      return request;
    }
    request.asked_by = placement_.role_asked_by[static_cast<size_t>(roles[0])];
    EPL_CHECK(stage > 0 || !inputs_are_cut(placement_, cluster_),
              "the first stage of a pipeline is split over devices of several workers, each of "
              "which reads rows of its own",
              request.asked_by,
              "its devices on one worker, or a first stage under replicate in front of it");
    for (const auto& node : whole.nodes) {
      request.inside.push_back(node.chunk % placement_.stages() == stage);
    }
    if (stage > 0) share_by_speed(stage, request);  // the first one loads rows, in even pieces
    return request;
  }

  // Rows under replicate are cut evenly, and so is whatever lies with them. What earlier steps have
  // cut stays in its pieces.
  void share_by_speed(int stage, ShardingRequest& request) const {
    const Graph& graph = request.graph;
    const Axis parts = parts_by_speed(placement_, cluster_, stage);
    if (request.sliced.empty() && keeps_pieces(graph, state_, parts)) request.parts = parts;
    EPL_CHECK(keeps_pieces(graph, state_, request.parts),
              "parameters were cut by an earlier step as the speeds of their devices are, and this "
              "one would cut them evenly",
              request.asked_by, "steps with code under replicate in all of them, or in none");
  }

  // Code under replicate on the same devices runs on slices of the rows.
  void ask_for_slices(ShardingRequest& request) const {
    request.sliced = cuts_under_replicate(request.graph, request.parts.size, request.machine,
                                          config_, request.asked_by);
    if (request.sliced.empty()) return;
    request.made_cut = parameters_made_cut(request.graph, recording_.made_under);
    check_made_cut(recording_, request.made_cut, request.parts.size);
  }

  const StepRecording& recording_;
  const Placement& placement_;
  const ClusterShape& cluster_;
  const Config& config_;
  const StateMap& state_;
  CutStep cut_;
};

}  // namespace

CutStep cut_operators(const StepRecording& recording, const Placement& placement,
                      const ClusterShape& cluster, const Config& config, const StateMap& state) {
  return OperatorCutter(recording, placement, cluster, config, state).run();
}

void drop_repeated_gradients(const CutStep& cut, size_t role, Graph& part) {
  const std::vector<bool>& repeated = cut.repeated[role];
  if (repeated.empty()) return;
  std::vector<Gradient> kept;
  for (size_t i = 0; i < part.gradients.size(); ++i) {
    if (!repeated[i]) kept.push_back(part.gradients[i]);
  }
  part.gradients = std::move(kept);
}

void settle_guards(const CutStep& cut, const SlicedSteps& sliced, Plan& plan) {
  for (size_t role = 0; role < plan.programs.size(); ++role) {
    Program& program = plan.programs[role];
    const bool is_cut = role < cut.is_cut.size() && cut.is_cut[role];
    if (is_cut) program.guard_tolerance = kRounding;
    const auto rows = sliced.find(program.devices);
    const bool reads_rows = rows != sliced.end() && rows->second.sharding.reads_back_rows;
    if (reads_rows) program.guard_tolerance = kRoundingOfRows;
  }
}

std::vector<bool> parameters_made_cut(const Graph& graph, const MadeUnder& made_under) {
  std::vector<bool> cut;
  for (const Leaf& leaf : graph.leaves) {
    const auto scope = made_under.find(leaf.value);
    cut.push_back(scope != made_under.end() && scope->second.device_count > 1);
  }
  return cut;
}

}  // namespace epl
