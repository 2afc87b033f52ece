#include "compile/auto_stages.h"

#include <algorithm>
#include <sstream>

#include "base/check.h"
#include "cost/machine.h"
#include "plan/schedules.h"
#include "plan/stage_cuts.h"

namespace epl {
namespace {

constexpr const char* kStageCount = "pipeline.num_stages";
constexpr const char* kMemory = "auto.device_memory";

// In the first tensor of the batch that has rows; 0 where none has.
int64_t recorded_rows(const Graph& graph) {
  for (const Leaf& leaf : graph.leaves) {
    const auto& sizes = graph.value(leaf.value).type.sizes;
    if (leaf.kind == Leaf::Kind::kInput && !sizes.empty()) return sizes[0];
  }
  return 0;
}

// The more stages, the fewer replicas share the rows of this worker.
double rows_of_micro_batch(const AutoStagesRequest& asked, int stages, const Config& config) {
  const int replicas = std::max(1, asked.local_devices / stages);
  const auto micro_batches = static_cast<double>(config.get<int64_t>("pipeline.num_micro_batch"));
  return static_cast<double>(asked.rows) / (micro_batches * replicas);
}

StageCutsRequest request_for(int stages, const AutoStagesRequest& asked, const Config& config,
                             const ClusterShape& cluster) {
  StageCutsRequest request;
  ScheduleRequest schedule;
  schedule.strategy = config.get<std::string>("pipeline.strategy");
  schedule.stages = stages;
  schedule.micro_batches = static_cast<int>(config.get<int64_t>("pipeline.num_micro_batch"));
  if (schedule.strategy == "Interleaved" && stages > 1) {
    schedule.chunks_per_stage = static_cast<int>(config.get<int64_t>("pipeline.num_chunks"));
  }
  request.stages = stages;
  request.chunks_per_stage = schedule.chunks_per_stage;
  request.micro_batches = schedule.micro_batches;
  request.in_flight = make_schedule(schedule).in_flight;
  request.bytes_per_second = machine_of(cluster).link.sent_bytes_per_second;
  request.device_bytes = asked.device_bytes;
  request.optimizer_state = asked.optimizer_state;
  request.asked_by = config.asked_by("auto.auto_parallel");
  if (config.get<int64_t>(kStageCount) > 0)
    request.asked_by += "\n            " + config.asked_by(kStageCount);
  if (config.get<int64_t>(kMemory) > 0)
    request.asked_by += "\n            " + config.asked_by(kMemory);
  return request;
}

// The numbers of stages to be tried, in this order.
std::vector<int> candidates(const Config& config, const ClusterShape& cluster) {
  const auto asked = static_cast<int>(config.get<int64_t>(kStageCount));
  const int devices = cluster.total_gpu_num;
  EPL_CHECK(
      asked == 0 || devices % asked == 0,
      concat(devices, " devices cannot be shared out over model replicas of ", asked, " stages"),
      config.asked_by(kStageCount), concat("EPL_DEVICES=", asked));
  if (asked > 0) return {asked};
  std::vector<int> divisors;
  for (int stages = 1; stages <= devices; ++stages) {
    if (devices % stages == 0) divisors.push_back(stages);
  }
  return divisors;
}

}  // namespace

int forward_calls(const Graph& graph) {
  int last = -1;
  for (const auto& node : graph.nodes) last = std::max(last, node.origin.call);
  return last + 1;
}

AutoStages choose_stages(const Graph& graph, const ClusterShape& cluster, const Config& config,
                         const AutoStagesRequest& asked) {
  const NodeCosts costs = node_costs(graph, machine_of(cluster));
  const std::vector<int> tried = candidates(config, cluster);
  const auto recorded = static_cast<double>(recorded_rows(graph));
  AutoStages choice;
  choice.forward_calls = forward_calls(graph);
  for (int stages : tried) {
    try {
      StageCutsRequest request = request_for(stages, asked, config, cluster);
      if (asked.rows > 0 && recorded > 0) {
        request.rows = rows_of_micro_batch(asked, stages, config) / recorded;
      }
      const StageCuts chosen = choose_stage_cuts(graph, costs, request);
      choice.stages = stages;
      choice.cuts = chosen.cuts;
      choice.explanation = chosen.explanation;
      break;
    } catch (const Error&) {
      if (stages == tried.back()) throw;
    }
  }
  return choice;
}

std::string print_auto_stages(const AutoStages& choice) {
  return concat(choice.stages, " ", choice.forward_calls, " ", join(choice.cuts, " "));
}

AutoStages parse_auto_stages(const std::string& text) {
  std::istringstream in(text);
  AutoStages choice;
  in >> choice.stages >> choice.forward_calls;
  for (int cut = 0; in >> cut;) choice.cuts.push_back(cut);
  return choice;
}

}  // namespace epl
