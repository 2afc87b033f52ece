#include "comm/protocol.h"

#include <algorithm>
#include <sstream>

#include "base/check.h"

namespace epl::comm {

Message encode(const WorkerRecord& record) {
  return {record.info.host,
          record.info.host_key,
          std::to_string(record.info.pid),
          std::to_string(record.info.devices),
          std::to_string(record.page),
          record.address};
}

WorkerRecord decode_record(const Message& fields, size_t first) {
  EPL_CHECK(fields.size() >= first + kRecordFields, "a worker's record is cut short");
  WorkerRecord record;
  record.info.host = fields[first];
  record.info.host_key = fields[first + 1];
  record.info.pid = parse_number(fields[first + 2]);
  record.info.devices = static_cast<int>(parse_number(fields[first + 3]));
  record.page = static_cast<int>(parse_number(fields[first + 4]));
  record.address = fields[first + 5];
  return record;
}

int64_t parse_number(const std::string& text) {
  std::istringstream in(text);
  int64_t number = 0;
  EPL_CHECK(in >> number, concat("\"", text, "\" is not a number of the control protocol"));
  return number;
}

std::string join_numbers(const std::vector<int>& numbers) { return join(numbers, " "); }

std::vector<int> split_numbers(const std::string& text) {
  std::istringstream in(text);
  std::vector<int> numbers;
  for (int number = 0; in >> number;) numbers.push_back(number);
  return numbers;
}

std::string name_of_worker(int index, const WorkerInfo& info) {
  return concat("worker ", index, " (pid ", info.pid, " on host ", info.host, ")");
}

std::string list_of_workers(const std::vector<int>& indices) {
  if (indices.size() == 1) return concat("worker ", indices[0]);
  std::string text = "workers ";
  for (size_t i = 0; i < indices.size(); ++i) {
    if (i > 0) text += i + 1 == indices.size() ? " and " : ", ";
    text += std::to_string(indices[i]);
  }
  return text;
}

std::string describe_duration(std::chrono::milliseconds duration) {
  return concat(static_cast<double>(duration.count()) / 1000.0, " s");
}

namespace {

std::string describe_last(const LastSeen& last) {
  if (last.progress.empty() || last.progress == "nothing yet") {
    return last.exact ? "it had not begun a step" : "nothing is known of its steps";
  }
  return concat("it was last at ", last.exact ? "" : "about ", last.progress);
}

}  // namespace

Cause gone_cause(int index, const WorkerInfo& info, const std::string& reason,
                 const LastSeen& last) {
  return {concat(name_of_worker(index, info), " is gone: ", reason, "; ", describe_last(last)),
          concat("the log of worker ", index, "; the kernel's log on host ", info.host,
                 " says whether memory ran out")};
}

Cause failed_cause(int index, const WorkerInfo& info, const std::string& message,
                   const LastSeen& last) {
  const std::string prefix = "epl: ";
  const bool ours = message.rfind(prefix, 0) == 0;
  return {concat(name_of_worker(index, info), " failed; ", describe_last(last), ":\n",
                 ours ? message.substr(prefix.size()) : message),
          ""};
}

std::string silent_reason(std::chrono::milliseconds silence) {
  return concat("it has been silent for ", describe_duration(silence),
                " (stopped, or its host cannot be reached)");
}

std::chrono::milliseconds beat_period(std::chrono::milliseconds silence) {
  return std::clamp(silence / 10, std::chrono::milliseconds(20), std::chrono::milliseconds(500));
}

}  // namespace epl::comm
