// A text as the numbers of its letters.
//
//   gpt::Text text = gpt::read_text("book.txt.gz");
//   text.str(text.letters.narrow(0, 0, 20));          // the first 20 letters again
//   epl::Batch rows = gpt::rows_at(text.letters, {0, 17, 35}, /*length=*/64);
#pragma once

#include <epl/epl.h>
#include <torch/torch.h>

#include <array>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "examples/common/files.h"

namespace gpt {

struct Text {
  std::string alphabet;   // number -> letter, which is a byte
  torch::Tensor letters;  // int64 [length]

  std::string str(const torch::Tensor& numbers) const {
    const torch::Tensor flat = numbers.contiguous();
    std::string text;
    for (int64_t i = 0; i < flat.numel(); ++i) {
      text += alphabet.at(static_cast<size_t>(flat.data_ptr<int64_t>()[i]));
    }
    return text;
  }
};

inline Text text_of(const std::string& bytes) {
  const std::set<char> different(bytes.begin(), bytes.end());
  std::array<int64_t, 256> numbers{};
  Text text;
  for (const char letter : different) {
    numbers[static_cast<unsigned char>(letter)] = static_cast<int64_t>(text.alphabet.size());
    text.alphabet += letter;
  }
  text.letters = torch::empty({static_cast<int64_t>(bytes.size())}, torch::kInt64);
  int64_t* place = text.letters.data_ptr<int64_t>();
  for (const char letter : bytes) *place++ = numbers[static_cast<unsigned char>(letter)];
  return text;
}

// A plain file, or one that gzip compressed.
inline Text read_text(const std::string& path) {
  const std::string bytes = examples::read_whole(path);
  if (bytes.empty()) throw std::runtime_error("there is no text in " + path);
  return text_of(bytes);
}

// A row of `length` letters from each place, and the letters one further: what is to be predicted.
inline epl::Batch rows_at(const torch::Tensor& letters, const std::vector<size_t>& places,
                          int64_t length) {
  const std::vector<int64_t> starts(places.begin(), places.end());
  const torch::Tensor each = torch::tensor(starts).unsqueeze(1) + torch::arange(length);
  return {letters.take(each), letters.take(each + 1)};
}

}  // namespace gpt
