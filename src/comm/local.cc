// The threads of one process. They hand each other the addresses of their tensors, and each works
// on its share of all of them.
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <exception>
#include <thread>

#include "base/check.h"
#include "base/mutex.h"
#include "comm/byte_strip.h"
#include "comm/call.h"
#include "comm/communicator.h"
#include "comm/inbox.h"
#include "comm/reduce_kernels.h"
#include "comm/waiting.h"

namespace epl::comm {
namespace {

struct LocalHub;

// A call and the memory that the others may use until its end.
struct OpenCall {
  MemberCall call;
  ByteStrip strip;                  // of operations in place
  char* from = nullptr;             // what others read: whole, part or input
  std::shared_ptr<LocalHub> group;  // made by the first member of a group, kept by all of them
  at::TensorList shown = {};        // read_each_other
};

// What one member tells the others. Counters count its calls; only the member writes them.
struct alignas(128) Seat {
  std::atomic<uint64_t> arrived{0};   // `open` may be read
  std::atomic<uint64_t> entered{0};   // it works on the memory of the others
  std::atomic<uint64_t> finished{0};  // and does not any more
  std::atomic<bool> left{false};      // its end is destroyed
  const OpenCall* open = nullptr;
  alignas(64) Doorbell bell;
  Inbox inbox;
};

// Shared by the ends of one communicator.
struct LocalHub {
  explicit LocalHub(int size) : seats(static_cast<size_t>(size)) {}

  std::vector<Seat> seats;
  // Set once a member gave up a call: the counters no longer say where everybody is.
  std::atomic<bool> broken{false};
  Mutex mutex;
  std::string why EPL_GUARDED_BY(mutex);
};

class LocalCommunicator final : public Communicator {
 public:
  LocalCommunicator(std::shared_ptr<LocalHub> hub, int rank, Watch& watch,
                    const CommunicatorOptions& options)
      : hub_(std::move(hub)),
        options_(options),
        caller_(rank, static_cast<int>(hub_->seats.size()), options.name),
        waiting_(watch, options.deadline, caller_.size(), options.meanwhile) {}

  ~LocalCommunicator() override {
    seat().left.store(true, std::memory_order_seq_cst);
    ring_others();
  }

  int rank() const override { return caller_.rank(); }
  int size() const override { return caller_.size(); }
  const CommunicatorOptions& options() const override { return options_; }

  void set_about(int64_t about) override { caller_.set_about(about); }

  void all_reduce(const std::vector<at::Tensor>& tensors, ReduceOp op) override {
    OpenCall open = {caller_.all_reduce(tensors, op), ByteStrip(tensors), nullptr, nullptr};
    run(open, [&] {
      const ByteRange mine = share_of(open.strip.bytes(), rank(), size());
      reduce_strips(open.call.record, mine, 0, size());
    });
  }

  void reduce(const std::vector<at::Tensor>& tensors, ReduceOp op, int root) override {
    OpenCall open = {caller_.reduce(tensors, op, root), ByteStrip(tensors), nullptr, nullptr};
    run(open, [&] {
      const ByteRange mine = share_of(open.strip.bytes(), rank(), size());
      reduce_strips(open.call.record, mine, root, 1);
    });
  }

  // Everybody copies its share to all: the root alone would be slower.
  void broadcast(const std::vector<at::Tensor>& tensors, int root) override {
    OpenCall open = {caller_.broadcast(tensors, root), ByteStrip(tensors), nullptr, nullptr};
    run(open, [&] {
      const ByteRange mine = share_of(open.strip.bytes(), rank(), size());
      const ByteStrip& source = call_of(root).strip;
      for (int to = 0; to < size(); ++to) {
        if (to != root) copy_range(source, call_of(to).strip, mine);
      }
    });
  }

  // A member writes only what it owns, and the others read only what they own: none waits.
  void reduce_scatter_in_place(const std::vector<at::Tensor>& tensors,
                               const std::vector<int64_t>& counts, ReduceOp op) override {
    OpenCall open = {caller_.reduce_scatter_in_place(tensors, counts, op), ByteStrip(tensors),
                     nullptr, nullptr};
    run(open, [&] {
      const ByteRange mine = Borders(counts, open.call.row_bytes()).range(rank());
      reduce_strips(open.call.record, mine, rank(), 1);
    });
  }

  void all_gather_in_place(const std::vector<at::Tensor>& tensors,
                           const std::vector<int64_t>& counts) override {
    OpenCall open = {caller_.all_gather_in_place(tensors, counts), ByteStrip(tensors), nullptr,
                     nullptr};
    run(open, [&] {
      const Borders borders(counts, open.call.row_bytes());
      for (int from = 0; from < size(); ++from) {
        if (from != rank()) copy_range(call_of(from).strip, open.strip, borders.range(from));
      }
    });
  }

  void reduce_scatter(const at::Tensor& whole, const at::Tensor& part,
                      const std::vector<int64_t>& rows, ReduceOp op) override {
    OpenCall open = {caller_.reduce_scatter(whole, part, rows, op), {}, address(whole), nullptr};
    run(open, [&] {
      const int64_t begin = Parts(whole, rows, open.call.row_bytes()).begin(rank());
      c10::SmallVector<const void*, 16> sources;
      for (int i = 0; i < size(); ++i) sources.push_back(call_of(i).from + begin);
      void* target = part.data_ptr();
      reduce_elements(open.call.record.type, op, sources.data(), size(), &target, 1, part.numel());
    });
  }

  void all_gather(const at::Tensor& part, const at::Tensor& whole,
                  const std::vector<int64_t>& rows) override {
    OpenCall open = {caller_.all_gather(part, whole, rows), {}, address(part), nullptr};
    run(open, [&] {
      const Parts parts(whole, rows, open.call.row_bytes());
      for (int i = 0; i < size(); ++i) copy_bytes(parts.data(i), call_of(i).from, parts.bytes(i));
    });
  }

  void all_to_all(const at::Tensor& input, const at::Tensor& output,
                  const std::vector<int64_t>& rows_to,
                  const std::vector<int64_t>& rows_from) override {
    OpenCall open = {
        caller_.all_to_all(input, output, rows_to, rows_from), {}, address(input), nullptr};
    run(open, [&] {
      const Parts parts(output, rows_from, open.call.row_bytes());
      for (int i = 0; i < size(); ++i) {
        const OpenCall& other = call_of(i);
        const int64_t begin = Parts(input, other.call.rows, open.call.row_bytes()).begin(rank());
        copy_bytes(parts.data(i), other.from + begin, parts.bytes(i));
      }
    });
  }

  void send(const at::Tensor& tensor, int to, int tag) override;
  void receive(const at::Tensor& tensor, int from, int tag) override;

  void barrier() override {
    OpenCall open = {caller_.barrier(), {}, nullptr, nullptr};
    run(open, [] {});
  }

  bool read_each_other(const MemberCall& call, at::TensorList mine,
                       c10::function_ref<void(ShownTensors)> work) override {
    OpenCall open = {call, {}, nullptr, nullptr, mine};
    open.call.record.in_memory = true;
    run(open, [&] {
      c10::SmallVector<at::TensorList, 16> shown;
      for (int i = 0; i < size(); ++i) shown.push_back(call_of(i).shown);
      work(shown);
    });
    return true;
  }

  std::unique_ptr<Communicator> group(const std::vector<int>& ranks) override;

 private:
  Seat& seat(int member) const { return hub_->seats[static_cast<size_t>(member)]; }
  Seat& seat() const { return seat(rank()); }
  // Of a member in the same call, while it is open.
  const OpenCall& call_of(int member) const { return *seat(member).open; }

  template <typename Work>
  void run(const OpenCall& open, const Work& work);
  std::exception_ptr find_disagreement() const;
  void reduce_strips(const CallRecord& record, ByteRange range, int first_target,
                     int target_count) const;

  void ring_others() const;
  void throw_if_broken() const;
  // Ends a wait that cannot end well: `member` is what it waits for.
  void throw_if_left(int member, const std::atomic<uint64_t>& counter, uint64_t wanted) const;
  void wait_for_all(std::atomic<uint64_t> Seat::*counter, const MemberCall& call);
  void give_up(uint64_t number, const std::string& why) const;
  void look_at_mail();
  template <typename Ready>
  void wait_for_message(const Ready& ready, int peer, const char* call, const Contents& contents);

  // Members may cut the same elements into tensors in different ways.
  static void copy_range(const ByteStrip& from, const ByteStrip& to, const ByteRange& range) {
    from.each(range.begin, range.end, [&](const char* data, int64_t bytes, int64_t offset) {
      to.copy_in({range.begin + offset, range.begin + offset + bytes}, data);
    });
  }
  static char* address(const at::Tensor& tensor) { return static_cast<char*>(tensor.data_ptr()); }

  const std::shared_ptr<LocalHub> hub_;
  const CommunicatorOptions options_;
  Caller caller_;
  const Waiting waiting_;
  uint64_t calls_ = 0;      // collective calls that this member has begun
  uint64_t seen_mail_ = 0;  // letters that came before this one were looked at
};

// --- meeting -----------------------------------------------------------------------------------

// All members arrive, compare their calls, work, and leave when all have finished: until then the
// others may use this member's tensors.
template <typename Work>
void LocalCommunicator::run(const OpenCall& open, const Work& work) {
  waiting_.check();
  throw_if_broken();
  const uint64_t number = ++calls_;
  Seat& mine = seat();
  std::exception_ptr disagreement;
  try {
    mine.open = &open;
    mine.arrived.store(number, std::memory_order_seq_cst);
    ring_others();
    wait_for_all(&Seat::arrived, open.call);
    // Whoever gives up says so before it looks who entered; so either it waits for this member, or
    // this member does not touch its memory.
    mine.entered.store(number, std::memory_order_seq_cst);
    throw_if_broken();
    disagreement = find_disagreement();
    if (!disagreement) work();
    mine.finished.store(number, std::memory_order_seq_cst);
    ring_others();
    wait_for_all(&Seat::finished, open.call);
    throw_if_broken();  // one that gave up has finished without its work
  } catch (const std::exception& failure) {
    give_up(number, failure.what());
    throw;
  }
  if (disagreement) std::rethrow_exception(disagreement);
}

std::exception_ptr LocalCommunicator::find_disagreement() const {
  std::vector<CallView> views;
  views.reserve(hub_->seats.size());
  for (const Seat& other : hub_->seats) views.push_back(other.open->call.view());
  try {
    check_agreement(caller_, views);
  } catch (const Error&) {
    return std::current_exception();
  }
  return nullptr;
}

void LocalCommunicator::wait_for_all(std::atomic<uint64_t> Seat::*counter, const MemberCall& call) {
  const uint64_t number = calls_;
  for (int member = 0; member < size(); ++member) {
    const std::atomic<uint64_t>& theirs = seat(member).*counter;
    waiting_.until(
        seat().bell, [&] { return theirs.load(std::memory_order_seq_cst) >= number; },
        [&] {
          throw_if_broken();
          throw_if_left(member, theirs, number);
          look_at_mail();
        },
        [&] {
          return concat("communicator \"", options_.name, "\": member ", member,
                        " did not come within ", options_.deadline.count(), " ms to ",
                        describe_call(call.view()), ", where member ", rank(), " waits (its call ",
                        number, "; member ", member, " began ",
                        seat(member).arrived.load(std::memory_order_seq_cst), ")");
        });
  }
}

void LocalCommunicator::ring_others() const {
  for (int member = 0; member < size(); ++member) {
    if (member != rank()) seat(member).bell.ring();
  }
}

void LocalCommunicator::throw_if_broken() const {
  if (!hub_->broken.load(std::memory_order_seq_cst)) return;
  waiting_.check();  // whoever gave up may have been interrupted: then so is this member
  const MutexLock lock(hub_->mutex);
  throw JobFailed(concat("communicator \"", options_.name,
                         "\" is no longer whole, since a call of it was given up: ", hub_->why));
}

void LocalCommunicator::throw_if_left(int member, const std::atomic<uint64_t>& counter,
                                      uint64_t wanted) const {
  if (!seat(member).left.load(std::memory_order_seq_cst)) return;
  if (counter.load(std::memory_order_seq_cst) >= wanted) return;
  throw JobFailed(concat("member ", member, " of communicator \"", options_.name,
                         "\" has left, while member ", rank(), " waits for it in its call ",
                         wanted));
}

// The others may be at work on this member's tensors. They do not wait while they are, so this
// ends.
void LocalCommunicator::give_up(uint64_t number, const std::string& why) const {
  {
    const MutexLock lock(hub_->mutex);
    if (hub_->why.empty()) hub_->why = why;
  }
  hub_->broken.store(true, std::memory_order_seq_cst);
  seat().finished.store(number, std::memory_order_seq_cst);
  ring_others();
  for (const Seat& other : hub_->seats) {
    while (other.entered.load(std::memory_order_seq_cst) == number &&
           other.finished.load(std::memory_order_seq_cst) < number) {
      std::this_thread::yield();
    }
  }
}

// --- reductions --------------------------------------------------------------------------------

void LocalCommunicator::reduce_strips(const CallRecord& record, ByteRange range, int first_target,
                                      int target_count) const {
  const auto element_bytes = static_cast<int64_t>(c10::elementSize(record.type));
  c10::SmallVector<const void*, 16> sources(static_cast<size_t>(size()));
  c10::SmallVector<void*, 16> targets(static_cast<size_t>(size()));
  for (int64_t place = range.begin; place < range.end;) {
    int64_t bytes = range.end - place;
    for (int i = 0; i < size(); ++i) {
      const ByteStrip::Run run = call_of(i).strip.at(place);
      sources[static_cast<size_t>(i)] = targets[static_cast<size_t>(i)] = run.data;
      bytes = std::min(bytes, run.bytes);
    }
    reduce_elements(record.type, record.op, sources.data(), size(), targets.data() + first_target,
                    target_count, bytes / element_bytes);
    place += bytes;
  }
}

// --- messages ----------------------------------------------------------------------------------

// A sender may be unable to go on before its letter is out of its hands.
void LocalCommunicator::look_at_mail() {
  const uint64_t posted = seat().inbox.posted();
  if (posted == seen_mail_) return;
  seat().inbox.put_aside();
  seen_mail_ = posted;
}

template <typename Ready>
void LocalCommunicator::wait_for_message(const Ready& ready, int peer, const char* call,
                                         const Contents& contents) {
  // A message that was taken is not there to be taken again.
  bool done = false;
  const auto ready_once = [&] { return done || (done = ready()); };
  waiting_.until(
      seat().bell, ready_once,
      [&] {
        throw_if_broken();
        look_at_mail();
        if (!seat(peer).left.load(std::memory_order_seq_cst) || ready_once()) return;
        throw JobFailed(concat("member ", peer, " of communicator \"", options_.name,
                               "\" has left, while member ", rank(), " waits for it in a ",
                               describe_message(call, contents)));
      },
      [&] {
        return concat("communicator \"", options_.name, "\": member ", peer,
                      " did not answer within ", options_.deadline.count(), " ms to the ",
                      describe_message(call, contents), " of member ", rank());
      });
}

void LocalCommunicator::send(const at::Tensor& tensor, int to, int tag) {
  waiting_.check();
  throw_if_broken();
  Letter letter;
  letter.from = rank();
  letter.contents = caller_.message("send", tensor, to, tag);
  letter.data = tensor.data_ptr();
  letter.sender = &seat().bell;
  Inbox& inbox = seat(to).inbox;
  inbox.post(letter);
  seat(to).bell.ring();
  try {
    wait_for_message([&] { return letter.taken.load(std::memory_order_seq_cst); }, to, "send",
                     letter.contents);
  } catch (...) {
    inbox.withdraw(letter);
    throw;
  }
  EPL_CHECK(letter.refused.empty(), letter.refused);
}

void LocalCommunicator::receive(const at::Tensor& tensor, int from, int tag) {
  waiting_.check();
  throw_if_broken();
  const Contents expected = caller_.message("receive", tensor, from, tag);
  Inbox& inbox = seat().inbox;
  uint64_t looked = 0;  // the first look is always taken: a letter may have been put aside
  bool first = true;
  wait_for_message(
      [&] {
        const uint64_t posted = inbox.posted();
        if (!first && posted == looked) return false;
        first = false;
        looked = posted;
        return inbox.take(from, expected, tensor.data_ptr(), options_.name, rank());
      },
      from, "receive", expected);
}

// --- groups ------------------------------------------------------------------------------------

std::unique_ptr<Communicator> LocalCommunicator::group(const std::vector<int>& ranks) {
  OpenCall open = {caller_.group(ranks), {}, nullptr, nullptr};
  if (ranks.front() == rank()) open.group = std::make_shared<LocalHub>(ranks.size());
  std::shared_ptr<LocalHub> hub;
  run(open, [&] { hub = call_of(ranks.front()).group; });
  const auto found = std::find(ranks.begin(), ranks.end(), rank());
  if (found == ranks.end()) return nullptr;
  CommunicatorOptions options = options_;
  options.name += " [" + join(ranks, ", ") + "]";
  return std::make_unique<LocalCommunicator>(
      std::move(hub), static_cast<int>(found - ranks.begin()), waiting_.watch(), options);
}

}  // namespace

std::vector<std::unique_ptr<Communicator>> make_local_communicators(
    int size, Watch& watch, const CommunicatorOptions& options) {
  EPL_CHECK(size > 0, concat("communicator \"", options.name, "\" cannot have ", size, " members"));
  const auto hub = std::make_shared<LocalHub>(size);
  std::vector<std::unique_ptr<Communicator>> ends;
  for (int rank = 0; rank < size; ++rank) {
    ends.push_back(std::make_unique<LocalCommunicator>(hub, rank, watch, options));
  }
  return ends;
}

}  // namespace epl::comm
