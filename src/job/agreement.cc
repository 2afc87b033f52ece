#include "job/agreement.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <map>
#include <sstream>

#include "base/check.h"
#include "base/hash.h"
#include "comm/protocol.h"
#include "layout/tensor_type.h"

namespace epl {
namespace {

std::string first_difference(const std::string& there, const std::string& here) {
  std::istringstream theirs(there);
  std::istringstream ours(here);
  std::string their_line;
  std::string our_line;
  for (int line = 1;; ++line) {
    const bool more_there = static_cast<bool>(std::getline(theirs, their_line));
    const bool more_here = static_cast<bool>(std::getline(ours, our_line));
    if (more_there && more_here && their_line == our_line) continue;
    return concat("line ", line, " is\n    ", more_here ? our_line : "(nothing)",
                  "\n  and on worker 0\n    ", more_there ? their_line : "(nothing)");
  }
}

}  // namespace

void check_same_on_all_workers(Job& job, const std::string& what, const std::string& text) {
  Membership* membership = job.membership();
  if (membership == nullptr) return;
  const auto hashes = membership->exchange(job.next_key(what), std::to_string(hash_of_text(text)));
  for (size_t worker = 1; worker < hashes.size(); ++worker) {
    if (hashes[worker] == hashes[0]) continue;
    const auto texts = membership->exchange(job.next_key(what + ", in full"), text);
    const std::string name =
        comm::name_of_worker(static_cast<int>(worker), membership->workers()[worker]);
    throw JobFailed(concat(name, " differs from worker 0 in ", what, ": its ",
                           first_difference(texts[0], texts[worker])),
                    "epl::Trainer::step",
                    "the same program, configuration and batch size on every worker");
  }
}

bool same_on_all_workers(Job& job, const std::string& what, const std::string& text) {
  if (job.membership() == nullptr) return true;
  const auto hashes =
      job.membership()->exchange(job.next_key(what), std::to_string(hash_of_text(text)));
  return std::all_of(hashes.begin(), hashes.end(),
                     [&](const std::string& hash) { return hash == hashes[0]; });
}

std::string text_of_first_worker(Job& job, const std::string& what, const std::string& text) {
  if (job.membership() == nullptr) return text;
  return job.membership()->exchange(job.next_key(what), text)[0];
}

std::vector<StepReport> exchange_reports(Communicator& workers, const StepReport& mine) {
  constexpr int64_t kNumbers = sizeof(StepReport) / sizeof(double);
  const auto count = static_cast<size_t>(workers.size());
  std::vector<StepReport> reports(count);
  const auto options = at::TensorOptions(at::kDouble);
  StepReport own = mine;
  workers.all_gather(
      at::from_blob(&own, {1, kNumbers}, options),
      at::from_blob(reports.data(), {static_cast<int64_t>(count), kNumbers}, options),
      std::vector<int64_t>(count, 1));
  return reports;
}

namespace {

// Where workers have drifted apart all of them see it.
void check_reports(const std::vector<StepReport>& reports, int64_t step) {
  struct Question {
    double StepReport::*number;
    const char* what;
    const char* hint;
  };
  static constexpr Question kQuestions[] = {
      {&StepReport::rows, "rows for each of its devices",
       "the same number of rows for each device of every worker: epl::DistributedSampler gives "
       "such batches, and drops or pads the last one"},
      {&StepReport::loads, "calls of trainer.load()",
       "trainer.load() on all workers, or on none: not inside of if (chief)"},
      {&StepReport::options, "other options of its optimizers (a learning rate, for one)",
       "schedulers and options that are changed on all workers alike: not inside of if (chief)"},
      {&StepReport::parameters, "other parameters",
       "parameters that are changed on all workers alike, and by the trainer: a file that is "
       "loaded or a layer that is set anew on one worker alone moves them apart"},
      {&StepReport::states, "other states of its optimizers",
       "torch::load(optimizer, ...) on all workers, or on none: with zero.level each goes on with "
       "its part of them"},
  };
  for (const Question& question : kQuestions) {
    for (size_t worker = 1; worker < reports.size(); ++worker) {
      const double here = reports[worker].*question.number;
      const double there = reports[0].*question.number;
      if (here == there || (std::isnan(here) && std::isnan(there))) continue;
      const bool counts =
          question.number == &StepReport::rows || question.number == &StepReport::loads;
      throw Error(counts ? concat("in step ", step, " worker ", worker, " has ", here, " ",
                                  question.what, " where worker 0 has ", there)
                         : concat("in step ", step, " worker ", worker, " has ", question.what,
                                  " than worker 0"),
                  "epl::Trainer::step", question.hint);
    }
  }
}

}  // namespace

StepReport sum_up(const std::vector<StepReport>& reports, int64_t step) {
  check_reports(reports, step);
  StepReport all = reports[0];
  for (size_t worker = 1; worker < reports.size(); ++worker) {
    const StepReport& each = reports[worker];
    all.loss += each.loss;
    all.wants_plain = std::max(all.wants_plain, each.wants_plain);
    all.has_recorded = std::min(all.has_recorded, each.has_recorded);
    all.drawn += each.drawn;
  }
  return all;
}

double largest_on_workers(Communicator& workers, MeetingAbout about, double value,
                          const std::string& conflict) {
  const at::Tensor most = at::full({1}, value, at::kDouble);
  workers.set_about(static_cast<int64_t>(about));
  try {
    workers.all_reduce({most}, ReduceOp::kMax);
  } catch (const JobFailed&) {
    throw;
  } catch (const Error&) {
    throw Error(conflict, "epl::Trainer::step",
                "what is read in C++ handed in as a tensor, or batches of one kind on all workers");
  }
  workers.set_about(0);
  return most.item<double>();
}

namespace {

// Of the numbers that a known optimizer reads in each step.
class OptionsHash {
 public:
  void add(double number) {
    uint64_t bits = 0;
    std::memcpy(&bits, &number, sizeof bits);
    hash_ = (hash_ ^ bits) * 1099511628211ULL;
  }
  double value() const { return static_cast<double>(hash_ >> 12); }  // exact in a double

 private:
  uint64_t hash_ = 14695981039346656037ULL;
};

}  // namespace

double fingerprint_of_options(const Model& model) {
  OptionsHash hash;
  for (const auto& optimizer : model.optimizers()) {
    for (size_t group = 0; group < optimizer->groups(); ++group) {
      const OptimizerRow* const row = optimizer->options_row(group);
      if (row == nullptr) continue;
      const OptionValues values = optimizer->options(group);
      for (size_t i = 0; i < row->options.size(); ++i) hash.add(values[i]);
    }
  }
  return hash.value();
}

double checksum_of_parameters(const Model& model, const SpreadParameters& spread) {
  const c10::AutoGradMode no_grad(false);
  double sum = 0;
  for (const auto& [name, tensor] : model.parameters()) {
    if (spread.is_spread(tensor)) continue;
    if (tensor.layout() == c10::kStrided) sum += tensor.detach().sum(at::kDouble).item<double>();
  }
  return sum;
}

double sampled_checksum(const Model& model, const SpreadParameters& spread) {
  const c10::AutoGradMode no_grad(false);
  OptionsHash hash;
  for (const auto& [name, tensor] : model.parameters()) {
    const bool readable = tensor.layout() == c10::kStrided && tensor.device().is_cpu() &&
                          tensor.scalar_type() == at::kFloat && tensor.numel() > 0 &&
                          tensor.is_non_overlapping_and_dense() && !spread.is_spread(tensor);
    if (!readable) continue;
    const float* const data = tensor.data_ptr<float>();
    const int64_t last = tensor.numel() - 1;
    for (int64_t i = 0; i <= 8; ++i) hash.add(data[last / 8 * i]);
    hash.add(data[last]);
  }
  return hash.value();
}

double fingerprint_of_states(const Model& model) {
  OptionsHash hash;
  for (const auto& optimizer : model.optimizers()) {
    if (optimizer->row() == nullptr) continue;
    for (size_t number = 0; number < optimizer->listed().size(); ++number) {
      const ParameterState state = optimizer->state(number);
      if (!state.exists || optimizer->is_partial(number)) continue;
      hash.add(static_cast<double>(number));
      if (state.step != nullptr) hash.add(static_cast<double>(*state.step));
    }
  }
  return hash.value();
}

std::string describe_model(const Model& model) {
  std::ostringstream out;
  for (const auto& [name, tensor] : model.all_tensors()) {
    out << name << ": " << tensor.scalar_type() << tensor.sizes() << "\n";
  }
  return out.str();
}

std::string describe_batch(const Batch& batch) {
  std::ostringstream out;
  for (size_t i = 0; i < batch.size(); ++i) {
    out << "tensor " << i << ": " << batch[i].scalar_type() << batch[i].sizes() << "\n";
  }
  return out.str();
}

void broadcast_model(Job& job, const Model& model) {
  if (job.workers() == nullptr) return;
  const c10::AutoGradMode no_grad(false);
  std::map<at::ScalarType, std::vector<std::pair<at::Tensor, at::Tensor>>> by_type;
  for (const auto& [name, tensor] : model.all_tensors()) {
    if (tensor.layout() != c10::kStrided || tensor.numel() == 0) continue;
    by_type[tensor.scalar_type()].emplace_back(tensor.detach(), tensor.detach().contiguous());
  }
  for (const auto& [type, pairs] : by_type) {
    std::vector<at::Tensor> travelling;
    for (const auto& [own, copy] : pairs) travelling.push_back(copy);
    job.workers()->broadcast(travelling, 0);
    for (const auto& [own, copy] : pairs) {
      if (copy.data_ptr() != own.data_ptr()) own.copy_(copy);
    }
  }
}

}  // namespace epl
