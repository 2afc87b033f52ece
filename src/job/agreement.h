// What all workers of a job must have alike: the model, the configuration, the plan.
#pragma once

#include <epl/step.h>

#include <string>
#include <vector>

#include "job/job.h"
#include "model/model.h"

namespace epl {

// Hands `text` to all workers and compares. Where one differs from worker 0 every worker throws,
// and names it with the first line that differs. `what`: "the plan".
void check_same_on_all_workers(Job& job, const std::string& what, const std::string& text);

// Whether all workers have the same text. All of them call it and get the same answer.
bool same_on_all_workers(Job& job, const std::string& what, const std::string& text);

// The text of worker 0. All workers call it; `what` tells it from other exchanges.
std::string text_of_first_worker(Job& job, const std::string& what, const std::string& text);

// What each worker says in each step of data it should have alike with the others.
struct StepReport {
  double loss = 0;          // its share of the mean of all
  double wants_plain = 0;   // 1: the next step should run plainly
  double has_recorded = 0;  // 1: it has what it takes to plan the step
  double rows = 0;          // for each of its devices; 0 where that does not matter
  double options = 0;       // a fingerprint of all options of the optimizers
  double loads = 0;         // how often it has loaded a checkpoint
  double parameters = 0;    // a checksum, in some steps
  double states = 0;        // of optimizers, that it has as a whole: a fingerprint; see zero.level
  double drawn = 0;         // random numbers, by all its devices
};

// The reports of all workers, in order. All of them call it.
std::vector<StepReport> exchange_reports(Communicator& workers, const StepReport& mine);

// What they say together: the loss, and all numbers that were drawn; whether one wants a plain
// step, and whether all have recorded. Throws epl::Error, on all workers alike, where they have
// drifted apart.
StepReport sum_up(const std::vector<StepReport>& reports, int64_t step);

// What workers may meet about in a step before its gradients (Communicator::set_about).
enum class MeetingAbout { kWholeParameters = -3, kGuards = -2, kRunsPlainly = -1 };

// The largest value of all workers. Where others do not meet about this, an Error that says
// `conflict`.
double largest_on_workers(Communicator& workers, MeetingAbout about, double value,
                          const std::string& conflict);

double fingerprint_of_options(const Model& model);
// Of parameters that are whole on each worker.
double checksum_of_parameters(const Model& model, const SpreadParameters& spread);
// The same of a few elements of each: for every step.
double sampled_checksum(const Model& model, const SpreadParameters& spread);
// Of the states that are whole here: which, and how many steps they have seen.
double fingerprint_of_states(const Model& model);

// Names and types of all parameters and buffers, one a line.
std::string describe_model(const Model& model);

// Types and shapes of its tensors, one a line.
std::string describe_batch(const Batch& batch);

// The parameters and buffers of worker 0 on all workers.
void broadcast_model(Job& job, const Model& model);

}  // namespace epl
