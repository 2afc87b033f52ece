#include <epl/env.h>

#include <optional>
#include <utility>

#include "base/check.h"
#include "base/text.h"
#include "config/checks.h"
#include "config/environment.h"
#include "config/scopes.h"

namespace epl {
namespace {

// The one Env of the process, which Env::get() promises to users. Written by init() only.
std::optional<Env>& the_env() {
  static std::optional<Env> env;
  return env;
}

Cluster find_cluster() {
  Cluster cluster;
  cluster.total_gpu_num = devices_of_process();
  EPL_CHECK(cluster.total_gpu_num == 1,
            concat(cluster.total_gpu_num, " devices: more than one device is not available yet"),
            concat("EPL_DEVICES=", cluster.total_gpu_num, " (environment)"), "EPL_DEVICES=1");
  return cluster;
}

}  // namespace

const Env& Env::get(SourceLocation where) {
  EPL_CHECK(the_env().has_value(), "epl::Env::get() is called before epl::init()",
            "epl::Env::get() at " + where.str(), "call epl::init() at the beginning of main()");
  return *the_env();
}

void init(const Config& config, SourceLocation where) {
  check_no_scope_stands(where);
  check_available(config);
  Env env{find_cluster(), config};
  reset_annotations();
  the_env() = std::move(env);
}

}  // namespace epl
