// Rounds in which each side takes one turn, and what they say of the sides.
//
// Sides are compared round by round, and the median of the ratios is what counts. Rounds in which
// somebody else used the machine are repeated, up to three times as many; the calmest ones count.
#pragma once

#include <algorithm>
#include <cstdio>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bench/crew.h"

namespace epl::bench {

using Round = std::map<std::string, Turn>;  // by side
using Crews = std::map<std::string, std::unique_ptr<Crew>>;

constexpr double kMostForeign = 0.06;  // share of the machine in a calm round

inline double foreign_of(const Round& round, const std::vector<std::string>& sides) {
  double most = 0;
  for (const auto& side : sides) most = std::max(most, round.at(side).foreign);
  return most;
}

struct Rounds {
  std::vector<Round> all;
  size_t counted = 0;

  // Those in which others disturbed these sides least.
  std::vector<Round> calmest(const std::vector<std::string>& sides) const {
    std::vector<Round> sorted = all;
    std::stable_sort(sorted.begin(), sorted.end(), [&](const Round& a, const Round& b) {
      return foreign_of(a, sides) < foreign_of(b, sides);
    });
    sorted.resize(std::min(counted, sorted.size()));
    return sorted;
  }

  // Of the throughputs: the median over the rounds.
  double faster(const std::string& side, const std::string& than) const {
    std::vector<double> ratios;
    for (const auto& round : calmest({side, than})) {
      ratios.push_back(round.at(than).seconds / round.at(side).seconds);
    }
    return median(ratios);
  }

  double typical(const std::string& side, double Turn::*member) const {
    std::vector<double> values;
    for (const auto& round : calmest({side})) values.push_back(round.at(side).*member);
    return median(values);
  }

  // What others used of the machine in the worst turn that counts for a side.
  double foreign(const std::string& side) const {
    return foreign_of(calmest({side}).back(), {side});
  }
};

inline Rounds take_turns(const std::string& title, const std::vector<std::string>& sides,
                         const Crews& crews, int rounds, int steps) {
  Rounds result;
  result.counted = static_cast<size_t>(rounds);
  int calm = 0;
  for (int attempt = 0; calm < rounds && attempt < 3 * rounds; ++attempt) {
    Round& round = result.all.emplace_back();
    for (size_t i = 0; i < sides.size(); ++i) {  // nobody always follows the same other
      const auto& side = sides[attempt % 2 == 0 ? i : sides.size() - 1 - i];
      round[side] = crews.at(side)->turn();
    }
    const double foreign = foreign_of(round, sides);
    calm += foreign <= kMostForeign;
    std::fprintf(stderr, "%s: round %d, %d of %d calm, others used %.0f %% of the machine, ms:",
                 title.c_str(), attempt + 1, calm, rounds, 100 * foreign);
    for (const auto& [side, turn] : round) {
      std::fprintf(stderr, " %s %.2f", side.c_str(), 1e3 * turn.seconds / steps);
    }
    std::fprintf(stderr, "\n");
  }
  return result;
}

}  // namespace epl::bench
