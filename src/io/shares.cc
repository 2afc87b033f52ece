#include "io/shares.h"

#include <epl/env.h>

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/text.h"

namespace epl {

void check_shares(const WorkerShares& shares) {
  EPL_CHECK(shares.worker >= 0 && shares.worker < static_cast<int>(shares.replicas.size()),
            concat("there is no worker ", shares.worker, " among ", shares.replicas.size()),
            "epl::WorkerShares");
  for (const int replicas : shares.replicas) {
    EPL_CHECK(replicas >= 1, concat("a worker cannot have ", replicas, " replicas"),
              "epl::WorkerShares", "at least one replica a worker");
  }
}

int64_t total_replicas(const WorkerShares& shares) {
  return std::accumulate(shares.replicas.begin(), shares.replicas.end(), int64_t{0});
}

int64_t replicas_before(const WorkerShares& shares) {
  return std::accumulate(shares.replicas.begin(), shares.replicas.begin() + shares.worker,
                         int64_t{0});
}

std::string str(const WorkerShares& shares) {
  const std::vector<int>& all = shares.replicas;
  const bool alike = std::count(all.begin(), all.end(), all.front()) == std::ptrdiff_t(all.size());
  std::string text = concat(all.size(), all.size() == 1 ? " worker" : " workers", " with ");
  text += alike ? concat(all.front()) : join(all, " + ");
  text += alike && all.front() == 1 ? " replica" : " replicas";
  return text + (alike && all.size() > 1 ? " each" : "");
}

WorkerShares worker_shares(SourceLocation where) {
  const Cluster& cluster = Env::get(where).cluster;
  return {cluster.worker_devices, cluster.worker_index};
}

int64_t worker_batch_size(int64_t per_device, SourceLocation where) {
  return worker_batch_size(per_device, worker_shares(where), where);
}

int64_t worker_batch_size(int64_t per_device, const WorkerShares& shares, SourceLocation where) {
  check_shares(shares);
  EPL_CHECK(per_device >= 1, concat("a device cannot take ", per_device, " rows of a step"),
            concat("epl::worker_batch_size(", per_device, ") at ", where.str()),
            "at least one row a device");
  return per_device * shares.replicas[static_cast<size_t>(shares.worker)];
}

}  // namespace epl
