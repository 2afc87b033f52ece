// What is thrown where the bytes of a checkpoint are not what they should be: a flipped bit, a file
// that is cut short or missing, a header or a manifest that contradicts itself. Whoever has an
// older checkpoint may catch it and go on with that one.
#pragma once

#include <epl/error.h>

#include <string>

namespace epl {

class DamagedCheckpoint : public Error {
 public:
  // epl: step-00000004/w00000-model.safetensors: block 3 (...) is damaged
  DamagedCheckpoint(const std::string& path, const std::string& fault)
      : Error(path + ": " + fault, "reading a checkpoint",
              "an older checkpoint of its folder (epl-checkpoint list), or the files from a "
              "backup") {}
};

}  // namespace epl
