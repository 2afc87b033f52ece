#include "examples/bert/features.h"

#include <algorithm>
#include <limits>
#include <numeric>
#include <stdexcept>
#include <utility>

namespace bert {
namespace {

// The tokens that an answer touches, as first and last; first > last where it touches none.
std::pair<int64_t, int64_t> tokens_of(const Answer& answer, const std::vector<Token>& paragraph) {
  const size_t answer_end = answer.begin + answer.text.size();
  const auto first = std::find_if(paragraph.begin(), paragraph.end(),
                                  [&](const Token& token) { return token.end > answer.begin; });
  const auto behind = std::find_if(first, paragraph.end(),
                                   [&](const Token& token) { return token.begin >= answer_end; });
  return {first - paragraph.begin(), behind - paragraph.begin() - 1};
}

// Of the last question that `features` has.
void add_windows(const Question& question, Features& features) {
  const size_t number = features.questions.size() - 1;
  const std::vector<Token>& paragraph = features.paragraphs[question.paragraph];
  const auto [answer_first, answer_last] = tokens_of(question.answers.at(0), paragraph);
  const int64_t tokens = static_cast<int64_t>(paragraph.size());
  const int64_t marks = 3;  // [CLS] and two [SEP]
  const int64_t room =
      features.options.length - marks - static_cast<int64_t>(features.questions[number].size());
  for (int64_t first = 0; first < tokens; first += std::min(room, features.options.stride)) {
    Window window{number, question.paragraph, first, std::min(room, tokens - first)};
    const int64_t behind = first + window.count;
    if (answer_first <= answer_last && answer_first >= first && answer_last < behind) {
      const int64_t shift = features.paragraph_place(window) - first;
      window.start = answer_first + shift;
      window.end = answer_last + shift;
    }
    features.windows.push_back(window);
    if (behind == tokens) break;
  }
}

// The places of the `count` highest scores, highest first; of equal ones the earlier first.
std::vector<int64_t> best_places(const std::vector<std::pair<int64_t, float>>& scores,
                                 int64_t count) {
  std::vector<std::pair<int64_t, float>> sorted = scores;
  const auto kept = std::min(sorted.size(), static_cast<size_t>(count));
  std::partial_sort(sorted.begin(), sorted.begin() + static_cast<ptrdiff_t>(kept), sorted.end(),
                    [](const auto& a, const auto& b) {
                      return a.second != b.second ? a.second > b.second : a.first < b.first;
                    });
  std::vector<int64_t> places;
  for (size_t i = 0; i < kept; ++i) places.push_back(sorted[i].first);
  return places;
}

// First and last token of an answer in a paragraph.
struct Span {
  int64_t first = -1;
  int64_t last = -1;
  float score = -std::numeric_limits<float>::infinity();
};

// The best span that begins in a window where that window sees its first token best.
Span best_span(const Features& features, size_t window_index, size_t first_window, size_t count,
               const torch::TensorAccessor<float, 3>& scores, const AnswerOptions& options) {
  const Window& window = features.windows[window_index];
  const int64_t place = features.paragraph_place(window);
  const auto score = [&](int64_t token, int64_t side) {
    return scores[static_cast<int64_t>(window_index)][place + token - window.first][side];
  };
  std::vector<std::pair<int64_t, float>> firsts, lasts;
  for (int64_t token = window.first; token < window.first + window.count; ++token) {
    if (best_window(features.windows, first_window, count, token) == window_index) {
      firsts.emplace_back(token, score(token, 0));
    }
    lasts.emplace_back(token, score(token, 1));
  }

  Span best;
  const std::vector<int64_t> last_places = best_places(lasts, options.best);
  for (const int64_t first : best_places(firsts, options.best)) {
    for (const int64_t last : last_places) {
      if (last < first || last - first + 1 > options.longest) continue;
      const float sum = score(first, 0) + score(last, 1);
      if (sum > best.score) best = {first, last, sum};
    }
  }
  return best;
}

}  // namespace

Features features_of(const QuestionSet& set, const Tokenizer& tokenizer,
                     const WindowOptions& options) {
  const int64_t least = options.question_length + 4;  // one token of the paragraph, three marks
  if (options.length < least || options.stride < 1 || options.question_length < 1) {
    throw std::runtime_error("windows of " + std::to_string(options.length) +
                             " tokens have no room for questions of " +
                             std::to_string(options.question_length) + ": at least " +
                             std::to_string(least) + ", and a stride of at least 1");
  }
  Features features;
  features.options = options;
  features.begin = tokenizer.vocabulary().begin();
  features.separator = tokenizer.vocabulary().separator();
  features.pad = tokenizer.vocabulary().pad();
  for (const std::string& paragraph : set.paragraphs) {
    features.paragraphs.push_back(tokenizer.tokenize(paragraph));
  }
  for (const Question& question : set.questions) {
    features.questions.push_back(tokenizer.tokenize(question.text));
    if (features.questions.back().size() > static_cast<size_t>(options.question_length)) {
      features.questions.back().resize(static_cast<size_t>(options.question_length));
    }
    add_windows(question, features);
  }
  return features;
}

Rows rows_of(const Features& features, const std::vector<size_t>& windows) {
  const int64_t count = static_cast<int64_t>(windows.size());
  const int64_t length = features.options.length;
  Rows rows;
  rows.ids = torch::full({count, length}, features.pad, torch::kInt64);
  rows.segments = torch::zeros({count, length}, torch::kInt64);
  rows.mask = torch::zeros({count, length});
  rows.spans = torch::zeros({count, 2}, torch::kInt64);
  for (int64_t row = 0; row < count; ++row) {
    const Window& window = features.windows.at(windows[static_cast<size_t>(row)]);
    int64_t* ids = rows.ids.data_ptr<int64_t>() + row * length;
    int64_t used = 0;
    ids[used++] = features.begin;
    for (const Token& token : features.questions[window.question]) ids[used++] = token.id;
    ids[used++] = features.separator;
    const int64_t paragraph = used;
    const auto first = features.paragraphs[window.paragraph].begin() + window.first;
    std::for_each(first, first + window.count, [&](const Token& token) { ids[used++] = token.id; });
    ids[used++] = features.separator;
    rows.segments[row].slice(0, paragraph, used).fill_(1);
    rows.mask[row].slice(0, 0, used).fill_(1);
    rows.spans[row][0] = window.start;
    rows.spans[row][1] = window.end;
  }
  return rows;
}

size_t best_window(const std::vector<Window>& windows, size_t first, size_t count, int64_t token) {
  size_t best = first;
  double best_room = -1;
  for (size_t i = first; i < first + count; ++i) {
    const int64_t before = token - windows[i].first;
    const int64_t after = windows[i].count - 1 - before;
    if (before < 0 || after < 0) continue;
    const double room =
        static_cast<double>(std::min(before, after)) + 0.01 * static_cast<double>(windows[i].count);
    if (room > best_room) {
      best = i;
      best_room = room;
    }
  }
  return best;
}

Predictions answers_of(const QuestionSet& set, const Features& features,
                       const torch::Tensor& scores, const AnswerOptions& options) {
  const torch::Tensor readable = scores.to(torch::kCPU, torch::kFloat32);
  const auto values = readable.accessor<float, 3>();
  Predictions predictions;
  size_t window = 0;
  for (size_t i = 0; i < set.questions.size(); ++i) {
    const size_t first_window = window;
    while (window < features.windows.size() && features.windows[window].question == i) ++window;
    Span best;
    for (size_t w = first_window; w < window; ++w) {
      const Span span =
          best_span(features, w, first_window, window - first_window, values, options);
      if (span.score > best.score) best = span;
    }
    std::string& text = predictions[set.questions[i].id];
    if (best.first < 0) continue;  // the paragraph has no tokens
    const size_t paragraph = set.questions[i].paragraph;
    const std::vector<Token>& tokens = features.paragraphs[paragraph];
    const size_t begin = tokens[static_cast<size_t>(best.first)].begin;
    const size_t end = tokens[static_cast<size_t>(best.last)].end;
    text = set.paragraphs[paragraph].substr(begin, end - begin);
  }
  return predictions;
}

}  // namespace bert
