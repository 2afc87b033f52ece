// Published weights: read from a file, checked against a network, loaded into it.
//
//   bert::Weights weights = bert::read_weights("pytorch_model.bin");   or model.safetensors
//   bert::NetworkOptions sizes = bert::sizes_of(weights);
//   bert::QuestionAnswering net(sizes);
//   std::cout << bert::load_weights(weights, net).str();
//
// Files are those of torch.save(model.state_dict()), of today's form (a zip archive) and of that
// before PyTorch 1.6, and safetensors. torch::pickle_load() of LibTorch 1.13 reads neither the old
// form nor a state_dict, which is more than a dict; so the bytes are taken apart here.
#pragma once

#include <torch/torch.h>

#include <filesystem>
#include <map>
#include <string>
#include <vector>

#include "examples/bert/network.h"

namespace bert {

using Weights = std::map<std::string, torch::Tensor>;

// Names come as QuestionAnswering has them: LayerNorm.gamma and .beta of the first published files
// are its weight and bias, a leading "module." is dropped, and "bert." is put before the names of a
// file that has the encoder alone.
Weights read_weights(const std::filesystem::path& path);

// A file that read_weights() and Python's torch.load() read. Written to a temporary name first.
void write_weights(const std::filesystem::path& path, const torch::nn::Module& net);

// The sizes of the network that these weights are of. The number of heads is not written anywhere:
// all published models have 64 numbers a head.
NetworkOptions sizes_of(const Weights& weights);

struct LoadedWeights {
  size_t loaded = 0;
  std::vector<std::string> missing;  // of the head, which is trained on SQuAD first
  std::vector<std::string> unused;   // such as the heads of pretraining

  std::string str() const;
};

// An error where the encoder lacks a weight, or one has other sizes; it names them all.
LoadedWeights load_weights(const Weights& weights, QuestionAnswering& net);

}  // namespace bert
