// Reading and checking the value of a key.
#include <algorithm>
#include <charconv>
#include <cmath>
#include <limits>
#include <optional>
#include <set>

#include "base/check.h"
#include "base/text.h"
#include "config/config_keys.h"
#include "config/spelling.h"

namespace epl {
namespace {

// The whole text as a number, nothing before or after it.
template <typename T>
std::optional<T> read(const std::string& text) {
  T value{};
  const char* end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, value);
  if (error != std::errc() || stop != end || text.empty()) return std::nullopt;
  return value;
}

std::optional<double> number_of(const ConfigValue& value) {
  if (const int64_t* integer = value.get_if<int64_t>()) return static_cast<double>(*integer);
  if (const double* number = value.get_if<double>()) return *number;
  return std::nullopt;
}

bool is_number_of_at_least(int64_t least, double value) {
  return std::isfinite(value) && value >= static_cast<double>(least);
}

// "0, 4,7" -> "0,4,7". Device numbers are not negative and come once.
std::optional<std::string> canonical_device_list(const std::string& text) {
  if (text.find_first_not_of(' ') == std::string::npos) return "";
  std::vector<int64_t> devices;
  size_t begin = 0;
  while (begin <= text.size()) {
    const size_t end = std::min(text.find(',', begin), text.size());
    std::string item = text.substr(begin, end - begin);
    item.erase(0, item.find_first_not_of(' '));
    item.erase(item.find_last_not_of(' ') + 1);
    const std::optional<int64_t> device = read<int64_t>(item);
    if (!device || *device < 0) return std::nullopt;
    devices.push_back(*device);
    begin = end + 1;
  }
  if (std::set<int64_t>(devices.begin(), devices.end()).size() != devices.size()) {
    return std::nullopt;
  }
  return join(devices, ",");
}

// "900MiB" -> 943718400. A number alone is one of bytes; units are those of 1024.
std::optional<int64_t> bytes_of(const std::string& text) {
  int64_t count = 0;
  const char* const end = text.data() + text.size();
  const auto [stop, error] = std::from_chars(text.data(), end, count);
  if (error != std::errc()) return std::nullopt;
  std::string unit = to_lower(std::string(stop, end));
  unit.erase(0, unit.find_first_not_of(' '));
  const std::vector<std::string> units = {"", "kib", "mib", "gib", "tib"};
  const auto found = std::find(units.begin(), units.end(), unit == "b" ? "" : unit);
  if (found == units.end()) return std::nullopt;
  const int shift = 10 * static_cast<int>(found - units.begin());
  if (count < 0 || count > (std::numeric_limits<int64_t>::max() >> shift)) return std::nullopt;
  return count << shift;
}

// What accept_value() found: the canonical value, or which of the two complaints fits.
enum class Complaint { kNone, kType, kValue };
struct Verdict {
  Complaint complaint;
  ConfigValue value = false;
};

Verdict judge(bool allowed, ConfigValue value) {
  return {allowed ? Complaint::kNone : Complaint::kValue, std::move(value)};
}

Verdict judge_string(const Domain& domain, const std::string& text) {
  switch (domain.type) {
    case Domain::Type::kWord:
      for (const std::string& word : domain.words) {
        if (to_lower(word) == to_lower(text)) return judge(true, word);
      }
      return judge(false, text);
    case Domain::Type::kDeviceList: {
      const std::optional<std::string> list = canonical_device_list(text);
      return judge(list.has_value(), list.value_or(text));
    }
    case Domain::Type::kPath:
      return judge(true, text);
    case Domain::Type::kLossScale: {
      if (to_lower(text) == "dynamic") return judge(true, "dynamic");
      const std::optional<double> scale = read<double>(text);
      if (!scale) return judge(false, text);
      return judge(is_number_of_at_least(domain.least, *scale), ConfigValue(*scale).str());
    }
    case Domain::Type::kBytes: {
      const std::optional<int64_t> bytes = bytes_of(text);
      return bytes ? judge(*bytes >= domain.least, *bytes) : judge(false, text);
    }
    default:
      return {Complaint::kType};
  }
}

Verdict judge(const Domain& domain, const ConfigValue& value) {
  if (const std::string* text = value.get_if<std::string>()) return judge_string(domain, *text);
  switch (domain.type) {
    case Domain::Type::kInteger:
    case Domain::Type::kBytes:
      if (const int64_t* integer = value.get_if<int64_t>()) {
        return judge(*integer >= domain.least, value);
      }
      return {Complaint::kType};
    case Domain::Type::kBoolean:
      return value.get_if<bool>() ? judge(true, value) : Verdict{Complaint::kType};
    case Domain::Type::kNumber:
    case Domain::Type::kLossScale: {
      const std::optional<double> number = number_of(value);
      if (!number) return {Complaint::kType};
      const bool allowed = is_number_of_at_least(domain.least, *number);
      if (domain.type == Domain::Type::kNumber) return judge(allowed, *number);
      return judge(allowed, ConfigValue(*number).str());
    }
    default:
      return {Complaint::kType};
  }
}

}  // namespace

std::string ConfigValue::str() const {
  if (const std::string* text = get_if<std::string>()) return '"' + *text + '"';
  if (const bool* truth = get_if<bool>()) return *truth ? "true" : "false";
  if (const int64_t* integer = get_if<int64_t>()) return std::to_string(*integer);
  char digits[64];  // the shortest text that reads back as the same number
  const auto [end, error] = std::to_chars(digits, digits + sizeof digits, *get_if<double>());
  EPL_ASSERT(error == std::errc(), "64 characters hold any double");
  return std::string(digits, end);
}

std::string Domain::type_name() const {
  switch (type) {
    case Type::kInteger:
      return "an integer";
    case Type::kBoolean:
      return "true or false";
    case Type::kNumber:
      return "a number";
    case Type::kLossScale:
    case Type::kBytes:
      return "a string or a number";
    case Type::kWord:
    case Type::kDeviceList:
    case Type::kPath:
      return "a string";
  }
  return "";
}

std::string Domain::allowed() const {
  switch (type) {
    case Type::kInteger:
      return concat("an integer of at least ", least);
    case Type::kBoolean:
      return "true or false";
    case Type::kNumber:
      return concat("a number of at least ", least);
    case Type::kLossScale:
      return concat("\"dynamic\" or a number of at least ", least);
    case Type::kBytes:
      return "a number of bytes, or text such as \"900MiB\" or \"2GiB\"";
    case Type::kDeviceList:
      return "\"\" or different device numbers such as \"0,4,7\"";
    case Type::kPath:
      return "the path of " + words.front();
    case Type::kWord:
      break;
  }
  std::vector<std::string> quoted;
  for (const std::string& word : words) quoted.push_back('"' + word + '"');
  const std::string last = quoted.back();
  quoted.pop_back();
  return concat(join(quoted, ", "), " or ", last);
}

ConfigValue accept_value(const ConfigKey& key, const ConfigValue& value,
                         const std::string& asked_by) {
  const Verdict verdict = judge(key.domain, value);
  EPL_CHECK(verdict.complaint != Complaint::kType,
            concat(key.key, " must be ", key.domain.type_name(), ", not ", value.str()), asked_by,
            key.domain.allowed());
  EPL_CHECK(verdict.complaint != Complaint::kValue, concat(key.key, " cannot be ", value.str()),
            asked_by, key.domain.allowed());
  return verdict.value;
}

ConfigValue parse_value(const ConfigKey& key, const std::string& text) {
  switch (key.domain.type) {
    case Domain::Type::kInteger:
      if (const std::optional<int64_t> integer = read<int64_t>(text)) return *integer;
      break;
    case Domain::Type::kNumber:
      if (const std::optional<double> number = read<double>(text)) return *number;
      break;
    case Domain::Type::kBoolean:
      if (to_lower(text) == "true") return true;
      if (to_lower(text) == "false") return false;
      break;
    default:
      break;
  }
  return text;
}

}  // namespace epl
