#include "compile/placement.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/text.h"
#include "config/checks.h"

namespace epl {
namespace {

constexpr const char* kStages = "pipeline.num_stages";

std::vector<std::string> names_of(const std::vector<Strategy>& taskgraphs) {
  std::vector<std::string> names;
  for (const Strategy& strategy : taskgraphs) names.push_back(strategy.asked_by());
  return names;
}

std::string asked_by(const std::vector<Strategy>& taskgraphs, const ClusterShape& cluster) {
  std::vector<std::string> lines = names_of(taskgraphs);
  if (lines.empty()) {
    lines.push_back(
        concat(cluster.total_gpu_num, " devices and no strategy, so each has a replica"));
  }
  return join(lines, "\n            ");
}

// A replica's first stage lies on whole workers, or several lie on one: else a worker would hold a
// part of one replica and a part of another, and read rows of both.
void check_workers(const Placement& placement, const ClusterShape& cluster) {
  const int slices = placement.devices_of_stage(0);
  for (int worker = 0; worker < cluster.worker_num; ++worker) {
    const auto devices = static_cast<int>(placement.devices_of_stage(0, worker, cluster).size());
    if (devices == 0 || devices % slices == 0 || slices % devices == 0) continue;
    throw Error(
        concat("a replica of ", slices, " devices cannot lie on workers with ",
               join(cluster.worker_devices, ", "), " devices: worker ", worker, " has ", devices),
        placement.asked_by,
        "devices per worker that the replica's devices divide, or are a multiple of");
  }
}

// Several TaskGraphs on the devices of one.
void place_colocated(const std::vector<Strategy>& taskgraphs, Placement& placement) {
  int& devices = placement.role_devices[0];
  for (const Strategy& strategy : taskgraphs) devices = std::max(devices, strategy.device_count);
  EPL_CHECK(std::all_of(taskgraphs.begin(), taskgraphs.end(),
                        [&](const Strategy& strategy) { return strategy.device_count == devices; }),
            "TaskGraphs on the same devices have different device counts", placement.asked_by,
            concat("device_count ", devices, " for all of them"));
}

bool is_cut_over_devices(const Strategy& strategy) {
  return strategy.kind == Strategy::Kind::kSplit && strategy.device_count > 1;
}

// Devices that operators are cut over have a program each.
void give_each_device_a_role(const std::vector<bool>& splits, Placement& placement) {
  const Placement whole = placement;
  placement.role_devices.clear();
  placement.role_stages.clear();
  placement.role_asked_by.clear();
  for (size_t stage = 0; stage < whole.role_devices.size(); ++stage) {
    const int devices = whole.role_devices[stage];
    for (int i = 0; i < (splits[stage] ? devices : 1); ++i) {
      placement.role_devices.push_back(splits[stage] ? 1 : devices);
      placement.role_stages.push_back(static_cast<int>(stage));
      placement.role_asked_by.push_back(whole.role_asked_by[stage]);
    }
  }
}

// By stage of a pipeline, or for all TaskGraphs on the same devices.
std::vector<bool> find_splits(const std::vector<Strategy>& taskgraphs, int stages, bool pipeline,
                              bool cut_parameters) {
  if (!pipeline) {
    const bool any = std::any_of(taskgraphs.begin(), taskgraphs.end(), is_cut_over_devices);
    return {any || cut_parameters};
  }
  std::vector<bool> splits(static_cast<size_t>(stages), false);
  for (size_t i = 0; i < taskgraphs.size(); ++i) {
    if (is_cut_over_devices(taskgraphs[i])) splits[i % static_cast<size_t>(stages)] = true;
  }
  return splits;
}

// Interleaved, pipeline.num_stages says on how many stages the TaskGraphs are dealt out; otherwise
// each has its own.
int stages_of(const std::vector<Strategy>& taskgraphs, const Config& config,
              const std::string& asked_by) {
  const auto count = static_cast<int>(taskgraphs.size());
  if (config.get<std::string>("pipeline.strategy") != "Interleaved") return count;
  const auto stages = static_cast<int>(config.get<int64_t>(kStages));
  const bool possible = stages > 0 && stages <= count && count % stages == 0;
  EPL_CHECK(possible,
            stages == 0
                ? concat("the Interleaved schedule deals ", count,
                         " TaskGraphs out to stages, but not said to how many")
                : concat(count, " TaskGraphs cannot be dealt out evenly to ", stages, " stages"),
            concat(config.asked_by("pipeline.strategy"), "\n            ", asked_by),
            concat(kStages, " = a number that divides ", count));
  return stages;
}

void place_stages(const std::vector<Strategy>& taskgraphs, int stages, Placement& placement) {
  placement.chunks_per_stage = static_cast<int>(taskgraphs.size()) / stages;
  placement.role_devices.clear();
  placement.role_asked_by.clear();
  for (size_t i = 0; i < taskgraphs.size(); ++i) {
    const Strategy& strategy = taskgraphs[i];
    const size_t stage = i % static_cast<size_t>(stages);
    if (i < static_cast<size_t>(stages)) {
      placement.role_devices.push_back(strategy.device_count);
      placement.role_asked_by.push_back(strategy.asked_by());
    }
    EPL_CHECK(placement.role_devices[stage] == strategy.device_count,
              concat("TaskGraphs ", stage, " and ", i, " share stage ", stage,
                     " but have different device counts, ", placement.role_devices[stage], " and ",
                     strategy.device_count),
              placement.asked_by, "the same device_count for both");
  }
}

}  // namespace

Placement find_placement(const std::vector<Strategy>& taskgraphs, const ClusterShape& cluster,
                         const Config& config, bool cut_parameters, const std::string& who) {
  Placement placement;
  // A single device runs all parts one after the other, as it would without any strategy.
  if (cluster.total_gpu_num == 1) return placement;
  const bool colocated = config.get<bool>("cluster.colocate_split_and_replicate");
  placement.asked_by = who.empty() ? asked_by(taskgraphs, cluster) : who;
  const bool pipeline = taskgraphs.size() > 1 && !colocated;
  const int stages = pipeline ? stages_of(taskgraphs, config, placement.asked_by)
                              : static_cast<int>(taskgraphs.size());
  check_devices({taskgraphs.begin(), taskgraphs.begin() + stages}, cluster, config,
                placement.asked_by);
  if (pipeline) {
    place_stages(taskgraphs, stages, placement);
  } else {
    placement.role_asked_by = {placement.asked_by};
    place_colocated(taskgraphs, placement);
  }
  placement.role_stages.resize(placement.role_devices.size());
  std::iota(placement.role_stages.begin(), placement.role_stages.end(), 0);
  give_each_device_a_role(find_splits(taskgraphs, stages, pipeline, cut_parameters), placement);
  placement.replicas = cluster.total_gpu_num / placement.devices_of_replica();
  placement.by_replica = config.get<bool>("cluster.device_place_prefer_intra_node");
  check_workers(placement, cluster);
  return placement;
}

std::string describe_folding(const std::vector<Strategy>& taskgraphs, const ClusterShape& cluster) {
  const bool wide = std::any_of(taskgraphs.begin(), taskgraphs.end(),
                                [](const Strategy& strategy) { return strategy.device_count > 1; });
  if (cluster.total_gpu_num > 1 || (taskgraphs.size() < 2 && !wide)) return "";
  return concat("epl: the job has one device, so the step runs on it as without ",
                join(names_of(taskgraphs), ", "), "\n");
}

}  // namespace epl
