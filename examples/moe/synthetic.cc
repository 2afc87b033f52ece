#include <array>
#include <random>

#include "examples/moe/pairs.h"

namespace moe {
namespace {

enum Gender { kMasculine, kFeminine, kNeuter };

struct Noun {
  const char* german;
  Gender gender;
  const char* english;
};

struct Adjective {
  const char* german;  // without its ending
  const char* english;
};

struct Verb {
  const char* german;  // of the third person, then the infinitive
  const char* german_infinitive;
  const char* english;
  const char* english_infinitive;
};

const std::array<Noun, 14> kNouns = {{
    {"Mann", kMasculine, "man"},
    {"Frau", kFeminine, "woman"},
    {"Kind", kNeuter, "child"},
    {"Hund", kMasculine, "dog"},
    {"Katze", kFeminine, "cat"},
    {"Pferd", kNeuter, "horse"},
    {"Vogel", kMasculine, "bird"},
    {"Lehrer", kMasculine, "teacher"},
    {"Königin", kFeminine, "queen"},
    {"Haus", kNeuter, "house"},
    {"Baum", kMasculine, "tree"},
    {"Blume", kFeminine, "flower"},
    {"Schiff", kNeuter, "ship"},
    {"Nachbar", kMasculine, "neighbour"},
}};

const std::array<Adjective, 8> kAdjectives = {{
    {"alt", "old"},
    {"klein", "small"},
    {"groß", "big"},
    {"rot", "red"},
    {"jung", "young"},
    {"klug", "clever"},
    {"stolz", "proud"},
    {"schön", "beautiful"},
}};

const std::array<Verb, 8> kVerbs = {{
    {"sieht", "sehen", "sees", "see"},
    {"hört", "hören", "hears", "hear"},
    {"sucht", "suchen", "seeks", "seek"},
    {"findet", "finden", "finds", "find"},
    {"malt", "malen", "paints", "paint"},
    {"kennt", "kennen", "knows", "know"},
    {"liebt", "lieben", "loves", "love"},
    {"ruft", "rufen", "calls", "call"},
}};

constexpr const char* kSubjectArticles[] = {"der", "die", "das"};
constexpr const char* kObjectArticles[] = {"den", "die", "das"};

// A word of the first letter in upper case; the words above begin with ASCII where it matters.
std::string begin_of_sentence(std::string text) {
  if (text[0] >= 'a' && text[0] <= 'z') text[0] = static_cast<char>(text[0] - 'a' + 'A');
  return text;
}

class Speaker {
 public:
  explicit Speaker(uint64_t seed) : random_(seed) {}

  Pair sentence() {
    const Pair subject = noun_phrase(/*is_object=*/false);
    const Pair object = noun_phrase(/*is_object=*/true);
    const Verb& verb = one_of(kVerbs);
    const auto sentence = [](const std::string& german, const std::string& english,
                             const char* mark) {
      return Pair{begin_of_sentence(german) + mark, begin_of_sentence(english) + mark};
    };
    const auto& [s, s_english] = subject;
    const auto& [o, o_english] = object;
    switch (random_() % 5) {
      case 0:
        return sentence(s + " will " + o + " " + verb.german_infinitive,
                        s_english + " wants to " + verb.english_infinitive + " " + o_english, ".");
      case 1:
        return sentence(verb.german + (" " + s) + " " + o,
                        "does " + s_english + " " + verb.english_infinitive + " " + o_english, "?");
      case 2:
        return sentence(std::string("heute ") + verb.german + " " + s + " " + o,
                        "today " + s_english + " " + verb.english + " " + o_english, ".");
      case 3:
        return sentence(s + " " + verb.german + " " + o + " nicht",
                        s_english + " does not " + verb.english_infinitive + " " + o_english, ".");
      default:
        return sentence(s + " " + verb.german + " " + o,
                        s_english + " " + verb.english + " " + o_english, ".");
    }
  }

 private:
  template <typename Words>
  const typename Words::value_type& one_of(const Words& words) {
    return words[random_() % words.size()];
  }

  Pair noun_phrase(bool is_object) {
    const Noun& noun = one_of(kNouns);
    Pair phrase{is_object ? kObjectArticles[noun.gender] : kSubjectArticles[noun.gender], "the"};
    if (random_() % 2 == 0) {
      const Adjective& adjective = one_of(kAdjectives);
      const char* ending = is_object && noun.gender == kMasculine ? "en" : "e";
      phrase.source += std::string(" ") + adjective.german + ending;
      phrase.target += std::string(" ") + adjective.english;
    }
    phrase.source += std::string(" ") + noun.german;
    phrase.target += std::string(" ") + noun.english;
    return phrase;
  }

  std::mt19937_64 random_;
};

}  // namespace

std::vector<Pair> synthetic_pairs(size_t count, uint64_t seed) {
  Speaker speaker(seed);
  std::vector<Pair> pairs;
  while (pairs.size() < count) pairs.push_back(speaker.sentence());
  return pairs;
}

}  // namespace moe
