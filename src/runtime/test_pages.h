// For tests: what of a tensor is in memory.
#pragma once

#include <ATen/core/Tensor.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <vector>

namespace epl {

// The share of a tensor's pages that are in memory, as the system says. (A page that was only read
// counts as well, so this is asked before anybody looks at the tensor.)
inline double resident_share(const at::Tensor& x) {
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(x.data_ptr()) / page * page;
  const auto end = reinterpret_cast<uintptr_t>(x.data_ptr()) + x.nbytes();
  std::vector<unsigned char> pages((end - begin + page - 1) / page);
  EXPECT_EQ(mincore(reinterpret_cast<void*>(begin), end - begin, pages.data()), 0);
  double count = 0;
  for (unsigned char state : pages) count += state & 1;
  return count / static_cast<double>(pages.size());
}

}  // namespace epl
