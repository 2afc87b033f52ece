// The table of configuration keys: the one place that knows them. A new key is a new row in
// config_keys.cc; a feature that comes to exist turns its rows to kYes there.
#pragma once

#include <epl/config.h>

#include <cstdint>
#include <string>
#include <vector>

namespace epl {

// The values that a key may take.
struct Domain {
  enum class Type : uint8_t {
    kInteger,
    kBoolean,
    kNumber,
    kWord,
    kDeviceList,
    kLossScale,
    kBytes,
    kPath
  };

  Type type;
  int64_t least = 0;               // kInteger, kNumber, kLossScale, kBytes
  std::vector<std::string> words;  // kWord: in their canonical spelling; kPath: of what

  std::string type_name() const;  // "an integer"
  std::string allowed() const;    // "an integer of at least 1"
};

struct ConfigKey {
  const char* key;
  Domain domain;
  ConfigValue default_value;
  bool available;  // false: only the default may be set, check_available() refuses the rest

  std::string variable() const;                            // EPL_PIPELINE_NUM_MICRO_BATCH
  std::string value_text(const ConfigValue& value) const;  // as str(); "none" where none is set
};

const std::vector<ConfigKey>& config_keys();

// The index of a key in config_keys(), or -1.
int find_config_key(const std::string& key);

// The known key with the smallest edit distance, case aside. A name without a category is compared
// with the attributes.
const ConfigKey& nearest_config_key(const std::string& key);

// The value in its canonical form, or an Error that names the key, who asked and what is allowed.
ConfigValue accept_value(const ConfigKey& key, const ConfigValue& value,
                         const std::string& asked_by);

// Text of the environment as a value of the key's type; text of no such type stays a string, which
// accept_value() then refuses.
ConfigValue parse_value(const ConfigKey& key, const std::string& text);

}  // namespace epl
