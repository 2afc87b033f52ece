// For tests: EPL's and launchers' environment variables out of the way, and the text of an
// epl::Error.
#pragma once

#include <epl/error.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <map>
#include <string>

#include "config/environment.h"

namespace epl {

// EPL's own variables and those by which find_job_place() would see a job around the tests.
inline std::map<std::string, std::string> variables_of_tests() {
  std::map<std::string, std::string> result;
  for (const auto& [name, value] : process_environment()) {
    for (const char* prefix : {"EPL_", "RANK", "WORLD_SIZE", "LOCAL_", "MASTER_", "TORCHELASTIC_",
                               "OMPI_", "PMIX_", "SLURM_"}) {
      if (name.rfind(prefix, 0) == 0) result.emplace(name, value);
    }
  }
  return result;
}

// Starts without any of these variables and puts back at the end what was there.
class EnvironmentFixture : public testing::Test {
 protected:
  EnvironmentFixture() : before_(variables_of_tests()) { clear(); }
  ~EnvironmentFixture() override {
    clear();
    for (const auto& [name, value] : before_) setenv(name.c_str(), value.c_str(), 1);
  }

  static void set(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
  }
  static void clear() {
    for (const auto& [name, value] : variables_of_tests()) unsetenv(name.c_str());
  }

 private:
  std::map<std::string, std::string> before_;
};

// The message of the epl::Error that `action` throws; any other exception passes through.
template <typename Action>
std::string error_of(Action&& action) {
  try {
    action();
  } catch (const Error& error) {
    return error.what();
  }
  return "no error";
}

}  // namespace epl
