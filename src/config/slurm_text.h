// The two list forms in Slurm's environment variables: "node[01-04,7],login" and "2(x3),1".
#pragma once

#include <optional>
#include <string>
#include <vector>

namespace epl {

// The first host of a node list: "node01" of "node[01-04,7],login". Nothing where the list is
// empty or a bracket is not closed.
std::optional<std::string> first_slurm_host(const std::string& nodes);

// The numbers of a count list: {2, 2, 2, 1} of "2(x3),1". Nothing where it is malformed.
std::optional<std::vector<int>> slurm_counts(const std::string& counts);

}  // namespace epl
