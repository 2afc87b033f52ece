// What a user is told of a training, beside its results: one text for each thing, to stand behind
// "epl: " in the log. Who hears it, when and how often is decided by whoever tells it.
#pragma once

#include <cstdint>
#include <string>

namespace epl {

std::string remark_on_batch_gradient();

// `batch`: "a batch of 10 rows". It cannot be cut evenly over so many devices.
std::string remark_on_whole_batch(const std::string& batch, int devices);

// `parts`: micro batches x replicas.
std::string remark_on_ignored_targets(int64_t step, int64_t parts);

// `key`: the setting that says so by default.
std::string remark_on_local_clipping(const std::string& key, int replicas);

// The parameters that worker 0 fetches after each step.
std::string remark_on_fetched_bytes(int64_t bytes);

// `why`: the step cannot be replayed. `parts` as above.
std::string remark_on_plain_steps(int64_t step, const std::string& why, int64_t parts);

std::string remark_on_unverified_step(int64_t step);

// With zero.level = "v2": a worker keeps all of a parameter.
std::string remark_on_held_parameter(const std::string& name, int worker);

// The step was recorded again so many times, the last time since `why`.
std::string remark_on_recording_again(int times, const std::string& why);

}  // namespace epl
