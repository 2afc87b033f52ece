// What the tests of examples share: a folder of their own, and published data where it is.
#pragma once

#include <gtest/gtest.h>
#include <stdlib.h>

#include <exception>
#include <filesystem>
#include <fstream>
#include <functional>
#include <optional>
#include <string>

// A folder that is gone after the test.
class ExampleFiles : public testing::Test {
 protected:
  ExampleFiles() {
    std::string name = (std::filesystem::temp_directory_path() / "epl_example_XXXXXX").string();
    folder_ = mkdtemp(name.data());
  }
  ~ExampleFiles() override { std::filesystem::remove_all(folder_); }

  std::filesystem::path path(const std::string& name) const { return folder_ / name; }
  void write(const std::string& name, const std::string& bytes) const {
    std::ofstream(path(name), std::ios::binary) << bytes;
  }

  std::filesystem::path folder_;
};

inline std::string error_of(const std::function<void()>& function) {
  try {
    function();
  } catch (const std::exception& error) {
    return error.what();
  }
  return "no error";
}

// Published data is no part of the project: shared/data beside its folder, or EPL_TEST_DATA.
constexpr const char* kNoSharedData =
    "the published data is not there: neither ../shared/data beside the project nor in the folder "
    "that EPL_TEST_DATA names";

inline std::optional<std::filesystem::path> shared_data(const std::string& name) {
  namespace fs = std::filesystem;
  const char* given = std::getenv("EPL_TEST_DATA");
  const fs::path root = given != nullptr ? fs::path(given) : fs::path(EPL_SHARED_DATA);
  return fs::is_directory(root / name) ? std::optional<fs::path>(root / name) : std::nullopt;
}
