// The environment variables of EPL. Nothing else in the library reads the environment.
#pragma once

#include <map>
#include <string>

namespace epl {

// All variables whose names begin with EPL_.
std::map<std::string, std::string> epl_environment();

// EPL_DEVICES: the devices of this process; 1 where it is not set.
int devices_of_process();

// A variable of a known category that is no key, or one that is almost the name of a known
// variable, is a slip of the user's: an Error with the nearest name. EPL_ variables of other names
// are others'.
void check_variable_names(const std::map<std::string, std::string>& environment);

}  // namespace epl
