// What other threads compute while a step is recorded. The recorder sees the operators of its own
// thread alone: a tensor that the step got from another one (std::async) looks like one that was
// there before. While this stands, the storages of all results that other threads make are noted.
//
//   const ForeignResults foreign;
//   ... std::async([&] { return x.exp(); }).get() ...
//   foreign.maker_of(result);   // "aten::exp"
//
// Threads may come and go, and run operators before, during and after. Noted storages are held
// weakly: data is freed as ever, but no address comes back under another meaning.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>

namespace epl {

class ForeignResults {
 public:
  ForeignResults();
  ~ForeignResults();
  ForeignResults(const ForeignResults&) = delete;
  ForeignResults& operator=(const ForeignResults&) = delete;

  // The operator that made the storage of a strided tensor on another thread; empty where none did.
  std::string maker_of(const at::Tensor& tensor) const;

 private:
  uint64_t callback_ = 0;
};

}  // namespace epl
