// Sentences in two languages, as text and as numbers.
//
//   std::vector<moe::Pair> pairs = moe::read_pairs("deu-eng.txt.gz");
//   moe::Vocabulary german(moe::sources_of(pairs), 5000);
//   german.numbers("Der Hund schläft.", 8);         // {17, 203, 988, 5, kEnd, 0, 0, 0}
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <string_view>
#include <vector>

namespace moe {

struct Pair {
  std::string source, target;
};

// One pair a line, with tabs between: source and target (what follows is ignored), or, as Tatoeba
// has it, two names of languages before these. A file may be compressed by gzip.
std::vector<Pair> read_pairs(const std::filesystem::path& path);

// German and English sentences made up from a few words, for a run without any data: adjectives and
// articles follow gender and case, verbs move ("Will der Hund die Katze sehen?"). The same for a
// seed on every machine.
std::vector<Pair> synthetic_pairs(size_t count, uint64_t seed);

std::vector<std::string> sources_of(const std::vector<Pair>& pairs);
std::vector<std::string> targets_of(const std::vector<Pair>& pairs);

// Words, and punctuation marks one by one.
std::vector<std::string> words_of(std::string_view text);

class Vocabulary {
 public:
  // The most frequent words of these texts, at most `size` with the special tokens; equally
  // frequent ones by the alphabet.
  Vocabulary(const std::vector<std::string>& texts, size_t size);

  int64_t size() const { return static_cast<int64_t>(words_.size()); }

  // A text's words, kUnknown for those that are not here, then kEnd and padding. None where it does
  // not fit into `length`.
  std::vector<int64_t> numbers(std::string_view text, size_t length) const;

  // The text up to kEnd, in one of the ways in which it could have been spaced.
  std::string text(const torch::Tensor& numbers) const;

 private:
  std::vector<std::string> words_;
  std::map<std::string, int64_t, std::less<>> numbers_;
};

// Pairs that fit into the length, as rows.
struct Sentences {
  torch::Tensor source;  // int64 [n, length]: words, kEnd, padding
  torch::Tensor target;  // int64 [n, length + 1]: kBegin, words, kEnd, padding

  int64_t size() const { return source.size(0); }
  Sentences rows(const std::vector<size_t>& which) const;
};

Sentences sentences_of(const std::vector<Pair>& pairs, const Vocabulary& source,
                       const Vocabulary& target, size_t length);

}  // namespace moe
