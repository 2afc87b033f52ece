// For tests: EPL's environment variables out of the way, and the text of an epl::Error.
#pragma once

#include <epl/error.h>
#include <gtest/gtest.h>
#include <stdlib.h>

#include <map>
#include <string>

#include "config/environment.h"

namespace epl {

// Starts without any EPL_ variable and puts back at the end what was there.
class EnvironmentFixture : public testing::Test {
 protected:
  EnvironmentFixture() : before_(epl_environment()) { clear(); }
  ~EnvironmentFixture() override {
    clear();
    for (const auto& [name, value] : before_) setenv(name.c_str(), value.c_str(), 1);
  }

  static void set(const std::string& name, const std::string& value) {
    setenv(name.c_str(), value.c_str(), 1);
  }
  static void clear() {
    for (const auto& [name, value] : epl_environment()) unsetenv(name.c_str());
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
