// Words of configuration: their case, and how far apart two spellings are. ASCII only.
#pragma once

#include <string>

namespace epl {

std::string to_lower(std::string text);
std::string to_upper(std::string text);

// Levenshtein's distance: the fewest insertions, deletions and changes of one character.
int edit_distance(const std::string& a, const std::string& b);

}  // namespace epl
