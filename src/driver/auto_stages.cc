#include "driver/auto_stages.h"

#include <unistd.h>

#include <algorithm>
#include <iostream>
#include <sstream>

#include "base/check.h"
#include "plan/schedules.h"
#include "plan/stage_cuts.h"
#include "state/optimizer_states.h"

namespace epl {
namespace {

constexpr const char* kStageCount = "pipeline.num_stages";
constexpr const char* kMemory = "auto.device_memory";

// As the optimizer that keeps most does for all of them.
double most_state_per_parameter(const Model& model) {
  double most = 0;
  for (const auto& optimizer : model.optimizers()) {
    most = std::max(most, state_per_parameter(*optimizer));
  }
  return most;
}

// What the machine has, shared out over the devices of the workers on it.
int64_t device_bytes(const Config& config, const Cluster& cluster) {
  const int64_t asked = config.get<int64_t>(kMemory);
  if (asked > 0) return asked << 20;
  int devices = 0;
  const auto& hosts = cluster.worker_hosts;
  for (size_t i = 0; i < hosts.size(); ++i) {
    const bool here = hosts[i] == hosts[static_cast<size_t>(cluster.worker_index)];
    if (here) devices += cluster.worker_devices[i];
  }
  const int64_t machine = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGE_SIZE);
  return machine / std::max(1, devices);
}

// In the first tensor of the batch that has rows; 0 where none has.
int64_t recorded_rows(const Graph& graph) {
  for (const Leaf& leaf : graph.leaves) {
    const auto& sizes = graph.value(leaf.value).type.sizes;
    if (leaf.kind == Leaf::Kind::kInput && !sizes.empty()) return sizes[0];
  }
  return 0;
}

// The more stages, the fewer replicas share the rows of this worker.
double rows_of_micro_batch(int64_t rows, int stages, const Config& config, const Cluster& cluster) {
  const int replicas = std::max(1, cluster.local_devices() / stages);
  const auto micro_batches = static_cast<double>(config.get<int64_t>("pipeline.num_micro_batch"));
  return static_cast<double>(rows) / (micro_batches * replicas);
}

StageCutsRequest request_for(int stages, const Model& model, const Config& config,
                             const Cluster& cluster) {
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
  request.device_bytes = device_bytes(config, cluster);
  request.optimizer_state = most_state_per_parameter(model);
  request.asked_by = config.asked_by("auto.auto_parallel");
  if (config.get<int64_t>(kStageCount) > 0)
    request.asked_by += "\n            " + config.asked_by(kStageCount);
  if (config.get<int64_t>(kMemory) > 0)
    request.asked_by += "\n            " + config.asked_by(kMemory);
  return request;
}

// The numbers of stages to be tried, in this order.
std::vector<int> candidates(const Config& config, const Cluster& cluster) {
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

std::string print_choice(const AutoStages& choice) {
  return concat(choice.stages, " ", choice.forward_calls, " ", join(choice.cuts, " "));
}

AutoStages parse_choice(const std::string& text) {
  std::istringstream in(text);
  AutoStages choice;
  in >> choice.stages >> choice.forward_calls;
  for (int cut = 0; in >> cut;) choice.cuts.push_back(cut);
  return choice;
}

}  // namespace

int forward_calls(const Graph& graph) {
  int last = -1;
  for (const auto& node : graph.nodes) last = std::max(last, node.origin.call);
  return last + 1;
}

AutoStages choose_stages(const Graph& graph, const Model& model, const Config& config, Job& job,
                         int64_t rows) {
  const NodeCosts costs = node_costs(graph, machine_of(job.cluster()));
  const std::vector<int> tried = candidates(config, job.cluster());
  const auto recorded = static_cast<double>(recorded_rows(graph));
  AutoStages choice;
  choice.forward_calls = forward_calls(graph);
  std::string explanation;
  for (int stages : tried) {
    try {
      StageCutsRequest request = request_for(stages, model, config, job.cluster());
      if (rows > 0 && recorded > 0) {
        request.rows = rows_of_micro_batch(rows, stages, config, job.cluster()) / recorded;
      }
      const StageCuts chosen = choose_stage_cuts(graph, costs, request);
      choice.stages = stages;
      choice.cuts = chosen.cuts;
      explanation = chosen.explanation;
      break;
    } catch (const Error&) {
      if (stages == tried.back()) throw;
    }
  }
  if (job.membership() != nullptr) {
    const std::string mine = print_choice(choice);
    choice = parse_choice(job.membership()->exchange(job.next_key("stages"), mine)[0]);
  }
  if (job.cluster().worker_index == 0) std::clog << explanation;
  return choice;
}

}  // namespace epl
