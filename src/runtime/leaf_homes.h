// What instructions bring near and let go, of the leaves of a bound step.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "program/program.h"
#include "runtime/side_by_side.h"
#include "runtime/tensor_homes.h"

namespace epl {

// Leaves that are offloaded: all devices of a worker share what is near.
class LeafHomes {
 public:
  // `leaves`: the user's tensors, by leaf. `devices`: of this worker, by role, how many run it.
  LeafHomes(TensorHomes& homes, const Plan& plan, std::vector<at::Tensor> leaves,
            const std::vector<int>& devices);

  // What an executor computes with in place of a leaf of the program.
  at::Tensor window(const PlanLeaf& leaf, const at::Tensor& tensor) const {
    return leaf.offloaded ? homes_.window(tensor) : tensor;
  }

  // Before the devices run. Throws epl::Error where the step writes, under another name, the memory
  // of something that its devices have a copy of.
  void begin();
  // Fetch, wait or store, for one device: that of this number among those of its role here. `look`
  // throws where it is not to wait any longer.
  struct Device {
    int role = 0;
    int number = 0;
  };
  void run(const Instruction& instruction, Device device, const std::function<void()>& look);
  // For the update, which writes what it brings.
  void run_for_update(const Instruction& instruction) {
    run(instruction, TensorHomes::Access::kWrite);
  }
  // After the update, however it ended.
  void write_back() { homes_.write_back(); }

  void check_written() const { homes_.check_written(); }

 private:
  void run(const Instruction& instruction, TensorHomes::Access access);
  void check_apart() const;

  TensorHomes& homes_;
  const std::vector<at::Tensor> leaves_;
  std::vector<int> offloaded_;                        // leaves that some program brings
  std::vector<int> written_;                          // leaves that some program writes
  int64_t most_near_ = 0;                             // bytes, of the programs that run here
  std::vector<std::unique_ptr<SideBySide>> devices_;  // by role; null where it has no two here
};

}  // namespace epl
