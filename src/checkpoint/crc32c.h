// CRC32C (Castagnoli), the checksum of checkpoints: of the blocks of a file and of a manifest.
//
//   crc32c("123456789", 9) == 0xe3069283
//   crc32c(rest, size, crc32c(first, count))      of both, one behind the other
//
// By the instruction of SSE4.2 where this processor has it, else by tables: the same numbers.
#pragma once

#include <cstddef>
#include <cstdint>

namespace epl {

uint32_t crc32c(const void* bytes, size_t size, uint32_t before = 0);

// The two ways, for tests. The first may be called only where has_crc32c_instruction().
bool has_crc32c_instruction();
uint32_t crc32c_by_instruction(const void* bytes, size_t size, uint32_t before);
uint32_t crc32c_by_tables(const void* bytes, size_t size, uint32_t before);

}  // namespace epl
