// Texts that are compared with a file of this folder, byte for byte.
//
// A file beside this one holds what LibTorch 1.13 gives. Where a later one gives something else,
// its text stands in a folder of its own, such as libtorch-2.6/: what differs there is seen by
// diff.
#pragma once

#include <gtest/gtest.h>
#include <torch/version.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <regex>
#include <sstream>
#include <string>

#include "base/text.h"
#include "config/libtorch.h"

namespace epl::golden {

inline std::string read(const std::filesystem::path& path) {
  std::ifstream in(path);
  std::ostringstream text;
  text << in.rdbuf();
  return text.str();
}

// Read before a fixture puts EPL's variables away.
inline const bool kUpdate = [] {
  const char* update = std::getenv("EPL_UPDATE_GOLDEN");
  return update != nullptr && std::string(update) == "1";
}();

// Bytes follow from the plan; estimated seconds from the numbers of a machine, which may change
// without any plan.
inline std::string without_seconds(const std::string& text) {
  static const std::regex behind_bytes(R"(( B), [0-9.]+ us\]\n)");
  static const std::regex alone(R"(  \[[0-9.]+ us\]\n)");
  return std::regex_replace(std::regex_replace(text, behind_bytes, "$1]\n"), alone, "\n");
}

// Compares `text` with the file of that name, or rewrites the file.
inline void expect_golden(const std::string& name, const std::string& full_text) {
  const std::string text = without_seconds(full_text);
  const auto folder = std::filesystem::path(__FILE__).parent_path();
  const auto common = folder / name;
  const auto own =
      folder / concat("libtorch-", TORCH_VERSION_MAJOR, ".", TORCH_VERSION_MINOR) / name;
  if (!kUpdate) {
    EXPECT_EQ(read(std::filesystem::exists(own) ? own : common), text)
        << name << " is not what is made today; see golden_test.cc";
  } else if (!EPL_TORCH_AT_LEAST(2, 0)) {
    std::ofstream(common) << text;
  } else if (read(common) == text) {
    std::filesystem::remove(own);
  } else {
    std::filesystem::create_directories(own.parent_path());
    std::ofstream(own) << text;
  }
}

}  // namespace epl::golden
