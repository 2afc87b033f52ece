// Words of configuration: their case, and how far apart two spellings are. ASCII only.
#pragma once

#include <string>
#include <vector>

namespace epl {

std::string to_lower(std::string text);
std::string to_upper(std::string text);

// Levenshtein's distance: the fewest insertions, deletions and changes of one character.
int edit_distance(const std::string& a, const std::string& b);

// The one of `words` that is nearest to `word`, case aside; the first of several. Empty where there
// are no words.
std::string nearest_word(const std::string& word, const std::vector<std::string>& words);

}  // namespace epl
