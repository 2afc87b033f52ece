// Small helpers on text that messages and printed forms share.
#pragma once

#include <sstream>
#include <string>
#include <vector>

namespace epl {

// All arguments, one after another, as operator<< prints them.
template <typename... Parts>
std::string concat(const Parts&... parts) {
  std::ostringstream out;
  (out << ... << parts);
  return out.str();
}

template <typename Container>
std::string join(const Container& items, const std::string& separator) {
  std::ostringstream out;
  bool first = true;
  for (const auto& item : items) {
    if (!first) out << separator;
    out << item;
    first = false;
  }
  return out.str();
}

// "1.5 MiB"; bytes below 1 KiB print as "512 B".
std::string human_bytes(int64_t bytes);

}  // namespace epl
