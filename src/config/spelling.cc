#include "config/spelling.h"

#include <algorithm>
#include <numeric>
#include <vector>

namespace epl {

std::string to_lower(std::string text) {
  for (char& c : text) {
    if (c >= 'A' && c <= 'Z') c = static_cast<char>(c - 'A' + 'a');
  }
  return text;
}

std::string to_upper(std::string text) {
  for (char& c : text) {
    if (c >= 'a' && c <= 'z') c = static_cast<char>(c - 'a' + 'A');
  }
  return text;
}

int edit_distance(const std::string& a, const std::string& b) {
  // row[j] is the distance between the first i characters of a and the first j of b.
  std::vector<int> row(b.size() + 1);
  std::iota(row.begin(), row.end(), 0);
  for (size_t i = 1; i <= a.size(); ++i) {
    int diagonal = row[0];
    row[0] = static_cast<int>(i);
    for (size_t j = 1; j <= b.size(); ++j) {
      const int changed = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({row[j] + 1, row[j - 1] + 1, changed});
    }
  }
  return row.back();
}

std::string nearest_word(const std::string& word, const std::vector<std::string>& words) {
  const std::string wanted = to_lower(word);
  const auto nearest = std::min_element(
      words.begin(), words.end(), [&](const std::string& a, const std::string& b) {
        return edit_distance(wanted, to_lower(a)) < edit_distance(wanted, to_lower(b));
      });
  return nearest == words.end() ? "" : *nearest;
}

}  // namespace epl
