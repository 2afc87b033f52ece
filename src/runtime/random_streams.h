// Where the random numbers of a device come from.
//
// The first device of the job draws from the generators that the user's program uses, so that one
// device gives the plain program's numbers. Every other device has a stream of its own for each of
// them, whose seed follows from the user's seed, the number of the device and the number of the
// step: the same seed and the same devices give the same numbers, whatever the timing, and a
// training that is resumed at a step draws what it would have drawn.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/MT19937RNGEngine.h>
#include <ATen/core/Tensor.h>

#include <optional>
#include <vector>

namespace epl {

class RandomStreams {
 public:
  explicit RandomStreams(int device) : device_(device) {}

  // What stands in for a generator of the user's on this device.
  at::Generator of(const at::Generator& users);
  at::Generator default_generator();

  // Every step starts the streams of devices other than the first anew.
  void begin_step(int64_t step);

  // How many numbers this device drew in place of the program's default generator since
  // begin_step(); asked a second time, none.
  uint64_t take_drawn();

  // All that it has handed out, to be set back where a run has to start over.
  std::vector<at::Tensor> states() const;
  void restore(const std::vector<at::Tensor>& states);

 private:
  struct Stream {
    at::Generator users;
    at::Generator own;
  };
  uint64_t seed_from(uint64_t users_seed) const;

  const int device_;
  int64_t step_ = 0;
  std::vector<Stream> streams_;
  std::optional<at::mt19937_data_pod> begun_;  // where the default generator's stream began
};

// Moves the program's default generator on by numbers that others drew for it.
void skip_in_program(uint64_t draws);

}  // namespace epl
