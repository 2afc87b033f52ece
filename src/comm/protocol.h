// What workers and the rendezvous of their job say to each other, and the sentences about workers
// that users read.
//
//   from a worker                                 from the rendezvous
//   hello  index, worker_num, its record          all     the records of all workers
//   beat   progress                               beat    progress of worker 0
//   text   key, members, the text of this one     texts   key, the texts of all members
//   who    key                                    missing key, the members that gave no text yet
//   failed what, hint                             cause   what, hint: the job is over
//   left   step, progress                         left    index, step, progress
//                                                 suspect index, reason: who can read its memory
//                                                         says `failed`, with what it did last
#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "comm/membership.h"
#include "comm/message_stream.h"

namespace epl::comm {

// What a worker tells of itself.
struct WorkerRecord {
  WorkerInfo info;
  int page = -1;        // the descriptor of its progress page
  std::string address;  // by which it reaches worker 0
};

// Why the job cannot go on, as the parts of a JobFailed.
struct Cause {
  std::string what;
  std::string hint;
  JobFailed error() const { return JobFailed(what, "", hint); }
};

// Where a worker was, and whether it was read from its memory or is as old as its last message.
struct LastSeen {
  std::string progress;
  bool exact = false;
};

Message encode(const WorkerRecord& record);
WorkerRecord decode_record(const Message& fields, size_t first);
constexpr size_t kRecordFields = 6;

std::string join_numbers(const std::vector<int>& numbers);
std::vector<int> split_numbers(const std::string& text);

// A number of a message. Throws Error where it is none.
int64_t parse_number(const std::string& text);

std::string name_of_worker(int index, const WorkerInfo& info);  // "worker 1 (pid 4711 on host b)"
std::string list_of_workers(const std::vector<int>& indices);   // "workers 1, 2 and 5"
std::string describe_duration(std::chrono::milliseconds duration);  // "5 s", "1.5 s"

Cause gone_cause(int index, const WorkerInfo& info, const std::string& reason,
                 const LastSeen& last);
// `message` is what a worker of the job threw.
Cause failed_cause(int index, const WorkerInfo& info, const std::string& message,
                   const LastSeen& last);

// What a process that ended is said to have met; nobody but its parent can know more.
constexpr const char* kEndedReason = "its process ended (killed, or crashed)";

std::string silent_reason(std::chrono::milliseconds silence);

// How often signs of life are given, so that `silence` is many of them.
std::chrono::milliseconds beat_period(std::chrono::milliseconds silence);

// A gap in our own looks that is longer was ours (the process was stopped, the machine slept).
inline constexpr std::chrono::milliseconds kOwnGap{1000};

}  // namespace epl::comm
