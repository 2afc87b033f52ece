// FileHomes: tensors that rest in a file (offload.path), and what brings them near.
//
// A tensor that is taken in keeps its storage: the storage gets other memory, mapped from a file,
// so that everybody who holds it, views included, sees the same numbers at any time. Whoever reads
// one that is not near waits for its pages, nothing else. fetch() and store() only see to it that
// pages come before they are used and go when they are not:
//
//   homes.take_in({weight}, {});
//   homes.fetch({weight}, Part::kParameter);   // a lane reads ahead
//   homes.wait({weight}, Part::kParameter);
//   ... compute ...
//   homes.store({weight}, Part::kParameter);   // another lane writes what changed, and drops it
//
// Devices of a worker share what is near: it goes when as many have stored as have fetched.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "comm/lane.h"
#include "runtime/home_file.h"
#include "runtime/tensor_homes.h"

namespace epl {

class FileHomes final : public TensorHomes {
 public:
  // Throws epl::Error where nothing can be written into the folder.
  FileHomes(std::string folder, Watch& watch);
  ~FileHomes() override;
  FileHomes(const FileHomes&) = delete;
  FileHomes& operator=(const FileHomes&) = delete;

  const std::string& folder() const { return folder_; }
  bool in_memory() const { return in_memory_; }  // the folder lies there

  // Whether the storage of a tensor lies in a file of this.
  bool has(const at::Tensor& tensor) const override EPL_EXCLUDES(mutex_);
  // Puts the storages of dense CPU tensors into a file, with what they hold. Throws epl::Error,
  // with all as it was, where there is no room.
  void take_in(const std::vector<at::Tensor>& tensors) override EPL_EXCLUDES(mutex_);
  // From now on these are the states of a parameter, as far as they lie in a file of this.
  void set_states(const at::Tensor& parameter, const std::vector<at::Tensor>& states) override
      EPL_EXCLUDES(mutex_);
  // Room for states of so many bytes in all, which nothing else takes. Throws epl::Error where
  // there is none on the disk.
  void reserve(int64_t bytes) override EPL_EXCLUDES(mutex_);
  // A state of a parameter, which lies as the parameter does: in what was reserved, or else in
  // memory.
  at::Tensor zeros_for(const at::Tensor& parameter) override EPL_EXCLUDES(mutex_);

  // Pages that are brought to be written cost whoever writes them nothing more.
  void fetch(const std::vector<at::Tensor>& parameters, Part part,
             Access access = Access::kRead) override EPL_EXCLUDES(mutex_);
  void wait(const std::vector<at::Tensor>& parameters, Part part,
            Access access = Access::kRead) override EPL_EXCLUDES(mutex_);
  void store(const std::vector<at::Tensor>& parameters, Part part) override EPL_EXCLUDES(mutex_);

  // Throws epl::Error where something could not be written, ever: the file is not to be trusted
  // from then on, and nothing goes any more, so that the good copies stay in memory. fetch() and
  // store() look at it nowhere, wait() where something is to be read, so that an update that has
  // begun is not left half done.
  void check_written() const override;

  // Between steps: whatever somebody has touched goes, and nothing is in use. Looks by
  // check_written().
  void rest() override EPL_EXCLUDES(mutex_);

  // Waits until all that is to go has gone, or for half a minute.
  void settle() const;

  // From now on no more than so many bytes are near at once: what would be more is brought when
  // something that is stored has gone. Where nothing is about to go it comes all the same, since
  // somebody waits for it.
  void begin(int64_t most_near) override { allowed_ = most_near; }
  // Bytes that fetch() has brought, or is bringing, and that have not gone; and most at once since
  // begin_lap().
  int64_t near() const override { return near_.load(); }
  void begin_lap() override;
  int64_t most_near() const override { return most_near_.load(); }

 private:
  struct Home;
  using Homes = std::vector<std::shared_ptr<Home>>;

  std::shared_ptr<Home> add(const std::shared_ptr<HomeFile>& file, const void* begin, int64_t bytes)
      EPL_REQUIRES(mutex_);
  std::shared_ptr<Home> find(const at::Tensor& tensor) const EPL_REQUIRES(mutex_);
  Homes of(const std::vector<at::Tensor>& parameters, Part part) const EPL_EXCLUDES(mutex_);
  enum class Patience : uint8_t { kWaits, kComesNow };
  void bring(Home& home, Access access);
  bool try_bring(Home& home, Access access, Patience patience);
  bool take_room(int64_t bytes, Patience patience);
  void drop(Home& home);
  void start_drop(Homes homes);

  const std::string folder_;
  bool in_memory_ = false;
  mutable Mutex mutex_;
  std::shared_ptr<HomeFile> for_states_ EPL_GUARDED_BY(mutex_);                // what is reserved
  std::map<const void*, std::shared_ptr<Home>> homes_ EPL_GUARDED_BY(mutex_);  // by address
  std::atomic<int64_t> near_{0};
  std::atomic<int64_t> most_near_{0};
  std::atomic<int64_t> allowed_{std::numeric_limits<int64_t>::max()};
  std::atomic<int64_t> going_{0};  // bytes that are still to be dropped
  std::atomic<int> error_{0};      // the number of the first one
  Lane reads_;                     // last: they end first
  Lane writes_;
};

}  // namespace epl
