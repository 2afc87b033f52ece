// Layers that a model repeats: what is found out about one of them holds for all.
//
//   const Repeats repeats = find_repeats(graph);
//   repeats.str();          // "7 + 12 x 43 + 9": 12 equal blocks of 43 positions
//
// Candidates are found by the operators and types of positions alone, quickly and loosely; a repeat
// is what remains where the texts of the blocks are equal (search/block_text.h), so that a wrong
// one cannot be. Names of modules say nothing here: they may be anything.
#pragma once

#include <string>
#include <vector>

#include "ir/graph.h"
#include "search/block_text.h"

namespace epl {

struct Block {
  int begin = 0;  // positions [begin, end)
  int end = 0;
  int kind = 0;  // blocks of one kind are equal
};

struct Repeats {
  Positions positions;
  std::vector<Block> blocks;  // side by side, over all positions
  int kinds = 0;

  // The share of positions in blocks that are equal to one before them.
  double repeated() const;
  std::string str() const;
};

// Equal blocks follow each other, twice at least, and each has parameters. Of several ways to see
// repeats the one that leaves least to look at, then the one with the fewest open values.
Repeats find_repeats(const Graph& graph);

}  // namespace epl
