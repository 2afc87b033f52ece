// CheckpointReader: reads any parts of the tensors of a checkpoint, however they were cut when they
// were written.
//
//   CheckpointReader reader("checkpoints/step-00001200");
//   reader.read({{"fc.weight", StoredType::kF32, {8, 4}, rows({8, 4}, 2, 5), memory}});
//
// read() looks at types, shapes, headers and the checksums of all blocks that it needs before it
// writes the first byte, so that a checkpoint that does not fit or is damaged leaves everything as
// it was; nothing is held twice. It reads no more of a file than those blocks.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "checkpoint/manifest.h"
#include "checkpoint/safetensors.h"

namespace epl {

// Some of a tensor, and where it goes.
struct WantedPart {
  std::string name;
  StoredType type = StoredType::kF32;
  Shape shape;  // of the whole tensor
  TensorPart part;
  void* to = nullptr;
};

class CheckpointReader {
 public:
  // The folder of one step. Throws DamagedCheckpoint where there is no manifest, where it says
  // nothing sensible, or where a file is missing or of another length.
  explicit CheckpointReader(const std::string& folder);

  const Manifest& manifest() const { return manifest_; }

  // Throws Error where a tensor is not there or is another, DamagedCheckpoint where one cannot be
  // read.
  void read(const std::vector<WantedPart>& wanted);

  // What is wrong anywhere in it, a line each: every block of every file, every tensor. Empty:
  // nothing.
  std::vector<std::string> faults();

 private:
  struct File {
    std::unique_ptr<CheckedFileReader> bytes;
    bool has_header = false;
    std::map<std::string, StoredTensor> tensors;  // by key
  };

  void forget();
  File& with_header(const std::string& name);
  const TensorRecord& fitting(const WantedPart& wanted) const;
  void check_pieces(const std::string& name, const TensorRecord& tensor);
  void check_unlisted();

  const std::string folder_;
  const Manifest manifest_;
  std::map<std::string, File> files_;
};

}  // namespace epl
