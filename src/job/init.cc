#include <epl/env.h>

#include "config/checks.h"
#include "config/env_state.h"
#include "config/environment.h"
#include "config/scopes.h"
#include "config/settings.h"
#include "job/job.h"
#include "model/plan_only.h"
#include "runtime/tile_products.h"

namespace epl {

void init(const Config& config, SourceLocation where) {
  check_no_scope_stands(where);
  check_available(config);
  check_has_effect(config);
  if (mixes_precisions(config)) avoid_tile_products();
  const JobPlace place = find_job_place();
  check_available_on(place.worker_num, config);
  auto job = std::make_shared<Job>(place, config, Job::current().get());
  Env env{job->cluster(), config};
  reset_annotations();
  Job::replace(std::move(job));
  replace_env(std::move(env));
  plan_only_where_asked(config, place.worker_num);
}

}  // namespace epl
