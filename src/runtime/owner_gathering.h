// What owners have of parameters that several workers have alike comes to the others (zero.level):
// the parameters after an update, or the states of their optimizers for a file.
#pragma once

#include <ATen/core/Tensor.h>

#include <vector>

#include "runtime/held_parameters.h"

namespace epl {

// Elements in a row that several workers have alike, each of which owns some.
struct OwnedRow {
  at::Tensor row;
  Owners owners;
};
// What each worker owns comes to the others, in one call for all rows of a type. In the order of
// types, then of rows, which are the same on all members.
void gather_rows(const std::vector<OwnedRow>& rows, const Connections::Sharers& sharers,
                 Communicator& workers);

// Of all parameters with owners. `pieces_of` gives tensors that have a parameter's shape, equally
// many on all workers. All workers call it.
void gather_from_owners(const Connections& connections, const HeldParameters& held,
                        const PiecesOf& pieces_of);

// Which elements of a parameter, in the order in which it lies in memory, this worker keeps states
// of; none where others have all of it. Not of parameters that are cut over devices.
Piece owned_here(const Connections& connections, const HeldParameter& held);

// The workers that own some of a parameter, in order.
std::vector<int> owners_of(const Connections& connections, const Home& home);

}  // namespace epl
