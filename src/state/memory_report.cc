#include "state/memory_report.h"

#include <algorithm>
#include <map>
#include <numeric>

#include "program/bytes_moved.h"
#include "program/memory_profile.h"
#include "program/near_bytes.h"
#include "program/owned_sums.h"
#include "program/walk.h"

namespace epl {
namespace {

int64_t bytes_of(const TensorType& type) { return type.numel() * type.item_bytes(); }

// What the devices of each role have sent and nobody has taken yet, at most: letters are copies.
// Each role goes as far as it gets before its letters are taken, which is the worst that can
// happen. What comes from another worker lies on both.
class MailVisitor final : public PlanVisitor {
 public:
  explicit MailVisitor(const MemorySources& sources)
      : sources_(sources), now_(sources.plan.roles()), most_(sources.plan.roles()) {}

  void visit(size_t role, const Instruction& instruction, const Instruction* sent) override {
    const Plan& plan = sources_.plan;
    if (instruction.kind == Instruction::Kind::kSend) {
      add(transfer_of(role, instruction), bytes_moved(plan.program_of(role), instruction));
    } else if (sent != nullptr) {
      const Transfer& transfer = transfer_of(role, instruction);
      add(transfer, -bytes_moved(plan.program_of(static_cast<size_t>(transfer.from)), *sent));
    }
  }
  void visit(const EndPhase& /*phase*/) override {}

  int64_t most(int role) const { return most_[static_cast<size_t>(role)]; }

 private:
  const Transfer& transfer_of(size_t role, const Instruction& moves) const {
    const int number = sources_.plan.role(role).transfer(moves);
    return sources_.plan.transfers[static_cast<size_t>(number)];
  }
  int worker_of_role(int role) const {
    return worker_of(sources_.placement.device({0, role, 0}), sources_.cluster);
  }

  void add(const Transfer& transfer, int64_t bytes) {
    std::set<int> holders = {transfer.from};
    const bool travels = worker_of_role(transfer.from) != worker_of_role(transfer.to);
    if (travels) holders.insert(transfer.to);
    for (int role : holders) {
      int64_t& now = now_[static_cast<size_t>(role)];
      now += bytes;
      most_[static_cast<size_t>(role)] = std::max(most(role), now);
    }
  }

  const MemorySources& sources_;
  std::vector<int64_t> now_;  // by role
  std::vector<int64_t> most_;
};

class Forecast {
 public:
  explicit Forecast(const MemorySources& sources) : sources_(sources), mail_(sources) {
    if (!sources.plan.transfers.empty()) walk(sources.plan, mail_);
  }

  MemoryReport run() {
    MemoryReport report;
    for (int worker = 0; worker < sources_.cluster.worker_num; ++worker) {
      report.workers.push_back(worker_report(worker));
    }
    return report;
  }

 private:
  // The one place that knows how the roles of a plan find their programs.
  const Program& program_of(int role) const {
    return sources_.plan.program_of(static_cast<size_t>(role));
  }
  const MemoryProfile& profile_of(int role) {
    const auto found = profiles_.find(role);
    if (found != profiles_.end()) return found->second;
    return profiles_.emplace(role, profile_memory(program_of(role))).first->second;
  }

  MemoryReport::Worker worker_report(int worker) {
    MemoryReport::Worker report;
    report.number = worker;
    for (const StateEntry& entry : sources_.state.entries()) add_state(entry, worker, report);
    report.shared[MemoryKind::kCommunication] = sources_.communicators;
    report.shared[MemoryKind::kWindows] = near_on(worker);
    int first = 0;
    for (int before = 0; before < worker; ++before) first += devices_of(before);
    for (int device = first; device < first + devices_of(worker); ++device) {
      report.devices.push_back(device_report(device, worker));
    }
    if (!report.devices.empty()) add_states_before(report.shared);
    return report;
  }

  int devices_of(int worker) const {
    return sources_.cluster.worker_devices[static_cast<size_t>(worker)];
  }

  MemoryReport::Device device_report(int device, int worker) {
    const int role = sources_.placement.place(device).role;
    const MemoryProfile& profile = profile_of(role);
    MemoryReport::Device report;
    report.number = device;
    report.bytes = profile.bytes;
    report.peak_at = profile.peak_at;
    report.workspace_at = profile.workspace_at;
    report.over_time = profile.over_time;
    report.phases = profile.phases;
    report.bytes[MemoryKind::kBuffers] += copied_state(device, role, worker);
    report.bytes[MemoryKind::kCommunication] += mail_.most(role);
    const bool first = sources_.placement.devices_of(role, worker, sources_.cluster)[0] == device;
    if (first) report.bytes[MemoryKind::kCommunication] += halves_of(role);
    if (first) report.bytes[MemoryKind::kGradients] += sums_of(role, worker);
    return report;
  }

  // That the worker keeps for all of its devices, by the account of the first.
  int64_t sums_of(int role, int worker) const {
    std::vector<int> shares;
    int rank = 0;
    for (int each : sources_.placement.workers_of(role, sources_.cluster)) {
      if (each == worker) rank = static_cast<int>(shares.size());
      shares.push_back(
          static_cast<int>(sources_.placement.devices_of(role, each, sources_.cluster).size()));
    }
    return worker_sum_bytes(program_of(role), shares, rank);
  }

  // Of the largest groups, and of one gradient times the scale.
  int64_t halves_of(int role) const {
    const Program& program = program_of(role);
    const bool between_workers = sources_.placement.workers_of(role, sources_.cluster).size() > 1;
    if (sources_.halves == 0 || !between_workers) return 0;
    std::vector<int64_t> groups;
    for (const Instruction& each : program.instructions) {
      if (each.kind == Instruction::Kind::kReduce) groups.push_back(bytes_moved(program, each) / 2);
    }
    std::sort(groups.rbegin(), groups.rend());
    groups.resize(std::min(groups.size(), static_cast<size_t>(sources_.halves)));
    int64_t largest = 0;
    for (const PlanGradient& each : program.gradients) {
      largest = std::max(largest, slot_bytes(program, each.slot));
    }
    return std::accumulate(groups.begin(), groups.end(), largest);
  }

  // --- what outlives steps
  // ------------------------------------------------------------------------

  static MemoryKind kind_of(StateKind kind) {
    if (kind == StateKind::kParameter) return MemoryKind::kParameters;
    return kind == StateKind::kBuffer ? MemoryKind::kBuffers : MemoryKind::kOptimizerState;
  }

  // Of what rests in a file, or is spread over workers: devices of a role bring the same, those of
  // others something else.
  int64_t near_on(int worker) const {
    int64_t bytes = 0;
    for (int role = 0; role < sources_.placement.roles(); ++role) {
      if (!is_on(role, worker)) continue;
      const Program& program = program_of(role);
      bytes += most_near(program, [&](int leaf) {
        const SlotId slot = program.leaves[static_cast<size_t>(leaf)].slot;
        const TensorType& type = program.slots[static_cast<size_t>(slot)].type;
        const Owners ranges{Owners::Kind::kRanges, 0};
        return bytes_of(type) -
               owned_elements_on(worker, role, ranges, type.numel()) * type.item_bytes();
      });
    }
    return bytes;
  }

  bool is_spread(const StateEntry& entry) const {
    if (entry.kind != StateKind::kParameter || !entry.home || entry.home->roles.empty())
      return false;
    const auto named = [&](const PlanLeaf& leaf) {
      return leaf.is_spread() && leaf.name == entry.name;
    };
    const auto& leaves = program_of(entry.home->roles[0]).leaves;
    return std::any_of(leaves.begin(), leaves.end(), named);
  }

  void add_state(const StateEntry& entry, int worker, MemoryReport::Worker& report) const {
    if (entry.medium == StateMedium::kFile) return;
    const bool at_rest = entry.medium == StateMedium::kHost;
    int64_t& sum = at_rest ? report.host : report.shared[kind_of(entry.kind)];
    sum += state_bytes(entry, worker);
  }

  int64_t state_bytes(const StateEntry& entry, int worker) const {
    const bool is_state = entry.kind == StateKind::kOptimizerState;
    if (is_spread(entry)) {
      const Owners ranges{Owners::Kind::kRanges, 0};
      return owned_elements_on(worker, entry.home->roles[0], ranges, entry.type.numel()) *
             entry.type.item_bytes();
    }
    if (is_state && entry.home && !entry.home->owners.are_all() && !entry.home->roles.empty()) {
      return owned_bytes(entry, worker);
    }
    const bool everywhere = is_state
                                ? sources_.made.count(entry.name) != 0
                                : entry.kind == StateKind::kBuffer || !sources_.releases_others;
    if (!everywhere && is_state && !entry.home) return 0;  // no step has made it
    const bool whole = everywhere || !entry.home || entry.home->roles.empty();
    return whole ? bytes_of(entry.type) : held_bytes(entry, worker);
  }

  // What a worker keeps of a state whose parameter has owners: of each of its shards a part.
  int64_t owned_bytes(const StateEntry& entry, int worker) const {
    const auto& roles = entry.home->roles;
    std::set<int64_t> begins;
    int64_t elements = 0;
    for (size_t i = 0; i < roles.size(); ++i) {
      const Shard shard = entry.shard(i);
      if (!is_on(roles[i], worker) || !begins.insert(shard.piece.begin).second) continue;
      const int64_t all = entry.type.numel();
      const int64_t of_shard =
          shard.is_cut() && shard.whole > 0 ? all / shard.whole * shard.piece.length : all;
      elements += owned_elements_on(worker, roles[i], entry.home->owners, of_shard);
    }
    const bool whole = elements > 0 && bytes_of(entry.type) < kLeastSharedBytes;
    return whole ? bytes_of(entry.type) : elements * entry.type.item_bytes();
  }

  // Of so many elements that workers of a role have alike; none on a worker without the role.
  int64_t owned_elements_on(int worker, int role, const Owners& owners, int64_t elements) const {
    const std::vector<int> workers = sources_.placement.workers_of(role, sources_.cluster);
    const auto here = std::find(workers.begin(), workers.end(), worker);
    if (here == workers.end()) return 0;
    std::vector<int> shares;
    for (int each : workers) {
      const auto devices = sources_.placement.devices_of(role, each, sources_.cluster);
      shares.push_back(static_cast<int>(devices.size()));
    }
    return owned_elements(owners, elements, shares, static_cast<int>(here - workers.begin()))
        .length;
  }

  bool is_on(int role, int worker) const {
    return !sources_.placement.devices_of(role, worker, sources_.cluster).empty();
  }

  // What a worker holds of a tensor that is updated, or read, by some roles alone.
  int64_t held_bytes(const StateEntry& entry, int worker) const {
    const int64_t all = bytes_of(entry.type);
    const auto here = [&](int role) { return is_on(role, worker); };
    const auto& roles = entry.home->roles;
    const bool is_state = entry.kind == StateKind::kOptimizerState;
    if (!entry.layout().is_cut()) {
      const bool reads = !is_state && std::any_of(entry.readers.begin(), entry.readers.end(), here);
      return reads || std::any_of(roles.begin(), roles.end(), here) ? all : 0;
    }
    std::set<int64_t> begins;  // replicas have the same pieces
    int64_t length = 0;
    for (size_t i = 0; i < roles.size(); ++i) {
      const Piece& piece = entry.shard(i).piece;
      if (here(roles[i]) && begins.insert(piece.begin).second) length += piece.length;
    }
    const int64_t whole = entry.shard(0).whole;
    if (whole == 0 || length == 0) return 0;
    return all < kLeastPagedBytes ? all : all / whole * length;
  }

  // --- state that steps write: the first device of a role has the user's own
  // ---------------------------

  int64_t whole_bytes(const Program& program, int leaf) const {
    const PlanLeaf& own = program.leaves[static_cast<size_t>(leaf)];
    const StateEntry* const entry = sources_.state.find(own.name);
    return entry != nullptr ? bytes_of(entry->type) : slot_bytes(program, own.slot);
  }

  int64_t copied_state(int device, int role, int worker) const {
    const Placement& placement = sources_.placement;
    const Program& program = program_of(role);
    const bool first = placement.devices_of(role, worker, sources_.cluster)[0] == device;
    const bool of_first_part = placement.roles_of(placement.stage_of(role))[0] == role;
    int64_t bytes = 0;
    for (int leaf : program.written_leaves) {
      const bool cut = program.leaves[static_cast<size_t>(leaf)].shard.is_cut();
      if (!(first && (cut || of_first_part))) bytes += whole_bytes(program, leaf);
    }
    return bytes;
  }

  // Where devices have to agree on what they wrote, what was there before is kept besides.
  void add_states_before(MemoryBytes& shared) const {
    for (int role = 0; role < sources_.placement.roles(); ++role) {
      const Program& program = program_of(role);
      if (sources_.plan.replicas * program.devices == 1) continue;
      for (int leaf : program.written_leaves) {
        const PlanLeaf& own = program.leaves[static_cast<size_t>(leaf)];
        const TensorType& type = program.slots[static_cast<size_t>(own.slot)].type;
        const StateEntry* const entry = sources_.state.find(own.name);
        const bool is_parameter = entry != nullptr && entry->kind == StateKind::kParameter;
        const bool mean = !is_parameter && c10::isFloatingType(type.dtype);
        if (!mean) shared[MemoryKind::kBuffers] += slot_bytes(program, own.slot);
      }
    }
  }

  const MemorySources& sources_;
  MailVisitor mail_;
  std::map<int, MemoryProfile> profiles_;  // by role
};

}  // namespace

MemoryReport forecast_memory(const MemorySources& sources) { return Forecast(sources).run(); }

}  // namespace epl
