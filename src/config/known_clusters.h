// The files of tools/clusters as texts. CMake writes the definition, so that an installed library
// needs no folder to find them in.
#pragma once

#include <vector>

namespace epl {

struct KnownCluster {
  const char* name;  // "a100_8"
  const char* text;
};

const std::vector<KnownCluster>& known_cluster_files();

}  // namespace epl
