#include "checkpoint_tool/commands.h"

#include <ostream>

#include "base/check.h"
#include "checkpoint/damage.h"
#include "checkpoint/safetensors.h"
#include "checkpoint_tool/one_step.h"

namespace epl {
namespace {

std::string describe(const Manifest& manifest, Listing listing) {
  int64_t bytes = 0;
  for (const auto& [name, file] : manifest.files) bytes += file.bytes;
  std::string text = concat(human_bytes(bytes), " in ", manifest.files.size(), " files, ",
                            manifest.tensors.size(), " tensors");
  if (listing == Listing::kSteps) return text;
  for (const auto& [name, tensor] : manifest.tensors) {
    text += concat("\n  ", name, " ", name_of(tensor.type), print_shape(tensor.shape));
    if (tensor.pieces.size() > 1) text += concat(" in ", tensor.pieces.size(), " pieces");
  }
  return text;
}

// Lines of an error as one.
std::string first_line(const std::string& text) { return text.substr(0, text.find('\n')); }

}  // namespace

int list_steps(const std::string& path, Listing listing, std::ostream& out) {
  int code = 0;
  for (const SavedStep& saved : steps_of_path(path)) {
    const std::vector<std::string> faults = faults_of_step(saved.path);
    out << "step " << saved.step << ": ";
    if (faults.empty()) {
      out << "good, " << describe(CheckpointReader(saved.path).manifest(), listing) << "\n";
    } else {
      out << "damaged, " << first_line(faults.front()) << "\n";
      code = 1;
    }
  }
  return code;
}

int verify_steps(const std::string& path, std::ostream& out) {
  int code = 0;
  for (const SavedStep& saved : steps_of_path(path)) {
    const std::vector<std::string> faults = faults_of_step(saved.path);
    for (const std::string& fault : faults) out << "step " << saved.step << ": " << fault << "\n";
    if (faults.empty()) out << "step " << saved.step << ": good\n";
    if (!faults.empty()) code = 1;
  }
  return code;
}

int export_step(const std::string& path, const std::string& file, std::ostream& out) {
  const auto reader = open_step(path);
  std::vector<StoredTensor> tensors;
  for (const auto& [name, tensor] : reader->manifest().tensors) {
    tensors.push_back({name, tensor.type, tensor.shape});
  }
  const SafetensorsHeader header =
      lay_out(tensors, {{"format", "pt"}, {"step", std::to_string(reader->manifest().step)}});
  const FileRecord record =
      write_safetensors(file, header, [&](const StoredTensor& tensor, CheckedFileWriter& to) {
        for_chunks(*reader, tensor.name, [&](int64_t, const std::vector<char>& bytes) {
          to.write(bytes.data(), bytes.size());
        });
      });
  out << "step " << reader->manifest().step << ": " << tensors.size() << " tensors, "
      << human_bytes(record.bytes) << " written to " << file << "\n";
  return 0;
}

}  // namespace epl
