// Config: every knob of EPL, by the name "category.attribute".
//
//   epl::Config config{{"pipeline.num_micro_batch", 4}, {"debug.nan_loss", "skip"}};
//   epl::init(config);
//   config.get<int64_t>("pipeline.num_micro_batch");  // 4
//   config.origin("pipeline.num_micro_batch");        // "code train.cc:12"
//   std::cout << config.str();                        // all keys, values and origins
//
// A value in code goes before the environment variable EPL_<CATEGORY>_<ATTRIBUTE>, which goes
// before the default. The environment is read when a Config is made, here and nowhere else in EPL.
// A Config that exists is valid: an unknown key, a key set twice, a wrong type, a value that is not
// allowed and a misspelt variable are errors of the constructor. docs/configuration.md lists the
// keys.
#pragma once

#include <epl/source_location.h>

#include <cstdint>
#include <initializer_list>
#include <string>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace epl {

// An integer, a truth value, a number or a string.
class ConfigValue {
 public:
  ConfigValue(bool value) : value_(value) {}                      // NOLINT: literals convert
  ConfigValue(double value) : value_(value) {}                    // NOLINT
  ConfigValue(const char* value) : value_(std::string(value)) {}  // NOLINT
  ConfigValue(std::string value) : value_(std::move(value)) {}    // NOLINT
  template <typename Integer, typename = std::enable_if_t<std::is_integral_v<Integer>>>
  ConfigValue(Integer value) : value_(static_cast<int64_t>(value)) {}  // NOLINT

  // The value if it is of this type, else nullptr.
  template <typename T>
  const T* get_if() const {
    return std::get_if<T>(&value_);
  }

  std::string str() const;  // 4, true, 0.5, "v1"

  bool operator==(const ConfigValue& other) const { return value_ == other.value_; }
  bool operator!=(const ConfigValue& other) const { return !(*this == other); }

 private:
  std::variant<int64_t, bool, double, std::string> value_;
};

// One line of a Config, and where it stands in the user's source.
struct Setting {
  Setting(std::string key, ConfigValue value, SourceLocation where = SourceLocation::current())
      : key(std::move(key)), value(std::move(value)), where(where) {}

  std::string key;
  ConfigValue value;
  SourceLocation where;
};

class Config {
 public:
  Config(std::initializer_list<Setting> settings = {}) : Config(std::vector<Setting>(settings)) {}
  explicit Config(const std::vector<Setting>& settings);

  // The value of a key of that type: int64_t, bool, double or std::string. Strings come in the
  // spelling of docs/configuration.md, however they were given. Without a value
  // "pipeline.num_stages" is 0; "amp.loss_scale" is a string, "dynamic" or a number.
  template <typename T>
  T get(const std::string& key) const {
    static_assert(std::is_same_v<T, int64_t> || std::is_same_v<T, bool> ||
                      std::is_same_v<T, double> || std::is_same_v<T, std::string>,
                  "a configuration value is an int64_t, bool, double or std::string");
    const T* found = value(key).get_if<T>();
    if (found == nullptr) throw_wrong_type(key);
    return *found;
  }

  const ConfigValue& value(const std::string& key) const;

  // The same with these settings in place of whatever their keys had.
  Config with(const std::vector<Setting>& settings) const;
  // The same with the default of a key.
  Config without(const std::string& key) const;

  // "default", "environment EPL_ZERO_LEVEL" or "code train.cc:12".
  std::string origin(const std::string& key) const;

  // For the second line of an Error: pipeline.num_micro_batch = 4 (code train.cc:12)
  std::string asked_by(const std::string& key) const;

  // The whole configuration, one key a line with its value and origin.
  std::string str() const;

 private:
  struct Entry {
    ConfigValue value;
    std::string origin;
  };
  const Entry& entry(const std::string& key) const;
  void set(const Setting& setting);
  [[noreturn]] void throw_wrong_type(const std::string& key) const;

  std::vector<Entry> entries_;  // in the order of config_keys()
};

}  // namespace epl
