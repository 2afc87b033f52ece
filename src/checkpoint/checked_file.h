// Files with a checksum for each block of 16 MiB.
//
//   CheckedFileWriter file("step-4.partial/w00000-model.safetensors");
//   file.write(bytes, size);
//   const FileRecord record = file.finish();        // on the disk now
//   CheckedFileReader reader(path, record);
//   reader.verify(offset, size);                    // throws where a block of these is damaged
//   reader.read(offset, size, to);
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace epl {

inline constexpr int64_t kBlockBytes = int64_t{16} << 20;

struct FileRecord {
  int64_t bytes = 0;
  std::vector<uint32_t> checksums;  // CRC32C of its blocks; the last block may be shorter

  bool operator==(const FileRecord& other) const {
    return bytes == other.bytes && checksums == other.checksums;
  }
};

// How many blocks a file of so many bytes has.
int64_t block_count(int64_t bytes);

// A new file; it is an error where there is one of that name. A file that was not finished is
// removed. Throws Error with the system's words.
class CheckedFileWriter {
 public:
  explicit CheckedFileWriter(std::string path);
  ~CheckedFileWriter();
  CheckedFileWriter(const CheckedFileWriter&) = delete;
  CheckedFileWriter& operator=(const CheckedFileWriter&) = delete;

  void write(const void* bytes, size_t size);
  FileRecord finish();  // fsync: an error of the disk is told here, and once

 private:
  void count(const char* bytes, size_t size);
  [[noreturn]] void fail() const;

  const std::string path_;
  int file_ = -1;
  bool finished_ = false;
  FileRecord record_;
};

// Reads ranges of a file by itself, for many files may be open at once otherwise. Throws
// DamagedCheckpoint where the file is missing, of another length or damaged.
class CheckedFileReader {
 public:
  CheckedFileReader(std::string path, FileRecord record);

  // Of the blocks that have bytes of this range; each is read once until forget(), however often
  // it is asked for.
  void verify(int64_t offset, int64_t size);
  void forget();  // what was read: the file may have changed since
  // Numbers of the blocks that are damaged, of all.
  std::vector<int64_t> damaged_blocks();

  // Small ranges that follow each other are read together.
  void read(int64_t offset, int64_t size, void* to);

  const std::string& path() const { return path_; }
  const FileRecord& record() const { return record_; }
  std::string name_of_block(int64_t block) const;  // "block 3 of 5 (bytes 50331648 to 67108863)"

 private:
  bool is_whole(int64_t block);

  const std::string path_;
  const FileRecord record_;
  std::vector<bool> verified_;  // by block
  std::vector<char> window_;
  int64_t window_begin_ = 0;
};

// All of a file that is read at once, such as a manifest. Throws DamagedCheckpoint where it is
// missing or larger than `most`.
std::string read_text_file(const std::string& path, int64_t most);
int64_t file_bytes(const std::string& path);  // throws DamagedCheckpoint where it is missing
// Makes renames and new files in a folder last. Throws Error.
void sync_folder(const std::string& path);

}  // namespace epl
