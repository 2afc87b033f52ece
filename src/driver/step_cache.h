// StepCache: the steps that were recorded and compiled so far, by the shape of their batch.
//
// A step is recorded when a batch of a new shape, or another mode of the modules, comes along, and
// again where a guard of the recording fails or a variable that it reads was assigned another
// tensor.
#pragma once

#include <epl/step.h>
#include <epl/trainer.h>

#include <map>
#include <memory>
#include <optional>
#include <set>
#include <stdexcept>
#include <string>
#include <vector>

#include "batch/written_batch.h"
#include "capture/same_step.h"
#include "compile/auto_stages.h"
#include "compile/compile.h"
#include "compile/placement.h"
#include "driver/ready_step.h"
#include "job/job.h"
#include "model/owned_states.h"
#include "offload/offload.h"
#include "runtime/clip.h"

namespace epl {

// This step cannot be run by a recording. The plain program can run it.
class CannotReplay : public std::runtime_error {
 public:
  using std::runtime_error::runtime_error;
};

class StepCache {
 public:
  struct Subject {
    Model& model;
    const StepFunction& function;
    const Config& config;
    Job& job;
    LocalReplicas& replicas;
    const ClipOptions& clipping;
    // The gradient of a micro batch's loss, where every device is a replica; a loss scale changes
    // it.
    std::function<double()> plain_seed;
    Offload* offload = nullptr;  // null where nothing is offloaded
  };
  explicit StepCache(const Subject& subject) : subject_(subject) {}

  // The recording for this batch, made where there is none. It has this worker's rows of a micro
  // batch. `sample` is its number on this worker, `step` that of the step.
  ReadyStep& find(const Batch& batch, int sample, int64_t step);
  // Whether one was made, or can be made of what is recorded, without calling the function.
  bool has_recorded(const Batch& batch) const;
  ReadyStep* last() const { return last_; }
  int64_t made() const { return made_; }  // recordings so far
  void forget(const ReadyStep& step);
  // A compiled step, which outlives it, on the devices of this worker.
  std::unique_ptr<BoundStep> bind(const CompiledStep& step);

  // What a step for this batch is: recorded, as find() does, and kept nowhere. Throws epl::Error
  // where such a step runs plainly. After placement().
  StepRecording record_once(const Batch& batch);
  // What it would run, with a configuration that does not change what is recorded.
  CompiledStep plan_once(StepRecording step, const Config& config) const;
  // What the last recorded run took of memory besides what was there before.
  int64_t recording_bytes() const { return recording_bytes_; }

  // Where the strategies of the step put its parts; recorded with `sample` where nothing was
  // recorded yet, or, where the step cannot do with so few rows, with more of them, at most the
  // whole batch. The gradient of its loss is `seed`.
  const Placement& placement(const Batch& sample, const Batch& whole, double seed);

  const Placement& placement_known() const { return *placement_; }  // after the above

  // Ask twice. What a step was first recorded as is recorded a second time, with another batch,
  // before it is trusted (capture/same_step.h): once for each set of modes of the modules. This
  // says that a second look is due.
  bool wants_second_look() const { return pending_.has_value(); }
  // Whether this batch is the one to take it by: a recording that was made later, after a guard
  // failed or for another shape, and does other operators than those that were seen twice.
  bool wants_look_at(const Batch& batch) const;
  // Looks whether the program has changed its modules or optimizers. What was recorded before this
  // step was of another batch, of which nothing is applied or compared.
  void begin_step();
  // Takes it by a micro batch of a step that runs plainly: the function runs once, under the
  // recorder. None where there is nothing left to be learnt.
  std::optional<Capture> observe(const Batch& batch, double seed);
  // Takes it before a step that is replayed, since other workers replay it: throws epl::Error where
  // it finds that not even this step can be. A step that no later one is like is replayed as it was
  // recorded now, and unreplayable() tells of it.
  void look_before_replay(const Batch& batch, int micro_batches);
  // A step is run by what was captured, whose backward() reaches these leaves.
  void note_reached(const Capture& captured);
  // Takes it beside a step that cannot run plainly; throws epl::Error where the two differ.
  void look_again(const Batch& batch);

  // Why no recording of this step can be replayed; empty where nothing speaks against it.
  const std::string& unreplayable() const { return unreplayable_; }
  void give_up(std::string why) { unreplayable_ = std::move(why); }
  // A guard of the recording failed in this step. Where that happens often, none is made any more.
  void guard_failed(const std::string& why, int64_t step);
  // The tensors of the batch that recorded steps write in place.
  const InputWriters& input_writers() const { return input_writers_; }
  // The tensors that recorded steps close over and write, and that are no state of the model.
  NamedTensors written_outside() const { return written_outside_.tensors(); }
  // Whether gradients are summed and so is the loss over the rows of its batch, as far as
  // recordings tell.
  bool loss_is_sum() const { return loss_is_sum_; }
  // Whether this parameter had a gradient in an earlier step; notes whether it has one now.
  bool had_gradient(const std::string& name, const at::Tensor& parameter, bool has_one);
  // Parameters of which workers update parts (zero.level), in the order of the model.
  PartsOfOwners parts_of_owners();
  // On all workers together: no worker keeps parts of a parameter alone (zero.level = "v2").
  void make_parameters_whole();
  // Workers keep parts of what the plan of a step spreads, and all of what else it reads.
  void spread_parameters(BoundStep& step);
  // Whether find() would call the function for this batch.
  bool would_record(const Batch& batch) const;
  // Beside a step: brings whole states of optimizers together. All workers call it.
  void gather_owned_states(StatesTo to) { parts_of_owners().gather_states(to); }
  // Where workers first meet in a step that is replayed without guards; null before there was one.
  Communicator* first_of_gradients() const;
  // Whether the devices could also run the function itself: each one has whole micro batches.
  bool can_run_plainly() const;

 private:
  // What a recording depends on: shapes and types of the inputs, modes of the modules.
  using Key = std::vector<int64_t>;

  Key key_of(const Batch& batch) const;
  Key modes() const;
  // `seed` is the gradient of the loss: what is recorded may become the step.
  Capture record(const Batch& batch, double seed);
  Capture capture(const Batch& batch, double seed);
  void look_who_holds_parameters();
  std::vector<at::Generator> generators_seen_before() const;
  bool calls_several_times() const;  // a step calls the function more than once in this worker
  bool is_first_of_its_form(const Batch& batch) const;
  void check_replayable(const Batch& batch, Capture& captured);
  void note_written(const Batch& batch, const Capture& captured);
  void expect_again(const Batch& batch, const Graph& graph, int times);
  [[noreturn]] void refuse_to_replay(const std::string& why) const;
  // Chooses where EPL cuts the step itself, where that is due.
  Capture choose_cuts(Capture captured, const Batch& batch, double seed);
  std::vector<int> cuts() const;
  Capture measure_again(Capture captured, const Batch& batch, double seed);
  struct Recorded {
    StepRecording step;
    Capture capture;         // the first recording, without its graph
    bool comparable = true;  // its loss is that of this step's batch, on the rows that devices see
  };
  // `batch` has this worker's rows of a micro batch.
  Recorded record_step(const Batch& batch);
  Capture probed_or_recorded(const Batch& batch, bool probed);
  StepRecording recording_of(Graph whole) const;
  void note_loss_of_plain(const Graph& recorded);
  void tell_once(const std::string& remark, bool& told) const;
  CompileOptions compile_options(const Config& config, const Graph& recorded) const;
  BoundStep::Where where() const;
  std::unique_ptr<ReadyStep> make(const Batch& batch);
  void agree_that_it_changes(bool changed, const Batch& batch, int64_t step);
  void make_connections(const Placement& placement);  // where there are none yet
  bool gathers() const;  // parameters are brought to all workers after each step
  void bring_home();
  void forget_all();
  void forget_out_of_date();
  void drop_least_used();
  // Recording again is right but slow, so whoever does it in many steps hears of it.
  void warn_of_recording_again(const std::string& why);

  const Subject subject_;
  std::optional<Placement> placement_;
  std::optional<AutoStages> chosen_;  // where EPL cuts the step itself
  int sample_ = 0;                    // the micro batch that is being recorded
  int64_t rows_ = 0;  // of the batch that the sample was cut from; 0: it is a micro batch
  std::unique_ptr<Connections> connections_;
  int64_t spread_version_ = 0;  // of what is spread, when the recordings were made
  // Parameters whose memory the program alone held when the step began; none before a step.
  std::optional<std::set<std::string>> may_be_spread_;
  struct Probe {  // recorded to know the strategies; spent by the first step of its shape
    Key key;
    Capture capture;
    double seed;               // the gradient of the loss
    bool of_this_step = true;  // recorded with its batch
  };
  std::optional<Probe> probe_;
  struct FirstLook {
    Graph graph;
    int times = 1;     // how often the rows of a batch come in it
    int64_t step = 0;  // of those that began
    int unclear = 0;   // looks since then that took another branch
    int64_t due = 0;   // no look before this step
  };
  // What is to be looked at again: a batch of a shape that has been seen before. Numbers may follow
  // shapes, so that one of another shape tells nothing.
  struct Pending {
    Key modes;
    std::map<Key, FirstLook> looks;
  };
  bool is_out_of_date(const Pending& pending) const;
  // What a look tells of an earlier one: empty where the two are the same.
  Difference compare_looks(const Key& key, const FirstLook& first, const Graph& graph);
  bool stays_unclear(FirstLook& first, const Difference& difference, const Graph& graph) const;
  std::optional<Capture> look_late(const Batch& batch, double seed);
  void look_later(const Key& key, FirstLook look);
  std::optional<Pending> pending_;
  std::map<Key, FirstLook> late_;  // to be looked at again when their shape comes again
  std::set<Key> seen_twice_;       // modes
  std::set<std::string> forms_;    // of the graphs that were seen twice
  std::set<Key> looked_at_;        // their keys
  int64_t step_ = 0;               // how many have begun
  int64_t compared_in_ = 0;        // the step whose micro batches were compared last
  std::string unreplayable_;
  InputWriters input_writers_;
  AllWrittenOutside written_outside_;
  bool loss_is_sum_ = false;
  int guard_failures_ = 0;
  int started_again_ = 0;  // second looks that found other variables
  std::map<Key, std::unique_ptr<ReadyStep>> ready_;
  Key last_key_;
  ReadyStep* last_ = nullptr;
  int64_t bound_history_ = -1;  // its version when the updates of last_ were bound
  int recorded_again_ = 0;
  bool told_of_loss_ = false;
  bool told_of_metrics_ = false;
  int64_t made_ = 0;
  int64_t recording_bytes_ = 0;
};

}  // namespace epl
