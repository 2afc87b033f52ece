// JSON of strangers: the headers of safetensors files, and manifests.
//
// Stricter than a parser of JSON has to be: a name that stands twice in an object is an error (a
// parser keeps either, and two readers might keep different ones), and so is a value that is
// nested deeper than any of ours.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

namespace epl {

// Throws DamagedCheckpoint; `path` is what its message names.
nlohmann::json parse_strict_json(const std::string& text, const std::string& path);

// A value of an object, with what is wrong in an error: "tensors: weight: shape is missing".
// Throws DamagedCheckpoint where it is missing or of another kind.
class JsonObject {
 public:
  JsonObject(const nlohmann::json& value, std::string path, std::string what);

  const nlohmann::json& at(const std::string& key) const;
  std::string text(const std::string& key) const;
  int64_t number(const std::string& key) const;  // not below 0
  std::vector<int64_t> numbers(const std::string& key) const;
  JsonObject object(const std::string& key) const;

  const nlohmann::json& value() const { return value_; }
  [[noreturn]] void fail(const std::string& fault) const;
  // Says of a key that it is none of ours: a file of a newer version may mean something by it.
  void expect_only(const std::vector<std::string>& keys) const;

 private:
  const nlohmann::json& value_;
  const std::string path_;
  const std::string what_;
};

}  // namespace epl
