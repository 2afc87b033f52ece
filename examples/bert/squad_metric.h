// The score of predictions on SQuAD v1.1, as its official evaluator counts.
//
//   bert::score(questions, predictions)     {exact 86.206, f1 92.196} in percent
//
// Answers are compared without case, ASCII punctuation, articles (a, an, the) and extra spaces:
// exactly (EM), and by the words that they share (F1, the harmonic mean of precision and recall).
// A question with several answers counts the best of each. One without a prediction counts 0.
#pragma once

#include <string>

#include "examples/bert/squad.h"

namespace bert {

struct Score {
  double exact = 0;
  double f1 = 0;
};

std::string normalized_answer(const std::string& text);

// Of one prediction against one answer: 0 to 1 each.
Score score_of_answer(const std::string& prediction, const std::string& answer);

// Of all questions, in percent.
Score score(const QuestionSet& set, const Predictions& predictions);

}  // namespace bert
