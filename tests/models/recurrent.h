// Recurrent networks: language models over LSTM and GRU, and convolution + batch norm before an
// LSTM.
#pragma once

#include <torch/torch.h>

#include <tuple>

namespace epl::models {

template <typename Recurrent, typename Options>
struct RecurrentLanguageModel : torch::nn::Module {
  RecurrentLanguageModel(int64_t vocabulary, int64_t hidden, int64_t layers, double dropout = 0)
      : tokens(vocabulary, hidden),
        recurrent(Options(hidden, hidden).num_layers(layers).batch_first(true).dropout(dropout)),
        head(hidden, vocabulary) {
    register_module("tokens", tokens);
    register_module("recurrent", recurrent);
    register_module("head", head);
  }

  // [batch, length] of token ids to [batch, length, vocabulary].
  torch::Tensor forward(torch::Tensor ids) {
    return head(std::get<0>(recurrent->forward(tokens(ids))));
  }

  torch::nn::Embedding tokens;
  Recurrent recurrent;
  torch::nn::Linear head;
};

using LstmLanguageModel = RecurrentLanguageModel<torch::nn::LSTM, torch::nn::LSTMOptions>;
using GruLanguageModel = RecurrentLanguageModel<torch::nn::GRU, torch::nn::GRUOptions>;

// A recurrence written by hand over a cell, as beginners and researchers do.
struct CellLanguageModel : torch::nn::Module {
  CellLanguageModel(int64_t vocabulary, int64_t hidden)
      : tokens(vocabulary, hidden), cell(hidden, hidden), head(hidden, vocabulary) {
    register_module("tokens", tokens);
    register_module("cell", cell);
    register_module("head", head);
  }

  torch::Tensor forward(torch::Tensor ids) {
    auto x = tokens(ids);
    auto h = torch::zeros({x.size(0), x.size(2)});
    auto c = torch::zeros({x.size(0), x.size(2)});
    std::vector<torch::Tensor> outputs;
    for (int64_t t = 0; t < x.size(1); ++t) {
      std::tie(h, c) = cell(x.select(1, t), std::make_tuple(h, c));
      outputs.push_back(h);
    }
    return head(torch::stack(outputs, 1));
  }

  torch::nn::Embedding tokens;
  torch::nn::LSTMCell cell;
  torch::nn::Linear head;
};

// Spectrogram-like [batch, features, time] to classes.
struct SpeechNet : torch::nn::Module {
  SpeechNet(int64_t features, int64_t hidden, int64_t classes)
      : conv(torch::nn::Conv1dOptions(features, hidden, 3).padding(1)),
        norm(hidden),
        lstm(torch::nn::LSTMOptions(hidden, hidden).bidirectional(true)),
        head(2 * hidden, classes) {
    register_module("conv", conv);
    register_module("norm", norm);
    register_module("lstm", lstm);
    register_module("head", head);
  }

  torch::Tensor forward(torch::Tensor x) {
    x = torch::relu(norm(conv(x)));
    x = std::get<0>(lstm->forward(x.permute({2, 0, 1})));
    return head(x[-1]);
  }

  torch::nn::Conv1d conv;
  torch::nn::BatchNorm1d norm;
  torch::nn::LSTM lstm;
  torch::nn::Linear head;
};

}  // namespace epl::models
