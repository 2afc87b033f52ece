#include <epl/config.h>

#include <algorithm>
#include <map>
#include <sstream>

#include "base/check.h"
#include "base/text.h"
#include "config/config_keys.h"
#include "config/environment.h"

namespace epl {
namespace {

std::string code_origin(const Setting& setting) { return "code " + setting.where.str(); }

std::string asked_by_setting(const Setting& setting) {
  return concat(setting.key, " = ", setting.value.str(), " (", code_origin(setting), ")");
}

int index_of(const std::string& key, const std::string& asked_by) {
  const int index = find_config_key(key);
  EPL_CHECK(index >= 0, concat("there is no configuration key \"", key, "\""), asked_by,
            nearest_config_key(key).key);
  return index;
}

}  // namespace

Config::Config(const std::vector<Setting>& settings) {
  const std::map<std::string, std::string> environment = epl_environment();
  check_variable_names(environment);
  for (const ConfigKey& key : config_keys()) {
    const auto found = environment.find(key.variable());
    if (found == environment.end()) {
      entries_.push_back({key.default_value, "default"});
    } else {
      const std::string asked_by = concat(found->first, "=", found->second, " (environment)");
      entries_.push_back({accept_value(key, parse_value(key, found->second), asked_by),
                          "environment " + found->first});
    }
  }
  std::map<std::string, const Setting*> seen;
  for (const Setting& setting : settings) {
    const auto [earlier, is_first] = seen.emplace(setting.key, &setting);
    EPL_CHECK(is_first, concat(setting.key, " is set twice"),
              concat(asked_by_setting(*earlier->second), " and ", asked_by_setting(setting)),
              "one value");
    set(setting);
  }
}

void Config::set(const Setting& setting) {
  const int index = index_of(setting.key, asked_by_setting(setting));
  entries_[index] = {accept_value(config_keys()[index], setting.value, asked_by_setting(setting)),
                     code_origin(setting)};
}

Config Config::with(const std::vector<Setting>& settings) const {
  Config changed = *this;
  for (const Setting& setting : settings) changed.set(setting);
  return changed;
}

Config Config::without(const std::string& key) const {
  const int index = index_of(key, concat("Config::without(\"", key, "\")"));
  Config changed = *this;
  changed.entries_[index] = {config_keys()[index].default_value, "default"};
  return changed;
}

const Config::Entry& Config::entry(const std::string& key) const {
  const int index = find_config_key(key);
  // Who asks is put into words only where there is an error.
  return entries_[index >= 0 ? index : index_of(key, concat("Config::get(\"", key, "\")"))];
}

const ConfigValue& Config::value(const std::string& key) const { return entry(key).value; }

std::string Config::origin(const std::string& key) const { return entry(key).origin; }

std::string Config::asked_by(const std::string& key) const {
  const Entry& found = entry(key);
  const ConfigKey& row = config_keys()[find_config_key(key)];
  return concat(key, " = ", row.value_text(found.value), " (", found.origin, ")");
}

std::string Config::str() const {
  size_t key_width = 0;
  size_t value_width = 0;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const ConfigKey& key = config_keys()[i];
    key_width = std::max(key_width, std::string(key.key).size());
    value_width = std::max(value_width, key.value_text(entries_[i].value).size());
  }
  auto padded = [](std::string text, size_t width) {
    text.resize(width + 2, ' ');
    return text;
  };
  std::ostringstream out;
  for (size_t i = 0; i < entries_.size(); ++i) {
    const ConfigKey& key = config_keys()[i];
    out << padded(key.key, key_width) << padded(key.value_text(entries_[i].value), value_width)
        << entries_[i].origin << "\n";
  }
  return out.str();
}

void Config::throw_wrong_type(const std::string& key) const {
  const ConfigValue& held = value(key);
  const char* type = held.get_if<int64_t>()  ? "int64_t"
                     : held.get_if<bool>()   ? "bool"
                     : held.get_if<double>() ? "double"
                                             : "std::string";
  throw Error(concat(key, " is read as another type than its own"), asked_by(key),
              concat("Config::get<", type, ">(\"", key, "\")"));
}

}  // namespace epl
