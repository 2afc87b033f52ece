#include "checkpoint/crc32c.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

namespace epl {
namespace {

// RFC 3720 (iSCSI), appendix B.4, and the check value of the catalogue of CRCs.
struct Vector {
  std::string bytes;
  uint32_t crc;
};

std::vector<Vector> known_vectors() {
  std::string up;
  for (int i = 0; i < 32; ++i) up += static_cast<char>(i);
  const std::string down(up.rbegin(), up.rend());
  return {{"", 0},
          {"123456789", 0xe3069283},
          {std::string(32, '\0'), 0x8a9136aa},
          {std::string(32, '\xff'), 0x62a8ab43},
          {up, 0x46dd794e},
          {down, 0x113fdb5c}};
}

TEST(Crc32c, ByTablesIsThatOfTheStandard) {
  for (const auto& [bytes, crc] : known_vectors()) {
    EXPECT_EQ(crc32c_by_tables(bytes.data(), bytes.size(), 0), crc);
  }
}

TEST(Crc32c, ByTheInstructionIsThatOfTheStandard) {
  if (!has_crc32c_instruction()) GTEST_SKIP() << "this processor has no SSE4.2";
  for (const auto& [bytes, crc] : known_vectors()) {
    EXPECT_EQ(crc32c_by_instruction(bytes.data(), bytes.size(), 0), crc);
  }
}

TEST(Crc32c, IsTheSameBothWaysWhereverBytesLieAndHoweverManyTheyAre) {
  std::mt19937 random(7);
  std::string bytes(4096, '\0');
  for (char& byte : bytes) byte = static_cast<char>(random());
  for (int i = 0; i < 2000; ++i) {
    const size_t begin = random() % 64;
    const size_t size = random() % (i < 1000 ? 40 : bytes.size() - begin);
    const uint32_t tables = crc32c_by_tables(bytes.data() + begin, size, i);
    EXPECT_EQ(crc32c(bytes.data() + begin, size, i), tables);
  }
}

TEST(Crc32c, OfPartsGoesOnFromTheOneBefore) {
  const std::string bytes = "a text that is cut somewhere, into two parts that are not even";
  for (size_t cut = 0; cut <= bytes.size(); ++cut) {
    const uint32_t first = crc32c(bytes.data(), cut);
    EXPECT_EQ(crc32c(bytes.data() + cut, bytes.size() - cut, first),
              crc32c(bytes.data(), bytes.size()));
  }
}

}  // namespace
}  // namespace epl
