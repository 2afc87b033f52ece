#include "examples/moe/pairs.h"

#include <algorithm>
#include <cctype>
#include <stdexcept>

#include "examples/common/files.h"
#include "examples/moe/network.h"

namespace moe {
namespace {

constexpr const char* kSpecialWords[kFirstWord] = {"<padding>", "<begin>", "<end>", "<unknown>"};

std::vector<std::string_view> cut_at(std::string_view text, char mark) {
  std::vector<std::string_view> parts;
  for (size_t begin = 0; begin <= text.size();) {
    const size_t end = std::min(text.find(mark, begin), text.size());
    parts.push_back(text.substr(begin, end - begin));
    begin = end + 1;
  }
  return parts;
}

// Bytes of the letter or mark at the beginning of a text; those of UTF-8 belong together.
size_t first_character(std::string_view text) {
  size_t bytes = 1;
  while (bytes < text.size() && (static_cast<unsigned char>(text[bytes]) & 0xC0U) == 0x80U) ++bytes;
  return bytes;
}

// ASCII marks but ' and -, which stand in words, and the marks of U+2000 to U+206F and « ».
bool is_mark(std::string_view character) {
  if (character.size() == 1) {
    return std::ispunct(static_cast<unsigned char>(character[0])) != 0 && character != "'" &&
           character != "-";
  }
  return character.substr(0, 2) == "\xE2\x80" || character.substr(0, 2) == "\xE2\x81" ||
         character == "\xC2\xAB" || character == "\xC2\xBB";
}

bool is_space(std::string_view character) {
  return (character.size() == 1 && std::isspace(static_cast<unsigned char>(character[0])) != 0) ||
         character == "\xC2\xA0";  // a space that does not break
}

}  // namespace

std::vector<Pair> read_pairs(const std::filesystem::path& path) {
  std::vector<Pair> pairs;
  const std::string text = examples::read_whole(path);
  size_t number = 0;
  for (std::string_view line : cut_at(text, '\n')) {
    ++number;
    if (!line.empty() && line.back() == '\r') line.remove_suffix(1);
    if (line.empty()) continue;
    const std::vector<std::string_view> columns = cut_at(line, '\t');
    if (columns.size() < 2) {
      throw std::runtime_error(path.string() + ":" + std::to_string(number) +
                               ": there is no tab between two sentences");
    }
    const size_t first = columns.size() == 4 ? 2 : 0;
    pairs.push_back({std::string(columns[first]), std::string(columns[first + 1])});
  }
  return pairs;
}

std::vector<std::string> sources_of(const std::vector<Pair>& pairs) {
  std::vector<std::string> texts;
  for (const Pair& pair : pairs) texts.push_back(pair.source);
  return texts;
}

std::vector<std::string> targets_of(const std::vector<Pair>& pairs) {
  std::vector<std::string> texts;
  for (const Pair& pair : pairs) texts.push_back(pair.target);
  return texts;
}

std::vector<std::string> words_of(std::string_view text) {
  std::vector<std::string> words;
  bool in_word = false;
  while (!text.empty()) {
    const std::string_view character = text.substr(0, first_character(text));
    text.remove_prefix(character.size());
    const bool mark = is_mark(character);
    if (mark || (!in_word && !is_space(character))) {
      words.emplace_back(character);
    } else if (in_word && !is_space(character)) {
      words.back() += character;
    }
    in_word = !mark && !is_space(character);
  }
  return words;
}

Vocabulary::Vocabulary(const std::vector<std::string>& texts, size_t size)
    : words_(std::begin(kSpecialWords), std::end(kSpecialWords)) {
  std::map<std::string, int64_t> counts;
  for (const std::string& text : texts) {
    for (const std::string& word : words_of(text)) ++counts[word];
  }
  std::vector<std::pair<std::string, int64_t>> sorted(counts.begin(), counts.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });
  for (const auto& [word, count] : sorted) {
    if (words_.size() >= size) break;
    numbers_[word] = this->size();
    words_.push_back(word);
  }
}

std::vector<int64_t> Vocabulary::numbers(std::string_view text, size_t length) const {
  std::vector<int64_t> numbers;
  for (const std::string& word : words_of(text)) {
    const auto found = numbers_.find(word);
    numbers.push_back(found == numbers_.end() ? int64_t{kUnknown} : found->second);
  }
  numbers.push_back(kEnd);
  if (numbers.size() > length) return {};
  numbers.resize(length, kPadding);
  return numbers;
}

std::string Vocabulary::text(const torch::Tensor& numbers) const {
  const torch::Tensor flat = numbers.contiguous();
  std::string text;
  for (int64_t i = 0; i < flat.numel(); ++i) {
    const int64_t number = flat.data_ptr<int64_t>()[i];
    if (number == kEnd) break;
    const std::string& word = words_.at(static_cast<size_t>(number));
    const bool joins = word.size() == 1 && std::string(".,;:!?").find(word) != std::string::npos;
    text += (text.empty() || joins ? "" : " ") + word;
  }
  return text;
}

Sentences Sentences::rows(const std::vector<size_t>& which) const {
  const torch::Tensor index = torch::tensor(std::vector<int64_t>(which.begin(), which.end()));
  return {source.index_select(0, index), target.index_select(0, index)};
}

Sentences sentences_of(const std::vector<Pair>& pairs, const Vocabulary& source,
                       const Vocabulary& target, size_t length) {
  std::vector<int64_t> sources, targets;
  for (const Pair& pair : pairs) {
    const std::vector<int64_t> left = source.numbers(pair.source, length);
    const std::vector<int64_t> right = target.numbers(pair.target, length);
    if (left.empty() || right.empty()) continue;
    sources.insert(sources.end(), left.begin(), left.end());
    targets.push_back(kBegin);
    targets.insert(targets.end(), right.begin(), right.end());
  }
  const auto columns = static_cast<int64_t>(length);
  const auto as_rows = [](const std::vector<int64_t>& numbers, int64_t columns) {
    return torch::tensor(numbers, torch::kInt64).view({-1, columns});
  };
  if (sources.empty()) throw std::runtime_error("no pair of sentences is short enough");
  return {as_rows(sources, columns), as_rows(targets, columns + 1)};
}

}  // namespace moe
