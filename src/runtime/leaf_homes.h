// What instructions bring near and let go, of the leaves of a bound step.
#pragma once

#include <utility>
#include <vector>

#include "program/program.h"
#include "runtime/file_homes.h"

namespace epl {

// Leaves that rest in a file: all devices of a worker share what is near.
class LeafHomes {
 public:
  // `leaves`: the user's tensors, by leaf. `most_near`: bytes that the plan has near at once.
  LeafHomes(FileHomes& homes, std::vector<at::Tensor> leaves, int64_t most_near)
      : homes_(homes), leaves_(std::move(leaves)), most_near_(most_near) {}
  void begin() { homes_.allow_near(most_near_); }
  // Fetch, wait or store, for one device.
  void run(const Instruction& instruction) { run(instruction, FileHomes::Access::kRead); }
  // For the update, which writes what it brings.
  void run_for_update(const Instruction& instruction) {
    run(instruction, FileHomes::Access::kWrite);
  }

  void check_written() const { homes_.check_written(); }

 private:
  void run(const Instruction& instruction, FileHomes::Access access);

  FileHomes& homes_;
  const std::vector<at::Tensor> leaves_;
  const int64_t most_near_;
};

}  // namespace epl
