// Members of a communicator as threads of the test.
#pragma once

#include <gtest/gtest.h>

#include <exception>
#include <functional>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "comm/communicator.h"

namespace epl::testing {

using Ends = std::vector<std::unique_ptr<Communicator>>;
using Body = std::function<void(Communicator&)>;

// What each member threw, empty where it did not.
inline std::vector<std::string> run_members(const Ends& ends, const Body& body) {
  std::vector<std::string> errors(ends.size());
  std::vector<std::thread> threads;
  for (size_t member = 0; member < ends.size(); ++member) {
    threads.emplace_back([&, member] {
      try {
        body(*ends[member]);
      } catch (const std::exception& error) {
        errors[member] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

inline void expect_no_errors(const std::vector<std::string>& errors) {
  for (size_t member = 0; member < errors.size(); ++member) {
    EXPECT_EQ(errors[member], "") << "member " << member;
  }
}

}  // namespace epl::testing
