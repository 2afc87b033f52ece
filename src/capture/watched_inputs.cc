#include "capture/watched_inputs.h"

#include <c10/core/CPUAllocator.h>
#include <c10/core/GradMode.h>
#include <signal.h>
#include <sys/mman.h>
#include <unistd.h>

#include <utility>

#include "capture/ghost.h"

namespace epl {

struct WatchedInputs::Mapping {
  explicit Mapping(size_t size)
      : begin(mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0)),
        bytes(size) {}
  ~Mapping() {
    if (begin != MAP_FAILED) munmap(begin, bytes);
  }
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;

  bool holds(const void* address) const {
    const auto* const from = static_cast<const char*>(begin);
    const auto* const at = static_cast<const char*>(address);
    return at >= from && at < from + bytes;
  }

  void* begin;
  size_t bytes;
};

// A handler of signals may do little: it looks at the pages of the batch that is being recorded,
// notes the input and opens them. A fault that is none of ours is whatever it was before.
struct FaultHandler {
  static inline std::atomic<WatchedInputs*> current{nullptr};
  static inline struct sigaction before {};

  static void install(WatchedInputs& inputs) {
    current = &inputs;
    struct sigaction action {};
    action.sa_sigaction = &handle;
    action.sa_flags = SA_SIGINFO | SA_ONSTACK;
    sigemptyset(&action.sa_mask);
    sigaction(SIGSEGV, &action, &before);
  }

  static void uninstall() {
    sigaction(SIGSEGV, &before, nullptr);
    current = nullptr;
  }

  static void handle(int number, siginfo_t* info, void* context) {
    WatchedInputs* const inputs = current;
    if (inputs == nullptr || !inputs->note(info->si_addr)) hand_on(number, info, context);
  }

  static void hand_on(int number, siginfo_t* info, void* context) {
    if ((before.sa_flags & SA_SIGINFO) != 0) {
      before.sa_sigaction(number, info, context);
    } else if (before.sa_handler != SIG_DFL && before.sa_handler != SIG_IGN) {
      before.sa_handler(number);
    } else {
      sigaction(number, &before, nullptr);  // the access faults again, and ends the process
    }
  }
};

// The same tensor in pages of its own, whose storage is like any other.
at::Tensor WatchedInputs::in_pages(const at::Tensor& copy, std::shared_ptr<Mapping>& mapping) {
  const auto page = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  const size_t bytes = copy.storage().nbytes();
  mapping = std::make_shared<Mapping>((bytes + page - 1) / page * page);
  if (mapping->begin == MAP_FAILED) return copy;
  using Owner = std::shared_ptr<Mapping>;
  c10::DataPtr data(
      mapping->begin, new Owner(mapping), [](void* owner) { delete static_cast<Owner*>(owner); },
      c10::kCPU);
  const c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, std::move(data),
                             c10::GetCPUAllocator(), /*resizable=*/true);
  at::Tensor result = at::empty({0}, copy.options());
  result.set_(storage, 0, copy.sizes(), copy.strides());
  return result.copy_(copy);
}

WatchedInputs::WatchedInputs(const Batch& batch) {
  const c10::AutoGradMode no_grad(false);
  for (size_t i = 0; i < batch.size(); ++i) {
    at::Tensor copy = batch[i].detach().clone();
    const bool plain_memory = copy.layout() == c10::kStrided && copy.device().is_cpu() &&
                              copy.numel() > 0 && !copy.is_quantized() && !is_ghost(copy);
    if (plain_memory) {
      std::shared_ptr<Mapping> mapping;
      copy = in_pages(copy, mapping);
      if (mapping->begin != MAP_FAILED) pages_.push_back({std::move(mapping), i});
    }
    // A penalty on the gradient in the batch asks for one.
    batch_.push_back(copy.requires_grad_(batch[i].requires_grad()));
  }
}

WatchedInputs::~WatchedInputs() {
  open();
  if (handles_faults_) FaultHandler::uninstall();
}

// Whether the address is one of its own, which is noted, and all pages are opened for good.
bool WatchedInputs::note(const void* address) {
  for (const Pages& pages : pages_) {
    if (!pages.mapping->holds(address)) continue;
    int64_t none = -1;
    touched_.compare_exchange_strong(none, static_cast<int64_t>(pages.input));
    protect(PROT_READ | PROT_WRITE);
    return true;
  }
  return false;
}

void WatchedInputs::protect(int access) const {
  for (const Pages& pages : pages_) mprotect(pages.mapping->begin, pages.mapping->bytes, access);
}

void WatchedInputs::close() {
  if (closed_ || pages_.empty() || touched()) return;
  if (!std::exchange(handles_faults_, true)) FaultHandler::install(*this);
  closed_ = true;
  protect(PROT_NONE);
}

void WatchedInputs::open() {
  if (std::exchange(closed_, false)) protect(PROT_READ | PROT_WRITE);
}

std::optional<size_t> WatchedInputs::touched() const {
  const int64_t input = touched_;
  if (input < 0) return std::nullopt;
  return static_cast<size_t>(input);
}

}  // namespace epl
