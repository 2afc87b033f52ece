#include "config/slurm_text.h"

#include <charconv>

namespace epl {
namespace {

constexpr int kMaxNodes = 1 << 20;  // far above any cluster; keeps a malformed repeat from memory

// Reads digits at `at` and moves behind them; nothing where there is no number of at least 1.
std::optional<int> read_count(const std::string& text, size_t& at) {
  int count = 0;
  const char* begin = text.data() + at;
  const auto [stop, error] = std::from_chars(begin, text.data() + text.size(), count);
  if (error != std::errc() || count < 1) return std::nullopt;
  at += static_cast<size_t>(stop - begin);
  return count;
}

bool skip(const std::string& text, size_t& at, const std::string& expected) {
  if (text.compare(at, expected.size(), expected) != 0) return false;
  at += expected.size();
  return true;
}

}  // namespace

std::optional<std::string> first_slurm_host(const std::string& nodes) {
  std::string host;
  for (size_t at = 0; at < nodes.size() && nodes[at] != ',';) {
    if (nodes[at] != '[') {
      host += nodes[at++];
      continue;
    }
    const size_t close = nodes.find(']', at);
    if (close == std::string::npos) return std::nullopt;
    const std::string first = nodes.substr(at + 1, nodes.find_first_of("-,]", at) - at - 1);
    if (first.empty()) return std::nullopt;
    host += first;
    at = close + 1;
  }
  if (host.empty() || host.find_first_of("]: \t") != std::string::npos) return std::nullopt;
  return host;
}

std::optional<std::vector<int>> slurm_counts(const std::string& counts) {
  std::vector<int> result;
  for (size_t at = 0;;) {
    const auto count = read_count(counts, at);
    if (!count) return std::nullopt;
    int times = 1;
    if (skip(counts, at, "(x")) {
      const auto repeat = read_count(counts, at);
      if (!repeat || *repeat > kMaxNodes || !skip(counts, at, ")")) return std::nullopt;
      times = *repeat;
    }
    result.insert(result.end(), static_cast<size_t>(times), *count);
    if (at == counts.size()) return result;
    if (!skip(counts, at, ",")) return std::nullopt;
  }
}

}  // namespace epl
