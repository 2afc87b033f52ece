// The tokenizer of BERT's uncased models (Devlin et al. 2018; WordPiece: Wu et al. 2016).
//
//   bert::Tokenizer tokenizer(bert::Vocabulary::read("vocab.txt"));
//   tokenizer.tokenize("Beyonc\u00e9's");    beyonce  '  s     with the bytes each one stands for
//
// A text is cut into words (lower case, no accents, punctuation and Chinese characters each alone),
// and a word into the longest pieces that the vocabulary has; pieces inside of a word are written
// with ## in front. A word that cannot be put together so is one [UNK].
#pragma once

#include <cstdint>
#include <filesystem>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "examples/bert/unicode.h"

namespace bert {

// Pieces by their numbers. It has [PAD], [UNK], [CLS] and [SEP], or is not made.
class Vocabulary {
 public:
  // The published form: one piece a line, numbered from 0.
  static Vocabulary read(const std::filesystem::path& path);

  // The most frequent words of these texts, `size` pieces at most, and all their letters, so that
  // any word of the same letters can be put together.
  static Vocabulary of_texts(const std::vector<std::string>& texts, size_t size);

  explicit Vocabulary(std::vector<std::string> pieces, const std::string& origin = "vocabulary");

  int64_t size() const { return static_cast<int64_t>(pieces_.size()); }
  int64_t find(const std::string& piece) const;  // -1: it is not there
  const std::string& piece(int64_t id) const { return pieces_.at(static_cast<size_t>(id)); }

  int64_t pad() const { return pad_; }
  int64_t unknown() const { return unknown_; }
  int64_t begin() const { return begin_; }          // [CLS]
  int64_t separator() const { return separator_; }  // [SEP]

  // One piece a line, written to a temporary name first.
  void write(const std::filesystem::path& path) const;

 private:
  std::vector<std::string> pieces_;
  std::unordered_map<std::string, int64_t> ids_;
  int64_t pad_ = 0, unknown_ = 0, begin_ = 0, separator_ = 0;
};

struct Token {
  int64_t id = 0;
  size_t begin = 0;  // bytes of the text that it stands for
  size_t end = 0;
};

// Words as BERT's basic tokenizer cuts them; each is a list of characters that know their origin.
std::vector<std::vector<Character>> words(std::string_view text);

class Tokenizer {
 public:
  explicit Tokenizer(Vocabulary vocabulary) : vocabulary_(std::move(vocabulary)) {}

  std::vector<Token> tokenize(std::string_view text) const;
  const Vocabulary& vocabulary() const { return vocabulary_; }

 private:
  void add_pieces(const std::vector<Character>& word, std::vector<Token>& tokens) const;

  Vocabulary vocabulary_;
};

}  // namespace bert
