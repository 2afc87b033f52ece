// Where the random numbers of a device come from.
//
// The first device of the job draws from the generators that the user's program uses, so that one
// device gives the plain program's numbers. Every other device has a stream of its own for each of
// them, whose seed follows from the user's seed and the number of the device: the same seed and the
// same devices give the same numbers, whatever the timing.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <vector>

namespace epl {

class RandomStreams {
 public:
  explicit RandomStreams(int device) : device_(device) {}

  // What stands in for a generator of the user's on this device.
  at::Generator of(const at::Generator& users);
  at::Generator default_generator();

  // Starts anew those streams whose generator got another seed by the user (torch::manual_seed).
  void follow_seeds();

  // All that it has handed out, to be set back where a run has to start over.
  std::vector<at::Tensor> states() const;
  void restore(const std::vector<at::Tensor>& states);

 private:
  struct Stream {
    at::Generator users;
    uint64_t seed;
    at::Generator own;
  };
  uint64_t seed_from(uint64_t users_seed) const;

  const int device_;
  std::vector<Stream> streams_;
};

}  // namespace epl
