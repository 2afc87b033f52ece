// WindowMemory: a range of addresses that may be touched only while it is open.
//
//   auto window = WindowMemory::reserve(bytes);
//   window->open();    // pages come as they are written, and hold zeros till then
//   ...
//   window->close();   // pages go; whoever touches it ends the process
//
// The addresses stay the same, so that tensors over them are made once. A closed window cannot be
// read by mistake: pages that were given back would read as zeros, and a wrong result would look
// like any other.
#pragma once

#include <c10/core/Storage.h>

#include <cstdint>
#include <memory>

namespace epl {

class WindowMemory : public std::enable_shared_from_this<WindowMemory> {
 public:
  // Closed. Throws epl::Error where the system has no such range.
  static std::shared_ptr<WindowMemory> reserve(int64_t bytes);
  ~WindowMemory();
  WindowMemory(const WindowMemory&) = delete;
  WindowMemory& operator=(const WindowMemory&) = delete;

  // What a window takes of memory: whole pages.
  static int64_t rounded(int64_t bytes);

  char* begin() const { return begin_; }
  int64_t bytes() const { return bytes_; }
  // Throws epl::Error where the system refuses. It holds zeros.
  void open();
  void close();

  // For tensors over it, which keep the addresses reserved.
  c10::Storage storage();

 private:
  WindowMemory(void* mapped, size_t mapped_bytes, char* begin, int64_t bytes);
  size_t whole() const { return static_cast<size_t>(rounded(bytes_)); }
  void wish_for_huge_pages() const;

  void* const mapped_;
  const size_t mapped_bytes_;
  char* const begin_;
  const int64_t bytes_;
};

}  // namespace epl
