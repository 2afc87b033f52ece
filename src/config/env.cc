#include <epl/env.h>

#include <optional>
#include <utility>

#include "base/check.h"
#include "config/env_state.h"

namespace epl {
namespace {

// The one Env of the process, which Env::get() promises to users. Written by init() only.
std::optional<Env>& the_env() {
  static std::optional<Env> env;
  return env;
}

}  // namespace

const Env& Env::get(SourceLocation where) {
  EPL_CHECK(the_env().has_value(), "epl::Env::get() is called before epl::init()",
            "epl::Env::get() at " + where.str(), "call epl::init() at the beginning of main()");
  return *the_env();
}

void replace_env(Env env) { the_env() = std::move(env); }

}  // namespace epl
