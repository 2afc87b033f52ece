#include "program/text.h"

#include <algorithm>
#include <sstream>

#include "base/text.h"
#include "layout/constant_text.h"
#include "program/bytes_moved.h"
#include "program/plan_mesh.h"
#include "program/program_text.h"
#include "program/text_rules.h"

namespace epl {
namespace {

// Nothing where there is one device.
std::string print_devices(const Plan& plan) {
  const int devices = plan.devices_of_replica();
  if (int64_t{plan.replicas} * devices == 1) return "";
  std::string text = concat(", ", plan.replicas, plan.replicas == 1 ? " replica" : " replicas");
  if (devices != 1) text += concat(" of ", devices, " devices");
  return text;
}

int64_t largest_arena(const Plan& plan) {
  int64_t largest = 0;
  for (const auto& program : plan.programs) largest = std::max(largest, program.arena_bytes);
  return largest;
}

// On one line, and so that it is clear where it ends.
std::string print_remark(const std::string& remark) {
  const bool plain = !remark.empty() && remark.find('\n') == std::string::npos &&
                     remark.front() != '"' && remark.front() != ' ' && remark.back() != ' ';
  return plain ? remark : quoted(remark);
}

// Who sends which rows to whom, where the two ends cut them otherwise.
void print_rows(const Transfer& transfer, std::ostream& out) {
  for (size_t i = 0; i < transfer.items.size(); ++i) {
    const Transfer::Item& item = transfer.items[i];
    if (item.batch_dim == -1 && item.rows.empty()) continue;
    std::vector<std::string> parts;
    for (const auto& rows : item.rows) {
      parts.push_back(concat(rows.count, " from ", rows.first, " of device ", rows.from, " to ",
                             rows.place, " of ", rows.to));
    }
    out << "rows      value " << i << " in dim " << item.batch_dim << ": " << join(parts, ", ")
        << "\n";
  }
}

// Who hands what to whom, and how many bytes of one micro batch.
std::string print_transfer(const Plan& plan, const Transfer& transfer) {
  const PlanRole role = plan.role(static_cast<size_t>(transfer.from));
  const Program& sender = role.program;
  const auto number = static_cast<int>(&transfer - plan.transfers.data());
  int64_t bytes = 0;
  for (const auto& instruction : sender.instructions) {
    const bool first = instruction.kind == Instruction::Kind::kSend &&
                       role.transfer(instruction) == number && instruction.micro_batch == 0;
    if (!first) continue;
    for (SlotId id : instruction.slots) bytes += slot_bytes(sender, id);
  }
  return concat(print_words(transfer.name), ", role ", transfer.from, " to ", transfer.to, ": ",
                transfer.items.size(), transfer.items.size() == 1 ? " value, " : " values, ",
                human_bytes(bytes * sender.devices), " a micro batch");
}

std::string print_tied(const std::vector<Plan::TiedGradient>& gradients) {
  std::vector<std::string> parts;
  for (const auto& each : gradients) {
    parts.push_back(concat("gradient ", each.gradient, " of role ", each.role));
  }
  return join(parts, ", ");
}

// Nothing of the only program of a plan with one role.
std::string print_roles(const Plan& plan, const Program& program) {
  if (plan.roles() == 1) return "";
  const std::string roles = program.roles == 1 ? "" : concat(program.roles, " roles, each ");
  return concat("  ", roles, program.devices, program.devices == 1 ? " device" : " devices",
                ", arena ", human_bytes(program.arena_bytes));
}

// How what devices have of an output becomes one; nothing where one has it.
std::string print_merge(const PlanOutput& output) {
  const bool plain = output.devices == 1 && !output.all_alike && output.merge == SliceMerge::kMean;
  if (plain) return "";
  const std::string who = concat(", ", output.devices, " devices");
  if (output.all_alike) return who + " alike";
  switch (output.merge) {
    case SliceMerge::kMean:
      return who + ", mean";
    case SliceMerge::kSum:
      return who + ", sum";
    case SliceMerge::kConcat:
      break;
  }
  return who + concat(", rows in dim ", output.batch_dim);
}

// Nothing of a loss that is that of one micro batch on one device.
void print_outputs(const Plan& plan, std::ostream& out) {
  const std::string merge = print_merge(plan.loss);
  const bool plain = plan.loss.role == 0 && merge.empty() && plan.seed == 1 && plan.loss_parts == 1;
  if (!plain) {
    out << "loss      role " << plan.loss.role << merge << ", over "
        << print_constant(plan.loss_parts) << ", seed " << print_constant(plan.seed) << "\n";
  }
  for (const auto& metric : plan.metrics) {
    out << "metric    " << quoted(metric.name) << " of " << quoted(metric.collection) << ", role "
        << metric.role << print_merge(metric) << "\n";
  }
}

}  // namespace

std::string print_plan(const Plan& plan, CostText costs) {
  std::ostringstream out;
  out << "plan: " << plan.programs.size()
      << (plan.programs.size() == 1 ? " program, " : " programs, ") << plan.micro_batches
      << " micro batches" << print_devices(plan) << ", arena " << human_bytes(largest_arena(plan))
      << "\n";
  for (const auto& remark : plan.remarks) out << "note      " << print_remark(remark) << "\n";
  print_outputs(plan, out);
  if (!plan.schedule.stages.empty()) {
    out << print_schedule(plan.schedule) << print_unusual_schedule(plan.schedule);
  }
  for (size_t i = 0; i < plan.transfers.size(); ++i) {
    out << "transfer " << i << "  " << print_transfer(plan, plan.transfers[i]) << "\n";
    print_rows(plan.transfers[i], out);
  }
  for (const auto& gradients : plan.tied) out << "tied      " << print_tied(gradients) << "\n";
  const std::vector<ProgramMesh> meshes = meshes_of(plan);
  for (size_t i = 0; i < plan.programs.size(); ++i) {
    const Program& program = plan.programs[i];
    out << "program " << i << print_roles(plan, program) << "\n";
    if (meshes[i].mesh.size() != 1) {
      out << "mesh      " << print_mesh(meshes[i], program.roles * program.devices) << "\n";
    }
    print_program(program, usual_stage(plan, static_cast<int>(i)), costs, out);
  }
  return out.str();
}

}  // namespace epl
