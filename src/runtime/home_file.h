// HomeFile: an unlinked file in memory's place. Tensors lie in it as in any memory; what nobody
// uses takes none.
//
//   auto file = HomeFile::make("/scratch", bytes);   // or throws what is wrong with the folder
//   c10::DataPtr memory = file->take(4096);          // zeros
//
// All of its bytes are allocated on the disk when it is made: a full disk is an error then, and not
// a signal in mid-training (but for file systems that write each block to a new place). Nobody else
// can open it, and it is gone with the last tensor in it, or with the process, however that ends. A
// child of fork() shares what lies in it. Pages come when they are touched; fetch() brings many at
// once, release() gives them back, with what was written to the disk first.
#pragma once

#include <c10/core/Allocator.h>

#include <cstdint>
#include <memory>
#include <string>

namespace epl {

class HomeFile : public std::enable_shared_from_this<HomeFile> {
 public:
  // Throws epl::Error where the folder is not there or not writable, or the disk is full.
  static std::shared_ptr<HomeFile> make(const std::string& folder, int64_t bytes);
  ~HomeFile();
  HomeFile(const HomeFile&) = delete;
  HomeFile& operator=(const HomeFile&) = delete;

  // Whether the folder lies in memory, so that a file there saves none.
  bool in_memory() const { return in_memory_; }

  static int64_t rounded(int64_t bytes);  // up to whole pages
  bool has_room(int64_t bytes) const { return rounded(bytes) <= bytes_ - taken_; }
  // Room that is not taken yet; all zeros. The file lives at least as long.
  c10::DataPtr take(int64_t bytes);
  // What take() has returned, and nothing else.
  static bool is_home(const c10::DataPtr& memory);

  // Of whole pages that take() has returned. Both give 0, or the number of an error; what could not
  // be written stays in memory. Of several
  // pieces the disk does well to hear before anybody waits for one.
  int fetch(const void* begin, int64_t bytes, bool to_be_written) const;
  int release(const void* begin, int64_t bytes) const;
  void start_reading(const void* begin, int64_t bytes) const;
  void start_writing(const void* begin, int64_t bytes) const;

 private:
  struct Place;
  HomeFile(int descriptor, char* begin, int64_t bytes, bool in_memory);
  static void give_back(void* place);
  // A child of fork() has the same file, whose room is not its own to give back.
  bool is_owner() const;
  int64_t offset_of(const void* address) const {
    return static_cast<const char*>(address) - begin_;
  }

  const int descriptor_;
  char* const begin_;
  const int64_t bytes_;
  const bool in_memory_;
  const int owner_;  // the process that made it
  int64_t taken_ = 0;
};

}  // namespace epl
