// HostHomes: tensors that rest in the memory of the host, for devices that have memory of their
// own.
//
// The user's tensor is the home, and is left where it is. Whoever computes does so in a window
// (window_memory.h): fetch() copies home to window on a lane of its own, store() copies back what
// an update wrote, and closes the window. Between steps all windows are closed and homes hold
// everything, so that a program reads, writes, replaces and saves its tensors as ever.
//
//   homes.take_in({weight});
//   homes.begin(1 << 20);                       // bytes that may be near at once
//   homes.fetch({weight}, Part::kParameter);    // a lane copies
//   homes.wait({weight}, Part::kParameter);
//   ... compute with homes.window(weight) ...
//   homes.store({weight}, Part::kParameter);    // another lane closes it
//
// A fetch that would take more than begin() allows waits for what is about to go; where nothing is,
// wait() throws epl::Error. On devices of the CPU all of this costs copies and saves nothing: it is
// the way of devices with memory of their own, and its account is kept as theirs would be.
#pragma once

#include <ATen/core/Tensor.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "base/mutex.h"
#include "comm/lane.h"
#include "runtime/tensor_homes.h"
#include "runtime/window_memory.h"

namespace epl {

class HostHomes final : public TensorHomes {
 public:
  HostHomes();
  ~HostHomes() override;
  HostHomes(const HostHomes&) = delete;
  HostHomes& operator=(const HostHomes&) = delete;

  bool has(const at::Tensor& tensor) const override EPL_EXCLUDES(mutex_);
  // A window stands for a storage: a tensor has to be all of it.
  std::string why_not(const at::Tensor& tensor) const override;
  void take_in(const std::vector<at::Tensor>& tensors) override EPL_EXCLUDES(mutex_);
  void let_go(const at::Tensor& tensor) override EPL_EXCLUDES(mutex_);
  void set_states(const at::Tensor& parameter, const std::vector<at::Tensor>& states) override
      EPL_EXCLUDES(mutex_);
  // In memory that no device counts; near at once where its parameter is.
  at::Tensor zeros_for(const at::Tensor& parameter) override EPL_EXCLUDES(mutex_);

  void fetch(const std::vector<at::Tensor>& parameters, Part part, Access access) override
      EPL_EXCLUDES(mutex_);
  void wait(const std::vector<at::Tensor>& parameters, Part part, Access access) override
      EPL_EXCLUDES(mutex_);
  void store(const std::vector<at::Tensor>& parameters, Part part) override EPL_EXCLUDES(mutex_);

  bool has_windows() const override { return true; }
  at::Tensor window(const at::Tensor& tensor) override EPL_EXCLUDES(mutex_);
  // The home itself where nobody has fetched it.
  void* to_be_written(void* data) override EPL_EXCLUDES(mutex_);

  void begin(int64_t most_near) override;
  void write_back() override { rest(); }
  void rest() override EPL_EXCLUDES(mutex_);

  int64_t near() const override EPL_EXCLUDES(room_);
  void begin_lap() override EPL_EXCLUDES(room_);
  int64_t most_near() const override EPL_EXCLUDES(room_);

 private:
  struct Home;
  using Homes = std::vector<std::shared_ptr<Home>>;

  std::shared_ptr<Home> find(const void* data) const EPL_REQUIRES(mutex_);
  std::shared_ptr<Home> find(const at::Tensor& tensor) const EPL_REQUIRES(mutex_);
  std::shared_ptr<Home> add(const at::Tensor& tensor) EPL_REQUIRES(mutex_);
  Homes of(const std::vector<at::Tensor>& parameters, Part part) const EPL_EXCLUDES(mutex_);
  void bring(Home& home) EPL_EXCLUDES(room_);
  bool is_fetched(const at::Tensor& tensor) const EPL_EXCLUDES(mutex_);
  template <typename Fill>
  void open_in_room(Home& home, const Fill& fill) EPL_EXCLUDES(room_);
  template <typename Fill>
  void open(Home& home, const Fill& fill) EPL_EXCLUDES(room_);
  void note_opened() EPL_EXCLUDES(room_);
  void drop(Home& home) EPL_EXCLUDES(room_);
  void start_drop(Homes homes) EPL_EXCLUDES(room_);
  bool try_take_room(int64_t bytes) EPL_EXCLUDES(room_);
  void take_room(int64_t bytes) EPL_EXCLUDES(room_);
  void give_room(int64_t bytes) EPL_EXCLUDES(room_);
  void finish_lanes() EPL_EXCLUDES(room_);

  mutable Mutex mutex_;
  std::map<const void*, std::shared_ptr<Home>> homes_ EPL_GUARDED_BY(mutex_);  // by address
  mutable Mutex room_;
  Condition room_changed_;
  int64_t near_ EPL_GUARDED_BY(room_) = 0;
  int64_t most_near_ EPL_GUARDED_BY(room_) = 0;
  int64_t limit_ EPL_GUARDED_BY(room_) = 0;    // 0: none
  int64_t going_ EPL_GUARDED_BY(room_) = 0;    // stores whose windows are still to be closed
  int64_t opening_ EPL_GUARDED_BY(room_) = 0;  // windows that have room, and are not open yet
  Watch watch_;   // of its own: what was written is brought home also where a job has failed
  Lane fetches_;  // last: they end first
  Lane stores_;
};

}  // namespace epl
