#include "checkpoint/crc32c.h"

#include <array>
#include <cstring>

#include "base/check.h"

#if defined(__x86_64__)
#include <nmmintrin.h>
#endif

namespace epl {
namespace {

constexpr uint32_t kReversedPolynomial = 0x82f63b78;
using CrcTables = std::array<std::array<uint32_t, 256>, 8>;

// Table k has what a byte gives that has k more bytes behind it, so that eight bytes are looked up
// at once ("slicing by 8", Kounavis and Berry 2005).
constexpr CrcTables make_crc_tables() {
  CrcTables tables{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t crc = byte;
    for (int bit = 0; bit < 8; ++bit) crc = (crc >> 1) ^ ((crc & 1) != 0 ? kReversedPolynomial : 0);
    tables[0][byte] = crc;
  }
  for (size_t k = 1; k < tables.size(); ++k) {
    for (size_t byte = 0; byte < 256; ++byte) {
      const uint32_t shorter = tables[k - 1][byte];
      tables[k][byte] = (shorter >> 8) ^ tables[0][shorter & 0xff];
    }
  }
  return tables;
}

constexpr CrcTables kCrcTables = make_crc_tables();

uint32_t little_endian(const unsigned char* from) {
  return from[0] | from[1] << 8 | from[2] << 16 | static_cast<uint32_t>(from[3]) << 24;
}

}  // namespace

uint32_t crc32c_by_tables(const void* bytes, size_t size, uint32_t before) {
  const auto& t = kCrcTables;
  const auto* from = static_cast<const unsigned char*>(bytes);
  uint32_t crc = ~before;
  for (; size >= 8; size -= 8, from += 8) {
    const uint32_t low = crc ^ little_endian(from);
    const uint32_t high = little_endian(from + 4);
    crc = t[7][low & 0xff] ^ t[6][low >> 8 & 0xff] ^ t[5][low >> 16 & 0xff] ^ t[4][low >> 24] ^
          t[3][high & 0xff] ^ t[2][high >> 8 & 0xff] ^ t[1][high >> 16 & 0xff] ^ t[0][high >> 24];
  }
  for (; size > 0; --size) crc = (crc >> 8) ^ t[0][(crc ^ *from++) & 0xff];
  return ~crc;
}

#if defined(__x86_64__)

bool has_crc32c_instruction() { return __builtin_cpu_supports("sse4.2") != 0; }

__attribute__((target("sse4.2"))) uint32_t crc32c_by_instruction(const void* bytes, size_t size,
                                                                 uint32_t before) {
  const auto* from = static_cast<const unsigned char*>(bytes);
  uint64_t crc = ~before;
  for (; size >= 8; size -= 8, from += 8) {
    uint64_t eight;
    std::memcpy(&eight, from, sizeof eight);
    crc = _mm_crc32_u64(crc, eight);
  }
  auto rest = static_cast<uint32_t>(crc);
  for (; size > 0; --size) rest = _mm_crc32_u8(rest, *from++);
  return ~rest;
}

#else

bool has_crc32c_instruction() { return false; }

uint32_t crc32c_by_instruction(const void*, size_t, uint32_t) {
  throw InternalError("epl internal error: this processor has no instruction for CRC32C");
}

#endif

uint32_t crc32c(const void* bytes, size_t size, uint32_t before) {
  return has_crc32c_instruction() ? crc32c_by_instruction(bytes, size, before)
                                  : crc32c_by_tables(bytes, size, before);
}

}  // namespace epl
