#include "runtime/device_team.h"

#include <ATen/Parallel.h>
#include <pthread.h>

#include <chrono>
#include <optional>

#include "base/text.h"

namespace epl {
namespace {

// Looks for a moment before it sleeps: the next run of a training step comes soon or not for long.
constexpr auto kOpenEyes = std::chrono::microseconds(200);

template <typename Predicate>
bool comes_soon(const Predicate& holds) {
  const auto until = std::chrono::steady_clock::now() + kOpenEyes;
  do {
    for (int i = 0; i < 64; ++i) {
      if (holds()) return true;
#ifdef __x86_64__
      __builtin_ia32_pause();
#endif
    }
    std::this_thread::yield();  // with more devices than cores, to the one that is waited for
  } while (std::chrono::steady_clock::now() < until);
  return holds();
}

bool is_cancelled(const std::exception_ptr& error) {
  try {
    std::rethrow_exception(error);
  } catch (const Cancelled&) {
    return true;
  } catch (...) {
    return false;
  }
}

}  // namespace

DeviceTeam::DeviceTeam(std::vector<CoreShare> cores) {
  for (auto& share : cores) {
    devices_.push_back(std::make_unique<Device>());
    devices_.back()->cores = std::move(share);
  }
  // In a process that was forked LibTorch makes its thread pool anew when a thread first counts
  // threads, and is not prepared for two of them doing so at once.
  if (size() > 1) at::set_num_threads(at::get_num_threads());
  for (int i = 1; i < size(); ++i) {
    devices_[static_cast<size_t>(i)]->thread = std::thread([this, i] { serve(i); });
  }
  // A thread that starts asks LibTorch for its pool. All have done so now: in a process that ends
  // at once the pool could be gone before, and they would wait for ever.
  if (size() > 1) run([](int) {});
}

DeviceTeam::~DeviceTeam() {
  {
    const MutexLock lock(mutex_);
    ends_.store(true, std::memory_order_release);
  }
  started_.notify_all();
  for (auto& device : devices_) {
    if (device->thread.joinable()) device->thread.join();
  }
}

void DeviceTeam::run(const std::function<void(int)>& work) {
  if (size() == 1) {
    failed_device_ = 0;
    std::optional<DeviceMemory::Use> use;
    if (!DeviceMemory::in_use_on_this_thread()) use.emplace(memory(0));
    return work(0);
  }
  work_ = &work;
  cancelled_.store(false, std::memory_order_relaxed);
  still_running_.store(size() - 1, std::memory_order_relaxed);
  {
    const MutexLock lock(mutex_);
    round_.fetch_add(1, std::memory_order_release);
  }
  started_.notify_all();
  {
    const OnCores cores(devices_[0]->cores);
    work_on(0);
  }
  wait_for_all();
  rethrow_first();
}

void DeviceTeam::serve(int device) {
  pthread_setname_np(pthread_self(), concat("epl device ", device).c_str());
  const OnCores cores(devices_[static_cast<size_t>(device)]->cores);
  uint64_t seen = 0;
  for (;;) {
    seen = next_round(seen);
    if (ends_.load(std::memory_order_acquire)) return;
    work_on(device);
    if (still_running_.fetch_sub(1, std::memory_order_acq_rel) > 1) continue;
    const MutexLock lock(mutex_);
    done_.notify_one();
  }
}

uint64_t DeviceTeam::next_round(uint64_t seen) {
  const auto comes = [&] {
    return round_.load(std::memory_order_acquire) != seen || ends_.load(std::memory_order_acquire);
  };
  if (!comes_soon(comes)) {
    const MutexLock lock(mutex_);
    started_.wait(mutex_, comes);
  }
  return round_.load(std::memory_order_acquire);
}

// Every device ends by itself: what it waits for has a deadline or ends with Cancelled.
void DeviceTeam::wait_for_all() {
  const auto all_done = [&] { return still_running_.load(std::memory_order_acquire) == 0; };
  if (comes_soon(all_done)) return;
  const MutexLock lock(mutex_);
  done_.wait(mutex_, all_done);
}

void DeviceTeam::work_on(int device) noexcept {
  Device& self = *devices_[static_cast<size_t>(device)];
  try {
    std::optional<DeviceMemory::Use> use;
    if (device != 0 || !DeviceMemory::in_use_on_this_thread()) use.emplace(self.memory);
    (*work_)(device);
  } catch (...) {
    self.error = std::current_exception();
    cancelled_.store(true, std::memory_order_release);
  }
}

void DeviceTeam::rethrow_first() {
  std::exception_ptr first;
  for (int i = 0; i < size(); ++i) {
    const std::exception_ptr error =
        std::exchange(devices_[static_cast<size_t>(i)]->error, nullptr);
    if (error == nullptr || (first != nullptr && !is_cancelled(first))) continue;
    if (first != nullptr && is_cancelled(error)) continue;
    first = error;
    failed_device_ = i;
  }
  if (first != nullptr) std::rethrow_exception(first);
}

}  // namespace epl
