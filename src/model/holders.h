// Who holds the tensors and modules of a model besides EPL, from step to step.
//
// A program may assign another tensor to a member of a module that is a registered buffer, or
// another module to a variable that the step function reads. The module's own lists go on with the
// old one, and all that tells of it is that fewer hold the old one. EPL's own copies come and go
// within steps, so what counts is the difference between the end of a step, of any trainer, and the
// beginning of the next.
#pragma once

#include <ATen/core/Tensor.h>

#include <memory>
#include <vector>

namespace epl {

class Holders {
 public:
  // What is counted from now on.
  void watch(std::vector<at::Tensor> tensors, std::vector<std::shared_ptr<const void>> modules);

  // At the beginning and at the end of a step: a load and a comparison for each.
  void enter();
  void leave();

  // Whether the program holds one of them less often than ever before. Asked a second time: no.
  bool let_go();

 private:
  struct Count {
    size_t left = 0;   // when the last step ended
    int64_t more = 0;  // than the program was seen to do with
  };
  template <typename Look>
  void for_each(const Look& look);

  std::vector<at::Tensor> tensors_;
  std::vector<std::shared_ptr<const void>> modules_;  // with their parents
  std::vector<Count> counts_;                         // of the tensors, then of the modules
  bool counted_ = false;
  bool let_go_ = false;
};

}  // namespace epl
