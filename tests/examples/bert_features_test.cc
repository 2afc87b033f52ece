// examples/bert: what the network sees of a question, and the way back to an answer.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "examples/bert/features.h"
#include "examples/bert/squad_metric.h"
#include "examples/bert/synthetic.h"
#include "tests/examples/example_files.h"

namespace {

using testing::ElementsAre;
using testing::HasSubstr;

bert::QuestionSet one_question(const std::string& paragraph, const std::string& question,
                               const std::string& answer) {
  return {{paragraph}, {{"q", question, 0, {{answer, paragraph.find(answer)}}}}};
}

bert::Tokenizer tokenizer_of(const bert::QuestionSet& set) {
  std::vector<std::string> texts = set.paragraphs;
  for (const bert::Question& question : set.questions) texts.push_back(question.text);
  return bert::Tokenizer(bert::Vocabulary::of_texts(texts, 1000));
}

std::vector<std::string> pieces_of(const torch::Tensor& ids, const bert::Vocabulary& vocabulary) {
  std::vector<std::string> pieces;
  for (int64_t i = 0; i < ids.numel(); ++i) {
    pieces.push_back(vocabulary.piece(ids[i].item<int64_t>()));
  }
  return pieces;
}

// "0 1 1"
std::string text_of(const torch::Tensor& numbers) {
  std::string text;
  for (int64_t i = 0; i < numbers.numel(); ++i) {
    text += (i > 0 ? " " : "") + std::to_string(numbers[i].item<int64_t>());
  }
  return text;
}

TEST(BertFeatures, ShowQuestionAndParagraphWithMarks) {
  const auto set = one_question("he saw old rome .", "what ?", "old rome");
  const bert::Tokenizer tokenizer = tokenizer_of(set);
  const bert::Features features = bert::features_of(set, tokenizer, {12, 6, 4});
  ASSERT_EQ(features.windows.size(), 1U);
  const bert::Rows rows = bert::rows_of(features, {0});
  EXPECT_THAT(pieces_of(rows.ids[0], tokenizer.vocabulary()),
              ElementsAre("[CLS]", "what", "?", "[SEP]", "he", "saw", "old", "rome", ".", "[SEP]",
                          "[PAD]", "[PAD]"));
  EXPECT_EQ(text_of(rows.segments[0]), "0 0 0 0 1 1 1 1 1 1 0 0");
  EXPECT_EQ(text_of(rows.mask[0]), "1 1 1 1 1 1 1 1 1 1 0 0");
  EXPECT_EQ(text_of(rows.spans[0]), "6 7");
}

TEST(BertFeatures, CutALongParagraphIntoWindowsThatOverlap) {
  const auto set = one_question("a b c d e f g h i j", "what ?", "f g");
  const bert::Features features = bert::features_of(set, tokenizer_of(set), {9, 3, 2});
  // Room for 4 tokens of the paragraph beside 2 of the question and 3 marks.
  std::vector<std::string> found;
  for (const bert::Window& window : features.windows) {
    found.push_back(std::to_string(window.first) + "+" + std::to_string(window.count) + " answer " +
                    std::to_string(window.start) + " " + std::to_string(window.end));
  }
  EXPECT_THAT(found, ElementsAre("0+4 answer 0 0", "3+4 answer 6 7", "6+4 answer 0 0"));
}

TEST(BertFeatures, CutLongQuestionsAndKeepEmptyOnes) {
  const auto set = one_question("a b", "one two three four", "b");
  const bert::Features features = bert::features_of(set, tokenizer_of(set), {8, 4, 3});
  EXPECT_EQ(features.questions[0].size(), 3U);
  EXPECT_EQ(features.windows.at(0).start, 6);
  const auto empty = one_question("a b", "", "b");
  EXPECT_EQ(bert::features_of(empty, tokenizer_of(empty), {8, 4, 3}).windows.at(0).start, 3);
}

TEST(BertFeatures, HaveNoRoomForTooLongQuestions) {
  const auto set = one_question("a b", "what", "b");
  EXPECT_THAT(error_of([&] {
                bert::features_of(set, tokenizer_of(set), {19, 4, 16});
              }),
              HasSubstr("windows of 19 tokens have no room for questions of 16: at least 20"));
}

TEST(BertFeatures, JudgeATokenWhereItHasMostTextAround) {
  const std::vector<bert::Window> windows{
      {0, 0, 0, 6, 0, 0}, {0, 0, 3, 6, 0, 0}, {0, 0, 6, 4, 0, 0}};
  std::string best;
  for (int64_t token = 0; token < 10; ++token) {
    best += std::to_string(bert::best_window(windows, 0, 3, token));
  }
  EXPECT_EQ(best, "0000011122");
}

// Scores that say just what a window's own span is.
torch::Tensor true_scores(const bert::Features& features) {
  const auto windows = static_cast<int64_t>(features.windows.size());
  torch::Tensor scores = torch::zeros({windows, features.options.length, 2});
  for (int64_t i = 0; i < windows; ++i) {
    const bert::Window& window = features.windows[static_cast<size_t>(i)];
    scores[i][window.start][0] = 1;
    scores[i][window.end][1] = 1;
  }
  return scores;
}

TEST(BertAnswers, ComeBackAsWritten) {
  const auto set = one_question("It was  Caf\u00e9 \u201cLe Ch\u00e2t\u201d, so.", "What?",
                                "Caf\u00e9 \u201cLe Ch\u00e2t\u201d");
  const bert::Features features = bert::features_of(set, tokenizer_of(set), {24, 8, 4});
  EXPECT_EQ(bert::answers_of(set, features, true_scores(features)).at("q"),
            "Caf\u00e9 \u201cLe Ch\u00e2t\u201d");
}

TEST(BertAnswers, AreNeitherBackwardsNorTooLong) {
  const auto set = one_question("a b c d e f", "x", "b");
  const bert::Features features = bert::features_of(set, tokenizer_of(set), {10, 8, 2});
  torch::Tensor scores = torch::zeros({1, 10, 2});
  const int64_t place = 3;  // of the paragraph
  scores[0][place + 4][0] = 5;
  scores[0][place + 1][1] = 5;  // e ... b is no span
  scores[0][place + 5][1] = 1;
  EXPECT_EQ(bert::answers_of(set, features, scores).at("q"), "e f");
  scores[0][place][0] = 6;  // a ... f would be best, and is longer than three
  EXPECT_EQ(bert::answers_of(set, features, scores, {20, 3}).at("q"), "a b");
  scores[0][0] = 9;  // [CLS] is no answer
  EXPECT_EQ(bert::answers_of(set, features, scores, {20, 3}).at("q"), "a b");
}

TEST(BertAnswers, OfAParagraphWithoutWordsAreEmpty) {
  const bert::QuestionSet set{{" "}, {{"q", "What?", 0, {{" ", 0}}}}};
  const bert::Features features = bert::features_of(set, tokenizer_of(set), {10, 8, 4});
  EXPECT_EQ(features.windows.size(), 0U);
  EXPECT_EQ(bert::answers_of(set, features, torch::zeros({0, 10, 2})).at("q"), "");
}

TEST(MadeUpQuestions, HaveTheirAnswersInTheParagraph) {
  const bert::QuestionSet set = bert::synthetic_questions(200, 7);
  ASSERT_EQ(set.questions.size(), 200U);
  for (const bert::Question& question : set.questions) {
    const std::string& text = set.paragraphs.at(question.paragraph);
    const bert::Answer& answer = question.answers.at(0);
    ASSERT_EQ(text.compare(answer.begin, answer.text.size(), answer.text), 0) << text;
  }
  const bert::Features features = bert::features_of(set, tokenizer_of(set), {64, 32, 10});
  const bert::Score score =
      bert::score(set, bert::answers_of(set, features, true_scores(features)));
  EXPECT_EQ(score.exact, 100);
}

TEST(PublishedSquad, AnswersComeBackFromTheirWindows) {
  const auto folder = shared_data("squad-v1.1");
  const auto vocabulary = shared_data("bert-uncased-wordpiece");
  if (!folder || !vocabulary) GTEST_SKIP() << kNoSharedData;
  const bert::QuestionSet set = bert::read_squad(*folder / "dev-v1.1.json.gz");
  const bert::Tokenizer tokenizer(bert::Vocabulary::read(*vocabulary / "vocab.txt"));
  const bert::Features features = bert::features_of(set, tokenizer, {384, 128, 64});
  const bert::Predictions answers = bert::answers_of(set, features, true_scores(features));

  // An answer begins and ends where tokens do, unless it is a part of a word; and it comes back
  // where it is not longer than answers may be.
  size_t aligned = 0;
  size_t back = 0;
  for (const bert::Window& window : features.windows) {
    const bert::Question& question = set.questions[window.question];
    if (window.start == 0 || window.end - window.start >= 30) continue;
    const auto& tokens = features.paragraphs[window.paragraph];
    const int64_t shift = window.first - features.paragraph_place(window);
    const bert::Answer& answer = question.answers[0];
    if (tokens[static_cast<size_t>(window.start + shift)].begin != answer.begin ||
        tokens[static_cast<size_t>(window.end + shift)].end != answer.begin + answer.text.size()) {
      continue;
    }
    ++aligned;
    back += answers.at(question.id) == answer.text ? 1 : 0;
  }
  EXPECT_EQ(back, aligned);
  EXPECT_GT(aligned, 10400U);
  EXPECT_GT(bert::score(set, answers).exact, 98);
}

}  // namespace
