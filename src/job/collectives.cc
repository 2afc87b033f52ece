#include <ATen/Functions.h>
#include <c10/core/GradMode.h>
#include <epl/collectives.h>

#include <map>

#include "base/check.h"
#include "config/scopes.h"
#include "job/job.h"

namespace epl {
namespace {

std::shared_ptr<Job> job_of(const std::string& caller) {
  const std::string asked_by = "epl::" + caller;
  EPL_CHECK(!is_recording_taskgraphs(),
            concat(caller, " stands in a step function, which is not run in every step"), asked_by,
            "between steps; metrics are merged by GLOBAL_ collections");
  std::shared_ptr<Job> job = Job::current();
  EPL_CHECK(job != nullptr, concat(caller, " is called before epl::init()"), asked_by,
            "call epl::init() at the beginning of main()");
  job->watch().check();
  return job;
}

ReduceOp reduction_of(const std::string& how, const at::Tensor& tensor) {
  static const std::map<std::string, ReduceOp> all = {{"sum", ReduceOp::kSum},
                                                      {"mean", ReduceOp::kMean},
                                                      {"max", ReduceOp::kMax},
                                                      {"min", ReduceOp::kMin},
                                                      {"prod", ReduceOp::kProd}};
  const auto found = all.find(how);
  EPL_CHECK(found != all.end(), concat("there is no reduction \"", how, "\""), "epl::all_reduce",
            "\"sum\", \"mean\", \"max\", \"min\" or \"prod\"");
  EPL_CHECK(found->second != ReduceOp::kMean || tensor.is_floating_point(),
            concat("the mean of a tensor of ", tensor.dtype(), " would have to be rounded"),
            "epl::all_reduce", "its \"sum\", or the tensor as kDouble");
  return found->second;
}

}  // namespace

at::Tensor all_reduce(const at::Tensor& tensor, const std::string& how) {
  const std::shared_ptr<Job> job = job_of("all_reduce");
  EPL_CHECK(tensor.defined() && tensor.layout() == at::kStrided,
            "the tensor is undefined or sparse", "epl::all_reduce",
            "a dense tensor, such as sparse.to_dense()");
  const ReduceOp op = reduction_of(how, tensor);
  const c10::AutoGradMode no_grad(false);
  at::Tensor result = at::empty_like(tensor, at::MemoryFormat::Contiguous).copy_(tensor.detach());
  if (job->workers() != nullptr) job->workers()->all_reduce({result}, op);
  return result;
}

void barrier() {
  const std::shared_ptr<Job> job = job_of("barrier");
  if (job->workers() != nullptr) job->workers()->barrier();
}

}  // namespace epl
