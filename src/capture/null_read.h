// A program that reads or writes a ghost by untyped data_ptr() is given a null pointer, and its
// first use ends the process. While this stands the process says why before it ends.
#pragma once

namespace epl {

class NullReadMessage {
 public:
  NullReadMessage();
  ~NullReadMessage();
  NullReadMessage(const NullReadMessage&) = delete;
  NullReadMessage& operator=(const NullReadMessage&) = delete;
};

}  // namespace epl
