// TextLine: one line of a text form, read from left to right.
//
//   TextLine line("plan", "  run  micro batch 3", 7);
//   line.expect("run");
//   line.expect("micro batch");
//   line.integer();  // 3
//   line.expect_end();
//
// Blanks between tokens do not matter. What does not fit throws epl::Error, which names what is
// read, what was expected, and where:
//
//   epl: cannot read the plan: expected a number at column 20 of line 7:   run  micro batch x
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace epl {

class TextLine {
 public:
  // `subject`: what the text is of; a literal.
  TextLine(const char* subject, std::string text, int number);

  bool at_end() const { return next_ >= text_.size(); }
  bool looking_at(const std::string& token) const;
  bool looking_at_digit(size_t behind = 0) const;  // so many characters behind the next one
  bool take(const std::string& token);
  void expect(const std::string& token);
  void expect_end() const;

  std::string word();                          // letters, digits, _ : .
  std::string string();                        // "in quotes", as quoted() of text.h writes it
  std::string until(const std::string& mark);  // what stands before the mark, or all there is
  std::string word_or_string() { return looking_at("\"") ? string() : word(); }

  struct Number {
    bool is_integer = true;
    int64_t integer = 0;
    double real = 0;
  };
  Number number();
  int64_t integer();
  int small_integer();    // one that an int holds
  int index(size_t end);  // from 0 on, below `end`
  int64_t digits();       // without a sign; stops at the first other character
  std::vector<int64_t> integers(const std::string& open, const std::string& close);

  int line_number() const { return number_; }
  [[noreturn]] void fail(const std::string& why) const;

 private:
  void skip_space();

  const char* subject_;
  std::string text_;
  int number_;
  size_t next_ = 0;
};

// The lines of a text that are not blank.
std::vector<TextLine> lines_of(const char* subject, const std::string& text);

// Goes over them. Where there is none left that is asked for, the error says what was expected.
class TextLines {
 public:
  TextLines(const char* subject, const std::string& text)
      : subject_(subject), lines_(lines_of(subject, text)) {}

  bool at_end() const { return next_ == lines_.size(); }
  bool looking_at(const std::string& token) const {
    return !at_end() && lines_[next_].looking_at(token);
  }
  TextLine& peek(const std::string& expected);
  TextLine& take(const std::string& expected);

 private:
  const char* subject_;
  std::vector<TextLine> lines_;
  size_t next_ = 0;
};

}  // namespace epl
