// How a list of files is cut over workers: the rule behind epl::slice_files().
//
// Files are dealt out in rounds. A round is the smallest number of files that can be cut in
// proportion to the replicas: with 4 and 2 replicas a round is 3 files, two for worker 0 and one
// for worker 1. What does not fill a last round is the remainder:
//
//   replicas 4 and 2, 7 files    worker 0      worker 1
//     round 0                    f0 f1         f2
//     round 1                    f3 f4         f5
//     remainder, kUnbalanced     f6
//
// Under kUnbalanced every worker has its exact share rounded down or up. Rounded up are first those
// that would have no file, then those whose share loses most by rounding down, then the lower
// worker. A pure function: all workers find the same cut without a word to each other.
#pragma once

#include <epl/io.h>

#include <cstdint>
#include <string>
#include <vector>

namespace epl {

enum class FileRemainder { kError, kDrop, kUnbalanced };

// How many of `files` files each worker reads.
std::vector<int64_t> files_per_worker(int64_t files, const WorkerShares& shares,
                                      FileRemainder remainder);

// The files of shares.worker, in the order of the list. `asked_by` goes into errors.
std::vector<std::string> slice_files(const std::vector<std::string>& files,
                                     const WorkerShares& shares, FileRemainder remainder,
                                     const std::string& asked_by);

}  // namespace epl
