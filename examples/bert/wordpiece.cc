#include "examples/bert/wordpiece.h"

#include <algorithm>
#include <map>
#include <set>
#include <stdexcept>

#include "examples/common/files.h"

namespace bert {
namespace {

// Longer words are not searched for pieces.
constexpr size_t kLongestWord = 100;

// The text without control characters, cut at white space and around each Chinese character.
std::vector<std::vector<Character>> rough_words(std::string_view text) {
  std::vector<std::vector<Character>> result;
  bool inside = false;  // of a word that the next character goes on with
  for (const Character& character : characters(text)) {
    const char32_t code = character.code;
    const bool line_space = code == '\t' || code == '\n' || code == '\r';
    if (code == 0 || code == 0xfffd || (is_control(code) && !line_space)) continue;
    if (is_space(code)) {
      inside = false;
      continue;
    }
    const bool alone = is_ideograph(code);
    if (!inside || alone) result.emplace_back();
    result.back().push_back(character);
    inside = !alone;
  }
  return result;
}

}  // namespace

std::vector<std::vector<Character>> words(std::string_view text) {
  std::vector<std::vector<Character>> result;
  for (const auto& rough : rough_words(text)) {
    bool inside = false;
    for (const Character& character : without_accents(lower_case(rough))) {
      const bool alone = is_punctuation(character.code);
      if (!inside || alone) result.emplace_back();
      result.back().push_back(character);
      inside = !alone;
    }
  }
  return result;
}

Vocabulary::Vocabulary(std::vector<std::string> pieces, const std::string& origin)
    : pieces_(std::move(pieces)) {
  for (size_t i = 0; i < pieces_.size(); ++i) ids_.emplace(pieces_[i], static_cast<int64_t>(i));
  const auto special = [&](const std::string& piece) {
    const int64_t id = find(piece);
    if (id < 0) throw std::runtime_error(origin + " is no vocabulary of BERT: it has no " + piece);
    return id;
  };
  pad_ = special("[PAD]");
  unknown_ = special("[UNK]");
  begin_ = special("[CLS]");
  separator_ = special("[SEP]");
}

int64_t Vocabulary::find(const std::string& piece) const {
  const auto found = ids_.find(piece);
  return found == ids_.end() ? -1 : found->second;
}

Vocabulary Vocabulary::read(const std::filesystem::path& path) {
  std::vector<std::string> pieces;
  const std::string text = examples::read_whole(path);
  for (size_t at = 0; at < text.size();) {
    const size_t end = std::min(text.find('\n', at), text.size());
    pieces.push_back(text.substr(at, end - at));
    if (!pieces.back().empty() && pieces.back().back() == '\r') pieces.back().pop_back();
    at = end + 1;
  }
  return Vocabulary(std::move(pieces), path.string());
}

Vocabulary Vocabulary::of_texts(const std::vector<std::string>& texts, size_t size) {
  std::map<std::string, int64_t> counts;
  std::set<std::string> letters;
  for (const std::string& text : texts) {
    for (const auto& word : words(text)) {
      ++counts[utf8(word)];
      for (const Character& character : word) letters.insert(utf8({character}));
    }
  }
  std::vector<std::pair<std::string, int64_t>> frequent(counts.begin(), counts.end());
  std::stable_sort(frequent.begin(), frequent.end(),
                   [](const auto& a, const auto& b) { return a.second > b.second; });

  std::vector<std::string> pieces{"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"};
  pieces.insert(pieces.end(), letters.begin(), letters.end());
  for (const std::string& letter : letters) pieces.push_back("##" + letter);
  for (const auto& [word, count] : frequent) {
    if (pieces.size() >= size) break;
    if (letters.count(word) == 0) pieces.push_back(word);
  }
  return Vocabulary(std::move(pieces));
}

void Vocabulary::write(const std::filesystem::path& path) const {
  std::string text;
  for (const std::string& piece : pieces_) text += piece + "\n";
  examples::write_whole(path, text);
}

std::vector<Token> Tokenizer::tokenize(std::string_view text) const {
  std::vector<Token> tokens;
  for (const auto& word : words(text)) add_pieces(word, tokens);
  return tokens;
}

void Tokenizer::add_pieces(const std::vector<Character>& word, std::vector<Token>& tokens) const {
  const size_t before = tokens.size();
  const auto unknown = [&] {
    tokens.resize(before);
    tokens.push_back({vocabulary_.unknown(), word.front().begin, word.back().end});
  };
  if (word.size() > kLongestWord) return unknown();

  for (size_t first = 0; first < word.size();) {
    // The longest piece that begins here: `ends` are the places in `piece` behind each character.
    std::string piece = first == 0 ? "" : "##";
    std::vector<size_t> ends;
    for (size_t i = first; i < word.size(); ++i) {
      append_utf8(piece, word[i].code);
      ends.push_back(piece.size());
    }
    int64_t id = -1;
    while (!ends.empty() && (id = vocabulary_.find(piece.substr(0, ends.back()))) < 0) {
      ends.pop_back();
    }
    if (id < 0) return unknown();
    const size_t last = first + ends.size() - 1;
    tokens.push_back({id, word[first].begin, word[last].end});
    first = last + 1;
  }
}

}  // namespace bert
