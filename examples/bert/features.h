// What BERT sees of a question and its paragraph, and back from its scores to an answer.
//
//   [CLS] where does anna live ? [SEP] anna lives in paris . [SEP] [PAD] ...
//
// A paragraph that is too long is seen through several windows that overlap. A token that stands in
// more than one of them is judged where it has most text around it (Devlin et al. 2018, run_squad).
// Tokens know the bytes that they stand for, so an answer is cut out of the paragraph as written.
#pragma once

#include <torch/torch.h>

#include <cstdint>
#include <string>
#include <vector>

#include "examples/bert/squad.h"
#include "examples/bert/wordpiece.h"

namespace bert {

struct WindowOptions {
  int64_t length = 384;          // tokens of a window, with question, marks and padding
  int64_t stride = 128;          // from the beginning of a window to that of the next
  int64_t question_length = 64;  // longer questions lose their end
};

struct Window {
  size_t question = 0;  // its number in the set
  size_t paragraph = 0;
  int64_t first = 0;  // the part of the paragraph's tokens that the window shows
  int64_t count = 0;
  int64_t start = 0;  // places of the first answer's first and last token in the window; both 0,
  int64_t end = 0;    // which is [CLS], where the window does not show all of it
};

// A question set in tokens.
struct Features {
  WindowOptions options;
  int64_t begin = 0, separator = 0, pad = 0;   // ids of [CLS], [SEP] and [PAD]
  std::vector<std::vector<Token>> questions;   // cut to question_length
  std::vector<std::vector<Token>> paragraphs;  // whole
  std::vector<Window> windows;                 // those of a question stand together, in its order

  // Where a window's first token of the paragraph stands: behind [CLS] question [SEP].
  int64_t paragraph_place(const Window& window) const {
    return static_cast<int64_t>(questions[window.question].size()) + 2;
  }
};

// What the network reads, one window a row. All int64, but `mask` is float.
struct Rows {
  torch::Tensor ids;       // [n, length]
  torch::Tensor segments;  // [n, length]: 1 for the paragraph and its [SEP], else 0
  torch::Tensor mask;      // [n, length]: 0 for padding, else 1
  torch::Tensor spans;     // [n, 2]: Window::start and ::end
};

Features features_of(const QuestionSet& set, const Tokenizer& tokenizer,
                     const WindowOptions& options);

Rows rows_of(const Features& features, const std::vector<size_t>& windows);

// Among the windows [first, first + count) of one question: the one in which this token of the
// paragraph has the widest smaller side; the earliest of several.
size_t best_window(const std::vector<Window>& windows, size_t first, size_t count, int64_t token);

struct AnswerOptions {
  int64_t best = 20;     // first and last tokens of each window that are tried
  int64_t longest = 30;  // tokens of an answer
};

// The best span of each question over all of its windows. `scores` is float [windows, length, 2]:
// how well each token begins and ends the answer. Only tokens of the paragraph are tried, where
// run_squad tries the best of all tokens and may be left with none.
Predictions answers_of(const QuestionSet& set, const Features& features,
                       const torch::Tensor& scores, const AnswerOptions& options = {});

}  // namespace bert
