#include "base/text_line.h"

#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <limits>
#include <sstream>

#include "base/check.h"

namespace epl {
namespace {

bool is_digit(char c) { return std::isdigit(static_cast<unsigned char>(c)) != 0; }

bool belongs_to_word(char c) {
  return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_' || c == ':' || c == '.';
}

}  // namespace

TextLine::TextLine(const char* subject, std::string text, int number)
    : subject_(subject), text_(std::move(text)), number_(number) {
  skip_space();
}

void TextLine::skip_space() {
  while (next_ < text_.size() && text_[next_] == ' ') ++next_;
}

bool TextLine::looking_at(const std::string& token) const {
  return text_.compare(next_, token.size(), token) == 0;
}

bool TextLine::looking_at_digit(size_t behind) const {
  return next_ + behind < text_.size() && is_digit(text_[next_ + behind]);
}

bool TextLine::take(const std::string& token) {
  if (!looking_at(token)) return false;
  next_ += token.size();
  skip_space();
  return true;
}

void TextLine::expect(const std::string& token) {
  if (!take(token)) fail("expected '" + token + "'");
}

void TextLine::expect_end() const {
  if (!at_end()) fail("expected the end of the line");
}

std::string TextLine::word() {
  const size_t begin = next_;
  while (next_ < text_.size() && belongs_to_word(text_[next_])) ++next_;
  if (begin == next_) fail("expected a word");
  std::string result = text_.substr(begin, next_ - begin);
  skip_space();
  return result;
}

std::string TextLine::string() {
  if (at_end() || text_[next_] != '"') fail("expected a string");
  std::string result;
  for (++next_; next_ < text_.size() && text_[next_] != '"'; ++next_) {
    const bool escaped = text_[next_] == '\\' && next_ + 1 < text_.size();
    if (escaped) ++next_;
    result += escaped && text_[next_] == 'n' ? '\n' : text_[next_];
  }
  if (at_end()) fail("a string without an end");
  ++next_;
  skip_space();
  return result;
}

std::string TextLine::until(const std::string& mark) {
  std::string result = text_.substr(next_, text_.find(mark, next_) - next_);
  next_ += result.size();
  skip_space();
  return result;
}

TextLine::Number TextLine::number() {
  const char* begin = text_.c_str() + next_;
  char* end = nullptr;
  const double value = std::strtod(begin, &end);
  const std::string token(begin, static_cast<size_t>(end - begin));
  if (token.empty() || token.find_first_of("xX(") != std::string::npos) fail("expected a number");
  next_ += token.size();
  skip_space();
  if (token.find_first_of(".enaiENAI") != std::string::npos) return {false, 0, value};
  errno = 0;
  const int64_t whole = std::strtoll(token.c_str(), nullptr, 10);
  if (errno == ERANGE) fail("expected a smaller number");
  return {true, whole, value};
}

int64_t TextLine::integer() {
  const Number value = number();
  if (!value.is_integer) fail("expected an integer");
  return value.integer;
}

int TextLine::small_integer() {
  const int64_t value = integer();
  const auto result = static_cast<int>(value);
  if (result != value) fail("expected a smaller number");
  return result;
}

int TextLine::index(size_t end) {
  const int64_t value = integer();
  if (value < 0 || static_cast<size_t>(value) >= end) {
    fail(end == 0 ? concat(value, " where there is none") : concat(value, " of ", end));
  }
  return static_cast<int>(value);
}

int64_t TextLine::digits() {
  if (!looking_at_digit()) fail("expected a digit");
  int64_t value = 0;
  for (; looking_at_digit(); ++next_) {
    if (value > std::numeric_limits<int>::max()) fail("expected a smaller number");
    value = 10 * value + (text_[next_] - '0');
  }
  skip_space();
  return value;
}

std::vector<int64_t> TextLine::integers(const std::string& open, const std::string& close) {
  std::vector<int64_t> result;
  expect(open);
  while (!take(close)) {
    if (!result.empty()) expect(",");
    result.push_back(integer());
  }
  return result;
}

void TextLine::fail(const std::string& why) const {
  throw Error(concat("cannot read the ", subject_, ": ", why, " at column ", next_ + 1, " of line ",
                     number_, ": ", text_));
}

std::vector<TextLine> lines_of(const char* subject, const std::string& text) {
  std::vector<TextLine> lines;
  std::istringstream in(text);
  std::string line;
  for (int number = 1; std::getline(in, line); ++number) {
    TextLine made(subject, line, number);
    if (!made.at_end()) lines.push_back(std::move(made));
  }
  return lines;
}

TextLine& TextLines::peek(const std::string& expected) {
  if (at_end()) {
    const int last = lines_.empty() ? 0 : lines_.back().line_number();
    throw Error(concat("cannot read the ", subject_, ": expected ", expected,
                       ", but the text ends after line ", last));
  }
  return lines_[next_];
}

TextLine& TextLines::take(const std::string& expected) {
  TextLine& line = peek(expected);
  ++next_;
  return line;
}

}  // namespace epl
