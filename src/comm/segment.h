// Memory that processes of one host share and that has no name anywhere: it is gone with the last
// process that has mapped it, however that ends.
//
// The first member makes it; the others open it as /proc/<pid>/fd/<number>, which they are told by
// the Exchange. It is all zeros at first.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

#include "comm/communicator.h"

namespace epl::comm {

class Segment {
 public:
  // Called by all members, with the same size. Throws the same Error on all of them where one of
  // them cannot take part.
  Segment(const std::string& communicator, int rank, size_t bytes, const Exchange& exchange);
  ~Segment();
  Segment(const Segment&) = delete;
  Segment& operator=(const Segment&) = delete;

  char* data() const { return data_; }

  // Bytes of all segments that this process has mapped: what its communicators hold of memory.
  static int64_t mapped();

  // How many times the constructor calls the Exchange: a process that has no part in a segment but
  // in the Exchange calls it as often.
  static constexpr int kExchanges = 2;

 private:
  void unmap();

  char* data_ = nullptr;
  size_t bytes_;
};

}  // namespace epl::comm
