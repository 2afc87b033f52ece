#include "model/holders.h"

#include <utility>

namespace epl {

void Holders::watch(std::vector<at::Tensor> tensors,
                    std::vector<std::shared_ptr<const void>> modules) {
  tensors_ = std::move(tensors);
  modules_ = std::move(modules);
  counts_.assign(tensors_.size() + modules_.size(), Count());
  counted_ = false;
  let_go_ = false;
}

template <typename Look>
void Holders::for_each(const Look& look) {
  size_t next = 0;
  for (const auto& tensor : tensors_) look(counts_[next++], tensor.use_count());
  for (const auto& module : modules_) {
    look(counts_[next++], static_cast<size_t>(module.use_count()));
  }
}

void Holders::leave() {
  for_each([](Count& count, size_t now) { count.left = now; });
  counted_ = true;
}

void Holders::enter() {
  if (!counted_) return;
  for_each([&](Count& count, size_t now) {
    if (now == count.left) return;
    count.more += static_cast<int64_t>(now) - static_cast<int64_t>(count.left);
    if (count.more >= 0) return;
    count.more = 0;
    let_go_ = true;
  });
}

bool Holders::let_go() { return std::exchange(let_go_, false); }

}  // namespace epl
