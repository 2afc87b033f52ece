#include "checkpoint/shard_file.h"

#include <map>

#include "base/check.h"
#include "checkpoint/safetensors.h"

namespace epl {
namespace {

bool is_whole_tensor(const HeldPart& held) {
  return held.part.count() == whole(held.shape).count();
}

StoredTensor stored_form(const HeldPart& held) {
  if (is_whole_tensor(held)) return {held.name, held.type, held.shape};
  return {held.name + print_part(held.part), held.type, {held.part.count()}};
}

}  // namespace

void write_shard(Manifest& manifest, const std::string& folder, const std::string& file,
                 const std::vector<HeldPart>& parts) {
  std::vector<StoredTensor> tensors;
  std::map<std::string, const HeldPart*> by_key;
  for (const HeldPart& held : parts) {
    EPL_ASSERT(is_part_of(held.part, held.shape), "what is written is a part of its tensor");
    tensors.push_back(stored_form(held));
    by_key[tensors.back().name] = &held;
  }
  const SafetensorsHeader header = lay_out(std::move(tensors));
  Manifest written;
  written.files[file] = write_safetensors(
      folder + "/" + file, header, [&](const StoredTensor& tensor, CheckedFileWriter& out) {
        out.write(by_key.at(tensor.name)->from, static_cast<size_t>(tensor.bytes));
      });
  for (const StoredTensor& tensor : header.tensors) {
    const HeldPart& held = *by_key.at(tensor.name);
    TensorRecord& record = written.tensors[held.name];
    record.type = held.type;
    record.shape = held.shape;
    record.pieces.push_back({file, tensor.name, tensor.offset, held.part});
  }
  add_manifest(manifest, written);
}

}  // namespace epl
