// How many bytes of what is offloaded lie in memory while a Program runs, by its instructions.
#pragma once

#include <cstdint>

#include "program/program.h"

namespace epl {

// Of one tensor: files are brought and given back by pages.
inline constexpr int64_t kHomePageBytes = 4096;
int64_t near_bytes(const Program& program, int leaf, bool states);

// Plays the instructions of a Program one after the other.
class NearBytes {
 public:
  explicit NearBytes(const Program& program) : program_(program) {}

  void play(const Instruction& instruction);
  // The most since this was asked last.
  int64_t take_most();

 private:
  const Program& program_;
  int64_t near_ = 0;
  int64_t going_ = 0;  // stored since the last use
  int64_t most_ = 0;
};

// The most at once in pages of a file, from the fetch to the store of each. What was stored last
// may still be there when the next is fetched: it is written and given back meanwhile.
int64_t most_near(const Program& program);

}  // namespace epl
