// Optimizer states of which each worker keeps what it updates (zero.level).
//
// A state of which others have a part or all is marked as such (ModelOptimizer::set_partial), so
// that a program that saves its optimizer by itself is told what to call instead of getting a file
// with zeros.
#pragma once

#include <map>
#include <optional>
#include <string>

#include "model/model.h"
#include "runtime/connections.h"
#include "runtime/held_parameters.h"
#include "state/gradient_history.h"

namespace epl {

// Before an update: what others keep takes no memory here. Where a program or a file has brought
// whole states in, each worker goes on with its part of them.
void keep_owned_states(const Model& model, const Connections& connections,
                       const HeldParameters& held);

// Brings whole states to all workers that have a parameter, or to the first of them. All workers
// call it. The others hold no more than the states of one parameter besides their own meanwhile.
enum class StatesTo : uint8_t { kAll, kFirst };
void gather_owned_states(const Model& model, const Connections& connections,
                         const HeldParameters& held, StatesTo to);

// The parameters of a model with owners, as steps have put them, for whoever has no Plan at hand.
class PartsOfOwners {
 public:
  // `connections`: null before there was a step that needs them.
  PartsOfOwners(const Model& model, const Connections* connections, const GradientHistory& history);

  // What this worker updates of a parameter, where others update the rest.
  bool empty() const { return held_.empty(); }
  std::optional<Piece> owned(const at::Tensor& parameter) const;
  const Placement& placement() const { return placement_; }  // by which they were put there
  void keep_states() const;
  void gather_states(StatesTo to) const;
  void gather_parameters() const;

 private:
  const Connections& connections() const;

  const Model& model_;
  const Connections* const connections_;
  Placement placement_;
  HeldParameters held_;  // in the order of the model, so that all workers have the same
};

// By name: parameters whose update may look at all of them, or at other memory besides, with the
// reason.
std::map<std::string, std::string> updated_whole(const Model& model);

}  // namespace epl
