#include "runtime/file_homes.h"

#include <ATen/Functions.h>

#include <chrono>
#include <cstring>
#include <thread>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "runtime/pages.h"

namespace epl {

struct FileHomes::Home {
  Home(const std::shared_ptr<HomeFile>& in, const void* at, int64_t size)
      : file(in), begin(at), bytes(HomeFile::rounded(size)) {}

  // The tensor holds it: gone with the last one that lies there.
  const std::weak_ptr<HomeFile> file;
  const void* const begin;
  const int64_t bytes;
  std::atomic<int> users{0};  // that have fetched and not stored
  Mutex moving;               // whoever brings or drops it
  bool near EPL_GUARDED_BY(moving) = false;
  Homes states;  // of a parameter; guarded by FileHomes::mutex_
};

namespace {

constexpr auto kLongestWaitForTheDisk = std::chrono::seconds(30);

[[noreturn]] void refuse_to_go_on(const std::string& folder, const char* what, int error) {
  throw Error(concat("cannot ", what, " what is offloaded: ", std::strerror(error)),
              concat("offload.path = \"", folder, "\""), "another disk");
}

int64_t storage_bytes(const at::Tensor& tensor) {
  return static_cast<int64_t>(tensor.storage().nbytes());
}

}  // namespace

FileHomes::FileHomes(std::string folder, Watch& watch)
    : folder_(std::move(folder)),
      in_memory_(HomeFile::make(folder_, 0)->in_memory()),
      reads_("epl fetch", watch),
      writes_("epl store", watch) {}

FileHomes::~FileHomes() = default;

std::shared_ptr<FileHomes::Home> FileHomes::find(const at::Tensor& tensor) const {
  if (!tensor.defined() || !tensor.has_storage()) return nullptr;
  const auto found = homes_.find(tensor.storage().data());
  const bool here = found != homes_.end() && HomeFile::is_home(tensor.storage().data_ptr()) &&
                    !found->second->file.expired();
  return here ? found->second : nullptr;
}

bool FileHomes::has(const at::Tensor& tensor) const {
  const MutexLock lock(mutex_);
  return find(tensor) != nullptr;
}

// What lay at this address before is gone: the storage that it belonged to has other memory now.
std::shared_ptr<FileHomes::Home> FileHomes::add(const std::shared_ptr<HomeFile>& file,
                                                const void* begin, int64_t bytes) {
  auto home = std::make_shared<Home>(file, begin, bytes);
  homes_[begin] = home;
  return home;
}

void FileHomes::reserve(int64_t bytes) {
  const MutexLock lock(mutex_);
  if (bytes == 0) {
    for_states_ = nullptr;
  } else if (for_states_ == nullptr || !for_states_->has_room(bytes)) {
    for_states_ = HomeFile::make(folder_, bytes);
  }
}

void FileHomes::take_in(const std::vector<at::Tensor>& tensors) {
  const MutexLock lock(mutex_);
  int64_t all = 0;
  for (const at::Tensor& tensor : tensors) all += HomeFile::rounded(storage_bytes(tensor));
  if (all == 0) return;
  const std::shared_ptr<HomeFile> file = HomeFile::make(folder_, all);
  constexpr int64_t kAtOnce = 64 << 20;
  int64_t going = 0;
  Homes taken;
  for (const at::Tensor& tensor : tensors) {
    const int64_t bytes = storage_bytes(tensor);
    c10::DataPtr memory = file->take(bytes);
    std::memcpy(memory.get(), tensor.storage().data(), static_cast<size_t>(bytes));
    const std::shared_ptr<Home> home = add(file, memory.get(), bytes);
    const c10::Storage storage = tensor.storage();
    storage.unsafeGetStorageImpl()->set_data_ptr(std::move(memory));
    taken.push_back(home);
    if (going + bytes > kAtOnce) start_drop(std::exchange(taken, {}));
    going = taken.empty() ? 0 : going + bytes;
  }
  start_drop(std::move(taken));
}

void FileHomes::set_states(const at::Tensor& parameter, const std::vector<at::Tensor>& states) {
  const MutexLock lock(mutex_);
  const std::shared_ptr<Home> home = find(parameter);
  if (home == nullptr) return;
  home->states.clear();
  for (const at::Tensor& state : states) {
    if (std::shared_ptr<Home> own = find(state)) home->states.push_back(std::move(own));
  }
}

at::Tensor FileHomes::zeros_for(const at::Tensor& parameter) {
  const MutexLock lock(mutex_);
  const auto bytes = static_cast<int64_t>(parameter.nbytes());
  const std::shared_ptr<HomeFile> file = for_states_;
  const bool fits = file != nullptr && file->has_room(bytes);
  if (!fits || !parameter.is_non_overlapping_and_dense()) return zeros_by_page(parameter);
  auto memory = std::make_unique<c10::DataPtr>(file->take(bytes));
  const std::shared_ptr<Home> home = add(file, memory->get(), bytes);
  if (const std::shared_ptr<Home> own = find(parameter)) own->states.push_back(home);
  at::Tensor zeros = at::empty({0}, parameter.options().requires_grad(false));
  c10::StorageImpl* const storage = zeros.storage().unsafeGetStorageImpl();
  storage->set_data_ptr(std::move(*memory));
  storage->set_nbytes(static_cast<size_t>(bytes));
  zeros.unsafeGetTensorImpl()->set_sizes_and_strides(parameter.sizes(), parameter.strides());
  return zeros;
}

FileHomes::Homes FileHomes::of(const std::vector<at::Tensor>& parameters, Part part) const {
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

// Bytes are counted before their pages come, so that the account is never behind the system's.
bool FileHomes::take_room(int64_t bytes, Patience patience) {
  int64_t near = near_;
  do {
    const bool too_much = near + bytes > allowed_ && going_ > 0 && error_ == 0;
    if (too_much && patience == Patience::kWaits) return false;
  } while (!near_.compare_exchange_weak(near, near + bytes));
  int64_t most = most_near_;
  while (near + bytes > most && !most_near_.compare_exchange_weak(most, near + bytes)) {
  }
  return true;
}

// What was read could be dropped before it is used only where it is not in use; what a lane that
// comes late would bring, after whoever waited has stored it, nobody would store. False: there is
// no room yet. Nobody waits for room with the home locked: it may be among what is about to go.
bool FileHomes::try_bring(Home& home, Access access, Patience patience) {
  const MutexLock lock(home.moving);
  const std::shared_ptr<HomeFile> file = home.file.lock();
  if (home.near || home.users == 0 || file == nullptr) return true;
  if (!take_room(home.bytes, patience)) return false;
  const int error = file->fetch(home.begin, home.bytes, access == Access::kWrite);
  if (error != 0) {
    near_ -= home.bytes;
    refuse_to_go_on(folder_, "read", error);
  }
  home.near = true;
  return true;
}

// The lane that drops waits for nobody but the disk.
void FileHomes::bring(Home& home, Access access) {
  const auto end = std::chrono::steady_clock::now() + kLongestWaitForTheDisk;
  while (std::chrono::steady_clock::now() < end) {
    if (try_bring(home, access, Patience::kWaits)) return;
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
  try_bring(home, access, Patience::kComesNow);
}

void FileHomes::drop(Home& home) {
  const MutexLock lock(home.moving);
  const std::shared_ptr<HomeFile> file = home.file.lock();
  if (home.users > 0 || error_ != 0) return;
  const int error = file == nullptr ? 0 : file->release(home.begin, home.bytes);
  if (error != 0) {
    int none = 0;
    error_.compare_exchange_strong(none, error);
    return;
  }
  if (std::exchange(home.near, false)) near_ -= home.bytes;
}

void FileHomes::start_drop(Homes homes) {
  for (const auto& home : homes) going_ += home->bytes;
  writes_.start([this, homes = std::move(homes)] {
    for (const auto& home : homes) {
      const std::shared_ptr<HomeFile> file = home->file.lock();
      if (file != nullptr && home->users == 0) file->start_writing(home->begin, home->bytes);
    }
    for (const auto& home : homes) {
      drop(*home);
      going_ -= home->bytes;
    }
  });
}

void FileHomes::settle() const {
  const auto end = std::chrono::steady_clock::now() + kLongestWaitForTheDisk;
  while (going_ > 0 && error_ == 0 && std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::microseconds(200));
  }
}

// Where reading fails here, whoever waits for it tries again, and hears of it.
void FileHomes::fetch(const std::vector<at::Tensor>& parameters, Part part, Access access) {
  Homes homes = of(parameters, part);
  for (const auto& home : homes) ++home->users;
  if (homes.empty()) return;
  reads_.start([this, access, homes = std::move(homes)] {
    for (const auto& home : homes) {
      const std::shared_ptr<HomeFile> file = home->file.lock();
      if (file != nullptr) file->start_reading(home->begin, home->bytes);
    }
    for (const auto& home : homes) {
      if (home->users > 0) bring(*home, access);
    }
  });
}

// Whatever the lane has not begun with is brought by whoever needs it, and in as little memory.
void FileHomes::wait(const std::vector<at::Tensor>& parameters, Part part, Access access) {
  if (access == Access::kRead) check_written();
  for (const auto& home : of(parameters, part)) bring(*home, access);
}

void FileHomes::store(const std::vector<at::Tensor>& parameters, Part part) {
  Homes going;
  for (const auto& home : of(parameters, part)) {
    int users = home->users;
    while (users > 0 && !home->users.compare_exchange_weak(users, users - 1)) {
    }
    if (users > 1) continue;
    going.push_back(home);
  }
  if (!going.empty()) start_drop(std::move(going));
}

void FileHomes::check_written() const {
  const int error = error_;
  if (error != 0) refuse_to_go_on(folder_, "write", error);
}

void FileHomes::rest() {
  check_written();
  const MutexLock lock(mutex_);
  Homes all;
  for (auto entry = homes_.begin(); entry != homes_.end();) {
    all.push_back(entry->second);
    all.back()->users = 0;
    entry = all.back()->file.expired() ? homes_.erase(entry) : std::next(entry);
  }
  start_drop(std::move(all));
}

void FileHomes::begin_lap() { most_near_ = near_.load(); }

}  // namespace epl
