#include "examples/bert/unicode.h"

#include <utf8proc.h>

#include <algorithm>
#include <array>

namespace bert {
namespace {

utf8proc_category_t category(char32_t code) {
  return utf8proc_category(static_cast<utf8proc_int32_t>(code));
}

constexpr char32_t kCapitalSigma = 0x3a3;
constexpr char32_t kFinalSigma = 0x3c2;
constexpr char32_t kCapitalIWithDot = 0x130;

// Punctuation that stands inside of words (Unicode, WordBreakProperty: MidLetter, MidNumLet).
constexpr std::array<char32_t, 16> kMidWord{'\'',   '.',    ':',    0xb7,   0x387,  0x55f,
                                            0x5f4,  0x2018, 0x2019, 0x2024, 0x2027, 0xfe13,
                                            0xfe52, 0xfe55, 0xff0e, 0xff1a};

bool is_cased(char32_t code) {
  const auto kind = category(code);
  return kind == UTF8PROC_CATEGORY_LU || kind == UTF8PROC_CATEGORY_LL ||
         kind == UTF8PROC_CATEGORY_LT;
}

// Does not end a word for the rule of the final sigma.
bool is_case_ignorable(char32_t code) {
  switch (category(code)) {
    case UTF8PROC_CATEGORY_MN:
    case UTF8PROC_CATEGORY_ME:
    case UTF8PROC_CATEGORY_CF:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_SK:
      return true;
    default:
      return std::find(kMidWord.begin(), kMidWord.end(), code) != kMidWord.end();
  }
}

template <typename Iterator>
bool next_is_cased(Iterator at, Iterator end) {
  at = std::find_if(at, end, [](const Character& c) { return !is_case_ignorable(c.code); });
  return at != end && is_cased(at->code);
}

// A sigma at the end of a word has a form of its own (Unicode, SpecialCasing: Final_Sigma).
bool is_final_sigma(const std::vector<Character>& text, size_t at) {
  const auto before = std::make_reverse_iterator(text.begin() + static_cast<ptrdiff_t>(at));
  const auto after = text.begin() + static_cast<ptrdiff_t>(at) + 1;
  return next_is_cased(before, text.rend()) && !next_is_cased(after, text.end());
}

}  // namespace

std::vector<Character> characters(std::string_view text) {
  std::vector<Character> result;
  result.reserve(text.size());
  const auto* bytes = reinterpret_cast<const utf8proc_uint8_t*>(text.data());
  for (size_t at = 0; at < text.size();) {
    utf8proc_int32_t code = 0;
    auto length =
        utf8proc_iterate(bytes + at, static_cast<utf8proc_ssize_t>(text.size() - at), &code);
    if (length <= 0) {
      length = 1;
      code = 0xfffd;
    }
    const size_t end = at + static_cast<size_t>(length);
    result.push_back({static_cast<char32_t>(code), at, end});
    at = end;
  }
  return result;
}

std::vector<Character> lower_case(const std::vector<Character>& text) {
  std::vector<Character> result;
  result.reserve(text.size());
  for (size_t i = 0; i < text.size(); ++i) {
    Character character = text[i];
    if (character.code == kCapitalSigma && is_final_sigma(text, i)) {
      character.code = kFinalSigma;
    } else {
      character.code =
          static_cast<char32_t>(utf8proc_tolower(static_cast<utf8proc_int32_t>(character.code)));
    }
    result.push_back(character);
    // The one character whose lower case is two.
    if (text[i].code == kCapitalIWithDot) result.push_back({0x307, character.begin, character.end});
  }
  return result;
}

std::vector<Character> without_accents(const std::vector<Character>& text) {
  std::vector<Character> result;
  result.reserve(text.size());
  for (const Character& character : text) {
    // No canonical decomposition is longer than four characters.
    std::array<utf8proc_int32_t, 8> parts{};
    int last_boundary_class = 0;
    const auto count = utf8proc_decompose_char(
        static_cast<utf8proc_int32_t>(character.code), parts.data(),
        static_cast<utf8proc_ssize_t>(parts.size()), UTF8PROC_DECOMPOSE, &last_boundary_class);
    for (size_t i = 0; i < static_cast<size_t>(std::max<utf8proc_ssize_t>(count, 0)); ++i) {
      const auto code = static_cast<char32_t>(parts[i]);
      if (category(code) != UTF8PROC_CATEGORY_MN) {
        result.push_back({code, character.begin, character.end});
      } else if (!result.empty() && result.back().end == character.begin) {
        result.back().end = character.end;
      }
    }
  }
  return result;
}

void append_utf8(std::string& text, char32_t code) {
  std::array<utf8proc_uint8_t, 4> bytes{};
  const auto length = utf8proc_encode_char(static_cast<utf8proc_int32_t>(code), bytes.data());
  text.append(reinterpret_cast<const char*>(bytes.data()), static_cast<size_t>(length));
}

std::string utf8(const std::vector<Character>& text) {
  std::string result;
  for (const Character& character : text) append_utf8(result, character.code);
  return result;
}

bool is_space(char32_t code) {
  if (code < 0x80)
    return code == ' ' || (code >= 0x9 && code <= 0xd) || (code >= 0x1c && code <= 0x1f);
  const auto kind = category(code);
  return code == 0x85 || kind == UTF8PROC_CATEGORY_ZS || kind == UTF8PROC_CATEGORY_ZL ||
         kind == UTF8PROC_CATEGORY_ZP;
}

bool is_word(char32_t code) {
  switch (category(code)) {
    case UTF8PROC_CATEGORY_LU:
    case UTF8PROC_CATEGORY_LL:
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO:
    case UTF8PROC_CATEGORY_ND:
    case UTF8PROC_CATEGORY_NL:
    case UTF8PROC_CATEGORY_NO:
      return true;
    default:
      return code == '_';
  }
}

bool is_control(char32_t code) {
  const auto kind = category(code);
  return kind == UTF8PROC_CATEGORY_CC || kind == UTF8PROC_CATEGORY_CF;
}

bool is_punctuation(char32_t code) {
  if (code < 0x80) {
    return (code >= 33 && code <= 47) || (code >= 58 && code <= 64) || (code >= 91 && code <= 96) ||
           (code >= 123 && code <= 126);
  }
  switch (category(code)) {
    case UTF8PROC_CATEGORY_PC:
    case UTF8PROC_CATEGORY_PD:
    case UTF8PROC_CATEGORY_PS:
    case UTF8PROC_CATEGORY_PE:
    case UTF8PROC_CATEGORY_PI:
    case UTF8PROC_CATEGORY_PF:
    case UTF8PROC_CATEGORY_PO:
      return true;
    default:
      return false;
  }
}

// The CJK Unified Ideographs and their extensions, as BERT counts them: Japanese and Korean
// alphabets are written in words and are not among them.
bool is_ideograph(char32_t code) {
  struct Block {
    char32_t first, last;
  };
  constexpr std::array<Block, 8> kBlocks{{{0x4e00, 0x9fff},
                                          {0x3400, 0x4dbf},
                                          {0x20000, 0x2a6df},
                                          {0x2a700, 0x2b73f},
                                          {0x2b740, 0x2b81f},
                                          {0x2b820, 0x2ceaf},
                                          {0xf900, 0xfaff},
                                          {0x2f800, 0x2fa1f}}};
  return std::any_of(kBlocks.begin(), kBlocks.end(),
                     [&](const Block& block) { return code >= block.first && code <= block.last; });
}

}  // namespace bert
