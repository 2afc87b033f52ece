#include "examples/bert/synthetic.h"

#include <random>
#include <string>
#include <utility>
#include <vector>

namespace bert {
namespace {

using Names = std::vector<std::string>;

const Names kPeople{"Anna",  "Ben",  "Clara", "David", "Emma", "Felix", "Grace", "Hugo",
                    "Irene", "Jack", "Laura", "Max",   "Nina", "Oscar", "Paula", "Simon"};
const Names kCities{"Paris",  "Oslo",   "New York", "Rome",  "Cairo",     "Buenos Aires",
                    "Madrid", "Berlin", "Lima",     "Tokyo", "Hong Kong", "Vienna"};
const Names kJobs{"baker",  "painter", "school teacher", "doctor",  "pilot", "truck driver",
                  "singer", "farmer",  "judge",          "plumber", "poet",  "fire fighter"};
const Names kColors{"red", "black", "white", "brown", "grey"};
const Names kAnimals{"horse", "cat", "dog", "parrot", "rabbit", "goat", "snake", "duck"};
const Names kFood{"rice", "bread", "fried fish", "apples", "dark chocolate", "soup"};
const Names kInstruments{"piano", "violin", "bass guitar", "flute", "trumpet", "drums"};
constexpr size_t kSentences = 5;

// Anna `told` `answer`. Answers `ask` Anna `asked`
struct Fact {
  std::string told, answer, ask, asked;
};

const std::string& one_of(const Names& names, std::mt19937_64& random) {
  return names[random() % names.size()];
}

template <typename Items>
void shuffle(Items& items, std::mt19937_64& random) {  // std::shuffle's order is a library's own
  for (size_t i = items.size() - 1; i > 0; --i) std::swap(items[i], items[random() % (i + 1)]);
}

std::vector<Fact> some_facts(std::mt19937_64& random) {
  const std::string year = std::to_string(1900 + random() % 100);
  const std::string animal = one_of(kColors, random) + " " + one_of(kAnimals, random);
  std::vector<Fact> facts{
      {" lives in ", one_of(kCities, random), "Where does ", " live?"},
      {" works as a ", one_of(kJobs, random), "What is the job of ", "?"},
      {" was born in ", year, "When was ", " born?"},
      {" owns a ", animal, "Which animal does ", " own?"},
      {" eats ", one_of(kFood, random), "What does ", " eat?"},
      {" plays the ", one_of(kInstruments, random), "Which instrument does ", " play?"},
  };
  shuffle(facts, random);
  facts.resize(kSentences);
  return facts;
}

}  // namespace

QuestionSet synthetic_questions(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  QuestionSet set;
  for (size_t number = 0; number < count; ++number) {
    Question question;
    question.id = "made-up-" + std::to_string(number);
    question.paragraph = number;
    const size_t asked = random() % kSentences;
    std::string text;
    size_t sentence = 0;
    for (const Fact& fact : some_facts(random)) {
      const std::string& person = one_of(kPeople, random);
      text += (text.empty() ? "" : " ") + person + fact.told;
      if (sentence++ == asked) {
        question.text = fact.ask + person + fact.asked;
        question.answers.push_back({fact.answer, text.size()});
      }
      text += fact.answer + ".";
    }
    set.paragraphs.push_back(text);
    set.questions.push_back(std::move(question));
  }
  return set;
}

}  // namespace bert
