// Which parameters devices may compute with a copy of (offload.level without offload.path).
//
// A window holds a parameter from a fetch to a store, and is no memory at other times. So whatever
// reads the parameter has to be an operator call, or an output of a segment, between the two; and
// nothing may write it, since a device would write its copy.
#pragma once

#include <map>
#include <string>

#include "program/program.h"

namespace epl {

// By name of a leaf: why no device of the plan may have a copy of it. What one program cannot have
// a copy of none has.
std::map<std::string, std::string> leaves_without_window(const Plan& plan);

}  // namespace epl
