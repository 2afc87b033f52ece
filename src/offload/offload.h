// offload.level, as a trainer has it: which tensors of its model rest in a file (offload.path), or
// without one in the memory of the host.
//
// Before each step whatever may rest there does: parameters, and with v1 the states that optimizers
// keep for them. What the program has replaced since the last step is taken in again. All the rest
// (what is fetched when, and stored) stands in the plan.
#pragma once

#include <epl/config.h>

#include <map>
#include <memory>
#include <set>
#include <string>
#include <vector>

#include "compile/compile.h"
#include "ir/graph.h"
#include "job/job.h"
#include "model/model.h"
#include "program/program.h"
#include "runtime/tensor_homes.h"
#include "state/state_map.h"

namespace epl {

class Offload {
 public:
  // Null where offload.level is "". Takes all in that is there, between the steps of all trainers,
  // so that a folder that cannot be written to, or a disk that is full, is an error now. The model
  // and the job outlive it.
  static std::unique_ptr<Offload> make(const Config& config, Job& job, Model& model);

  TensorHomes& homes() const { return homes_; }
  bool is_in_file() const { return !homes_.has_windows(); }

  // Before a step: all that may rest does, and there is room for the states that the step may make,
  // so that no update can fail for want of it. Throws what FileHomes throws.
  void settle();
  // After a step, and whenever the model was read as a whole: nothing stays near.
  void rest() const { homes_.rest(); }

  // By name what is offloaded with this configuration, for a plan of what was recorded; and why
  // other parameters are not.
  CompileOptions::Offloaded offloaded(const Config& config, const Graph& recorded) const;
  // The same for a trainer that was made without: what would be, had it been made with it.
  static CompileOptions::Offloaded would_be_offloaded(const Config& config, const Model& model,
                                                      const Graph& recorded);
  void add_remarks(Plan& plan) const;
  // Says what rests; null: before there is a plan.
  void mark(StateMap& map, const Plan* plan) const;
  // Of what rests, but is in memory throughout a step, since the plan does not bring it: the step
  // itself writes it.
  int64_t bytes_written_by(const Plan& plan) const;

 private:
  enum class Level : uint8_t { kParameters, kStates };
  static Level level_of(const Config& config);
  Offload(Level level, TensorHomes& homes, Model& model)
      : level_(level), homes_(homes), model_(model) {}

  static TensorHomes& homes_of(const Config& config, Job& job);
  void make_states_here();
  void update_in_windows();
  void take_in_parameters();
  void take_in_states();
  void reserve_states();
  struct Resting {
    at::Tensor parameter;
    bool trained = false;  // some optimizer has it
  };
  using RestingByName = std::map<std::string, Resting>;
  RestingByName resting() const;
  static CompileOptions::Offloaded offloaded_of(const RestingByName& resting, const Config& config,
                                                const Model& model, const Graph& recorded);

  const Level level_;
  TensorHomes& homes_;
  Model& model_;
  std::map<std::string, std::string> staying_;  // by parameter: why it stays in memory
};

}  // namespace epl
