// A JSON text that a user wrote, read field by field, so that nothing in it is overlooked.
//
//   const JsonSource source{"selene.json", "cluster.description = \"selene.json\""};
//   const Json json = parse_json(text, source);
//   JsonFields link(json.at("nvlink"), "links.nvlink", source);
//   link.only({"gbps", "us"});    // any other field is an error, with the nearest of these names
//   link.positive("gbps");        // 300; an error where it is missing, text, 0 or less
//
// Every error is an epl::Error that names the field by its path. Foreign bytes of any kind end in
// such an error, too.
#pragma once

#include <cstdint>
#include <nlohmann/json.hpp>
#include <string>
#include <utility>
#include <vector>

namespace epl {

using Json =
    nlohmann::ordered_json;  // in the order of the text, so that what is printed reads alike

// What a text is, for messages.
struct JsonSource {
  std::string name;      // "selene.json"
  std::string asked_by;  // who wanted it read
};

// An object that has a field twice is an error: only one of the two could count.
Json parse_json(const std::string& text, const JsonSource& source);

// The bytes of a file, or an Error with the reason why not and this hint.
std::string read_text_file(const std::string& path, const std::string& asked_by,
                           const std::string& hint);

class JsonFields {
 public:
  // `path`: how messages name the object; "" for the whole text. `json` and `source` outlive it.
  JsonFields(const Json& json, std::string path, const JsonSource& source);

  // It has no other fields than these. Called first: a misspelt field explains a missing one.
  void only(const std::vector<std::string>& known) const;
  bool has(const std::string& key) const { return json_.contains(key); }
  std::vector<std::string> names() const;  // of all fields

  double positive(const std::string& key) const;
  double positive(const std::string& key, double otherwise) const;  // where there is none
  double not_negative(const std::string& key, double otherwise) const;
  double share(const std::string& key, double otherwise) const;  // above 0, at most 1
  int64_t count(const std::string& key) const;  // an integer from 1 to kMostCounted
  int64_t count(const std::string& key, int64_t otherwise) const;
  std::string text(const std::string& key) const;
  std::string text(const std::string& key, const std::string& otherwise) const;
  // One of these, by its index.
  size_t word(const std::string& key, const std::vector<std::string>& words) const;
  size_t word(const std::string& key, const std::vector<std::string>& words,
              size_t otherwise) const;
  std::vector<std::string> texts(
      const std::string& key) const;  // none where there is no such field
  // Numbers of at least 0; none where there is no such field.
  std::vector<double> numbers(const std::string& key) const;
  // Rows of `width` numbers of at least 0; none where there is no such field.
  std::vector<std::vector<double>> rows(const std::string& key, size_t width) const;

  JsonFields object(const std::string& key) const;
  std::vector<JsonFields> objects(const std::string& key) const;  // of a list that is not empty
  // Of an object whose fields are named by the user; not empty.
  std::vector<std::pair<std::string, JsonFields>> named(const std::string& key) const;

  // The path of a field of this object.
  std::string place(const std::string& key) const;
  [[noreturn]] void refuse(const std::string& what, const std::string& hint) const;

  static constexpr int64_t kMostCounted = 10'000'000;  // more is a slip of the fingers

 private:
  const Json& field(const std::string& key) const;
  double number(const std::string& key, double above, double most,
                const std::string& allowed) const;
  std::vector<double> numbers_of(const std::string& key, const Json& list,
                                 const std::string& allowed) const;
  [[noreturn]] void refuse_value(const std::string& key, const Json& value,
                                 const std::string& allowed) const;

  const Json& json_;
  const std::string path_;
  const JsonSource& source_;
};

}  // namespace epl
