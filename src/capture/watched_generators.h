// The random generators of a step that is recorded: set back when the recording ends, and watched
// for whoever sets them besides the operators that draw.
//
// A replay draws by the same operators from the same generators. It knows nothing of a seed that
// C++ gives one of them in the step, nor of a state that is kept and set again. So the state that
// an operator finds is compared with the one that the operator before it left.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/Tensor.h>

#include <utility>
#include <vector>

namespace epl {

class WatchedGenerators {
 public:
  WatchedGenerators();  // the program's default one

  // One of the user's that the step is expected to draw from. Those that were not expected are
  // watched from the first operator on that draws from them.
  void expect(const at::Generator& generator);

  // Around an operator that draws.
  void before_draw(const at::Generator& generator);
  void after_draw(const at::Generator& generator);

  // When the step has ended.
  void end();

  // Whether somebody set one of them meanwhile.
  bool set_in_step() const { return set_; }

  // As they were before the step, and as they are.
  void restore() const;
  std::vector<std::pair<at::Generator, at::Tensor>> states() const;

  // All of them. Each is held once.
  std::vector<at::Generator> all() const;

 private:
  struct Watched {
    at::Generator generator;
    at::Tensor before;
    at::Tensor left;      // by whoever was known to use it last
    bool marked = false;  // no operator has drawn from it yet
  };
  Watched* find(const at::Generator& generator);
  void compare(Watched& watched);

  std::vector<Watched> watched_;
  bool set_ = false;
};

}  // namespace epl
