// How many bytes of what is fetched lie in memory while a Program runs, by its instructions: of
// what is offloaded, and of what other workers keep of parameters.
#pragma once

#include <cstdint>
#include <functional>
#include <utility>

#include "program/program.h"

namespace epl {

// Of one tensor: files are brought and given back by pages. Of one that is spread, what others keep
// of it, on the worker that keeps least.
inline constexpr int64_t kHomePageBytes = 4096;
int64_t near_bytes(const Program& program, int leaf, bool states);

// Plays the instructions of a Program one after the other.
class NearBytes {
 public:
  // `bytes_of_others`: of a leaf that is spread.
  using BytesOfLeaf = std::function<int64_t(int leaf)>;
  NearBytes(const Program& program, BytesOfLeaf bytes_of_others)
      : program_(program), bytes_of_others_(std::move(bytes_of_others)) {}
  explicit NearBytes(const Program& program);

  void play(const Instruction& instruction);
  // The most since this was asked last.
  int64_t take_most();

 private:
  const Program& program_;
  const BytesOfLeaf bytes_of_others_;
  int64_t near_ = 0;
  int64_t going_ = 0;  // stored since the last use
  int64_t most_ = 0;
};

// The most at once in pages of a file, from the fetch to the store of each. What was stored last
// may still be there when the next is fetched: it is written and given back meanwhile.
int64_t most_near(const Program& program);

// The same with so many bytes of a leaf that is spread.
int64_t most_near(const Program& program, const NearBytes::BytesOfLeaf& bytes_of_others);

}  // namespace epl
