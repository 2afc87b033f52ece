// Which parameters of this process some step gave a gradient, and where they lay then.
//
// In the plain loop of LibTorch 1 zero_grad() leaves zeros where a gradient once was, and the
// optimizer goes on with them: momentum, weight decay and moments of a head move on in the steps of
// other heads. So what one trainer gave a gradient is updated with zeros in the steps of every
// trainer whose optimizer holds it: the history is the process's, held by the Job and shared by its
// trainers. From LibTorch 2.0 on nothing is, and the history tells where the states of optimizers
// lie.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "layout/state_home.h"
#include "program/placement.h"

namespace epl {

class GradientHistory {
 public:
  // Whose step it is that gives gradients, or does not.
  struct Asker {
    const Placement& placement;
    bool alone;  // there is one worker, which has all
  };
  // A step gives it a gradient, and `home` is where it lies then. Throws epl::Error where LibTorch
  // 1 would add its gradients in the type that it once had, and where another trainer put it and
  // its optimizer's state on stages of several workers that are not the asker's: what those learnt
  // of it would be left behind.
  void add(const std::string& name, const at::Tensor& parameter, const Home& home,
           const Asker& asker);

  // The backward() of a trainer whose optimizers do not have this parameter reaches it: it has a
  // grad() from then on, as the discriminator has after a step of the generator.
  void add_reached(const at::Tensor& parameter);

  // The home of a parameter in a step that gives it no gradient; none where it never had one. One
  // that has a .grad() counts: the plain loop has trained it. Throws epl::Error where another
  // trainer put it and its optimizer's state on stages of several workers that are not the asker's.
  std::optional<Home> find(const std::string& name, const at::Tensor& parameter,
                           const Asker& asker) const;

  // Whether workers keep parts of its optimizer's states (zero.level).
  bool has_owners(const at::Tensor& parameter) const;

  // Grows with whatever is added: who has looked before then looks again.
  int64_t version() const { return version_; }

  // A parameter that had a gradient, where it lies, and in the terms of whose placement.
  struct Lies {
    const c10::TensorImpl* parameter;
    const Home& home;
    const Placement& placement;
  };
  void for_each(const std::function<void(const Lies& lies)>& look) const;

 private:
  // The weak reference keeps an address from coming back as that of another parameter.
  using WeakParameter = c10::weak_intrusive_ptr<c10::TensorImpl>;
  struct Entry {
    WeakParameter parameter;
    Home home;
    Placement placement;
    at::ScalarType type;  // of its first gradient
  };
  static void check_type(const std::string& name, const at::Tensor& parameter, const Entry& entry);
  [[noreturn]] static void throw_lies_elsewhere(const std::string& name, const Entry& entry,
                                                const Asker& asker);
  void forget_freed();

  std::map<c10::TensorImpl*, Entry> entries_;
  std::map<c10::TensorImpl*, WeakParameter> reached_;
  size_t looked_through_ = 0;  // entries that were left when the freed ones were last forgotten
  int64_t version_ = 0;
};

}  // namespace epl
