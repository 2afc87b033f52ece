#include "runtime/owner_gathering.h"

#include <ATen/ATen.h>

#include <map>
#include <set>

namespace epl {
namespace {

// All elements in a row, as owners count them: a view of the tensor, or a copy.
at::Tensor in_a_row(const at::Tensor& tensor, const at::Tensor& like) {
  const bool alike = tensor.sizes() == like.sizes() && tensor.strides() == like.strides() &&
                     tensor.is_non_overlapping_and_dense();
  if (alike) return tensor.as_strided({tensor.numel()}, {1});
  const at::Tensor copy = at::empty_like(like, tensor.options(), at::MemoryFormat::Preserve);
  return copy.copy_(tensor).as_strided({tensor.numel()}, {1});
}

struct Travelling {
  at::Tensor tensor;  // or a shard of it
  at::Tensor row;     // its elements as they travel
  Owners owners;

  // Where it travelled as a copy.
  void come_home(const at::Tensor& like) const {
    if (row.data_ptr() == tensor.data_ptr()) return;
    at::Tensor(tensor).copy_(row.as_strided(like.sizes(), like.strides()));
  }
};

// One call for all that has the same type.
template <typename Row>
void gather_of_type(const std::vector<Row>& all, const Connections::Sharers& sharers,
                    Communicator& workers) {
  std::vector<at::Tensor> rows;
  std::vector<int64_t> counts;
  for (int rank = 0; rank < workers.size(); ++rank) {
    int64_t& count = counts.emplace_back(0);
    for (const auto& each : all) {
      const Piece owned = owned_elements(each.owners, each.row.numel(), sharers.devices, rank);
      if (owned.length == 0) continue;
      rows.push_back(each.row.narrow(0, owned.begin, owned.length));
      count += owned.length;
    }
  }
  if (!rows.empty()) workers.all_gather_in_place(rows, counts);
}

class OwnerGathering {
 public:
  OwnerGathering(const Connections& connections, const PiecesOf& pieces_of)
      : connections_(connections), pieces_of_(pieces_of) {}

  void add(const HeldParameter& held) {
    if (held.owners.are_all()) return;
    if (held.shards.empty()) return add_of_role(held, held.roles[0], {});
    std::set<std::pair<int, int64_t>> seen;  // replicas on this worker have the same shard
    for (size_t i = 0; i < held.shards.size(); ++i) {
      if (seen.insert({held.roles[i], held.shards[i].piece.begin}).second) {
        add_of_role(held, held.roles[i], held.shards[i]);
      }
    }
  }

  void run() const {
    for (const auto& [role, by_type] : by_role_) {
      const Connections::Sharers& sharers = connections_.sharers_of(role);
      for (const auto& [type, all] : by_type) {
        gather_of_type(all, sharers, *connections_.workers_of({role}));
      }
    }
    for (const auto& [travelling, like] : copies_) travelling.come_home(like);
  }

 private:
  void add_of_role(const HeldParameter& held, int role, const Shard& shard) {
    if (connections_.sharers_of(role).rank < 0) return;
    at::Tensor like = held.parameter.detach();
    if (shard.is_cut()) {
      like = like.narrow(shard.dim, shard.piece.begin, shard.piece.length).contiguous();
    }
    for (const at::Tensor& whole : pieces_of_(held.parameter)) {
      const at::Tensor own =
          shard.is_cut() ? whole.narrow(shard.dim, shard.piece.begin, shard.piece.length) : whole;
      Travelling made{own, in_a_row(own, like), held.owners};
      copies_.emplace_back(made, like);
      by_role_[role][own.scalar_type()].push_back(std::move(made));
    }
  }

  const Connections& connections_;
  const PiecesOf& pieces_of_;
  std::map<int, std::map<at::ScalarType, std::vector<Travelling>>> by_role_;
  std::vector<std::pair<Travelling, at::Tensor>> copies_;  // with what they lie like
};

}  // namespace

void gather_rows(const std::vector<OwnedRow>& rows, const Connections::Sharers& sharers,
                 Communicator& workers) {
  const c10::AutoGradMode no_grad(false);
  std::map<at::ScalarType, std::vector<OwnedRow>> by_type;
  for (const OwnedRow& each : rows) by_type[each.row.scalar_type()].push_back(each);
  for (const auto& [type, all] : by_type) gather_of_type(all, sharers, workers);
}

void gather_from_owners(const Connections& connections, const HeldParameters& held,
                        const PiecesOf& pieces_of) {
  const c10::AutoGradMode no_grad(false);
  OwnerGathering gathering(connections, pieces_of);
  for (const HeldParameter& each : held) gathering.add(each);
  gathering.run();
}

Piece owned_here(const Connections& connections, const HeldParameter& held) {
  if (held.owners.are_all() || !held.shards.empty()) return {0, held.parameter.numel()};
  const Connections::Sharers& sharers = connections.sharers_of(held.roles[0]);
  if (sharers.rank < 0) return {};
  return owned_elements(held.owners, held.parameter.numel(), sharers.devices, sharers.rank);
}

std::vector<int> owners_of(const Connections& connections, const Home& home) {
  const std::vector<int> all = connections.workers_with(home.roles);
  if (home.owners.kind != Owners::Kind::kRank) return all;
  std::set<int> workers;
  for (int role : home.roles) {
    workers.insert(connections.workers_with({role})[static_cast<size_t>(home.owners.rank)]);
  }
  return {workers.begin(), workers.end()};
}

}  // namespace epl
