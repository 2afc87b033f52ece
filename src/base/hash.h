// A number for a text, the same in all processes and on all machines, unlike std::hash.
#pragma once

#include <cstdint>
#include <string>

namespace epl {

// FNV-1a.
inline uint64_t hash_of_text(const std::string& text) {
  uint64_t hash = 14695981039346656037ULL;
  for (unsigned char letter : text) hash = (hash ^ letter) * 1099511628211ULL;
  return hash;
}

}  // namespace epl
