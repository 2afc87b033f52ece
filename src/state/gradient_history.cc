#include "state/gradient_history.h"

#include "base/check.h"
#include "base/text.h"
#include "config/libtorch.h"

namespace epl {

// zero_grad() of LibTorch 1 keeps a gradient's memory, so net->to(kDouble) in mid-training leaves
// gradients of single precision behind, which autograd goes on adding into.
void GradientHistory::check_type(const std::string& name, const at::Tensor& parameter,
                                 const Entry& entry) {
  EPL_CHECK(!kZeroGradLeavesZeros || entry.type == parameter.scalar_type(),
            concat("`", name, "` is of type ", parameter.scalar_type(),
                   " and had its first gradient as ", entry.type, ": LibTorch ",
                   TORCH_VERSION_MAJOR, " goes on adding gradients of the old type"),
            "epl::Trainer", "net->to(type) before the first step");
}

void GradientHistory::throw_lies_elsewhere(const std::string& name, const Entry& entry,
                                           const Asker& asker) {
  throw Error(concat("`", name, "` and the state of its optimizer lie on stages of ",
                     join(entry.placement.role_devices, " + "),
                     " devices, where another trainer put them, and this step has ",
                     join(asker.placement.role_devices, " + ")),
              asker.placement.asked_by,
              "the same strategies in all trainers that share an optimizer, or an optimizer for "
              "each; to go on with others, trainer.save(), and load() with a new network");
}

// Where no device had a role of its own every worker has all of it, and any part may take it.
void GradientHistory::add(const std::string& name, const at::Tensor& parameter, const Home& home,
                          const Asker& asker) {
  c10::TensorImpl* const impl = parameter.unsafeGetTensorImpl();
  const auto known = entries_.find(impl);
  if (known == entries_.end()) {
    forget_freed();
    entries_.emplace(impl, Entry{WeakParameter(parameter.getIntrusivePtr()), home, asker.placement,
                                 parameter.scalar_type()});
    ++version_;
    return;
  }
  Entry& entry = known->second;
  check_type(name, parameter, entry);
  if (entry.home == home && entry.placement == asker.placement) return;
  const bool all_had_it = !entry.placement.has_roles() && entry.home.owners.are_all();
  const bool moves = !(entry.placement == asker.placement) && !all_had_it;
  if (moves && !asker.alone) throw_lies_elsewhere(name, entry, asker);
  EPL_CHECK(entry.home.owners.are_all() || entry.home.owners == home.owners,
            concat("workers keep parts of the states of `", name,
                   "`, as an earlier step has cut them, and this one would update it otherwise"),
            "zero.level",
            "the same zero.level in all trainers of a process; to go on with another one, "
            "trainer.save(), and load() with a new network");
  entry.home = home;
  entry.placement = asker.placement;
  if (!asker.alone) ++version_;  // one worker has all of it, wherever it lies
}

bool GradientHistory::has_owners(const at::Tensor& parameter) const {
  const auto known = entries_.find(parameter.unsafeGetTensorImpl());
  return known != entries_.end() && !known->second.home.owners.are_all();
}

void GradientHistory::add_reached(const at::Tensor& parameter) {
  c10::TensorImpl* const impl = parameter.unsafeGetTensorImpl();
  if (reached_.count(impl) != 0) return;
  forget_freed();
  reached_.emplace(impl, WeakParameter(parameter.getIntrusivePtr()));
  ++version_;
}

// Rarely: programs that make many networks must not fill memory with what is left of them.
void GradientHistory::forget_freed() {
  if (entries_.size() + reached_.size() < 2 * looked_through_ + 64) return;
  for (auto entry = entries_.begin(); entry != entries_.end();) {
    entry = entry->second.parameter.expired() ? entries_.erase(entry) : std::next(entry);
  }
  for (auto entry = reached_.begin(); entry != reached_.end();) {
    entry = entry->second.expired() ? reached_.erase(entry) : std::next(entry);
  }
  looked_through_ = entries_.size() + reached_.size();
}

std::optional<Home> GradientHistory::find(const std::string& name, const at::Tensor& parameter,
                                          const Asker& asker) const {
  c10::TensorImpl* const impl = parameter.unsafeGetTensorImpl();
  const auto known = entries_.find(impl);
  if (known == entries_.end()) {
    const bool had = parameter.grad().defined() || reached_.count(impl) != 0;
    return had ? std::make_optional(Home{{0}}) : std::nullopt;
  }
  const Entry& entry = known->second;
  check_type(name, parameter, entry);
  if (entry.placement == asker.placement) return entry.home;
  const bool all_have_it =
      !entry.placement.has_roles() && !asker.placement.has_roles() && entry.home.owners.are_all();
  if (!asker.alone && !all_have_it) throw_lies_elsewhere(name, entry, asker);
  return Home{{0}};
}

void GradientHistory::for_each(const std::function<void(const Lies& lies)>& look) const {
  for (const auto& [parameter, entry] : entries_) look({parameter, entry.home, entry.placement});
}

}  // namespace epl
