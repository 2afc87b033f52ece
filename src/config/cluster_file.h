// A cluster as a JSON text (docs/planner.md has the fields), and the clusters that EPL knows by
// name.
//
//   {"kinds": {"a100": {"flops": {"f32": 19.5e12, "bf16": 312e12}, "memory_gib": 80,
//                       "memory_gbps": 2039, "call_us": 4}},
//    "links": {"nvlink": {"gbps": 300, "us": 3, "algorithm": "ring"}},
//    "hosts": [{"count": 1, "devices": [{"kind": "a100", "count": 8}], "inside": "nvlink"}]}
//
// Whatever is wrong with a text is an epl::Error that names the field, its value and the nearest
// name that there is.
#pragma once

#include <string>
#include <vector>

#include "config/cluster_map.h"

namespace epl {

// `name`: of the file, for messages; `asked_by`: who wants it read.
ClusterMap parse_cluster(const std::string& text, const std::string& name,
                         const std::string& asked_by);

// A text that parses back to the same cluster.
std::string print_cluster(const ClusterDescription& cluster);

// The names of the files in tools/clusters, without ".json": they are part of the library.
std::vector<std::string> known_clusters();

// A known cluster, else the file of that path.
ClusterMap load_cluster(const std::string& name_or_path, const std::string& asked_by);

}  // namespace epl
