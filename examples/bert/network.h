// BERT (Devlin et al. 2018) with a head that scores each token as first and last of an answer.
//
// Modules and parameters have the names of the published PyTorch checkpoints, such as
// bert.encoder.layer.0.attention.self.query.weight, so that these load as they are (weights.h).
//
// The scopes in QuestionAnswering::forward() are all that a pipeline needs: the layers are cut into
// `stages` TaskGraphs. Without EPL, and while nothing is recorded, they change nothing.
#pragma once

#include <epl/strategy.h>
#include <torch/torch.h>

#include <cmath>
#include <optional>
#include <stdexcept>
#include <string>

namespace bert {

struct NetworkOptions {
  int64_t layers = 12;
  int64_t hidden = 768;
  int64_t heads = 12;
  int64_t intermediate = 3072;
  int64_t vocabulary = 30522;
  int64_t positions = 512;  // the longest window
  int64_t segments = 2;
  double dropout = 0.1;
  // TaskGraphs that forward() cuts the network into by scopes; 0: no scopes, EPL cuts by itself.
  int64_t stages = 0;
};

inline torch::nn::LayerNorm layer_norm(int64_t size) {
  return torch::nn::LayerNorm(torch::nn::LayerNormOptions({size}).eps(1e-12));
}

struct EmbeddingsImpl : torch::nn::Module {
  explicit EmbeddingsImpl(const NetworkOptions& options) {
    using torch::nn::Embedding;
    words = register_module("word_embeddings", Embedding(options.vocabulary, options.hidden));
    places = register_module("position_embeddings", Embedding(options.positions, options.hidden));
    segments =
        register_module("token_type_embeddings", Embedding(options.segments, options.hidden));
    norm = register_module("LayerNorm", layer_norm(options.hidden));
    dropout = register_module("dropout", torch::nn::Dropout(options.dropout));
  }

  // int64 [n, length] twice -> [n, length, hidden].
  torch::Tensor forward(const torch::Tensor& ids, const torch::Tensor& segment_ids) {
    const torch::Tensor at_place = places->weight.narrow(0, 0, ids.size(1));
    const torch::Tensor sum = words->forward(ids) + segments->forward(segment_ids) + at_place;
    return dropout->forward(norm->forward(sum));
  }

  torch::nn::Embedding words{nullptr}, places{nullptr}, segments{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(Embeddings);

struct SelfAttentionImpl : torch::nn::Module {
  explicit SelfAttentionImpl(const NetworkOptions& options) : heads(options.heads) {
    using torch::nn::Linear;
    query = register_module("query", Linear(options.hidden, options.hidden));
    key = register_module("key", Linear(options.hidden, options.hidden));
    value = register_module("value", Linear(options.hidden, options.hidden));
    dropout = register_module("dropout", torch::nn::Dropout(options.dropout));
  }

  // `bias` [n, 1, 1, length] is added to what each token makes of each: 0, or far below for
  // padding.
  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& bias) {
    const auto by_head = [&](const torch::Tensor& tokens) {
      return tokens.view({x.size(0), x.size(1), heads, -1}).transpose(1, 2);
    };
    const torch::Tensor q = by_head(query->forward(x));
    const torch::Tensor k = by_head(key->forward(x));
    const double scale = 1 / std::sqrt(static_cast<double>(q.size(-1)));
    const torch::Tensor scores = torch::matmul(q, k.transpose(-2, -1)) * scale + bias;
    const torch::Tensor weights = dropout->forward(torch::softmax(scores, -1));
    const torch::Tensor mixed = torch::matmul(weights, by_head(value->forward(x)));
    return mixed.transpose(1, 2).reshape(x.sizes());
  }

  int64_t heads;
  torch::nn::Linear query{nullptr}, key{nullptr}, value{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(SelfAttention);

// A linear layer whose result is added to what went around it.
struct AddAndNormImpl : torch::nn::Module {
  AddAndNormImpl(int64_t in, int64_t out, double drop) {
    dense = register_module("dense", torch::nn::Linear(in, out));
    norm = register_module("LayerNorm", layer_norm(out));
    dropout = register_module("dropout", torch::nn::Dropout(drop));
  }

  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& around) {
    return norm->forward(dropout->forward(dense->forward(x)) + around);
  }

  torch::nn::Linear dense{nullptr};
  torch::nn::LayerNorm norm{nullptr};
  torch::nn::Dropout dropout{nullptr};
};
TORCH_MODULE(AddAndNorm);

struct AttentionImpl : torch::nn::Module {
  explicit AttentionImpl(const NetworkOptions& options) {
    self = register_module("self", SelfAttention(options));
    output = register_module("output", AddAndNorm(options.hidden, options.hidden, options.dropout));
  }

  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& bias) {
    return output->forward(self->forward(x, bias), x);
  }

  SelfAttention self{nullptr};
  AddAndNorm output{nullptr};
};
TORCH_MODULE(Attention);

struct IntermediateImpl : torch::nn::Module {
  explicit IntermediateImpl(const NetworkOptions& options) {
    dense = register_module("dense", torch::nn::Linear(options.hidden, options.intermediate));
  }
  torch::Tensor forward(const torch::Tensor& x) { return torch::gelu(dense->forward(x)); }
  torch::nn::Linear dense{nullptr};
};
TORCH_MODULE(Intermediate);

struct LayerImpl : torch::nn::Module {
  explicit LayerImpl(const NetworkOptions& options) {
    attention = register_module("attention", Attention(options));
    intermediate = register_module("intermediate", Intermediate(options));
    output = register_module("output",
                             AddAndNorm(options.intermediate, options.hidden, options.dropout));
  }

  torch::Tensor forward(const torch::Tensor& x, const torch::Tensor& bias) {
    const torch::Tensor seen = attention->forward(x, bias);
    return output->forward(intermediate->forward(seen), seen);
  }

  Attention attention{nullptr};
  Intermediate intermediate{nullptr};
  AddAndNorm output{nullptr};
};
TORCH_MODULE(Layer);

struct EncoderImpl : torch::nn::Module {
  explicit EncoderImpl(const NetworkOptions& options) {
    for (int64_t i = 0; i < options.layers; ++i) layers->push_back(Layer(options));
    register_module("layer", layers);
  }
  torch::nn::ModuleList layers;
};
TORCH_MODULE(Encoder);

struct BodyImpl : torch::nn::Module {
  explicit BodyImpl(const NetworkOptions& options) {
    embeddings = register_module("embeddings", Embeddings(options));
    encoder = register_module("encoder", Encoder(options));
  }
  Embeddings embeddings{nullptr};
  Encoder encoder{nullptr};
};
TORCH_MODULE(Body);

struct QuestionAnsweringImpl : torch::nn::Module {
  explicit QuestionAnsweringImpl(const NetworkOptions& options) : stages(options.stages) {
    if (options.hidden % options.heads != 0) {
      throw std::runtime_error(std::to_string(options.heads) + " heads do not divide a width of " +
                               std::to_string(options.hidden));
    }
    if (options.stages > options.layers) {
      throw std::runtime_error(std::to_string(options.layers) + " layers cannot be cut into " +
                               std::to_string(options.stages) + " stages");
    }
    body = register_module("bert", Body(options));
    head = register_module("qa_outputs", torch::nn::Linear(options.hidden, 2));
    initialize(options.hidden);
  }

  // What Rows holds -> scores [n, length, 2] of each token as the first and the last of the answer.
  torch::Tensor forward(const torch::Tensor& ids, const torch::Tensor& segments,
                        const torch::Tensor& mask) {
    const int64_t layers = static_cast<int64_t>(body->encoder->layers->size());
    const int64_t parts = std::max<int64_t>(stages, 1);
    torch::Tensor x;
    for (int64_t part = 0; part < parts; ++part) {
      std::optional<epl::With> stage;
      if (stages > 0) stage.emplace(epl::replicate(1, "stage_" + std::to_string(part)));
      if (part == 0) x = body->embeddings->forward(ids, segments);
      // Made anew in each stage, which costs less than sending it on.
      const torch::Tensor bias = ((1 - mask) * -10000.0).unsqueeze(1).unsqueeze(1);
      for (int64_t i = part * layers / parts; i < (part + 1) * layers / parts; ++i) {
        x = body->encoder->layers->at<LayerImpl>(static_cast<size_t>(i)).forward(x, bias);
      }
      if (part == parts - 1) x = head->forward(x);
    }
    return x;
  }

 private:
  // As published, where 0.02 is meant for a width of 768: narrower layers begin with larger weights
  // and so with signals of the same size.
  void initialize(int64_t hidden) {
    const torch::NoGradGuard no_grad;
    const double layers = 0.02 * std::sqrt(768.0 / static_cast<double>(hidden));
    const auto has = [](const std::string& name, const char* part) {
      return name.find(part) != std::string::npos;
    };
    for (const auto& entry : named_parameters()) {
      const std::string& name = entry.key();
      if (has(name, "_embeddings.")) {
        entry.value().normal_(0, 0.02);
      } else if (has(name, "bias")) {
        entry.value().zero_();
      } else if (has(name, "LayerNorm")) {
        entry.value().fill_(1);
      } else {
        entry.value().normal_(0, layers);
      }
    }
  }

  int64_t stages;
  Body body{nullptr};
  torch::nn::Linear head{nullptr};
};
TORCH_MODULE(QuestionAnswering);

// The mean of the losses of both ends. `spans` as in Rows.
inline torch::Tensor span_loss(const torch::Tensor& scores, const torch::Tensor& spans) {
  const auto side = [&](int64_t which) {
    return torch::nn::functional::cross_entropy(scores.select(2, which), spans.select(1, which));
  };
  return (side(0) + side(1)) / 2;
}

}  // namespace bert
