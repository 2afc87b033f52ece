// What a member calls, in a form that the others compare with their own calls.
//
// A member that calls something else than its peers would wait for ever, or mix up memory. So every
// call is described by a record, which all members read where they meet: if they differ, all of
// them throw the same error, which names both calls.
#pragma once

#include <ATen/core/Tensor.h>

#include <cstdint>
#include <string>
#include <vector>

#include "comm/communicator.h"

namespace epl::comm {

enum class CallKind : uint8_t {
  kAllReduce,
  kBroadcast,
  kReduce,
  kReduceScatter,
  kAllGather,
  kReduceScatterInPlace,
  kAllGatherInPlace,
  kAllToAll,
  kBarrier,
  kGroup
};

// Plain memory, which processes may share.
struct CallRecord {
  CallKind kind = CallKind::kBarrier;
  ReduceOp op = ReduceOp::kSum;
  c10::ScalarType type = c10::ScalarType::Byte;
  int32_t root = -1;
  int64_t elements = 0;    // of all tensors; where there are rows: of one row
  int64_t row_count = 0;   // how many numbers `rows` has
  bool in_memory = false;  // read_each_other: what members have ready for others is not the same
  int64_t about = 0;       // Communicator::set_about
};

// A record and its rows: those of each member, of all_to_all first those to and then those from
// each member, of group the ranks. In place a row is one element.
struct CallView {
  const CallRecord* record = nullptr;
  const int64_t* rows = nullptr;
};

// Not `Call`, which is an operator call of a Program: types of one namespace have one meaning.
struct MemberCall {
  CallRecord record;
  std::vector<int64_t> rows;
  CallView view() const { return {&record, rows.data()}; }
  int64_t row_bytes() const;
};

// What sender and receiver of a message must agree on. Plain memory as well.
struct Contents {
  int64_t elements = 0;
  c10::ScalarType type = c10::ScalarType::Byte;
  int32_t tag = 0;
  int64_t bytes() const { return elements * static_cast<int64_t>(c10::elementSize(type)); }
  bool matches(const Contents& other) const {
    return elements == other.elements && type == other.type && tag == other.tag;
  }
};

// Describes the calls of one member. It checks what the member can see of its own call and throws
// Error.
class Caller {
 public:
  Caller(int rank, int size, std::string name) : rank_(rank), size_(size), name_(std::move(name)) {}

  void set_about(int64_t about) { about_ = about; }

  MemberCall all_reduce(const std::vector<at::Tensor>& tensors, ReduceOp op) const;
  MemberCall broadcast(const std::vector<at::Tensor>& tensors, int root) const;
  MemberCall reduce(const std::vector<at::Tensor>& tensors, ReduceOp op, int root) const;
  MemberCall reduce_scatter(const at::Tensor& whole, const at::Tensor& part,
                            const std::vector<int64_t>& rows, ReduceOp op) const;
  MemberCall all_gather(const at::Tensor& part, const at::Tensor& whole,
                        const std::vector<int64_t>& rows) const;
  MemberCall reduce_scatter_in_place(const std::vector<at::Tensor>& tensors,
                                     const std::vector<int64_t>& counts, ReduceOp op) const;
  MemberCall all_gather_in_place(const std::vector<at::Tensor>& tensors,
                                 const std::vector<int64_t>& counts) const;
  MemberCall all_to_all(const at::Tensor& input, const at::Tensor& output,
                        const std::vector<int64_t>& rows_to,
                        const std::vector<int64_t>& rows_from) const;
  MemberCall barrier() const { return {}; }
  MemberCall group(const std::vector<int>& ranks) const;
  Contents message(const char* call, const at::Tensor& tensor, int peer, int tag) const;

  int rank() const { return rank_; }
  int size() const { return size_; }
  const std::string& name() const { return name_; }

 private:
  void check_tensor(const char* call, const at::Tensor& tensor) const;
  c10::ScalarType common_type(const char* call, const std::vector<at::Tensor>& tensors,
                              bool mixed) const;
  void check_op(const char* call, c10::ScalarType type, ReduceOp op) const;
  void check_member(const char* call, int member) const;
  void check_counts(const char* call, const char* of_what,
                    const std::vector<int64_t>& counts) const;
  void check_rows(const char* call, const at::Tensor& one, const at::Tensor& other,
                  const std::vector<int64_t>& rows) const;
  MemberCall cut_by_rows(CallKind kind, ReduceOp op, const at::Tensor& whole,
                         const at::Tensor& part, const std::vector<int64_t>& rows) const;
  MemberCall cut_in_place(CallKind kind, ReduceOp op, const std::vector<at::Tensor>& tensors,
                          const std::vector<int64_t>& counts) const;

  int rank_, size_;
  std::string name_;
  int64_t about_ = 0;
};

// Throws Error where members called different things. views[i] is the call of member i.
void check_agreement(const Caller& caller, const std::vector<CallView>& views);

// "all_reduce (sum) of 1024 Float elements"
std::string describe_call(const CallView& call);
// "receive of 12 Float elements with tag 3"
std::string describe_message(const char* call, const Contents& contents);
// What both sides say where a receive does not fit its send.
std::string describe_mismatch(const std::string& communicator, int from, const Contents& sent,
                              int to, const Contents& expected);

}  // namespace epl::comm
