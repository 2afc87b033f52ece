// CostModel: what work costs on a described cluster. The one answer for whoever plans or forecasts.
//
//   const CostModel costs = load_cost_model("machine.json", asked_by);
//   costs.of_op(op_signature(graph, node), kind);                    // seconds, and where from
//   costs.of_collective({Collective::kAllReduce, 64 << 20}, costs.group(0, 16, 1));
//
// Three tiers, the best that there is: the very operator was measured; another size of it was, and
// a fit says the rest; else the peaks of the kind. Pure: the same answer in every process and every
// run. What devices share while they work side by side is not in here (cost/pools.h): these are
// the costs of work that runs alone.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "config/cluster_map.h"
#include "cost/collective_cost.h"
#include "cost/cost.h"
#include "cost/cost_table.h"
#include "cost/op_signature.h"

namespace epl {

// Where the members of a group are, as far as it counts: EPL's collectives have two levels, members
// of a host and one of each host.
struct GroupShape {
  int64_t near = 1;      // members on the host that has most
  int64_t hosts = 1;     // that have members
  size_t near_link = 0;  // of ClusterDescription::links
  size_t far_link = 0;   // between the farthest hosts; where there are several

  int64_t members() const { return near * hosts; }
};

struct CollectiveCall {
  Collective collective = Collective::kAllReduce;
  int64_t bytes = 0;  // of the whole tensor (collective_cost.h)
  // half and bfloat16 travel as float where sums are made in two levels (comm/two_level.cc).
  bool half = false;
};

// What an update reads and writes: the parameter, its gradients, and so many states.
struct UpdateKind {
  std::string optimizer;  // "sgd", "adam", ...
  int states = 0;         // tensors of the size of the parameter
};

class CostModel {
 public:
  // Tables by the name of the kind; kinds without one are known by their peaks.
  CostModel(ClusterMap map, std::map<std::string, CostTable> tables);

  const ClusterMap& map() const { return map_; }

  Cost of_op(const OpSignature& op, const DeviceKind& kind) const;
  Cost of_collective(const CollectiveCall& call, const GroupShape& group) const;
  // Of float32; `gradients`: that are summed on the way, those of the devices of a worker.
  Cost of_update(const UpdateKind& update, int64_t elements, int gradients,
                 const DeviceKind& kind) const;
  // From one place of a device's memory to another.
  Cost of_copy(int64_t bytes, const DeviceKind& kind) const;
  // Between a device and what lies beside it (HostRun::offload).
  Cost of_offload(int64_t bytes, const OffloadSpace& space) const;

  // The devices first, first + stride, ...
  GroupShape group(int64_t first, int64_t count, int64_t stride) const;

 private:
  const CostTable* table_of(const DeviceKind& kind) const;
  Cost fitted(const OpSignature& op, const DeviceKind& kind, const CostTable& table) const;
  Cost by_peaks(const OpSignature& op, const DeviceKind& kind) const;
  double memory_seconds(double bytes, const DeviceKind& kind) const;

  // On one link. `sharers` as link_seconds().
  Cost flat(size_t link, Collective collective, double bytes, int64_t members,
            double sharers = 1) const;
  Cost two_levels(const CollectiveCall& call, const GroupShape& group) const;
  Cost two_rings(const CollectiveCall& call, const GroupShape& group) const;

  ClusterMap map_;
  std::map<std::string, CostTable> tables_;
};

// The cluster (config/cluster_file.h), and the tables that its kinds name, which lie beside it.
CostModel load_cost_model(const std::string& name_or_path, const std::string& asked_by);

}  // namespace epl
