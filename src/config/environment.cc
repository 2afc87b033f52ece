#include "config/environment.h"

#include <algorithm>
#include <charconv>
#include <vector>

#include "base/check.h"
#include "base/text.h"
#include "config/config_keys.h"
#include "config/job_variables.h"
#include "config/spelling.h"

namespace epl {
namespace {

constexpr int kSlip = 2;  // so many wrong characters are a slip of the fingers

std::vector<std::string> known_variables() {
  std::vector<std::string> variables;
  for (const ConfigKey& key : config_keys()) variables.push_back(key.variable());
  for (const char* name : {kDevicesVariable, kWorkerIndexVariable, kWorkerNumVariable,
                           kMasterVariable, kLocalIndexVariable, kLocalNumVariable}) {
    variables.push_back(name);
  }
  return variables;
}

bool has_known_category(const std::string& variable) {
  return std::any_of(config_keys().begin(), config_keys().end(), [&](const ConfigKey& row) {
    const std::string key = row.key;
    const std::string prefix = "EPL_" + to_upper(key.substr(0, key.find('.'))) + "_";
    return variable.compare(0, prefix.size(), prefix) == 0;
  });
}

}  // namespace

std::map<std::string, std::string> epl_environment() {
  std::map<std::string, std::string> result;
  for (auto& [name, value] : process_environment()) {
    if (name.compare(0, 4, "EPL_") == 0) result.emplace(name, value);
  }
  return result;
}

int devices_of_process() {
  const std::map<std::string, std::string> environment = epl_environment();
  const auto found = environment.find(kDevicesVariable);
  if (found == environment.end()) return 1;
  const std::string& text = found->second;
  int devices = 0;
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, devices);
  EPL_CHECK(error == std::errc() && stop == end && devices >= 1,
            concat(kDevicesVariable, " must be an integer of at least 1, not \"", text, "\""),
            concat(kDevicesVariable, "=", text, " (environment)"), "EPL_DEVICES=1");
  return devices;
}

void check_variable_names(const std::map<std::string, std::string>& environment) {
  const std::vector<std::string> known = known_variables();
  for (const auto& [variable, value] : environment) {
    if (std::find(known.begin(), known.end(), variable) != known.end()) continue;
    auto distance = [&, &variable = variable](const std::string& other) {
      return edit_distance(variable, other);
    };
    const std::string& nearest = *std::min_element(
        known.begin(), known.end(),
        [&](const std::string& a, const std::string& b) { return distance(a) < distance(b); });
    EPL_CHECK(!has_known_category(variable) && distance(nearest) > kSlip,
              concat("there is no environment variable ", variable),
              concat(variable, "=", value, " (environment)"), nearest);
  }
}

}  // namespace epl
