// Where epl::init() puts what Env::get() shows.
#pragma once

#include <epl/env.h>

namespace epl {

void replace_env(Env env);

}  // namespace epl
