#include "search/repeats.h"

#include <algorithm>
#include <map>
#include <utility>

#include "base/check.h"

namespace epl {
namespace {

// What a position looks like without its connections, as a number.
std::vector<int> looks_of(const Graph& graph, const Positions& positions) {
  std::map<std::string, int> known;
  std::vector<int> looks;
  for (const std::vector<int>& nodes : positions) {
    std::string text;
    for (const int index : nodes) {
      const Node& node = graph.nodes[static_cast<size_t>(index)];
      text += concat(op_name(node), " ", static_cast<int>(node.phase));
      const auto add = [&](ValueId id) { text += " " + print_type(graph.value(id).type); };
      for_each_input(node, add);
      for_each_output(node, add);
      text += "\n";
    }
    looks.push_back(known.emplace(std::move(text), static_cast<int>(known.size())).first->second);
  }
  return looks;
}

// Positions [begin, end) look as if they had this period.
struct Candidate {
  int begin = 0;
  int end = 0;
  int period = 0;

  int blocks() const { return (end - begin) / period; }
  int saved() const { return (blocks() - 1) * period; }
};

// All longest ones within [begin, end), best first. Quadratic in positions, of which comparing two
// numbers is all: 8000 take 30 ms.
std::vector<Candidate> candidates_in(const std::vector<int>& looks, int begin, int end) {
  std::vector<Candidate> found;
  for (int period = 1; 2 * period <= end - begin; ++period) {
    int same = 0;  // how many positions before `i` look like those a period behind them
    for (int i = begin; i + period <= end; ++i) {
      const bool alike = i + period < end &&
                         looks[static_cast<size_t>(i)] == looks[static_cast<size_t>(i + period)];
      if (alike) {
        ++same;
        continue;
      }
      if (same >= period) found.push_back({i - same, i + period, period});
      same = 0;
    }
  }
  std::stable_sort(found.begin(), found.end(), [](const Candidate& a, const Candidate& b) {
    return a.saved() != b.saved() ? a.saved() > b.saved() : a.period < b.period;
  });
  return found;
}

// Blocks that are equal, one behind the other.
struct Chain {
  int begin = 0;
  int period = 0;
  int blocks = 0;
  int open_values = 0;  // of one block

  int end() const { return begin + period * blocks; }
  int saved() const { return blocks > 1 ? (blocks - 1) * period : 0; }
  bool is_better_than(const Chain& other) const {
    return saved() != other.saved() ? saved() > other.saved() : open_values < other.open_values;
  }
};

class RepeatFinder {
 public:
  explicit RepeatFinder(const Graph& graph)
      : graph_(graph),
        positions_(positions_of(graph)),
        uses_(graph, positions_),
        looks_(looks_of(graph, positions_)) {}

  Repeats find() {
    split(0, static_cast<int>(positions_.size()));
    found_.positions = std::move(positions_);
    return std::move(found_);
  }

 private:
  // Finds the best repeat of a part, and those before and behind it.
  void split(int begin, int end) {
    if (begin >= end) return;
    const Chain chain = best_chain(begin, end);
    if (chain.blocks < 2) {
      found_.blocks.push_back({begin, end, found_.kinds++});
      return;
    }
    split(begin, chain.begin);
    const int kind = found_.kinds++;
    for (int block = 0; block < chain.blocks; ++block) {
      const int first = chain.begin + block * chain.period;
      found_.blocks.push_back({first, first + chain.period, kind});
    }
    split(chain.end(), end);
  }

  Chain best_chain(int begin, int end) const {
    constexpr int kMostTried = 32;  // candidates that only look like repeats are few
    Chain best;
    int tried = 0;
    for (const Candidate& candidate : candidates_in(looks_, begin, end)) {
      if (candidate.saved() < best.saved() || tried++ == kMostTried) break;
      const Chain chain = longest_chain(candidate);
      if (chain.blocks > 1 && chain.is_better_than(best)) best = chain;
    }
    return best;
  }

  // The blocks of a candidate may begin at any of the positions that its last block leaves over.
  Chain longest_chain(const Candidate& candidate) const {
    constexpr int kMostShifts = 16;
    const int slack = (candidate.end - candidate.begin) % candidate.period;
    Chain best;
    for (int shift = 0; shift <= std::min(slack, kMostShifts); ++shift) {
      const Chain chain = chain_from(candidate.begin + shift, candidate);
      if (chain.blocks > 1 && chain.is_better_than(best)) best = chain;
    }
    return best;
  }

  // The longest run of blocks with one text.
  Chain chain_from(int begin, const Candidate& candidate) const {
    Chain best;
    Chain current;
    std::string text;
    for (int first = begin; first + candidate.period <= candidate.end; first += candidate.period) {
      BlockText block = block_text(graph_, uses_, positions_, first, first + candidate.period);
      if (block.parameters == 0) return {};
      if (current.blocks > 0 && block.text == text) {
        ++current.blocks;
      } else {
        current = {first, candidate.period, 1, block.open_values};
        text = std::move(block.text);
      }
      if (current.blocks > best.blocks) best = current;
    }
    return best;
  }

  const Graph& graph_;
  Positions positions_;
  const GraphUses uses_;
  const std::vector<int> looks_;
  Repeats found_;
};

}  // namespace

double Repeats::repeated() const {
  int again = 0;
  for (size_t i = 1; i < blocks.size(); ++i) {
    if (blocks[i].kind == blocks[i - 1].kind) again += blocks[i].end - blocks[i].begin;
  }
  return positions.empty() ? 0 : static_cast<double>(again) / static_cast<double>(positions.size());
}

std::string Repeats::str() const {
  std::vector<std::string> parts;
  for (size_t i = 0; i < blocks.size();) {
    size_t next = i;
    while (next < blocks.size() && blocks[next].kind == blocks[i].kind) ++next;
    const int size = blocks[i].end - blocks[i].begin;
    parts.push_back(next - i == 1 ? concat(size) : concat(next - i, " x ", size));
    i = next;
  }
  return join(parts, " + ");
}

Repeats find_repeats(const Graph& graph) { return RepeatFinder(graph).find(); }

}  // namespace epl
