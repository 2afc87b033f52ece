#include "checkpoint/strict_json.h"

#include <algorithm>
#include <set>
#include <utility>

#include "base/text.h"
#include "checkpoint/damage.h"

namespace epl {
namespace {

using nlohmann::json;

constexpr size_t kDeepest = 32;

// Bytes that are no text of ours may be no UTF-8, which what() would carry to a terminal.
std::string printable(const std::string& text) {
  std::string shown = text.substr(0, 80);
  for (char& c : shown) {
    if (c < 0x20 || c > 0x7e) c = '?';
  }
  return shown;
}

bool read_number(const json& value, int64_t& number) {
  if (!value.is_number_integer()) return false;
  if (value.is_number_unsigned() && value.get<uint64_t>() > static_cast<uint64_t>(INT64_MAX)) {
    return false;
  }
  number = value.get<int64_t>();
  return number >= 0;
}

}  // namespace

json parse_strict_json(const std::string& text, const std::string& path) {
  std::vector<std::set<std::string>> keys;  // of the objects that are open
  const auto look = [&](int depth, json::parse_event_t event, json& parsed) {
    if (static_cast<size_t>(depth) > kDeepest) {
      throw DamagedCheckpoint(path, "its JSON is nested too deep");
    }
    if (event == json::parse_event_t::object_start) keys.emplace_back();
    if (event == json::parse_event_t::object_end) keys.pop_back();
    if (event == json::parse_event_t::key && !keys.back().insert(parsed.get<std::string>()).second)
      throw DamagedCheckpoint(
          path, concat("`", printable(parsed.get<std::string>()), "` stands in an object twice"));
    return true;
  };
  try {
    return json::parse(text, look);
  } catch (const json::exception& error) {
    throw DamagedCheckpoint(path, concat("it is no JSON: ", printable(error.what())));
  }
}

JsonObject::JsonObject(const json& value, std::string path, std::string what)
    : value_(value), path_(std::move(path)), what_(printable(what)) {
  if (!value_.is_object()) fail("is no object of JSON");
}

void JsonObject::fail(const std::string& fault) const {
  throw DamagedCheckpoint(path_, what_ + " " + printable(fault));
}

const json& JsonObject::at(const std::string& key) const {
  const auto found = value_.find(key);
  if (found == value_.end()) fail(concat("has no `", key, "`"));
  return *found;
}

std::string JsonObject::text(const std::string& key) const {
  const json& value = at(key);
  if (!value.is_string()) fail(concat("has a `", key, "` that is no text"));
  return value.get<std::string>();
}

int64_t JsonObject::number(const std::string& key) const {
  int64_t number = 0;
  if (!read_number(at(key), number)) fail(concat("has a `", key, "` that is no count"));
  return number;
}

std::vector<int64_t> JsonObject::numbers(const std::string& key) const {
  const json& value = at(key);
  if (!value.is_array()) fail(concat("has a `", key, "` that is no list"));
  std::vector<int64_t> numbers(value.size());
  for (size_t i = 0; i < numbers.size(); ++i) {
    if (!read_number(value[i], numbers[i]))
      fail(concat("has a `", key, "` that is no list of counts"));
  }
  return numbers;
}

JsonObject JsonObject::object(const std::string& key) const {
  return {at(key), path_, what_ + ": " + key};
}

void JsonObject::expect_only(const std::vector<std::string>& keys) const {
  for (const auto& [key, value] : value_.items()) {
    if (std::find(keys.begin(), keys.end(), key) == keys.end()) {
      fail(concat("has a `", key, "`, which this version does not know"));
    }
  }
}

}  // namespace epl
