#include "comm/call.h"

#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/check.h"
#include "comm/reduce_kernels.h"

namespace epl::comm {
namespace {

const char* name_of(CallKind kind) {
  switch (kind) {
    case CallKind::kAllReduce:
      return "all_reduce";
    case CallKind::kBroadcast:
      return "broadcast";
    case CallKind::kReduce:
      return "reduce";
    case CallKind::kReduceScatter:
      return "reduce_scatter";
    case CallKind::kAllGather:
      return "all_gather";
    case CallKind::kReduceScatterInPlace:
      return "reduce_scatter_in_place";
    case CallKind::kAllGatherInPlace:
      return "all_gather_in_place";
    case CallKind::kAllToAll:
      return "all_to_all";
    case CallKind::kBarrier:
      return "barrier";
    case CallKind::kGroup:
      return "group";
  }
  return "a call that does not exist";
}

const char* name_of(ReduceOp op) {
  switch (op) {
    case ReduceOp::kSum:
      return "sum";
    case ReduceOp::kMean:
      return "mean";
    case ReduceOp::kMax:
      return "max";
    case ReduceOp::kMin:
      return "min";
    case ReduceOp::kProd:
      return "prod";
  }
  return "an operation that does not exist";
}

bool reduces(CallKind kind) {
  return kind == CallKind::kAllReduce || kind == CallKind::kReduce ||
         kind == CallKind::kReduceScatter || kind == CallKind::kReduceScatterInPlace;
}

bool is_in_place(CallKind kind) {
  return kind == CallKind::kReduceScatterInPlace || kind == CallKind::kAllGatherInPlace;
}

std::string list(const int64_t* numbers, int64_t count) {
  return "[" + join(std::vector<int64_t>(numbers, numbers + count), ", ") + "]";
}

int64_t elements_of(const std::vector<at::Tensor>& tensors) {
  int64_t sum = 0;
  for (const at::Tensor& tensor : tensors) sum += tensor.numel();
  return sum;
}

int64_t bytes_of(const std::vector<at::Tensor>& tensors) {
  int64_t sum = 0;
  for (const at::Tensor& tensor : tensors) sum += static_cast<int64_t>(tensor.nbytes());
  return sum;
}

int64_t row_elements(const at::Tensor& tensor) {
  const auto sizes = tensor.sizes();
  return std::accumulate(sizes.begin() + 1, sizes.end(), int64_t{1}, std::multiplies<>());
}

bool overlap(const at::Tensor& a, const at::Tensor& b) {
  const char* begin_a = static_cast<const char*>(a.data_ptr());
  const char* begin_b = static_cast<const char*>(b.data_ptr());
  return begin_a < begin_b + b.nbytes() && begin_b < begin_a + a.nbytes();
}

// The rows of all_to_all are each member's own; they only have to match in pairs.
bool same_call(const CallView& a, const CallView& b) {
  const CallRecord &x = *a.record, &y = *b.record;
  if (x.kind != y.kind || x.op != y.op || x.type != y.type || x.root != y.root ||
      x.elements != y.elements || x.row_count != y.row_count || x.in_memory != y.in_memory ||
      x.about != y.about) {
    return false;
  }
  return x.kind == CallKind::kAllToAll || std::equal(a.rows, a.rows + x.row_count, b.rows);
}

[[noreturn]] void throw_disagreement(const Caller& caller, const std::vector<CallView>& views,
                                     size_t one, size_t other) {
  throw Error(concat("the members of communicator \"", caller.name(), "\" made different calls"),
              concat("member ", one, ": ", describe_call(views[one]), "; member ", other, ": ",
                     describe_call(views[other])),
              "all members must call the same operations in the same order, with tensors of the "
              "same types and sizes: step(), gather_parameters() and save() of a trainer on every "
              "worker, with batches of the same shape");
}

}  // namespace

int64_t MemberCall::row_bytes() const {
  return record.elements * static_cast<int64_t>(c10::elementSize(record.type));
}

// --- one member's own call ---------------------------------------------------------------------

void Caller::check_tensor(const char* call, const at::Tensor& tensor) const {
  EPL_CHECK(tensor.defined(),
            concat(call, " of communicator \"", name_, "\" was given an undefined tensor"));
  EPL_CHECK(tensor.layout() == c10::kStrided && tensor.device().is_cpu(),
            concat(call, " of communicator \"", name_,
                   "\" takes dense tensors in the memory of the host, not ", tensor.toString()));
  EPL_CHECK(tensor.is_contiguous(),
            concat(call, " of communicator \"", name_, "\" takes contiguous tensors; one of shape ",
                   tensor.sizes(), " has strides ", tensor.strides()),
            "", "tensor.contiguous(), and copy the result back");
}

c10::ScalarType Caller::common_type(const char* call, const std::vector<at::Tensor>& tensors,
                                    bool mixed) const {
  for (const at::Tensor& tensor : tensors) check_tensor(call, tensor);
  if (tensors.empty()) return c10::ScalarType::Byte;
  const c10::ScalarType type = tensors.front().scalar_type();
  for (const at::Tensor& tensor : tensors) {
    if (tensor.scalar_type() == type) continue;
    if (mixed) return c10::ScalarType::Byte;
    throw Error(concat(call, " of communicator \"", name_, "\" was given tensors of types ", type,
                       " and ", tensor.scalar_type()),
                "", "one call for each type");
  }
  return type;
}

void Caller::check_op(const char* call, c10::ScalarType type, ReduceOp op) const {
  if (can_reduce(type, op)) return;
  const bool mean_of_integers = op == ReduceOp::kMean && can_reduce(type, ReduceOp::kSum);
  throw Error(concat(call, " of communicator \"", name_, "\" cannot make the ", name_of(op), " of ",
                     type, " elements"),
              "",
              mean_of_integers ? "a sum, or a floating point type: the mean of integers is none"
                               : "a floating point, integer or bool type");
}

void Caller::check_member(const char* call, int member) const {
  EPL_CHECK(member >= 0 && member < size_,
            concat(call, " of communicator \"", name_, "\" names member ", member,
                   "; its members are 0 to ", size_ - 1));
}

void Caller::check_counts(const char* call, const char* of_what,
                          const std::vector<int64_t>& counts) const {
  EPL_CHECK(static_cast<int>(counts.size()) == size_,
            concat(call, " of communicator \"", name_, "\" needs the ", of_what, " of each of ",
                   size_, " members, and got ", counts.size(), " numbers"));
  EPL_CHECK(std::all_of(counts.begin(), counts.end(), [](int64_t count) { return count >= 0; }),
            concat(call, " of communicator \"", name_, "\" was given a negative number of ",
                   of_what, ": [", join(counts, ", "), "]"));
}

void Caller::check_rows(const char* call, const at::Tensor& one, const at::Tensor& other,
                        const std::vector<int64_t>& rows) const {
  check_tensor(call, one);
  check_tensor(call, other);
  const auto here = [&] { return concat(call, " of communicator \"", name_, "\""); };
  EPL_CHECK(one.dim() > 0 && other.dim() > 0, here() + " cuts tensors by rows; a scalar has none");
  EPL_CHECK(one.scalar_type() == other.scalar_type(),
            concat(here(), " was given tensors of types ", one.scalar_type(), " and ",
                   other.scalar_type()));
  EPL_CHECK(row_elements(one) == row_elements(other),
            concat(here(), " was given rows of different sizes: shapes ", one.sizes(), " and ",
                   other.sizes()));
  check_counts(call, "rows", rows);
}

MemberCall Caller::cut_by_rows(CallKind kind, ReduceOp op, const at::Tensor& whole,
                               const at::Tensor& part, const std::vector<int64_t>& rows) const {
  check_rows(name_of(kind), whole, part, rows);
  const int64_t sum = std::accumulate(rows.begin(), rows.end(), int64_t{0});
  const int64_t mine = rows[static_cast<size_t>(rank_)];
  EPL_CHECK(whole.size(0) == sum && part.size(0) == mine,
            concat(name_of(kind), " of communicator \"", name_, "\": rows [", join(rows, ", "),
                   "] ask member ", rank_, " for ", sum, " rows in all and ", mine,
                   " of its own; the tensors have ", whole.size(0), " and ", part.size(0)));
  return {{kind, op, whole.scalar_type(), -1, row_elements(whole), size_, false, about_}, rows};
}

MemberCall Caller::cut_in_place(CallKind kind, ReduceOp op, const std::vector<at::Tensor>& tensors,
                                const std::vector<int64_t>& counts) const {
  const auto type = common_type(name_of(kind), tensors, false);
  check_counts(name_of(kind), "elements", counts);
  const int64_t sum = std::accumulate(counts.begin(), counts.end(), int64_t{0});
  EPL_CHECK(
      sum == elements_of(tensors),
      concat(name_of(kind), " of communicator \"", name_, "\": members own [", join(counts, ", "),
             "] elements, ", sum, " in all; the tensors have ", elements_of(tensors)));
  return {{kind, op, type, -1, 1, size_, false, about_}, counts};
}

MemberCall Caller::all_reduce(const std::vector<at::Tensor>& tensors, ReduceOp op) const {
  const auto type = common_type("all_reduce", tensors, false);
  check_op("all_reduce", type, op);
  return {{CallKind::kAllReduce, op, type, -1, elements_of(tensors), 0, false, about_}, {}};
}

MemberCall Caller::broadcast(const std::vector<at::Tensor>& tensors, int root) const {
  const auto type = common_type("broadcast", tensors, true);
  check_member("broadcast", root);
  const int64_t elements = bytes_of(tensors) / static_cast<int64_t>(c10::elementSize(type));
  return {{CallKind::kBroadcast, ReduceOp::kSum, type, root, elements, 0, false, about_}, {}};
}

MemberCall Caller::reduce(const std::vector<at::Tensor>& tensors, ReduceOp op, int root) const {
  const auto type = common_type("reduce", tensors, false);
  check_op("reduce", type, op);
  check_member("reduce", root);
  return {{CallKind::kReduce, op, type, root, elements_of(tensors), 0, false, about_}, {}};
}

MemberCall Caller::reduce_scatter(const at::Tensor& whole, const at::Tensor& part,
                                  const std::vector<int64_t>& rows, ReduceOp op) const {
  const MemberCall call = cut_by_rows(CallKind::kReduceScatter, op, whole, part, rows);
  check_op("reduce_scatter", call.record.type, op);
  return call;
}

MemberCall Caller::all_gather(const at::Tensor& part, const at::Tensor& whole,
                              const std::vector<int64_t>& rows) const {
  return cut_by_rows(CallKind::kAllGather, ReduceOp::kSum, whole, part, rows);
}

MemberCall Caller::reduce_scatter_in_place(const std::vector<at::Tensor>& tensors,
                                           const std::vector<int64_t>& counts, ReduceOp op) const {
  const MemberCall call = cut_in_place(CallKind::kReduceScatterInPlace, op, tensors, counts);
  check_op("reduce_scatter_in_place", call.record.type, op);
  return call;
}

MemberCall Caller::all_gather_in_place(const std::vector<at::Tensor>& tensors,
                                       const std::vector<int64_t>& counts) const {
  return cut_in_place(CallKind::kAllGatherInPlace, ReduceOp::kSum, tensors, counts);
}

MemberCall Caller::all_to_all(const at::Tensor& input, const at::Tensor& output,
                              const std::vector<int64_t>& rows_to,
                              const std::vector<int64_t>& rows_from) const {
  check_rows("all_to_all", input, output, rows_to);
  check_rows("all_to_all", output, input, rows_from);
  const int64_t to = std::accumulate(rows_to.begin(), rows_to.end(), int64_t{0});
  const int64_t from = std::accumulate(rows_from.begin(), rows_from.end(), int64_t{0});
  EPL_CHECK(input.size(0) == to && output.size(0) == from,
            concat("all_to_all of communicator \"", name_, "\": ", to, " rows go out and ", from,
                   " come in; the tensors have ", input.size(0), " and ", output.size(0)));
  EPL_CHECK(!overlap(input, output),
            concat("all_to_all of communicator \"", name_,
                   "\" was given an input and an output that share memory"),
            "", "an output of its own: members read the input while the output is written");
  MemberCall call = {{CallKind::kAllToAll, ReduceOp::kSum, input.scalar_type(), -1,
                      row_elements(input), 2 * static_cast<int64_t>(size_)},
                     rows_to};
  call.rows.insert(call.rows.end(), rows_from.begin(), rows_from.end());
  return call;
}

MemberCall Caller::group(const std::vector<int>& ranks) const {
  EPL_CHECK(!ranks.empty(), concat("a group of communicator \"", name_, "\" has no members"));
  for (int member : ranks) {
    check_member("group", member);
    EPL_CHECK(std::count(ranks.begin(), ranks.end(), member) == 1,
              concat("a group of communicator \"", name_, "\" names member ", member, " twice: [",
                     join(ranks, ", "), "]"));
  }
  MemberCall call;
  call.record.kind = CallKind::kGroup;
  call.record.row_count = static_cast<int64_t>(ranks.size());
  call.rows.assign(ranks.begin(), ranks.end());
  return call;
}

Contents Caller::message(const char* call, const at::Tensor& tensor, int peer, int tag) const {
  check_tensor(call, tensor);
  check_member(call, peer);
  EPL_CHECK(peer != rank_, concat(call, " of communicator \"", name_, "\" names member ", peer,
                                  ", which is the caller itself"));
  return {tensor.numel(), tensor.scalar_type(), tag};
}

// --- all members' calls ------------------------------------------------------------------------

void check_agreement(const Caller& caller, const std::vector<CallView>& views) {
  const size_t size = views.size();
  for (size_t member = 1; member < size; ++member) {
    if (!same_call(views[0], views[member])) throw_disagreement(caller, views, 0, member);
  }
  if (views[0].record->kind != CallKind::kAllToAll) return;
  for (size_t from = 0; from < size; ++from) {
    for (size_t to = 0; to < size; ++to) {
      if (views[from].rows[to] == views[to].rows[size + from]) continue;
      throw_disagreement(caller, views, from, to);
    }
  }
}

std::string describe_call(const CallView& call) {
  const CallRecord& record = *call.record;
  std::string text = name_of(record.kind);
  if (reduces(record.kind)) text += concat(" (", name_of(record.op), ")");
  if (record.kind == CallKind::kGroup) return text + " " + list(call.rows, record.row_count);
  if (record.kind == CallKind::kBarrier) return text;
  if (record.row_count == 0) {
    text += concat(" of ", record.elements, " ", record.type, " elements");
  } else if (record.kind == CallKind::kAllToAll) {
    const int64_t half = record.row_count / 2;
    text += concat(" of ", list(call.rows, half), " rows to and ", list(call.rows + half, half),
                   " rows from the members, ", record.elements, " ", record.type, " elements each");
  } else if (is_in_place(record.kind)) {
    text += concat(" of ", list(call.rows, record.row_count), " ", record.type, " elements");
  } else {
    text += concat(" of ", list(call.rows, record.row_count), " rows of ", record.elements, " ",
                   record.type, " elements each");
  }
  if (record.root >= 0) text += concat(" with root ", record.root);
  if (record.in_memory) text += " in each other's memory";
  if (record.about != 0) text += concat(" about ", record.about);
  return text;
}

std::string describe_message(const char* call, const Contents& contents) {
  return concat(call, " of ", contents.elements, " ", contents.type, " elements with tag ",
                contents.tag);
}

std::string describe_mismatch(const std::string& communicator, int from, const Contents& sent,
                              int to, const Contents& expected) {
  return concat("the members of communicator \"", communicator, "\" made different calls: member ",
                from, ": ", describe_message("send", sent), "; member ", to, ": ",
                describe_message("receive", expected));
}

}  // namespace epl::comm
