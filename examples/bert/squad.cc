#include "examples/bert/squad.h"

#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <random>
#include <stdexcept>

#include "examples/bert/unicode.h"
#include "examples/common/files.h"

namespace bert {
namespace {

using nlohmann::json;
namespace fs = std::filesystem;

// Byte offsets of the characters of a text, and of its end.
std::vector<size_t> character_places(const std::string& text) {
  std::vector<size_t> places;
  for (const Character& character : characters(text)) places.push_back(character.begin);
  places.push_back(text.size());
  return places;
}

Answer read_answer(const json& answer, const std::string& paragraph,
                   const std::vector<size_t>& places, const std::string& question_id) {
  Answer result;
  result.text = answer.at("text").get<std::string>();
  const size_t first = answer.at("answer_start").get<size_t>();
  result.begin = first < places.size() ? places[first] : paragraph.size();
  if (paragraph.compare(result.begin, result.text.size(), result.text) != 0) {
    throw std::runtime_error("the answer \"" + result.text + "\" of question " + question_id +
                             " does not stand at character " + std::to_string(first) +
                             " of its paragraph");
  }
  return result;
}

void read_paragraph(const json& paragraph, QuestionSet& set) {
  const std::string text = paragraph.at("context").get<std::string>();
  const std::vector<size_t> places = character_places(text);
  for (const json& entry : paragraph.at("qas")) {
    Question question;
    question.id = entry.at("id").get<std::string>();
    question.text = entry.at("question").get<std::string>();
    question.paragraph = set.paragraphs.size();
    for (const json& answer : entry.at("answers")) {
      question.answers.push_back(read_answer(answer, text, places, question.id));
    }
    if (!question.answers.empty()) set.questions.push_back(std::move(question));
  }
  set.paragraphs.push_back(text);
}

template <typename Function>
auto with_path_in_errors(const fs::path& path, const std::string& what, Function&& read) {
  try {
    return read();
  } catch (const json::exception& error) {
    throw std::runtime_error(path.string() + " is no " + what + ": " + error.what());
  }
}

bool is_part(const std::string& name, const std::string& part) {
  const auto ends_with = [&](const std::string& end) {
    return name.size() >= end.size() &&
           name.compare(name.size() - end.size(), end.size(), end) == 0;
  };
  return name.compare(0, part.size(), part) == 0 && (ends_with(".json") || ends_with(".json.gz"));
}

QuestionSet read_part(const fs::path& folder, const std::string& part) {
  std::vector<fs::path> paths;
  for (const auto& entry : fs::directory_iterator(folder)) {
    if (is_part(entry.path().filename().string(), part)) paths.push_back(entry.path());
  }
  if (paths.empty()) {
    throw std::runtime_error(folder.string() + " has no " + part + "*.json or " + part +
                             "*.json.gz");
  }
  std::sort(paths.begin(), paths.end());
  QuestionSet all;
  for (const fs::path& path : paths) append(all, read_squad(path));
  return all;
}

}  // namespace

QuestionSet read_squad(const fs::path& path) {
  return with_path_in_errors(path, "SQuAD file", [&] {
    QuestionSet set;
    const json root = json::parse(examples::read_whole(path));
    for (const json& article : root.at("data")) {
      for (const json& paragraph : article.at("paragraphs")) read_paragraph(paragraph, set);
    }
    return set;
  });
}

std::pair<QuestionSet, QuestionSet> read_squad_folder(const fs::path& folder) {
  if (!fs::is_directory(folder)) throw std::runtime_error(folder.string() + " is no folder");
  return {read_part(folder, "train"), read_part(folder, "dev")};
}

QuestionSet sample(const QuestionSet& set, size_t count, uint64_t seed) {
  if (count == 0 || count >= set.questions.size()) return set;
  // Not std::shuffle, whose order depends on the library.
  std::vector<size_t> order(set.questions.size());
  std::iota(order.begin(), order.end(), size_t{0});
  std::mt19937_64 random(seed);
  for (size_t i = 0; i < count; ++i) std::swap(order[i], order[i + random() % (order.size() - i)]);
  order.resize(count);
  std::sort(order.begin(), order.end());

  QuestionSet result;
  std::map<size_t, size_t> places;  // of paragraphs, before -> after
  for (const size_t index : order) {
    Question question = set.questions[index];
    const auto [place, first] = places.emplace(question.paragraph, result.paragraphs.size());
    if (first) result.paragraphs.push_back(set.paragraphs[question.paragraph]);
    question.paragraph = place->second;
    result.questions.push_back(std::move(question));
  }
  return result;
}

void append(QuestionSet& set, const QuestionSet& more) {
  const size_t before = set.paragraphs.size();
  set.paragraphs.insert(set.paragraphs.end(), more.paragraphs.begin(), more.paragraphs.end());
  for (Question question : more.questions) {
    question.paragraph += before;
    set.questions.push_back(std::move(question));
  }
}

void write_predictions(const fs::path& path, const Predictions& predictions) {
  examples::write_whole(path, json(predictions).dump(/*indent=*/1) + "\n");
}

Predictions read_predictions(const fs::path& path) {
  return with_path_in_errors(path, "file of predictions", [&] {
    return json::parse(examples::read_whole(path)).get<Predictions>();
  });
}

}  // namespace bert
