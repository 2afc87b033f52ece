// Characters of UTF-8 text that remember where they came from.
//
// A tokenizer rewrites its text (lower case, no accents) and still must say which part of the
// original a token stands for. So every step here maps characters to characters and keeps the bytes
// of the original that each one comes from:
//
//   without_accents(lower_case(characters("Caf\u00e9")))   c[0,1) a[1,2) f[2,3) e[3,5)
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

namespace bert {

struct Character {
  char32_t code = 0;
  size_t begin = 0;  // bytes of the original text
  size_t end = 0;
};

// Bytes that are no UTF-8 become U+FFFD, one a byte.
std::vector<Character> characters(std::string_view text);

// As Python's str.lower(), which the published vocabularies and the metric were made with.
std::vector<Character> lower_case(const std::vector<Character>& text);

// Canonical decomposition (NFD) without the marks (category Mn). A dropped mark belongs to the
// character before it.
std::vector<Character> without_accents(const std::vector<Character>& text);

void append_utf8(std::string& text, char32_t code);
std::string utf8(const std::vector<Character>& text);

bool is_space(char32_t code);        // as Python's str.split()
bool is_word(char32_t code);         // as \w of Python's re
bool is_control(char32_t code);      // categories Cc and Cf
bool is_punctuation(char32_t code);  // category P, and all ASCII signs such as $ and ^
bool is_ideograph(char32_t code);    // Chinese characters, each of which BERT takes for a word

}  // namespace bert
