// The texts of examples/bert: characters, WordPiece, SQuAD's files and SQuAD's metric.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <nlohmann/json.hpp>

#include "examples/bert/squad.h"
#include "examples/bert/squad_metric.h"
#include "examples/bert/wordpiece.h"
#include "examples/common/files.h"
#include "tests/examples/example_files.h"

namespace {

using BertFiles = ExampleFiles;

using nlohmann::json;
using testing::ElementsAre;
using testing::HasSubstr;

std::vector<std::string> word_texts(const std::string& text) {
  std::vector<std::string> result;
  for (const auto& word : bert::words(text)) result.push_back(bert::utf8(word));
  return result;
}

TEST(BertWords, AreLowerCaseWithoutAccents) {
  EXPECT_THAT(word_texts("  Caf\u00e9  \u00c0\u0301 LA\tCarte\n"),
              ElementsAre("cafe", "a", "la", "carte"));
  EXPECT_THAT(word_texts("\u0130stanbul \u1e69 \u00df"), ElementsAre("istanbul", "s", "\u00df"));
  EXPECT_THAT(word_texts("\u039f\u0394\u039f\u03a3 \u03a3\u03b1"),
              ElementsAre("\u03bf\u03b4\u03bf\u03c2", "\u03c3\u03b1"));
}

TEST(BertWords, EndAtPunctuationAndChineseCharacters) {
  EXPECT_THAT(word_texts("it's $5^2, \u00abso\u00bb\u2014ok"),
              ElementsAre("it", "'", "s", "$", "5", "^", "2", ",", "\u00ab", "so", "\u00bb",
                          "\u2014", "ok"));
  EXPECT_THAT(word_texts("ab\u4e2d\u6587cd"), ElementsAre("ab", "\u4e2d", "\u6587", "cd"));
  EXPECT_THAT(word_texts("\u3042\u3044"), ElementsAre("\u3042\u3044"));  // Hiragana is no ideograph
  EXPECT_THAT(word_texts("\ud55c"),
              ElementsAre("\u1112\u1161\u11ab"));  // Hangul falls into letters
}

TEST(BertWords, LoseControlCharactersAndBytesThatAreNoText) {
  EXPECT_THAT(word_texts(std::string("a\0b\x07"
                                     "c\u200bd\ufffd"
                                     "e\xff"
                                     "f",
                                     15)),
              ElementsAre("abcdef"));
  EXPECT_THAT(word_texts("a\u00a0b\u3000c\u2028d"), ElementsAre("a", "b", "c", "d"));
  EXPECT_THAT(word_texts(""), ElementsAre());
  EXPECT_THAT(word_texts(" \n\u0301 "), ElementsAre());
}

bert::Tokenizer small_tokenizer() {
  return bert::Tokenizer(bert::Vocabulary({"[PAD]", "[UNK]", "[CLS]", "[SEP]", "un", "##aff",
                                           "##able", "cafe", "##s", "'", "a", "##a"}));
}

// "un|##aff|##able" and, of the original, what each stands for.
std::pair<std::string, std::string> pieces_of(const std::string& text) {
  const bert::Tokenizer tokenizer = small_tokenizer();
  std::string pieces, origins;
  for (const bert::Token& token : tokenizer.tokenize(text)) {
    pieces += (pieces.empty() ? "" : "|") + tokenizer.vocabulary().piece(token.id);
    origins += (origins.empty() ? "" : "|") + text.substr(token.begin, token.end - token.begin);
  }
  return {pieces, origins};
}

TEST(WordPiece, TakesTheLongestPieces) {
  EXPECT_EQ(pieces_of("UNaffable").first, "un|##aff|##able");
  EXPECT_EQ(pieces_of("unaffected").first, "[UNK]");
  EXPECT_EQ(pieces_of("").first, "");
}

TEST(WordPiece, KnowsWhatOfTheOriginalAPieceStandsFor) {
  EXPECT_EQ(pieces_of(" Caf\u00e9s' UNa\u0301!").second, "Caf\u00e9|s|'|UN|a\u0301|!");
  EXPECT_EQ(pieces_of(" Caf\u00e9s' UNa\u0301!").first, "cafe|##s|'|un|##a|[UNK]");
}

TEST(WordPiece, TakesAVeryLongWordForUnknown) {
  EXPECT_EQ(pieces_of(std::string(100, 'a')).first.substr(0, 9), "a|##a|##a");
  EXPECT_EQ(pieces_of(std::string(101, 'a')).first, "[UNK]");
  EXPECT_EQ(pieces_of(std::string(101, 'a')).second, std::string(101, 'a'));
}

TEST(Vocabulary, OfTextsHasFrequentWordsAndSpellsTheRest) {
  const bert::Tokenizer tokenizer(bert::Vocabulary::of_texts({"the cat", "the hat", "the"}, 20));
  EXPECT_GE(tokenizer.vocabulary().find("the"), 0);
  for (const bert::Token& token : tokenizer.tokenize("teach the cat that hat")) {
    EXPECT_NE(token.id, tokenizer.vocabulary().unknown());
  }
  EXPECT_EQ(tokenizer.tokenize("dog")[0].id, tokenizer.vocabulary().unknown());
}

TEST_F(BertFiles, VocabularyComesBackAsItWasWritten) {
  const bert::Vocabulary vocabulary = bert::Vocabulary::of_texts({"caf\u00e9 a b"}, 100);
  vocabulary.write(path("vocab.txt"));
  const bert::Vocabulary again = bert::Vocabulary::read(path("vocab.txt"));
  ASSERT_EQ(again.size(), vocabulary.size());
  for (int64_t i = 0; i < again.size(); ++i) EXPECT_EQ(again.piece(i), vocabulary.piece(i));
  write("windows.txt", "[PAD]\r\n[UNK]\r\n[CLS]\r\n[SEP]\r\nend");
  EXPECT_EQ(bert::Vocabulary::read(path("windows.txt")).find("end"), 4);
  write("other.txt", "[PAD]\n[UNK]\n[CLS]\nword\n");
  EXPECT_EQ(error_of([&] { bert::Vocabulary::read(path("other.txt")); }),
            path("other.txt").string() + " is no vocabulary of BERT: it has no [SEP]");
}

TEST_F(BertFiles, AreReadCompressedOrPlainAndMissedByName) {
  write("plain.json", "some text");
  EXPECT_EQ(examples::read_whole(path("plain.json")), "some text");
  EXPECT_THAT(error_of([&] { examples::read_whole(path("absent")); }),
              HasSubstr("cannot open " + path("absent").string()));
  EXPECT_THAT(error_of([&] { examples::read_whole(folder_); }), HasSubstr("it is a folder"));
  EXPECT_THAT(error_of([&] { examples::write_whole(path("no/folder"), "text"); }),
              HasSubstr("cannot write " + path("no/folder").string()));
}

std::string squad_text(const std::string& context, int answer_start, const std::string& answer) {
  const json qas = {{{"id", "q1"},
                     {"question", "What?"},
                     {"answers", {{{"text", answer}, {"answer_start", answer_start}}}}},
                    {{"id", "q2"}, {"question", "Nothing?"}, {"answers", json::array()}}};
  return json({{"data", {{{"paragraphs", {{{"context", context}, {"qas", qas}}}}}}}}).dump();
}

TEST_F(BertFiles, SquadCountsCharactersAndGivesBytes) {
  const std::string context = "Beyonc\u00e9 sang in K\u00f6ln.";
  write("a.json", squad_text(context, 16, "K\u00f6ln"));
  const bert::QuestionSet set = bert::read_squad(path("a.json"));
  ASSERT_EQ(set.questions.size(), 1U);  // q2 has no answer
  const bert::Answer& answer = set.questions[0].answers.at(0);
  EXPECT_EQ(context.substr(answer.begin, answer.text.size()), "K\u00f6ln");
}

TEST_F(BertFiles, SquadThatIsDamagedIsNamed) {
  write("b.json", squad_text("Some words.", 3, "words"));
  EXPECT_EQ(error_of([&] { bert::read_squad(path("b.json")); }),
            "the answer \"words\" of question q1 does not stand at character 3 of its paragraph");
  write("c.json", squad_text("Some words.", 300, "words"));
  EXPECT_THAT(error_of([&] { bert::read_squad(path("c.json")); }), HasSubstr("character 300"));
  write("d.json", R"({"data": [{}]})");
  EXPECT_THAT(error_of([&] { bert::read_squad(path("d.json")); }),
              HasSubstr("d.json is no SQuAD file: "));
  write("e.json", "{\"data\": [");
  EXPECT_THAT(error_of([&] { bert::read_squad(path("e.json")); }), HasSubstr("is no SQuAD file"));
  EXPECT_THAT(error_of([&] { bert::read_squad_folder(folder_); }),
              HasSubstr("has no train*.json or train*.json.gz"));
}

TEST(SquadMetric, ComparesWithoutCasePunctuationAndArticles) {
  EXPECT_EQ(bert::normalized_answer("  The  Cat's (a) hat, an\u00a0Owl!"), "cats hat owl");
  EXPECT_EQ(bert::normalized_answer("an-the"), "anthe");
  EXPECT_EQ(bert::normalized_answer("1\u2013a\u20132"), "1\u2013 \u20132");
  EXPECT_EQ(bert::normalized_answer("\u00c9a a\u00e9"), "\u00e9a a\u00e9");
  EXPECT_EQ(bert::normalized_answer("THE"), "");
}

TEST(SquadMetric, CountsSharedWords) {
  EXPECT_EQ(bert::score_of_answer("the red red car", "Red car").exact, 0);
  EXPECT_DOUBLE_EQ(bert::score_of_answer("the red red car", "Red car").f1, 0.8);
  EXPECT_EQ(bert::score_of_answer("blue", "red").f1, 0);
  // As the official evaluator: two empty answers are equal, and share no word.
  EXPECT_EQ(bert::score_of_answer("the", "a").exact, 1);
  EXPECT_EQ(bert::score_of_answer("the", "a").f1, 0);
}

TEST_F(BertFiles, PredictionsComeBackAsTheyWereWritten) {
  const bert::Predictions predictions{{"q1", "K\u00f6ln \"quoted\""}, {"q2", ""}};
  bert::write_predictions(path("predictions.json"), predictions);
  EXPECT_EQ(bert::read_predictions(path("predictions.json")), predictions);
}

TEST(Squad, SamplesAreTheSameForASeedAndKeepTheirParagraphs) {
  bert::QuestionSet set;
  for (size_t i = 0; i < 50; ++i) {
    set.paragraphs.push_back("paragraph " + std::to_string(i));
    set.questions.push_back({std::to_string(i), "?", i, {}});
  }
  const bert::QuestionSet some = bert::sample(set, 7, 3);
  ASSERT_EQ(some.questions.size(), 7U);
  for (const bert::Question& question : some.questions) {
    EXPECT_EQ(some.paragraphs.at(question.paragraph), "paragraph " + question.id);
  }
  EXPECT_EQ(bert::sample(set, 7, 3).paragraphs, some.paragraphs);
  EXPECT_NE(bert::sample(set, 7, 4).paragraphs, some.paragraphs);
  EXPECT_EQ(bert::sample(set, 0, 3).questions.size(), 50U);
}

// --- against the published data, where it is ---------------------------------------------------

TEST(PublishedWordPiece, AgreesOnAllQuestions) {
  const auto folder = shared_data("bert-uncased-wordpiece");
  if (!folder) GTEST_SKIP() << kNoSharedData;
  const bert::Tokenizer tokenizer(bert::Vocabulary::read(*folder / "vocab.txt"));
  ASSERT_EQ(tokenizer.vocabulary().size(), 30522);
  const json goldens = json::parse(examples::read_whole(*folder / "question_tokens.json.gz"));
  const json ids = json::parse(examples::read_whole(*folder / "tokenized_questions.json.gz"));
  ASSERT_EQ(goldens.size(), 10570U);
  ASSERT_EQ(ids.size(), 10570U);
  for (size_t i = 0; i < goldens.size(); ++i) {
    const std::string text = goldens[i].at("original");
    ASSERT_EQ(word_texts(text), goldens[i].at("basic").get<std::vector<std::string>>()) << text;
    std::vector<int64_t> found;
    size_t end = 0;
    for (const bert::Token& token : tokenizer.tokenize(text)) {
      found.push_back(token.id);
      ASSERT_LE(end, token.begin) << text;
      end = token.end;
    }
    ASSERT_LE(end, text.size());
    ASSERT_EQ(found, ids[i].get<std::vector<int64_t>>()) << text;
  }
}

TEST(PublishedPredictions, GetTheirPublishedScores) {
  const auto folder = shared_data("squad-v1.1");
  if (!folder) GTEST_SKIP() << kNoSharedData;
  const bert::QuestionSet set = bert::read_squad(*folder / "dev-v1.1.json.gz");
  ASSERT_EQ(set.questions.size(), 10570U);
  struct Golden {
    const char* name;
    double exact, f1;
  };
  for (const Golden& golden : {Golden{"bert-ensemble", 86.20624408703878, 92.19557978351145},
                               {"match-lstm-ensemble", 67.63481551561021, 76.75556184979695},
                               {"logistic-regression", 40.14191106906339, 50.98153647324461}}) {
    const bert::Score found = bert::score(
        set,
        bert::read_predictions(*folder / "predictions" / (golden.name + std::string(".json.gz"))));
    EXPECT_EQ(found.exact, golden.exact) << golden.name;
    EXPECT_EQ(found.f1, golden.f1) << golden.name;
  }
}

TEST(PublishedSquad, IsReadWhole) {
  const auto folder = shared_data("squad-v1.1");
  if (!folder) GTEST_SKIP() << kNoSharedData;
  const auto [training, testing] = bert::read_squad_folder(*folder);
  EXPECT_EQ(training.questions.size(), 8911U);
  EXPECT_EQ(testing.paragraphs.size(), 2067U);
}

}  // namespace
