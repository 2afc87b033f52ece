#include "driver/gradient_history.h"

#include <algorithm>

#include "base/check.h"
#include "base/text.h"

namespace epl {

bool Home::operator==(const Home& other) const {
  const auto same = [](const Piece& a, const Piece& b) {
    return a.begin == b.begin && a.length == b.length;
  };
  return stages == other.stages && cut_dim == other.cut_dim &&
         std::equal(pieces.begin(), pieces.end(), other.pieces.begin(), other.pieces.end(), same);
}

void GradientHistory::add(const at::Tensor& parameter, const Home& home, const Asker& asker) {
  c10::TensorImpl* const impl = parameter.unsafeGetTensorImpl();
  const auto known = entries_.find(impl);
  if (known == entries_.end()) {
    forget_freed();
    entries_.emplace(impl,
                     Entry{WeakParameter(parameter.getIntrusivePtr()), home, asker.placement});
    ++version_;
    return;
  }
  Entry& entry = known->second;
  if (entry.home == home && entry.placement == asker.placement) return;
  entry.home = home;
  entry.placement = asker.placement;
  if (!asker.alone) ++version_;  // one worker has all of it, wherever it lies
}

// Rarely: programs that make many networks must not fill memory with what is left of them.
void GradientHistory::forget_freed() {
  if (entries_.size() < 2 * looked_through_ + 64) return;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    entry = entry->second.parameter.expired() ? entries_.erase(entry) : std::next(entry);
  }
  looked_through_ = entries_.size();
}

std::optional<Home> GradientHistory::find(const std::string& name, const at::Tensor& parameter,
                                          const Asker& asker) const {
  const auto known = entries_.find(parameter.unsafeGetTensorImpl());
  if (known == entries_.end()) {
    return parameter.grad().defined() ? std::make_optional(Home{{0}}) : std::nullopt;
  }
  const Entry& entry = known->second;
  if (entry.placement == asker.placement) return entry.home;
  const bool all_have_it = !entry.placement.has_roles() && !asker.placement.has_roles();
  EPL_CHECK(
      asker.alone || all_have_it,
      concat("`", name, "` and the state of its optimizer lie on stages of ",
             join(entry.placement.stage_devices, " + "),
             " devices, where another trainer put them, and this step has ",
             join(asker.placement.stage_devices, " + ")),
      asker.placement.asked_by,
      "the same strategies in all trainers that share an optimizer, or an optimizer for each");
  return Home{{0}};
}

void GradientHistory::for_each(
    const std::function<void(c10::TensorImpl*, const Home&)>& look) const {
  for (const auto& [parameter, entry] : entries_) look(parameter, entry.home);
}

}  // namespace epl
