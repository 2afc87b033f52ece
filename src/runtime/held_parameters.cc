#include "runtime/held_parameters.h"

#include <ATen/ATen.h>

#include <algorithm>
#include <numeric>
#include <set>

#include "runtime/pages.h"

namespace epl {
namespace {

std::vector<int> all_workers(const Connections& connections) {
  std::vector<int> workers(static_cast<size_t>(connections.cluster().worker_num));
  std::iota(workers.begin(), workers.end(), 0);
  return workers;
}

bool is_among(const std::vector<int>& some, const std::vector<int>& all) {
  return std::includes(all.begin(), all.end(), some.begin(), some.end());
}

// Visits what this worker neither updates nor reads: pieces, and parameters of other roles.
template <typename Visit>
void for_each_piece_of_others(const Connections& connections, const HeldParameters& all,
                              const Visit& visit) {
  const auto is_here = [&](const std::vector<int>& roles) {
    return is_among({connections.cluster().worker_index}, connections.workers_with(roles));
  };
  for (const auto& held : all) {
    const at::Tensor& parameter = held.parameter;
    for (size_t i = 0; i < held.shards.size(); ++i) {
      if (is_here({held.roles[i]})) continue;
      visit(parameter, held.shards[i].dim, held.shards[i].piece);
    }
    const bool elsewhere = held.shards.empty() && !is_here(held.roles) && !is_here(held.readers);
    if (elsewhere && parameter.dim() > 0) visit(parameter, 0, Piece{0, parameter.size(0)});
  }
}

// To all workers, where one of those with a role that lacks it does not have it.
void add_parameter(const Connections& connections, const HeldParameter& held,
                   const std::vector<int>& lacking, Gathering& gathering) {
  const std::vector<int> needing = connections.workers_with(lacking);
  const auto add = [&](const std::vector<int>& roles, const Shard& shard) {
    const std::vector<int> have = connections.workers_with(roles);
    if (is_among(needing, have)) return;
    gathering.add({held.parameter, shard}, all_workers(connections), have.front(),
                  connections.workers());
  };
  if (held.shards.empty()) return add(held.roles, {});
  for (size_t i = 0; i < held.shards.size(); ++i) add({held.roles[i]}, held.shards[i]);
}

std::vector<int> all_roles(const Connections& connections) {
  std::vector<int> roles(static_cast<size_t>(connections.placement().roles()));
  std::iota(roles.begin(), roles.end(), 0);
  return roles;
}

std::vector<int> roles_that_lack(const Connections& connections, const HeldParameter& held,
                                 Gather which) {
  if (which == Gather::kAll) return all_roles(connections);
  return held.shards.empty() ? held.readers : std::vector<int>();
}

}  // namespace

int first_holder(const Connections& connections, const std::vector<int>& roles) {
  return connections.workers_with(roles).front();
}

bool is_on_one_worker(const Connections& connections, const HeldParameter& held) {
  const std::vector<int> all = connections.workers_with(held.roles);
  return std::all_of(held.roles.begin(), held.roles.end(),
                     [&](int role) { return connections.workers_with({role}) == all; });
}

void Gathering::add(Item item, const std::vector<int>& members, int from, Communicator* group) {
  Travel& travel = travels_[{members, from}];
  travel.group = group;
  const auto place = std::find(members.begin(), members.end(), from);
  travel.root = static_cast<int>(place - members.begin());
  travel.items.push_back(std::move(item));
}

// Where tensors lie is looked at anew each time: the user may move one of them between steps.
void Gathering::run(const Stays& stays) const {
  const c10::AutoGradMode no_grad(false);
  for (const auto& [key, travel] : travels_) {
    std::map<at::ScalarType, std::vector<std::pair<at::Tensor, at::Tensor>>> by_type;
    for (const Item& item : travel.items) {
      if (stays && stays(item.whole)) continue;
      at::Tensor own = item.whole.detach();
      if (item.shard.is_cut()) {
        own = own.narrow(item.shard.dim, item.shard.piece.begin, item.shard.piece.length);
      }
      if (own.numel() > 0) by_type[own.scalar_type()].emplace_back(own, own.contiguous());
    }
    for (const auto& [type, pairs] : by_type) {
      std::vector<at::Tensor> travelling;
      for (const auto& pair : pairs) travelling.push_back(pair.second);
      travel.group->broadcast(travelling, travel.root);
      for (const auto& [own, copy] : pairs) {
        if (copy.data_ptr() != own.data_ptr()) at::Tensor(own).copy_(copy);
      }
    }
  }
}

Gathering gathering_of(const Connections& connections, const HeldParameters& held, Gather which) {
  Gathering gathering;
  if (!connections.roles_on_workers()) return gathering;
  for (const auto& each : held) {
    add_parameter(connections, each, roles_that_lack(connections, each, which), gathering);
  }
  return gathering;
}

Gathering gathering_of(const Connections& connections, const HeldParameters& held,
                       const EndPhase& gather, Gather others) {
  std::map<int, std::vector<int>> lacking;  // by leaf: the roles that name it
  for (const auto& [role, instruction] : gather.instructions) {
    for (int leaf : instruction->leaves) lacking[leaf].push_back(role);
  }
  Gathering gathering;
  for (const auto& each : held) {
    add_parameter(connections, each,
                  each.leaf < 0 ? roles_that_lack(connections, each, others) : lacking[each.leaf],
                  gathering);
  }
  return gathering;
}

void gather_pieces(const Connections& connections, const HeldParameters& held, Among among,
                   const PiecesOf& pieces_of) {
  const c10::AutoGradMode no_grad(false);
  const int here = connections.cluster().worker_index;
  Gathering gathering;
  for (const auto& each : held) {
    const std::vector<int> holders = connections.workers_with(each.roles);
    const std::vector<int> members = among == Among::kAll ? all_workers(connections) : holders;
    if (members.size() == 1 || !is_among({here}, members)) continue;
    Communicator* const group =
        among == Among::kAll ? connections.workers() : connections.workers_of(each.roles);
    for (size_t i = 0; i < each.shards.size(); ++i) {
      const std::vector<int> have = connections.workers_with({each.roles[i]});
      if (have.size() == members.size()) continue;
      for (const at::Tensor& whole : pieces_of(each.parameter)) {
        gathering.add({whole, each.shards[i]}, members, have.front(), group);
      }
    }
  }
  gathering.run();
}

int64_t bytes_of_others(const Connections& connections, const HeldParameters& held) {
  int64_t bytes = 0;
  for_each_piece_of_others(connections, held, [&](const at::Tensor& whole, int dim, Piece piece) {
    if (whole.numel() > 0) {
      bytes += static_cast<int64_t>(whole.nbytes()) / whole.size(dim) * piece.length;
    }
  });
  return bytes;
}

void release_pieces_of_others(const Connections& connections, const HeldParameters& held,
                              const PiecesOf& pieces_of) {
  for_each_piece_of_others(connections, held, [&](const at::Tensor& one, int dim, Piece piece) {
    for (const at::Tensor& whole : pieces_of(one)) {
      if (!whole.device().is_cpu() || !whole.is_contiguous()) continue;
      release_pages(whole, dim, piece.begin, piece.length);
    }
  });
}

}  // namespace epl
