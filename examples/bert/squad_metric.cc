#include "examples/bert/squad_metric.h"

#include <algorithm>
#include <map>
#include <stdexcept>
#include <vector>

#include "examples/bert/unicode.h"

namespace bert {
namespace {

// The words of a normalized answer. An article is a run of word characters of its own: where a sign
// that is neither a letter nor punctuation of ASCII, such as a long dash, holds two runs together,
// it leaves a gap in which the word is cut.
std::vector<std::string> answer_words(const std::string& text) {
  std::vector<Character> kept;
  for (const Character& character : lower_case(characters(text))) {
    const bool ascii = character.code < 0x80;
    if (!(ascii && is_punctuation(character.code))) kept.push_back(character);
  }

  std::vector<std::string> result;
  std::string word;
  const auto end_word = [&] {
    if (!word.empty()) result.push_back(std::move(word));
    word.clear();
  };
  for (size_t at = 0; at < kept.size();) {
    std::string run;
    while (at < kept.size() && is_word(kept[at].code)) append_utf8(run, kept[at++].code);
    if (run == "a" || run == "an" || run == "the") {
      end_word();
    } else {
      word += run;
    }
    if (at == kept.size()) break;
    if (is_space(kept[at].code)) {
      end_word();
    } else {
      append_utf8(word, kept[at].code);
    }
    ++at;
  }
  end_word();
  return result;
}

double f1_of_words(const std::vector<std::string>& predicted,
                   const std::vector<std::string>& expected) {
  std::map<std::string, int> left;
  for (const std::string& word : expected) ++left[word];
  int shared = 0;
  for (const std::string& word : predicted) shared += left[word]-- > 0 ? 1 : 0;
  if (shared == 0) return 0;
  const double precision = 1.0 * shared / static_cast<double>(predicted.size());
  const double recall = 1.0 * shared / static_cast<double>(expected.size());
  return (2 * precision * recall) / (precision + recall);
}

}  // namespace

std::string normalized_answer(const std::string& text) {
  std::string result;
  for (const std::string& word : answer_words(text)) result += (result.empty() ? "" : " ") + word;
  return result;
}

Score score_of_answer(const std::string& prediction, const std::string& answer) {
  const auto predicted = answer_words(prediction);
  const auto expected = answer_words(answer);
  return {predicted == expected ? 1.0 : 0.0, f1_of_words(predicted, expected)};
}

Score score(const QuestionSet& set, const Predictions& predictions) {
  if (set.questions.empty()) throw std::runtime_error("there are no questions to score");
  Score sum;
  for (const Question& question : set.questions) {
    const auto prediction = predictions.find(question.id);
    if (prediction == predictions.end()) continue;
    Score best;
    for (const Answer& answer : question.answers) {
      const Score one = score_of_answer(prediction->second, answer.text);
      best = {std::max(best.exact, one.exact), std::max(best.f1, one.f1)};
    }
    sum = {sum.exact + best.exact, sum.f1 + best.f1};
  }
  const double questions = static_cast<double>(set.questions.size());
  return {100.0 * sum.exact / questions, 100.0 * sum.f1 / questions};
}

}  // namespace bert
