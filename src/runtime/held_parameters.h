// Parameters of roles that lie on several workers: who has what of them, and how the others get
// it.
#pragma once

#include <ATen/core/Tensor.h>

#include <functional>
#include <map>
#include <utility>
#include <vector>

#include "layout/state_home.h"
#include "program/step_end.h"
#include "runtime/connections.h"

namespace epl {

// A parameter that the update changes on some worker.
struct HeldParameter : Home {
  int leaf = -1;  // of the plan; -1 where the step gives it no gradient
  at::Tensor parameter;
  std::vector<int> readers;  // roles that use it, whether they change it or not
};
using HeldParameters = std::vector<HeldParameter>;

// The first worker that has one of the roles that change a parameter: it speaks for it.
int first_holder(const Connections& connections, const std::vector<int>& roles);

// Whether all roles with a piece of the parameter lie on the same workers.
bool is_on_one_worker(const Connections& connections, const HeldParameter& held);

// What goes from one worker to others, joined by who takes part, by its root and its type. All
// workers make the same one, and walk through it in the same order.
class Gathering {
 public:
  // A tensor, or a piece of it. `from` is one of the members, which are sorted.
  struct Item {
    at::Tensor whole;
    Shard shard = {};
  };
  void add(Item item, const std::vector<int>& members, int from, Communicator* group);

  // All members call it. `stays`: of which tensors nothing travels, the same on all of them.
  using Stays = std::function<bool(const at::Tensor& whole)>;
  void run(const Stays& stays = {}) const;

 private:
  struct Travel {
    Communicator* group = nullptr;
    int root = 0;  // its rank in the group
    std::vector<Item> items;
  };
  std::map<std::pair<std::vector<int>, int>, Travel> travels_;  // by members and root
};

// What brings parameters that the step updates to the workers that do not: all of them, or those
// that a role on such a worker reads. Nobody reads a piece that is not its own.
enum class Gather : uint8_t { kAll, kRead };
Gathering gathering_of(const Connections& connections, const HeldParameters& held, Gather which);

// The same as the gather instructions of a plan name it; `others`: of those parameters that go on
// without a gradient, which no plan knows.
Gathering gathering_of(const Connections& connections, const HeldParameters& held,
                       const EndPhase& gather, Gather others);

// Of each parameter that is cut over devices, brings the pieces of tensors that lie as it does (the
// parameter itself, or states of its optimizer) to the workers that do not have them: to all, or to
// those that have another piece, since only they have such a state. All workers call it.
enum class Among : uint8_t { kAll, kHolders };
using PiecesOf = std::function<std::vector<at::Tensor>(const at::Tensor& parameter)>;
void gather_pieces(const Connections& connections, const HeldParameters& held, Among among,
                   const PiecesOf& pieces_of);

// Bytes of parameters, or pieces of them, that only other workers update and read.
int64_t bytes_of_others(const Connections& connections, const HeldParameters& held);

// Gives back the memory of what only other workers update and read, of tensors that lie as a
// parameter does.
void release_pieces_of_others(const Connections& connections, const HeldParameters& held,
                              const PiecesOf& pieces_of);

}  // namespace epl
