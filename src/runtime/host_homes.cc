#include "runtime/host_homes.h"

#include <ATen/Functions.h>

#include <algorithm>
#include <cstring>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "runtime/pages.h"

namespace epl {

struct HostHomes::Home {
  explicit Home(const at::Tensor& tensor)
      : storage(tensor.storage().getWeakStorageImpl()),
        size(static_cast<int64_t>(tensor.storage().nbytes())),
        bytes(WindowMemory::rounded(size)),
        window(WindowMemory::reserve(size)) {}

  // Gone with the last tensor of the program's that lies there.
  const c10::weak_intrusive_ptr<c10::StorageImpl> storage;
  const int64_t size;
  const int64_t bytes;  // that its window takes
  const std::shared_ptr<WindowMemory> window;
  std::atomic<int> users{0};  // that have fetched and not stored
  Mutex bringing;             // whoever takes room for the window: once, however many want it
  Mutex moving;               // whoever opens or closes it
  bool near EPL_GUARDED_BY(moving) = false;
  bool written EPL_GUARDED_BY(moving) = false;
  Homes states;  // of a parameter; guarded by HostHomes::mutex_
};

HostHomes::HostHomes() : fetches_("epl fetch", watch_), stores_("epl store", watch_) {}

HostHomes::~HostHomes() = default;

// A storage that was given other memory, or another size, is another one.
std::shared_ptr<HostHomes::Home> HostHomes::find(const void* data) const {
  const auto found = homes_.find(data);
  if (data == nullptr || found == homes_.end()) return nullptr;
  const auto storage = found->second->storage.lock();
  const bool same = storage && storage->data() == data &&
                    static_cast<int64_t>(storage->nbytes()) == found->second->size;
  return same ? found->second : nullptr;
}

std::shared_ptr<HostHomes::Home> HostHomes::find(const at::Tensor& tensor) const {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  std::shared_ptr<Home> home = find(tensor.storage().data());
  const bool whole = home != nullptr && why_not(tensor).empty() &&
                     home->storage.lock().get() == tensor.storage().unsafeGetStorageImpl();
  return whole ? home : nullptr;
}

bool HostHomes::has(const at::Tensor& tensor) const {
  const MutexLock lock(mutex_);
  return find(tensor) != nullptr;
}

std::string HostHomes::why_not(const at::Tensor& tensor) const {
  const bool whole = tensor.is_non_overlapping_and_dense() && tensor.storage_offset() == 0 &&
                     tensor.nbytes() == tensor.storage().nbytes();
  return whole ? "" : "it is a part of the memory that it lies in";
}

std::shared_ptr<HostHomes::Home> HostHomes::add(const at::Tensor& tensor) {
  auto home = std::make_shared<Home>(tensor);
  homes_[tensor.storage().data()] = home;
  return home;
}

void HostHomes::take_in(const std::vector<at::Tensor>& tensors) {
  const MutexLock lock(mutex_);
  for (const at::Tensor& tensor : tensors) {
    if (find(tensor) == nullptr && why_not(tensor).empty()) add(tensor);
  }
}

void HostHomes::let_go(const at::Tensor& tensor) {
  const MutexLock lock(mutex_);
  if (find(tensor) != nullptr) homes_.erase(tensor.storage().data());
}

void HostHomes::set_states(const at::Tensor& parameter, const std::vector<at::Tensor>& states) {
  const MutexLock lock(mutex_);
  const std::shared_ptr<Home> home = find(parameter);
  if (home == nullptr) return;
  home->states.clear();
  for (const at::Tensor& state : states) {
    if (std::shared_ptr<Home> own = find(state)) home->states.push_back(std::move(own));
  }
}

bool HostHomes::is_fetched(const at::Tensor& tensor) const {
  const MutexLock lock(mutex_);
  const std::shared_ptr<Home> home = find(tensor);
  return home != nullptr && home->users > 0;
}

// The lane allocates for no device. A window that is new holds zeros. A plan that was made before
// options of the optimizer asked for this state has no room for it: it is used where it rests then.
at::Tensor HostHomes::zeros_for(const at::Tensor& parameter) {
  at::Tensor zeros;
  fetches_.start([&] { zeros = zeros_by_page(parameter.detach()); })->wait();
  if (!is_fetched(parameter) || !why_not(zeros).empty()) return zeros;
  const auto home = std::make_shared<Home>(zeros);
  if (!try_take_room(home->bytes)) return zeros;
  home->users = 1;
  open_in_room(*home, [] {});
  const MutexLock lock(mutex_);
  homes_[zeros.storage().data()] = home;
  if (const std::shared_ptr<Home> own = find(parameter)) own->states.push_back(home);
  return zeros;
}

HostHomes::Homes HostHomes::of(const std::vector<at::Tensor>& parameters, Part part) const {
  const MutexLock lock(mutex_);
  Homes homes;
  for (const at::Tensor& parameter : parameters) {
    const std::shared_ptr<Home> home = find(parameter);
    if (home == nullptr) continue;
    if (part == Part::kParameter) {
      homes.push_back(home);
    } else {
      homes.insert(homes.end(), home->states.begin(), home->states.end());
    }
  }
  return homes;
}

// Where there is too little, what is about to go makes room: the lane that closes windows waits for
// nobody. Nor does who has taken room and may give it back, since its window is not needed any
// more.
bool HostHomes::try_take_room(int64_t bytes) {
  const MutexLock lock(room_);
  const auto fits = [&]() EPL_REQUIRES(room_) { return limit_ == 0 || near_ + bytes <= limit_; };
  room_changed_.wait(
      room_, [&]() EPL_REQUIRES(room_) { return fits() || (going_ == 0 && opening_ == 0); });
  if (!fits()) return false;
  near_ += bytes;
  most_near_ = std::max(most_near_, near_);
  ++opening_;
  return true;
}

void HostHomes::take_room(int64_t bytes) {
  if (try_take_room(bytes)) return;
  const MutexLock lock(room_);
  throw Error(concat("out of memory on this device: a window of ", human_bytes(bytes), " wanted, ",
                     human_bytes(near_), " of windows in use, of ", human_bytes(limit_),
                     " that the plan has for them"),
              "offload.level", "smaller layers, or a higher memory.limit");
}

void HostHomes::give_room(int64_t bytes) {
  const MutexLock lock(room_);
  near_ -= bytes;
  room_changed_.notify_all();
}

void HostHomes::note_opened() {
  const MutexLock lock(room_);
  --opening_;
  room_changed_.notify_all();
}

// Room is taken before the window is locked: what makes room may be the window itself, on its way
// out. A lane that comes late may find that whoever waited has brought it, and stored it as well:
// what nobody uses stays away, since nobody would store it.
void HostHomes::bring(Home& home) {
  const MutexLock alone(home.bringing);
  const auto storage = home.storage.lock();
  {
    const MutexLock lock(home.moving);
    if (home.near || home.users == 0 || !storage) return;
  }
  take_room(home.bytes);
  open_in_room(home, [&] {
    std::memcpy(home.window->begin(), storage->data(), static_cast<size_t>(home.size));
  });
}

// For whom room was taken.
template <typename Fill>
void HostHomes::open_in_room(Home& home, const Fill& fill) {
  try {
    open(home, fill);
  } catch (...) {
    give_room(home.bytes);
    note_opened();
    throw;
  }
  note_opened();
}

template <typename Fill>
void HostHomes::open(Home& home, const Fill& fill) {
  const MutexLock lock(home.moving);
  if (home.users == 0) return give_room(home.bytes);
  home.window->open();
  fill();
  home.near = true;
}

void HostHomes::drop(Home& home) {
  const MutexLock lock(home.moving);
  if (home.users > 0 || !home.near) return;
  const auto storage = home.storage.lock();
  if (std::exchange(home.written, false) && storage) {
    std::memcpy(const_cast<void*>(static_cast<const void*>(storage->data())), home.window->begin(),
                static_cast<size_t>(home.size));
  }
  home.window->close();
  home.near = false;
  give_room(home.bytes);
}

void HostHomes::start_drop(Homes homes) {
  {
    const MutexLock lock(room_);
    ++going_;
  }
  stores_.start([this, homes = std::move(homes)] {
    for (const auto& home : homes) drop(*home);
    const MutexLock lock(room_);
    --going_;
    room_changed_.notify_all();
  });
}

// Where a window finds no room here, whoever waits for it tries again, and hears of it.
void HostHomes::fetch(const std::vector<at::Tensor>& parameters, Part part, Access /*access*/) {
  Homes homes = of(parameters, part);
  if (homes.empty()) return;
  for (const auto& home : homes) ++home->users;
  fetches_.start([this, homes = std::move(homes)] {
    for (const auto& home : homes) {
      if (home->users > 0) bring(*home);
    }
  });
}

// Whatever the lane has not begun with is brought by whoever needs it.
void HostHomes::wait(const std::vector<at::Tensor>& parameters, Part part, Access /*access*/) {
  for (const auto& home : of(parameters, part)) bring(*home);
}

void HostHomes::store(const std::vector<at::Tensor>& parameters, Part part) {
  Homes going;
  for (const auto& home : of(parameters, part)) {
    int users = home->users;
    while (users > 0 && !home->users.compare_exchange_weak(users, users - 1)) {
    }
    if (users == 1) going.push_back(home);
  }
  if (!going.empty()) start_drop(std::move(going));
}

at::Tensor HostHomes::window(const at::Tensor& tensor) {
  const MutexLock lock(mutex_);
  const std::shared_ptr<Home> home = find(tensor);
  if (home == nullptr) return tensor;
  const auto key = c10::computeDispatchKey(tensor.scalar_type(), c10::kStrided, c10::kCPU);
  at::Tensor window = at::detail::make_tensor<c10::TensorImpl>(
      home->window->storage(), c10::DispatchKeySet(key), tensor.dtype());
  window.unsafeGetTensorImpl()->set_sizes_and_strides(tensor.sizes(), tensor.strides());
  return window;
}

// What nobody has fetched an update writes where it rests; it is not to be near then, so that there
// is one copy.
void* HostHomes::to_be_written(void* data) {
  std::shared_ptr<Home> home;
  {
    const MutexLock lock(mutex_);
    home = find(data);
  }
  if (home == nullptr) return data;
  if (home->users == 0) {
    drop(*home);
    return data;
  }
  bring(*home);
  const MutexLock lock(home->moving);
  home->written = true;
  return home->window->begin();
}

void HostHomes::begin(int64_t most_near) {
  rest();
  const MutexLock lock(room_);
  limit_ = most_near;
}

void HostHomes::finish_lanes() {
  fetches_.start([] {})->wait();
  stores_.start([] {})->wait();
}

void HostHomes::rest() {
  Homes all;
  {
    const MutexLock lock(mutex_);
    for (auto entry = homes_.begin(); entry != homes_.end();) {
      all.push_back(entry->second);
      all.back()->users = 0;
      entry = all.back()->storage.expired() ? homes_.erase(entry) : std::next(entry);
    }
  }
  finish_lanes();
  for (const auto& home : all) drop(*home);
}

int64_t HostHomes::near() const {
  const MutexLock lock(room_);
  return near_;
}

void HostHomes::begin_lap() {
  const MutexLock lock(room_);
  most_near_ = near_;
}

int64_t HostHomes::most_near() const {
  const MutexLock lock(room_);
  return most_near_;
}

}  // namespace epl
