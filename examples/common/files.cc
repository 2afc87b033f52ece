#include "examples/common/files.h"

#include <unistd.h>
#include <zlib.h>

#include <array>
#include <cerrno>
#include <cstring>
#include <fstream>
#include <memory>
#include <stdexcept>

namespace examples {

std::string read_whole(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) {
    throw std::runtime_error("cannot read " + path.string() + ": it is a folder");
  }
  // zlib reads a file that is not compressed as it stands.
  const std::unique_ptr<gzFile_s, int (*)(gzFile)> file(gzopen(path.c_str(), "rb"), gzclose);
  if (!file) throw std::runtime_error("cannot open " + path.string() + ": " + std::strerror(errno));
  std::string text;
  std::array<char, 1 << 16> block{};
  int count = 0;
  while ((count = gzread(file.get(), block.data(), static_cast<unsigned>(block.size()))) > 0) {
    text.append(block.data(), static_cast<size_t>(count));
  }
  int status = Z_OK;
  const char* why = gzerror(file.get(), &status);
  // A compressed file that was cut off ends without an error of gzread.
  if (count < 0 || status == Z_BUF_ERROR) {
    throw std::runtime_error("cannot read " + path.string() + ": " + why);
  }
  return text;
}

void write_whole(const std::filesystem::path& path, const std::string& text) {
  std::filesystem::path temporary = path;
  temporary += ".tmp" + std::to_string(getpid());
  std::ofstream file(temporary, std::ios::binary);
  file << text;
  file.close();
  if (!file) {
    std::error_code ignored;
    std::filesystem::remove(temporary, ignored);
    throw std::runtime_error("cannot write " + path.string());
  }
  std::filesystem::rename(temporary, path);
}

}  // namespace examples
