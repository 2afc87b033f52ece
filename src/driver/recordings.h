// Recordings: the steps that were recorded and compiled so far, by the shape of their batch.
//
// A step is recorded when a batch of a new shape, or another mode of the modules, comes along, and
// again where a guard of the recording fails or a variable that it reads was assigned another
// tensor.
#pragma once

#include <epl/step.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "driver/auto_stages.h"
#include "driver/job.h"
#include "driver/placement.h"
#include "driver/ready_step.h"
#include "driver/split_step.h"

namespace epl {

class Recordings {
 public:
  struct Subject {
    Model& model;
    const StepFunction& function;
    const Config& config;
    Job& job;
    LocalReplicas& replicas;
    bool clips;  // whether gradients are clipped, before or after they are reduced
  };
  explicit Recordings(const Subject& subject) : subject_(subject) {}

  // The recording for this batch, made where there is none. `sample` is the number of the micro
  // batch on this worker, `step` that of the step.
  ReadyStep& find(const Batch& batch, int sample, int64_t step);
  ReadyStep* last() const { return last_; }
  int64_t made() const { return made_; }  // recordings so far
  void forget(const ReadyStep& step);

  // Where the strategies of the step put its parts; recorded with `sample` where nothing was
  // recorded yet, or, where the step cannot do with so few rows, with the whole batch.
  const Placement& placement(const Batch& sample, const Batch& whole);

  // Recording again is right but slow, so whoever does it in many steps hears of it.
  void warn_of_recording_again(const std::string& why);

 private:
  // What a recording depends on: shapes and types of the inputs, modes of the modules.
  using Key = std::vector<int64_t>;

  Key key_of(const Batch& batch) const;
  Capture record(const Batch& batch);
  Capture capture(const Batch& batch, const std::vector<int>& cuts = {});
  Capture record_with_chosen_stages(const Batch& batch);
  struct AllSizes;
  AllSizes record_all_sizes(const Batch& batch);
  struct Parts {  // a step whose operators are cut over devices
    Capture capture;
    SplitRecording recording;
    TwoSizes sizes;
    bool comparable = true;  // the recorded loss is that of the rows that the devices see
  };
  Parts record_parts(const Batch& batch);
  static void mark_whole(const CompiledStep& step, TwoSizes& sizes);
  CompileOptions compile_options() const;
  std::unique_ptr<ReadyStep> make_parts(const Batch& batch);
  std::unique_ptr<ReadyStep> ready_step(CompiledStep compiled, const Capture& capture,
                                        TwoSizes sizes);
  std::unique_ptr<ReadyStep> make(const Batch& batch);
  void agree_that_it_changes(bool changed, const Batch& batch, int64_t step);
  bool gathers() const;  // parameters are brought to all workers after each step
  void bring_home();
  void forget_all();
  void forget_out_of_date();
  void drop_least_used();

  const Subject subject_;
  std::optional<Placement> placement_;
  std::optional<AutoStages> chosen_;  // where EPL cuts the step itself
  std::unique_ptr<StageWays> ways_;
  struct Probe {  // recorded to know the strategies; spent by the first step of its shape
    Key key;
    Capture capture;
  };
  std::optional<Probe> probe_;
  std::map<Key, std::unique_ptr<ReadyStep>> ready_;
  Key last_key_;
  ReadyStep* last_ = nullptr;
  int64_t bound_history_ = -1;  // its version when the updates of last_ were bound
  int recorded_again_ = 0;
  int64_t made_ = 0;
};

}  // namespace epl
