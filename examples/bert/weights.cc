#include "examples/bert/weights.h"

#include <caffe2/serialize/inline_container.h>

#include <cstring>
#include <fstream>
#include <nlohmann/json.hpp>
#include <sstream>
#include <stdexcept>

#include "examples/bert/pickle.h"
#include "examples/common/files.h"

namespace bert {
namespace {

namespace fs = std::filesystem;

[[noreturn]] void fail(const fs::path& path, const std::string& why) {
  throw std::runtime_error("cannot read the weights " + path.string() + ": " + why +
                           "\n  try:      a file that Python wrote by\n"
                           "              import torch\n"
                           "              torch.save(dict(model.state_dict()), \"weights.bin\")");
}

torch::ScalarType type_of(const std::string& name) {
  static const std::map<std::string, torch::ScalarType> kTypes{
      {"FloatStorage", torch::kFloat32},     {"F32", torch::kFloat32},
      {"HalfStorage", torch::kFloat16},      {"F16", torch::kFloat16},
      {"BFloat16Storage", torch::kBFloat16}, {"BF16", torch::kBFloat16},
      {"DoubleStorage", torch::kFloat64},    {"F64", torch::kFloat64},
      {"LongStorage", torch::kInt64},        {"I64", torch::kInt64},
      {"IntStorage", torch::kInt32},         {"I32", torch::kInt32},
      {"BoolStorage", torch::kBool},         {"BOOL", torch::kBool},
      {"ByteStorage", torch::kUInt8},        {"U8", torch::kUInt8}};
  const auto found = kTypes.find(name);
  if (found == kTypes.end()) throw std::runtime_error("it has numbers of the unknown type " + name);
  return found->second;
}

// --- files of torch.save() -----------------------------------------------------------------------

using PickledTensors = std::map<std::string, PickledTensor>;

PickledTensors tensors_in(const PickledValue& dictionary) {
  PickledTensors tensors;
  for (const auto& [key, item] : dictionary.pairs) {
    if (item->kind == PickledValue::Kind::kTensor) tensors.emplace(key->text, item->tensor);
  }
  return tensors;
}

// Those of a dictionary, or of the first dictionary in it that has some: {"state_dict": {...}}.
PickledTensors tensors_of(const PickledValue& value) {
  PickledTensors tensors = tensors_in(value);
  for (const auto& [key, item] : value.pairs) {
    if (tensors.empty()) tensors = tensors_in(*item);
  }
  return tensors;
}

// A tensor over the whole storage that `tensor` is a part of; its bytes are for others to fill.
torch::Tensor empty_storage(const PickledTensor& tensor, int64_t most_bytes) {
  const torch::ScalarType type = type_of(tensor.type);
  const int64_t size = static_cast<int64_t>(c10::elementSize(type));
  if (tensor.storage_size < 0 || tensor.storage_size > most_bytes / size) {
    throw std::runtime_error("it ends too early");
  }
  return torch::empty({tensor.storage_size}, type);
}

torch::Tensor part_of(const torch::Tensor& storage, const PickledTensor& tensor) {
  // The place of the last element, counted so that no sum can overflow.
  int64_t last = tensor.offset;
  bool inside = tensor.sizes.size() == tensor.strides.size() && last >= 0;
  bool empty = false;
  for (size_t i = 0; inside && i < tensor.sizes.size(); ++i) {
    const int64_t size = tensor.sizes[i];
    const int64_t stride = tensor.strides[i];
    inside = size >= 0 && stride >= 0 && size <= storage.numel() && stride <= storage.numel() &&
             last <= storage.numel();
    if (inside && size > 0) last += (size - 1) * stride;
    empty = empty || size == 0;
  }
  if (!inside || (!empty && last >= storage.numel())) {
    throw std::runtime_error("a tensor reaches beyond its storage");
  }
  return storage.as_strided(tensor.sizes, tensor.strides, tensor.offset);
}

Weights read_zip(const fs::path& path) {
  caffe2::serialize::PyTorchStreamReader reader(path.string());
  if (!reader.hasRecord("data.pkl") || reader.hasRecord("constants.pkl")) {
    throw std::runtime_error("it is no state_dict (TorchScript and torch::save() write others)");
  }
  const auto [pickle, pickle_size] = reader.getRecord("data.pkl");
  std::istringstream in(std::string(static_cast<const char*>(pickle.get()), pickle_size));
  std::map<std::string, torch::Tensor> storages;
  Weights weights;
  for (const auto& [name, tensor] : tensors_of(*read_pickle(in))) {
    torch::Tensor& storage = storages[tensor.storage];
    if (!storage.defined()) {
      const auto [bytes, size] = reader.getRecord("data/" + tensor.storage);
      storage = empty_storage(tensor, static_cast<int64_t>(size));
      std::memcpy(storage.data_ptr(), bytes.get(), storage.nbytes());
    }
    weights.emplace(name, part_of(storage, tensor));
  }
  return weights;
}

// Before PyTorch 1.6: a number that marks the format, its version, the sizes of C's types, the
// object and the keys of its storages, each a pickle; then the storages, each with its number of
// elements.
Weights read_legacy(std::ifstream& in, int64_t file_size) {
  constexpr int64_t kMark = static_cast<int64_t>(0xa86a20f9469cfc6cULL);  // its lowest 8 bytes
  const auto mark = read_pickle(in);
  const auto version = read_pickle(in);
  if (mark->number != kMark || version->number != 1001) {
    throw std::runtime_error("it is a pickle, but not one of torch.save()");
  }
  read_pickle(in);
  const auto tensors = tensors_of(*read_pickle(in));
  std::map<std::string, torch::Tensor> storages;
  for (const auto& [name, tensor] : tensors) {
    if (storages.count(tensor.storage) == 0) {
      storages.emplace(tensor.storage, empty_storage(tensor, file_size));
    }
  }
  const auto keys = read_pickle(in);
  for (const auto& key : keys->items) {
    int64_t count = 0;
    in.read(reinterpret_cast<char*>(&count), sizeof(count));
    const auto storage = storages.find(key->text);
    if (storage == storages.end() || storage->second.numel() != count) {
      throw std::runtime_error("its storage " + key->text + " has another size than its tensors");
    }
    in.read(static_cast<char*>(storage->second.data_ptr()),
            static_cast<std::streamsize>(storage->second.nbytes()));
  }
  if (!in) throw std::runtime_error("it ends too early");
  Weights weights;
  for (const auto& [name, tensor] : tensors) {
    weights.emplace(name, part_of(storages.at(tensor.storage), tensor));
  }
  return weights;
}

// --- safetensors: the size of a header, the header as JSON, then all bytes
// --------------------------

Weights read_safetensors(std::ifstream& in, int64_t file_size) {
  int64_t header_size = 0;
  in.read(reinterpret_cast<char*>(&header_size), sizeof(header_size));
  std::string header(static_cast<size_t>(header_size), '\0');
  in.read(header.data(), header_size);
  const int64_t data = static_cast<int64_t>(sizeof(header_size)) + header_size;
  const nlohmann::json entries = nlohmann::json::parse(header);
  Weights weights;
  for (const auto& [name, entry] : entries.items()) {
    if (name == "__metadata__") continue;
    const auto begin = entry.at("data_offsets").at(0).get<int64_t>();
    const auto end = entry.at("data_offsets").at(1).get<int64_t>();
    const auto sizes = entry.at("shape").get<std::vector<int64_t>>();
    const torch::ScalarType type = type_of(entry.at("dtype").get<std::string>());
    int64_t bytes = static_cast<int64_t>(c10::elementSize(type));
    for (const int64_t size : sizes) {
      if (size < 0 || size > file_size) throw std::runtime_error(name + " has impossible sizes");
      bytes = std::min(bytes * size, file_size + 1);
    }
    if (begin < 0 || end - begin != bytes || end > file_size - data) {
      throw std::runtime_error(name + " is not where its header says");
    }
    torch::Tensor tensor = torch::empty(sizes, type);
    in.seekg(data + begin);
    in.read(static_cast<char*>(tensor.data_ptr()), bytes);
    weights.emplace(name, tensor);
  }
  if (!in) throw std::runtime_error("it ends too early");
  return weights;
}

// --- names ---------------------------------------------------------------------------------------

void replace_end(std::string& name, const std::string& end, const std::string& by) {
  if (name.size() >= end.size() && name.compare(name.size() - end.size(), end.size(), end) == 0) {
    name.replace(name.size() - end.size(), end.size(), by);
  }
}

bool begins_with(const std::string& name, const std::string& begin) {
  return name.compare(0, begin.size(), begin) == 0;
}

std::string our_name(std::string name) {
  if (begins_with(name, "module.")) name.erase(0, 7);
  replace_end(name, "LayerNorm.gamma", "LayerNorm.weight");
  replace_end(name, "LayerNorm.beta", "LayerNorm.bias");
  for (const char* part : {"embeddings.", "encoder.", "pooler."}) {
    if (begins_with(name, part)) return "bert." + name;
  }
  return name;
}

std::string listed(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : ", ") + name;
  return text;
}

std::string sizes_text(const torch::Tensor& tensor) {
  std::ostringstream text;
  text << tensor.sizes();
  return text.str();
}

}  // namespace

Weights read_weights(const fs::path& path) {
  std::ifstream in(path, std::ios::binary);
  std::string head(9, '\0');
  if (!in || fs::is_directory(path)) {
    throw std::runtime_error("cannot read the weights " + path.string() + ": it cannot be opened");
  }
  in.read(head.data(), static_cast<std::streamsize>(head.size()));
  in.clear();
  in.seekg(0);
  const int64_t file_size = static_cast<int64_t>(fs::file_size(path));
  int64_t header_size = 0;
  std::memcpy(&header_size, head.data(), sizeof(header_size));
  Weights found;
  try {
    if (begins_with(head, "PK")) {
      found = read_zip(path);
    } else if (head[8] == '{' && header_size > 0 && header_size < file_size) {
      found = read_safetensors(in, file_size);
    } else if (head[0] == '\x80') {
      found = read_legacy(in, file_size);
    } else {
      throw std::runtime_error("it is neither a file of torch.save() nor safetensors");
    }
  } catch (const c10::Error& error) {
    fail(path, error.what_without_backtrace());
  } catch (const std::exception& error) {
    fail(path, error.what());
  }
  if (found.empty()) fail(path, "it has no tensors");
  Weights weights;
  for (auto& [name, tensor] : found) weights.emplace(our_name(name), std::move(tensor));
  return weights;
}

void write_weights(const fs::path& path, const torch::nn::Module& net) {
  c10::Dict<std::string, torch::Tensor> named;
  for (const auto& parameter : net.named_parameters()) {
    named.insert(parameter.key(), parameter.value().detach());
  }
  const std::vector<char> bytes = torch::pickle_save(named);
  examples::write_whole(path, std::string(bytes.begin(), bytes.end()));
}

NetworkOptions sizes_of(const Weights& weights) {
  const auto size = [&](const std::string& name, int64_t dimension) {
    const auto found = weights.find(name);
    if (found == weights.end() || found->second.dim() != 2) {
      throw std::runtime_error("these are no weights of BERT: there is no matrix " + name);
    }
    return found->second.size(dimension);
  };
  const auto layer = [](int64_t i) { return "bert.encoder.layer." + std::to_string(i) + "."; };
  NetworkOptions options;
  options.vocabulary = size("bert.embeddings.word_embeddings.weight", 0);
  options.hidden = size("bert.embeddings.word_embeddings.weight", 1);
  options.positions = size("bert.embeddings.position_embeddings.weight", 0);
  options.segments = size("bert.embeddings.token_type_embeddings.weight", 0);
  options.intermediate = size(layer(0) + "intermediate.dense.weight", 0);
  options.heads = std::max<int64_t>(options.hidden / 64, 1);
  options.layers = 0;
  while (weights.count(layer(options.layers) + "attention.self.query.weight") > 0) ++options.layers;
  return options;
}

std::string LoadedWeights::str() const {
  std::string text = std::to_string(loaded) + " weights loaded";
  if (!missing.empty()) text += "; not in the file, trained anew: " + listed(missing);
  if (!unused.empty()) text += "; in the file, not used: " + listed(unused);
  return text;
}

LoadedWeights load_weights(const Weights& weights, QuestionAnswering& net) {
  const torch::NoGradGuard no_grad;
  LoadedWeights result;
  std::vector<std::string> absent, other_sizes;
  Weights left = weights;
  for (auto& parameter : net->named_parameters()) {
    const std::string& name = parameter.key();
    const auto found = left.find(name);
    if (found == left.end()) {
      (begins_with(name, "bert.") ? absent : result.missing).push_back(name);
      continue;
    }
    if (found->second.sizes() != parameter.value().sizes()) {
      other_sizes.push_back(name + " is " + sizes_text(found->second) + " and should be " +
                            sizes_text(parameter.value()));
    } else {
      parameter.value().copy_(found->second);
      ++result.loaded;
    }
    left.erase(found);
  }
  if (!absent.empty()) throw std::runtime_error("the weights lack " + listed(absent));
  if (!other_sizes.empty()) {
    throw std::runtime_error("the weights are of another network: " + listed(other_sizes));
  }
  for (const auto& [name, tensor] : left) result.unused.push_back(name);
  return result;
}

}  // namespace bert
