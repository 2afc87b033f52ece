// Lists on the command line, and numbers in reports.
#pragma once

#include <algorithm>
#include <cstdio>
#include <optional>
#include <sstream>
#include <stdexcept>
#include <string>
#include <vector>

namespace epl::bench {

// "mlp,gpt" as its two names.
inline std::vector<std::string> parts(const std::string& list) {
  std::vector<std::string> names;
  std::stringstream in(list);
  for (std::string name; std::getline(in, name, ',');) names.push_back(name);
  return names;
}

inline void check_known(const std::vector<std::string>& names,
                        const std::vector<std::string>& known) {
  for (const auto& name : names) {
    if (std::find(known.begin(), known.end(), name) != known.end()) continue;
    throw std::runtime_error("there is no \"" + name + "\"");
  }
}

inline std::string text(const std::optional<double>& number, const char* absent) {
  if (!number) return absent;
  char digits[32];
  std::snprintf(digits, sizeof digits, "%.4f", *number);
  return digits;
}

}  // namespace epl::bench
