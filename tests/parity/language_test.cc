// Networks for text and speech train as in the plain loop.
#include "config/libtorch.h"
#include "tests/models/recurrent.h"
#include "tests/models/transformer.h"
#include "tests/parity/parity.h"

namespace epl::parity {
namespace {

using models::token_loss;

constexpr int64_t kVocabulary = 20;
constexpr int64_t kLength = 6;

// Rows of token ids and what follows each.
Batch text(int) { return {classes(kVocabulary, {4, kLength}), classes(kVocabulary, {4, kLength})}; }

template <typename Net, typename... Args>
MakeProgram language_model(double lr, Args... args) {
  return [=] {
    auto net = std::make_shared<Net>(args...);
    return program(net, sgd(*net, lr), [net](const Batch& batch) {
      return token_loss(net->forward(batch[0]), batch[1]);
    });
  };
}

TEST(Language, Lstm) {
  EXPECT_TRUE(parity(language_model<models::LstmLanguageModel>(0.5, kVocabulary, 16, 1), text,
                     bit_equal()));
}

TEST(Language, StackedLstm) {
  EXPECT_TRUE(parity(language_model<models::LstmLanguageModel>(0.5, kVocabulary, 16, 3, 0.0), text,
                     bit_equal()));
}

// In the plain loop the gates of a GRU are views with gaps, which EPL's graph does not have.
Exactness of_gates() {
  if (!EPL_TORCH_AT_LEAST(2, 0)) return bit_equal();
  return within(1e-6, "sigmoid of LibTorch 2 rounds views with gaps in another way");
}

TEST(Language, Gru) {
  EXPECT_TRUE(
      parity(language_model<models::GruLanguageModel>(0.5, kVocabulary, 16, 1), text, of_gates()));
}

TEST(Language, StackedGru) {
  EXPECT_TRUE(parity(language_model<models::GruLanguageModel>(0.5, kVocabulary, 16, 2, 0.0), text,
                     of_gates()));
}

TEST(Language, LstmCellInALoop) {
  EXPECT_TRUE(
      parity(language_model<models::CellLanguageModel>(0.5, kVocabulary, 16), text, bit_equal()));
}

TEST(Language, BatchNormBeforeABidirectionalLstm) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::SpeechNet>(6, 8, 3);
        return program(net, sgd(*net, 0.1), classification(net));
      },
      [](int) {
        return Batch{torch::randn({4, 6, 10}), classes(3, {4})};
      },
      bit_equal()));
}

// Truncated backpropagation through time: the state of one batch is the input of the next.
TEST(Language, LstmStateCarriedFromStepToStep) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::LstmLanguageModel>(kVocabulary, 16, 1);
        // The state lives in tensors that the step reads and writes in place.
        auto h = torch::zeros({1, 4, 16});
        auto c = torch::zeros({1, 4, 16});
        return program(net, sgd(*net, 0.5), [=](const Batch& batch) mutable {
          auto [out, state] =
              net->recurrent->forward(net->tokens(batch[0]), std::make_tuple(h.clone(), c.clone()));
          {
            torch::NoGradGuard no_grad;
            h.copy_(std::get<0>(state));
            c.copy_(std::get<1>(state));
          }
          return token_loss(net->head(out), batch[1]);
        });
      },
      text, bit_equal()));
}

TEST(Language, TransformerEncoder) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::EncoderClassifier>(kVocabulary, 16, 2, kLength, 3);
        return program(net, sgd(*net, 0.1), classification(net));
      },
      [](int) {
        return Batch{classes(kVocabulary, {4, kLength}), classes(3, {4})};
      },
      bit_equal()));
}

TEST(Language, TransformerEncoderWithAPaddingMask) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::EncoderClassifier>(kVocabulary, 16, 2, kLength, 3);
        return program(net, sgd(*net, 0.1), [net](const Batch& batch) {
          return cross_entropy(net->forward(batch[0], batch[1]), batch[2]);
        });
      },
      [](int step) {
        auto padding = torch::zeros({4, kLength}, torch::kBool);
        padding.slice(0, 0, 2).slice(1, 2 + step % 3).fill_(true);
        return Batch{classes(kVocabulary, {4, kLength}), padding, classes(3, {4})};
      },
      bit_equal()));
}

TEST(Language, EncoderDecoderTransformer) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::Translator>(kVocabulary, 16, 2);
        return program(net, sgd(*net, 0.1), [net](const Batch& batch) {
          auto to = batch[1];
          auto logits = net->forward(batch[0], to.slice(1, 0, -1));
          return token_loss(logits, to.slice(1, 1));
        });
      },
      [](int) {
        return Batch{classes(kVocabulary, {4, kLength}), classes(kVocabulary, {4, 5})};
      },
      bit_equal()));
}

const models::TransformerSize kTiny = {kVocabulary, /*hidden=*/16, /*layers=*/2, /*heads=*/4,
                                       kLength};

TEST(Language, Gpt) {
  EXPECT_TRUE(parity(language_model<models::Gpt>(0.1, kTiny), text, bit_equal()));
}

TEST(Language, GptWithTiedEmbeddings) {
  EXPECT_TRUE(
      parity(language_model<models::Gpt>(0.1, kTiny, models::Head::kTied), text, bit_equal()));
}

TEST(Language, GptWhoseHeadWasGivenTheEmbeddingsWeight) {
  EXPECT_TRUE(parity(language_model<models::Gpt>(0.1, kTiny, models::Head::kTiedByMember), text,
                     bit_equal()));
}

TEST(Language, Bert) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::Bert>(kTiny);
        return program(net, sgd(*net, 0.1), classification(net));
      },
      [](int) {
        return Batch{classes(kVocabulary, {4, kLength}), classes(2, {4})};
      },
      bit_equal()));
}

TEST(Language, SequencesOfAnotherLengthInEveryBatch) {
  EXPECT_TRUE(parity(
      language_model<models::Gpt>(0.1, kTiny),
      [](int step) {
        const int64_t length = 3 + step % 3;
        return Batch{classes(kVocabulary, {4, length}), classes(kVocabulary, {4, length})};
      },
      bit_equal(), Variant().steps(7)));
}

TEST(Language, TargetsToIgnore) {
  EXPECT_TRUE(parity(
      [] {
        auto net = std::make_shared<models::Gpt>(kTiny);
        return program(net, sgd(*net, 0.1), [net](const Batch& batch) {
          auto logits = net->forward(batch[0]).view({-1, kVocabulary});
          return torch::nn::functional::cross_entropy(
              logits, batch[1].view({-1}),
              torch::nn::functional::CrossEntropyFuncOptions().ignore_index(0));
        });
      },
      text, bit_equal()));
}

}  // namespace
}  // namespace epl::parity
