#include "runtime/stage_mail.h"

#include <ATen/ATen.h>

#include <algorithm>

#include "base/check.h"

namespace epl {
namespace {

using Clock = std::chrono::steady_clock;

bool is_move(const Instruction& instruction) {
  return instruction.kind == Instruction::Kind::kSend ||
         instruction.kind == Instruction::Kind::kReceive;
}

// Without the repetitions of an expanded tensor: what has to travel.
at::Tensor core_of(const at::Tensor& tensor) {
  at::Tensor core = tensor;
  for (int64_t dim = 0; dim < core.dim(); ++dim) {
    if (core.stride(dim) == 0 && core.size(dim) > 1) core = core.narrow(dim, 0, 1);
  }
  return core;
}

std::vector<int64_t> core_sizes(const TensorType& type, int batch_dim, int64_t rows) {
  std::vector<int64_t> sizes = type.sizes;
  if (batch_dim >= 0) sizes[static_cast<size_t>(batch_dim)] = rows;
  for (size_t dim = 0; dim < sizes.size(); ++dim) {
    if (type.strides[dim] == 0 && sizes[dim] > 1) sizes[dim] = 1;
  }
  return sizes;
}

}  // namespace

StageMail::StageMail(const Plan& plan, const Placement& placement, const Cluster& cluster,
                     Mailbox& mailbox, const std::vector<DeviceRoute>& routes, DeviceTeam& team)
    : plan_(plan),
      placement_(placement),
      cluster_(cluster),
      mailbox_(mailbox),
      routes_(routes),
      team_(team) {
  for (const auto& each : routes_) {
    const bool starts_here = worker_of(each.from, cluster_) == cluster_.worker_index;
    if (starts_here) outgoing_[{each.from, each.to}] = &each;
  }
  for (const auto& transfer : plan_.transfers) {
    const auto add = [&](int role, bool sends, auto& to) {
      to.emplace_back();
      for (int i = 0; i < plan_.program_of(static_cast<size_t>(role)).devices; ++i) {
        to.back().push_back(parcels_of(transfer, sends, i));
      }
    };
    add(transfer.from, true, sent_);
    add(transfer.to, false, received_);
  }
}

// A step that fails on one device leaves lanes behind, which end when the job's failure comes to
// their Watch.
StageMail::~StageMail() {
  try {
    finish();
  } catch (...) {
    // The step has thrown what is to be known.
  }
}

// Where both stages cut rows alike a device has one peer, which takes all; else those with common
// rows.
std::vector<StageMail::Parcel> StageMail::parcels_of(const Transfer& transfer, bool sends,
                                                     int slice) {
  const size_t count = transfer.items.size();
  std::map<int, Parcel> by_peer;
  const auto rows_for = [&](int peer, size_t item) -> OwnRows& {
    Parcel& parcel = by_peer[peer];
    parcel.peer = peer;
    parcel.items.resize(count);
    return parcel.items[item];
  };
  for (size_t item = 0; item < count; ++item) {
    if (transfer.items[item].batch_dim < 0) rows_for(slice, item) = {0, 1};
    for (const auto& rows : transfer.items[item].rows) {
      if ((sends ? rows.from : rows.to) != slice) continue;
      rows_for(sends ? rows.to : rows.from, item) = {sends ? rows.first : rows.place, rows.count};
    }
  }
  std::vector<Parcel> result;
  for (auto& [peer, parcel] : by_peer) result.push_back(std::move(parcel));
  return result;
}

size_t StageMail::number_of(const Instruction& instruction, int device) const {
  const auto role = static_cast<size_t>(placement_.place(device).role);
  return static_cast<size_t>(plan_.role(role).transfer(instruction));
}

const std::vector<StageMail::Parcel>& StageMail::parcels(const Instruction& instruction,
                                                         int device) const {
  EPL_ASSERT(is_move(instruction), "a send or a receive");
  const bool sends = instruction.kind == Instruction::Kind::kSend;
  const auto& of_transfer = (sends ? sent_ : received_)[number_of(instruction, device)];
  return of_transfer[static_cast<size_t>(placement_.place(device).slice)];
}

int StageMail::peer_device(const Instruction& instruction, int device, const Parcel& parcel) const {
  const Transfer& transfer = plan_.transfers[number_of(instruction, device)];
  const bool sends = instruction.kind == Instruction::Kind::kSend;
  return placement_.device(
      {placement_.place(device).replica, sends ? transfer.to : transfer.from, parcel.peer});
}

at::Tensor StageMail::piece(const Executor& executor, const Instruction& instruction, size_t item,
                            const OwnRows& rows) const {
  const at::Tensor& whole = executor.tensor(instruction.slots[item]);
  // Transfers of roles that share a program differ in their ends alone.
  const Transfer& transfer = plan_.transfers[static_cast<size_t>(instruction.transfer)];
  const int dim = transfer.items[item].batch_dim;
  return core_of(dim < 0 ? whole : whole.narrow(dim, rows.first, rows.count));
}

void StageMail::begin() {
  const MutexLock lock(mutex_);
  works_.clear();
  mailbox_.clear();
  for (const auto& each : routes_) {
    if (worker_of(each.to, cluster_) != cluster_.worker_index) continue;
    works_.push_back(each.route.lane->start([this, &each] { receive_all(each); }));
  }
}

void StageMail::send(int device, const Executor& executor, const Instruction& send) {
  for (const auto& parcel : parcels(send, device)) {
    Letter letter;
    letter.sent = Clock::now();
    for (size_t item = 0; item < parcel.items.size(); ++item) {
      letter.tensors.push_back(
          piece(executor, send, item, parcel.items[item]).clone(at::MemoryFormat::Contiguous));
    }
    const int peer = peer_device(send, device, parcel);
    const LetterKey key{static_cast<int>(number_of(send, device)), send.micro_batch, device, peer};
    const auto found = outgoing_.find({device, peer});
    if (found == outgoing_.end()) {
      mailbox_.post(key, std::move(letter));
      continue;
    }
    const DeviceRoute& out = *found->second;
    const MutexLock lock(mutex_);
    works_.push_back(out.route.lane->start([&out, tensors = std::move(letter.tensors)] {
      for (const auto& tensor : tensors) {
        if (tensor.numel() > 0) out.route.communicator->send(tensor, out.peer_rank, 0);
      }
    }));
  }
}

// In the order in which the sender's program sends.
void StageMail::receive_all(const DeviceRoute& each) {
  const DeviceMemory::Use use(team_.memory(each.to - cluster_.first_device()));
  const Place from = placement_.place(each.from);
  const Program& sender = plan_.program_of(static_cast<size_t>(from.role));
  for (const auto& instruction : sender.instructions) {
    if (instruction.kind != Instruction::Kind::kSend) continue;
    const size_t number = number_of(instruction, each.from);
    const Transfer& transfer = plan_.transfers[number];
    for (const auto& parcel : parcels(instruction, each.from)) {
      if (peer_device(instruction, each.from, parcel) != each.to) continue;
      Letter letter;
      for (size_t item = 0; item < parcel.items.size(); ++item) {
        const SlotId slot = instruction.slots[item];
        const TensorType& type = sender.slots[static_cast<size_t>(slot)].type;
        const auto sizes =
            core_sizes(type, transfer.items[item].batch_dim, parcel.items[item].count);
        letter.tensors.push_back(at::empty(sizes, at::TensorOptions(type.dtype)));
        if (letter.tensors.back().numel() == 0) continue;
        each.route.communicator->receive(letter.tensors.back(), each.peer_rank, 0);
      }
      letter.sent = Clock::now();
      mailbox_.post({static_cast<int>(number), instruction.micro_batch, each.from, each.to},
                    std::move(letter));
    }
  }
}

Clock::time_point StageMail::receive(int device, const Executor& executor,
                                     const Instruction& receive,
                                     const std::function<void()>& meanwhile) {
  Clock::time_point sent{};
  for (const auto& parcel : parcels(receive, device)) {
    const int peer = peer_device(receive, device, parcel);
    const size_t number = number_of(receive, device);
    const LetterKey key{static_cast<int>(number), receive.micro_batch, peer, device};
    const Letter letter = mailbox_.take(key, meanwhile, [&] {
      const Transfer& transfer = plan_.transfers[number];
      return concat("what device ", device, " waits for from device ", peer, " (", transfer.name,
                    ", micro batch ", receive.micro_batch, ")");
    });
    sent = std::max(sent, letter.sent);
    for (size_t item = 0; item < parcel.items.size(); ++item) {
      piece(executor, receive, item, parcel.items[item]).copy_(letter.tensors[item]);
    }
  }
  return sent;
}

void StageMail::finish() {
  std::vector<std::shared_ptr<Work>> works;
  {
    const MutexLock lock(mutex_);
    works.swap(works_);
  }
  for (const auto& work : works) work->wait();
}

}  // namespace epl
