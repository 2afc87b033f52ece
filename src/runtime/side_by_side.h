// SideBySide: devices that run the same program and share what is near go on side by side.
//
// What is near is planned for one device (program/near_bytes.h): from the fetch to the store of
// each parameter, and what was stored after the last run besides. A device that was far ahead of
// another would add its own parameters to those of the other. So none fetches before all of them
// have stored what stands before the run that it has just done: then all that they have near is
// what one of them has by plan.
//
//   SideBySide devices(program, 2);
//   devices.begin();
//   devices.wait_for_others(1, fetch, look);   // on the thread of the second; then it fetches
//   devices.note_done(1);                      // after each fetch, wait and store
//
// Whoever waits waits for something that stands earlier in the program, and whatever a device waits
// for else (a value of another stage, a collective) stands at the same place in the programs of
// all: nobody waits in a circle.
#pragma once

#include <functional>
#include <map>
#include <vector>

#include "base/mutex.h"
#include "program/program.h"

namespace epl {

class SideBySide {
 public:
  // The program outlives it.
  SideBySide(const Program& program, int devices);

  // Before they run.
  void begin() EPL_EXCLUDES(mutex_);
  // `look`: called now and then; throws where it is not to wait any longer.
  void wait_for_others(int device, const Instruction& fetch, const std::function<void()>& look)
      EPL_EXCLUDES(mutex_);
  void note_done(int device) EPL_EXCLUDES(mutex_);

 private:
  // By fetch: how many moves (fetches, waits, stores) stand before the last run before it.
  std::map<const Instruction*, int> needed_;
  Mutex mutex_;
  Condition moved_;
  std::vector<int> done_ EPL_GUARDED_BY(mutex_);  // moves, by device
};

}  // namespace epl
