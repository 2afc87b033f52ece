// Parameters of which workers keep parts (zero.level = "v2"), for all trainers of a job.
//
// A parameter that is taken in has memory of its own (runtime/spread_tensor.h). It is whole, as any
// other, until a step whose plan spreads it: from then on each worker keeps its range. What others
// keep comes when a program fetches it; between steps the program's tensor is hidden
// (capture/hidden_tensor.h), so that nobody computes with what is not there. make_whole() brings
// all of it, and the program has its parameter again, until the next such step.
//
//   spread.take_in(names, model);
//   {
//     const SpreadParameters::Shown shown(spread);   // a step, or whoever else looks at storages
//     spread.settle(step);                            // each worker keeps its ranges
//     ...
//   }                                                 // hidden
//   spread.make_whole(connections);                   // on all workers together
//
// Workers spread the same parameters at the same time: all of this but show() and hide() follows
// from their plans, or is agreed upon.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "layout/state_home.h"
#include "model/model.h"
#include "runtime/bound_step.h"
#include "runtime/spread_tensor.h"

namespace epl {

class SpreadParameters {
 public:
  // By name: parameters that are taken in, or may be, since nobody else shows or holds their
  // memory. Alike on workers that run the same program.
  std::set<std::string> may_be_spread(const Model& model) const;
  // Those that some leaf of the plan names as spread get memory of their own.
  void take_in(const Plan& plan, const Model& model);

  // Before a step: of parameters that are whole, those whose memory somebody else holds now are
  // not spread any more; gives their names. A plan that was made with another version() may spread
  // what is not taken in any more.
  std::vector<std::string> let_go_of_held();
  int64_t version() const { return version_; }

  // The memory of a parameter that is taken in; null for others.
  std::shared_ptr<SpreadTensor> find(const at::Tensor& parameter) const;
  // Whether workers keep parts of it, or of any, now.
  bool is_spread(const at::Tensor& parameter) const;
  bool any_spread() const;
  int64_t count_spread() const;
  // In whose terms they lie; where there are any.
  const Placement& placement() const;

  // Before a step that is replayed, on all workers together: they keep parts of what its plan
  // spreads, and of what it reads besides, all.
  void settle(BoundStep& step, Connections& connections);
  // On all workers together: there is nothing that is not here.
  void make_whole(Connections& connections);

  NearAccount& account() { return account_; }

  // While it stands the program's tensors have their storages, with what is missing out of reach.
  class Shown {
   public:
    explicit Shown(SpreadParameters& parameters);
    ~Shown();
    Shown(const Shown&) = delete;
    Shown& operator=(const Shown&) = delete;

   private:
    SpreadParameters& parameters_;
  };
  // While it stands code of the program's runs in the midst of a step, and finds them hidden.
  class Aside {
   public:
    explicit Aside(SpreadParameters& parameters) : parameters_(parameters) { parameters_.hide(); }
    ~Aside() { parameters_.show_hidden(); }
    Aside(const Aside&) = delete;
    Aside& operator=(const Aside&) = delete;

   private:
    SpreadParameters& parameters_;
  };

 private:
  struct Entry {
    WeakTensor parameter;
    std::string name;
    int64_t number = 0;  // as they were taken in: the same on all workers
    std::shared_ptr<SpreadTensor> memory;
    // While workers keep parts of it.
    bool spread = false;
    int role = 0;
    Placement placement = {};
    at::Tensor shown = {};  // while it is hidden
  };
  using Entries = std::map<c10::TensorImpl*, Entry>;

  void forget_freed();
  static bool follow(const at::Tensor& parameter, Entry& entry);
  void keep_ranges(const BoundStep& step, const Connections& connections, int role, int leaf);
  void make_whole(const std::vector<Entry*>& entries, Connections& connections);
  void check_held_alone() const;
  void show_hidden();
  void follow_program();
  void hide();

  NearAccount account_;  // before what counts there
  Entries entries_;
  int64_t taken_in_ = 0;
  int64_t version_ = 0;
  int shown_ = 0;  // how many want it so
};

}  // namespace epl
