// How what crosses from one stage of a pipeline to another is cut over their devices.
#pragma once

#include "plan/crossings.h"
#include "plan/lower.h"
#include "program/program.h"

namespace epl {

// Who has which of `rows` that are cut evenly over the devices of both ends, in the order of the
// senders. An end that is not cut has all of them on each device.
struct TransferEnd {
  int devices = 1;
  bool is_cut = true;
};
std::vector<Transfer::Rows> common_rows(int64_t rows, TransferEnd from, TransferEnd to);

// Where both roles have as many devices each device has one peer; else rows are gathered and cut
// anew along the dimension in which they lie. Throws epl::Error for a value without dimensions.
Transfer make_transfer(const Crossing& crossing, const Role& from, const Role& to);

}  // namespace epl
