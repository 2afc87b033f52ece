// SQuAD v1.1 (Rajpurkar et al. 2016): questions whose answers are spans of a paragraph.
//
//   bert::QuestionSet questions = bert::read_squad("dev-v1.1.json");       or dev-v1.1.json.gz
//   const bert::Question& first = questions.questions[0];
//   questions.paragraphs[first.paragraph]       the text that answers it
//
// The files count characters; here all places are bytes of UTF-8, so that substr() gives the
// answer.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <map>
#include <string>
#include <utility>
#include <vector>

namespace bert {

struct Answer {
  std::string text;
  size_t begin = 0;  // bytes of the paragraph before it
};

struct Question {
  std::string id;
  std::string text;
  size_t paragraph = 0;
  std::vector<Answer> answers;  // of training sets one, of test sets the answers of several people
};

struct QuestionSet {
  std::vector<std::string> paragraphs;
  std::vector<Question> questions;
};

// Question id -> text of the answer.
using Predictions = std::map<std::string, std::string>;

// An answer that does not stand where the file says is an error that names the question. Questions
// without an answer, which SQuAD v2.0 has, are left out.
QuestionSet read_squad(const std::filesystem::path& path);

// All train-*.json and all dev-*.json of a folder, in the order of their names, plain or .gz.
std::pair<QuestionSet, QuestionSet> read_squad_folder(const std::filesystem::path& folder);

// The first `count` questions in the order of a shuffle by `seed`, with their paragraphs; 0: all of
// them as they are. A sample over all articles, where the first questions would be of one.
QuestionSet sample(const QuestionSet& set, size_t count, uint64_t seed);

void append(QuestionSet& set, const QuestionSet& more);

// {"question id": "text of the answer", ...}, as SQuAD's evaluator reads it.
void write_predictions(const std::filesystem::path& path, const Predictions& predictions);
Predictions read_predictions(const std::filesystem::path& path);

}  // namespace bert
