// What compile/ calls lower() by.
#pragma once

#include "plan/lower.h"

namespace epl {

using Stage = Role;

inline Plan lower_pipeline(const Graph& whole, const std::vector<Role>& roles,
                           const Schedule& schedule, const LowerOptions& options) {
  return lower(whole, roles, schedule, options);
}

inline Plan lower_parts(const std::vector<const Graph*>& parts, const LowerOptions& options) {
  std::vector<Role> roles;
  for (const Graph* graph : parts) roles.push_back({graph, options.slices});
  return lower(*parts[0], roles, {}, options);
}

}  // namespace epl
