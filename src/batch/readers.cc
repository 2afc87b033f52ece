#include "batch/readers.h"

#include <epl/env.h>
#include <epl/strategy.h>

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "compile/placement.h"

namespace epl {

bool reads_rows(int worker, const Placement& placement, const Cluster& cluster) {
  return !placement.devices_of_stage(0, worker, cluster).empty();
}

int reader_for(int worker, const Placement& placement, const Cluster& cluster) {
  if (reads_rows(worker, placement, cluster)) return worker;
  Cluster there = cluster;
  there.worker_index = worker;
  const int replica = placement.place(there.first_device()).replica;
  return worker_of(placement.device({replica, 0, 0}), cluster);
}

WorkerShares shares_of(const Placement& placement, const Cluster& cluster) {
  const int reader = reader_for(cluster.worker_index, placement, cluster);
  WorkerShares shares;
  shares.replicas.clear();
  for (int worker = 0; worker < cluster.worker_num; ++worker) {
    if (!reads_rows(worker, placement, cluster)) continue;
    if (worker == reader) shares.worker = static_cast<int>(shares.replicas.size());
    const auto devices = placement.devices_of_stage(0, worker, cluster).size();
    shares.replicas.push_back(static_cast<int>(devices));
  }
  return shares;
}

Shares shares_here(const Placement& placement, const Cluster& cluster, const Config& config) {
  const int worker = reader_for(cluster.worker_index, placement, cluster);
  const auto readers = static_cast<int>(placement.devices_of_stage(0, worker, cluster).size());
  const int devices = std::min(placement.devices_of_stage(0), readers);
  Shares shares;
  // Devices that operators are cut over all look at the same micro batch.
  shares.slices = placement.parts(0) > 1 ? 1 : devices;
  shares.replicas = readers / devices;
  shares.micro_batches = static_cast<int>(config.get<int64_t>("pipeline.num_micro_batch"));
  shares.asked_by = placement.asked_by;
  return shares;
}

int times_of_rows(const Placement& placement, const Cluster& cluster) {
  const int worker = reader_for(cluster.worker_index, placement, cluster);
  const auto readers = static_cast<int>(placement.devices_of_stage(0, worker, cluster).size());
  const int all = placement.devices_of_stage(0);
  return all / std::min(all, readers);
}

size_t slices_of(const DeviceBatches& batches, const Placement& placement) {
  if (placement.parts(0) > 1) return 1;
  return std::min(static_cast<size_t>(placement.devices_of_stage(0)), batches.size());
}

const Batch& micro_batch_of(const DeviceBatches& batches, const Placement& placement, size_t reader,
                            size_t index, Batch& scratch) {
  const size_t slices = slices_of(batches, placement);
  if (slices == 1) return batches[reader][index];
  std::vector<const Batch*> parts;
  const size_t first = reader / slices * slices;
  for (size_t i = 0; i < slices; ++i) parts.push_back(&batches[first + i][index]);
  return scratch = joined_rows(parts);
}

std::optional<size_t> batch_of(int device, const Placement& placement, const Cluster& cluster) {
  const Place place = placement.place(cluster.first_device() + device);
  const bool reads = placement.stage_of(place.role) == 0;
  std::vector<std::pair<int, int>> readers;  // replica and slice
  for (int each = 0; each < cluster.local_devices(); ++each) {
    const Place other = placement.place(cluster.first_device() + each);
    if (placement.stage_of(other.role) != 0) continue;
    const std::pair<int, int> reader{other.replica, other.slice};
    const auto known = std::find(readers.begin(), readers.end(), reader);
    const bool same_slice = !reads || other.slice == place.slice;
    if (other.replica == place.replica && same_slice) {
      return static_cast<size_t>(known - readers.begin());
    }
    if (known == readers.end()) readers.push_back(reader);
  }
  return std::nullopt;
}

WorkerShares pipeline_shares(const std::vector<int>& stage_devices, SourceLocation where) {
  const std::string asked_by =
      concat("epl::pipeline_shares({", join(stage_devices, ", "), "}) at ", where.str());
  EPL_CHECK(!stage_devices.empty(), "a model has at least one stage", asked_by,
            "the devices of each stage, such as {1, 1}");
  std::vector<Strategy> stages;
  for (size_t i = 0; i < stage_devices.size(); ++i) {
    EPL_CHECK(stage_devices[i] >= 1, concat("stage ", i, " has ", stage_devices[i], " devices"),
              asked_by, "at least one device a stage");
    stages.push_back(replicate(stage_devices[i], concat("stage_", i), where));
  }
  const Env& env = Env::get(where);
  return shares_of(find_placement(stages, env.cluster, env.config, false, asked_by), env.cluster);
}

}  // namespace epl
