#include "report/remarks.h"

#include "base/text.h"

namespace epl {

std::string remark_on_batch_gradient() {
  return "a tensor of the batch requires a gradient: none comes to it, nor to what it was computed "
         "from, where the plain loop's backward() would bring one. Compute it inside of the step, "
         "or detach() it.";
}

std::string remark_on_whole_batch(const std::string& batch, int devices) {
  return concat(batch, " cannot be cut evenly over the ", devices,
                " devices: one of them takes all of it, as the plain loop does, while the others "
                "wait");
}

// PyTorch's DistributedDataParallel does the same, without a word.
std::string remark_on_ignored_targets(int64_t step, int64_t parts) {
  return concat("in step ", step,
                " a loss of reduction \"mean\" ignores targets (ignore_index): each of the ", parts,
                " parts (micro batches x replicas) divides by the targets that count in it, so "
                "that their mean may differ from the loss of all rows at once. Reduction kSum, "
                "divided by a number that is the same for all parts, does not");
}

// It is not what the plain loop does with the whole batch.
std::string remark_on_local_clipping(const std::string& key, int replicas) {
  return concat(key, " = false (default): each of the ", replicas,
                " replicas clips the gradients of its own rows before they are reduced; with true "
                "the reduced gradients are clipped, as the plain loop does with the whole batch");
}

std::string remark_on_held_parameter(const std::string& name, int worker) {
  return concat("all of `", name, "` stays on worker ", worker,
                " from now on, since another tensor holds its memory (a view, a detach(), what "
                "another trainer has recorded): with zero.level = \"v2\" others keep parts");
}

std::string remark_on_fetched_bytes(int64_t bytes) {
  return concat("after each step worker 0 fetches ", human_bytes(bytes),
                " of parameters that other workers update, so that all can be read at any time; "
                "with pipeline.gather_parameters = false it takes neither time nor memory for them "
                "before trainer.gather_parameters() or trainer.save()");
}

std::string remark_on_plain_steps(int64_t step, const std::string& why, int64_t parts) {
  const std::string numbers =
      parts == 1 ? "Its numbers are right from here on; memory is that of the plain program."
                 : concat("Each of its ", parts,
                          " parts (micro batches x replicas) calls the function for itself, with "
                          "its rows: what C++ counts, draws or reads there is that of a part, not "
                          "of all rows. A worker's devices take turns, and memory is that of the "
                          "plain program.");
  return concat("from step ", step,
                " on the step runs as the plain program would, since it cannot be replayed: ", why,
                ". ", numbers,
                " To have it replayed: numbers that change in the batch, metrics instead of "
                "item(), torch::where instead of if.");
}

std::string remark_on_unverified_step(int64_t step) {
  return concat("step ", step,
                " is not verified, nor are others that run as the plain program would on each of "
                "their parts");
}

std::string remark_on_recording_again(int times, const std::string& why) {
  return concat("warning: the step was recorded again ", times, " times, the last time since ", why,
                ". Each time costs about two plain steps. To avoid it, return the value as a "
                "metric instead of reading it by item(), choose by torch::where instead of if, "
                "mask instead of selecting, and hand tensors in with the batch or copy_() into "
                "them.");
}

}  // namespace epl
