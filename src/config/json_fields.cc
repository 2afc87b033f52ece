#include "config/json_fields.h"

#include <algorithm>
#include <cerrno>
#include <cmath>
#include <cstring>
#include <fstream>
#include <limits>
#include <set>
#include <sstream>

#include "base/check.h"
#include "config/spelling.h"

namespace epl {
namespace {

constexpr double kMostNumber = 1e30;    // products of a few stay finite
constexpr double kBelowZero = -1e-300;  // for bounds that may be reached
const char* const kPositive = "a number greater than 0";

// Texts of any length come from outside, and a message is read by a person.
std::string shortened(const std::string& text, size_t most = 60) {
  return text.size() <= most ? text : text.substr(0, most) + "...";
}

// Finds a field that an object has twice, which the library would pass over in silence.
class FieldsOnce {
 public:
  // The library's callback. Returns true: everything is kept.
  bool see(Json::parse_event_t event, const Json& parsed) {
    if (event == Json::parse_event_t::object_start) open_.emplace_back();
    if (event == Json::parse_event_t::object_end) open_.pop_back();
    if (event == Json::parse_event_t::key) {
      const auto& key = parsed.get_ref<const std::string&>();
      if (!open_.back().insert(key).second && twice_.empty()) twice_ = concat("\"", key, "\"");
    }
    return true;
  }
  const std::string& twice() const { return twice_; }

 private:
  std::vector<std::set<std::string>> open_;  // the fields of each object that has not ended
  std::string twice_;
};

}  // namespace

Json parse_json(const std::string& text, const JsonSource& source) {
  FieldsOnce fields;
  Json json;
  try {
    json = Json::parse(text, [&](int /*depth*/, Json::parse_event_t event, Json& parsed) {
      return fields.see(event, parsed);
    });
  } catch (const Json::exception& error) {
    throw Error(concat(source.name, " is no JSON: ", shortened(error.what(), 200)), source.asked_by,
                "numbers without units, names in \"\", no comma behind the last field");
  }
  EPL_CHECK(fields.twice().empty(),
            concat(source.name, " has the field ", shortened(fields.twice()), " twice"),
            source.asked_by, "one of them");
  return json;
}

std::string read_text_file(const std::string& path, const std::string& asked_by,
                           const std::string& hint) {
  std::ifstream file(path, std::ios::binary);
  std::ostringstream text;
  if (file) text << file.rdbuf();
  EPL_CHECK(file && text, concat("cannot read ", path, ": ", std::strerror(errno)), asked_by, hint);
  return text.str();
}

JsonFields::JsonFields(const Json& json, std::string path, const JsonSource& source)
    : json_(json), path_(std::move(path)), source_(source) {
  if (json_.is_object()) return;
  throw Error(concat(path_.empty() ? source.name : concat(path_, " of ", source.name),
                     " must be an object, not ", shortened(json_.dump())),
              source.asked_by, "{...}");
}

std::string JsonFields::place(const std::string& key) const {
  return shortened(path_.empty() ? key : path_ + "." + key);
}

void JsonFields::refuse(const std::string& what, const std::string& hint) const {
  throw Error(concat(what, " (", source_.name, ")"), source_.asked_by, hint);
}

void JsonFields::refuse_value(const std::string& key, const Json& value,
                              const std::string& allowed) const {
  refuse(concat(place(key), " must be ", allowed, ", not ", shortened(value.dump())),
         concat("\"", key, "\" with ", allowed));
}

void JsonFields::only(const std::vector<std::string>& known) const {
  for (const auto& [key, value] : json_.items()) {
    if (std::find(known.begin(), known.end(), key) != known.end()) continue;
    refuse(concat("there is no field ", place(key)),
           concat("\"", nearest_word(shortened(key), known), "\""));
  }
}

std::vector<std::string> JsonFields::names() const {
  std::vector<std::string> found;
  for (const auto& [key, value] : json_.items()) found.push_back(key);
  return found;
}

const Json& JsonFields::field(const std::string& key) const {
  if (!has(key)) refuse(concat(place(key), " is missing"), concat("a field \"", key, "\""));
  return json_.at(key);
}

double JsonFields::number(const std::string& key, double above, double most,
                          const std::string& allowed) const {
  const Json& value = field(key);
  if (!value.is_number()) refuse_value(key, value, allowed);
  const double number = value.get<double>();
  if (!std::isfinite(number) || number <= above || number > most) {
    refuse_value(key, value, allowed);
  }
  return number;
}

double JsonFields::positive(const std::string& key) const {
  return number(key, 0, kMostNumber, kPositive);
}
double JsonFields::positive(const std::string& key, double otherwise) const {
  return has(key) ? positive(key) : otherwise;
}
double JsonFields::not_negative(const std::string& key, double otherwise) const {
  return has(key) ? number(key, kBelowZero, kMostNumber, "a number of at least 0") : otherwise;
}
double JsonFields::share(const std::string& key, double otherwise) const {
  return has(key) ? number(key, 0, 1, "a number greater than 0 and at most 1") : otherwise;
}

int64_t JsonFields::count(const std::string& key) const {
  const std::string allowed = concat("an integer from 1 to ", kMostCounted);
  const Json& value = field(key);
  if (!value.is_number_integer()) refuse_value(key, value, allowed);
  number(key, 0, static_cast<double>(kMostCounted), allowed);  // before it is cut to 64 bits
  return value.get<int64_t>();
}
int64_t JsonFields::count(const std::string& key, int64_t otherwise) const {
  return has(key) ? count(key) : otherwise;
}

std::string JsonFields::text(const std::string& key) const {
  const Json& value = field(key);
  if (!value.is_string()) refuse_value(key, value, "a text in \"\"");
  return value.get<std::string>();
}
std::string JsonFields::text(const std::string& key, const std::string& otherwise) const {
  return has(key) ? text(key) : otherwise;
}

size_t JsonFields::word(const std::string& key, const std::vector<std::string>& words) const {
  const std::string given = text(key);
  const auto found = std::find(words.begin(), words.end(), given);
  if (found == words.end()) {
    const std::string nearest = nearest_word(shortened(given), words);
    refuse(concat(place(key), " names \"", shortened(given), "\", which does not exist"),
           words.empty() ? "one that the file describes"
                         : concat("\"", nearest, "\"; there is: ", join(words, ", ")));
  }
  return static_cast<size_t>(found - words.begin());
}
size_t JsonFields::word(const std::string& key, const std::vector<std::string>& words,
                        size_t otherwise) const {
  return has(key) ? word(key, words) : otherwise;
}

std::vector<std::string> JsonFields::texts(const std::string& key) const {
  std::vector<std::string> found;
  if (!has(key)) return found;
  const Json& value = field(key);
  const std::string allowed = "a list of texts";
  if (!value.is_array()) refuse_value(key, value, allowed);
  for (const Json& item : value) {
    if (!item.is_string()) refuse_value(key, value, allowed);
    found.push_back(item.get<std::string>());
  }
  return found;
}

std::vector<double> JsonFields::numbers(const std::string& key) const {
  if (!has(key)) return {};
  return numbers_of(key, field(key), "a list of numbers of at least 0");
}

std::vector<double> JsonFields::numbers_of(const std::string& key, const Json& list,
                                           const std::string& allowed) const {
  if (!list.is_array()) refuse_value(key, list, allowed);
  std::vector<double> found;
  for (const Json& item : list) {
    const double number = item.is_number() ? item.get<double>() : -1;
    if (!(number >= 0 && number <= kMostNumber)) refuse_value(key, list, allowed);
    found.push_back(number);
  }
  return found;
}

std::vector<std::vector<double>> JsonFields::rows(const std::string& key, size_t width) const {
  std::vector<std::vector<double>> found;
  if (!has(key)) return found;
  const Json& value = field(key);
  const std::string allowed = concat("a list of rows of ", width, " numbers of at least 0");
  if (!value.is_array()) refuse_value(key, value, allowed);
  for (const Json& row : value) {
    found.push_back(numbers_of(key, row, allowed));
    if (found.back().size() != width) refuse_value(key, row, allowed);
  }
  return found;
}

JsonFields JsonFields::object(const std::string& key) const {
  return JsonFields(field(key), place(key), source_);
}

std::vector<JsonFields> JsonFields::objects(const std::string& key) const {
  const Json& value = field(key);
  if (!value.is_array() || value.empty()) refuse_value(key, value, "a list of objects, not empty");
  std::vector<JsonFields> found;
  for (size_t i = 0; i < value.size(); ++i) {
    found.emplace_back(value[i], concat(place(key), "[", i, "]"), source_);
  }
  return found;
}

std::vector<std::pair<std::string, JsonFields>> JsonFields::named(const std::string& key) const {
  const Json& value = field(key);
  if (!value.is_object() || value.empty()) refuse_value(key, value, "an object, not empty");
  std::vector<std::pair<std::string, JsonFields>> found;
  for (const auto& [name, item] : value.items()) {
    found.emplace_back(name, JsonFields(item, place(key) + "." + name, source_));
  }
  return found;
}

}  // namespace epl
