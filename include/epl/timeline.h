// Timeline: what each device did when, in one training step.
//
//   epl::Timeline timeline = trainer.timeline();        // of the last step
//   std::cout << timeline.str();                        // a table: who computes, who waits
//   timeline.write_trace("step.json");                  // for chrome://tracing or ui.perfetto.dev
//
// A simulated step has the same form, so that the two can be laid side by side.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace epl {

struct Span {
  enum class Kind : uint8_t {
    kForward,
    kBackward,
    kWeights,        // the second half of a backward that is cut in two
    kUpdate,         // of parameters, by the optimizer
    kCommunication,  // nothing is computed meanwhile: a value or a sum is on its way
  };

  Kind kind = Kind::kForward;
  int chunk = -1;        // of the model; -1 where it belongs to none
  int micro_batch = -1;  // -1 where it belongs to none
  double begin = 0;      // seconds since the step began
  double end = 0;
};

class Timeline {
 public:
  struct Device {
    std::string name;         // "device 1, worker 0, stage 1"
    std::vector<Span> spans;  // in order of time; they do not overlap
  };

  // Parts of the step's time, which add up to 1. What is in no span is bubble. All are 0 where
  // there is no time or no device.
  struct Shares {
    double compute = 0;  // forward, backward, weights
    double update = 0;
    double communication = 0;  // exposed: what compute did not hide
    double bubble = 0;
  };

  std::string title;  // "step 12, PreferBackward, 2 stages, 4 micro batches"
  std::vector<Device> devices;
  double seconds = 0;  // of the whole step

  Shares shares(size_t device) const;
  Shares shares() const;  // of all devices

  // A line of letters for each device, then the shares of each in percent, at most `columns` wide
  // (72 at least):
  //
  //   step 12, PreferBackward, 2 stages, 4 micro batches: 27.0 ms
  //     stage 0  FFFFFFFF............BBBBBBBBFFFFBBBBBBBBFFFFBBBBBBBB....BBBBBBBBUU
  //     stage 1  ....FFFFBBBBBBBBFFFFBBBBBBBBFFFFBBBBBBBBFFFFBBBBBBBB............UU
  //     F forward  B backward  W weights  U update  ~ communication  . bubble
  //
  //              compute   update  communication   bubble
  //     stage 0   74.1 %    3.7 %          0.0 %   22.2 %
  //     ...
  std::string str(int columns = 100) const;

  // The Chrome trace format: one row a device, one box a span. Written to a temporary name first.
  // Throws epl::Error where the file cannot be written.
  void write_trace(const std::string& path) const;
};

}  // namespace epl
