// The hook in LibTorch's dispatcher: a fallback for every operator on DispatchKey::DeferredInit, a
// key that LibTorch reserves for libraries outside of its core. It lies above autograd; it acts
// only on a thread that an AmpScope switched it on for.
#include "capture/amp_scope.h"

#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <algorithm>
#include <optional>
#include <vector>

#include "base/check.h"
#include "config/libtorch.h"
#include "layout/dtype_names.h"
#include "ops/facts.h"
#include "ops/rule.h"

namespace epl {
namespace {

constexpr auto kAmpKey = c10::DispatchKey::DeferredInit;
constexpr auto kWide = c10::ScalarType::Float;

thread_local const AmpScope* current_scope = nullptr;

bool is_lower(c10::ScalarType type) {
  return type == c10::ScalarType::BFloat16 || type == c10::ScalarType::Half;
}

// Calls visit(tensor&) for each tensor of floating-point numbers of an argument, also of a list
// that may have gaps.
template <typename Visit>
void for_each_floating(c10::IValue& argument, Visit visit) {
  const auto see = [&](at::Tensor tensor, auto put_back) {
    if (!tensor.defined() || !tensor.is_floating_point()) return;
    if (visit(tensor)) put_back(std::move(tensor));
  };
  if (argument.isTensor()) {
    see(argument.toTensor(), [&](at::Tensor made) { argument = std::move(made); });
  } else if (argument.isTensorList()) {
    const c10::List<at::Tensor> given = argument.toTensorList();
    c10::List<at::Tensor> list = given.copy();  // the caller's own stays as it is
    for (size_t i = 0; i < list.size(); ++i) {
      see(list.get(i), [&](at::Tensor made) { list.set(i, std::move(made)); });
    }
    argument = std::move(list);
  } else if (argument.isOptionalTensorList()) {
    c10::List<c10::optional<at::Tensor>> list = argument.toOptionalTensorList().copy();
    for (size_t i = 0; i < list.size(); ++i) {
      const c10::optional<at::Tensor> tensor = list.get(i);
      if (tensor) see(*tensor, [&](at::Tensor made) { list.set(i, std::move(made)); });
    }
    argument = std::move(list);
  }
}

// The floating-point tensors that an operator is given.
struct Given {
  bool doubles = false;
  bool lower = false;                      // among those that decide the type of a result
  bool single = false;                     // likewise
  c10::optional<c10::ScalarType> written;  // the type of the first that is written
  c10::optional<c10::ScalarType> sparse;   // of the first that is not strided

  static Given of(const c10::FunctionSchema& schema, torch::jit::Stack& stack) {
    Given given;
    std::vector<std::pair<c10::ScalarType, bool>> types;  // and whether it has no dimension
    const size_t count = schema.arguments().size();
    for (size_t i = 0; i < count; ++i) {
      const auto* alias = schema.arguments()[i].alias_info();
      const bool written = alias != nullptr && alias->isWrite();
      for_each_floating(stack[stack.size() - count + i], [&](const at::Tensor& tensor) {
        if (tensor.layout() != c10::kStrided) {
          if (!given.sparse) given.sparse = tensor.scalar_type();
          return false;
        }
        types.emplace_back(tensor.scalar_type(), tensor.dim() == 0);
        if (written && !given.written) given.written = tensor.scalar_type();
        return false;
      });
    }
    given.look_at(types);
    return given;
  }

 private:
  // Beside others a tensor without dimensions is a number, whose type does not count.
  void look_at(const std::vector<std::pair<c10::ScalarType, bool>>& types) {
    const bool numbers_alone =
        std::all_of(types.begin(), types.end(), [](const auto& each) { return each.second; });
    for (const auto& [type, is_number] : types) {
      doubles |= type == c10::ScalarType::Double;
      if (is_number && !numbers_alone) continue;
      lower |= is_lower(type);
      single |= type == kWide;
    }
  }
};

// The type that tensors of another one are cast to; none where all stay as they are.
c10::optional<c10::ScalarType> type_for(const c10::OperatorHandle& op, const OperatorFacts& facts,
                                        Precision list, const Given& given, c10::ScalarType lower) {
  if (given.doubles) return c10::nullopt;
  // Sparse tensors are not cast, and LibTorch multiplies none by a tensor of another type.
  if (given.sparse) {
    const bool widens = given.lower && given.sparse == kWide;
    return widens ? c10::make_optional(kWide) : c10::nullopt;
  }
  if (given.written) {
    // Sums and products of several types keep more bits where LibTorch rounds the result alone.
    // Where it writes some elements alone, it wants all of one type.
    const bool demands = list == Precision::kLower || facts.has(OperatorTrait::kChangesSome);
    const bool widens = given.written == kWide && !overwrites(op);
    return demands || widens ? given.written : c10::nullopt;
  }
  switch (list) {
    case Precision::kLower:
      return lower;
    case Precision::kFloat32:
      return kWide;
    case Precision::kWidest:
      if (given.lower && given.single) return kWide;
      break;
    case Precision::kAsGiven:
    case Precision::kUnsaid:
      break;
  }
  return c10::nullopt;
}

Precision list_of(const OperatorFacts& facts, const c10::FunctionSchema& schema,
                  const torch::jit::Stack& stack) {
  if (kTransposesInLower || facts.cost.kind != OperatorCost::Kind::kConvolution) {
    return facts.precision;
  }
  const c10::IValue& transposed = stack[stack.size() - schema.arguments().size() + facts.cost.flag];
  return transposed.isBool() && transposed.toBool() ? Precision::kFloat32 : facts.precision;
}

// What is written through a view of a copy would be lost.
void check_is_no_view(const c10::OperatorHandle& op, const OperatorFacts& facts,
                      c10::ScalarType from, c10::ScalarType to) {
  EPL_CHECK(!facts.has(OperatorTrait::kView),
            concat(c10::toString(op.operator_name()),
                   " shows the memory of its argument, and that "
                   "would have to be cast from ",
                   dtype_name(from), " to ", dtype_name(to), ": a view of a copy"),
            "amp.level = \"O1\"",
            "x.to(torch::kFloat) before it, or what it reads computed by operators in float32");
}

void cast_arguments(const c10::OperatorHandle& op, torch::jit::Stack& stack) {
  const OperatorFacts* const facts = find_facts(op);
  if (facts == nullptr) return;
  const c10::FunctionSchema& schema = op.schema();
  const Given given = Given::of(schema, stack);
  const Precision list = list_of(*facts, schema, stack);
  if (!given.lower && list != Precision::kLower) return;
  const auto type = type_for(op, *facts, list, given, current_scope->lower());
  if (!type) return;
  const size_t count = schema.arguments().size();
  for (size_t i = 0; i < count; ++i) {
    const auto* alias = schema.arguments()[i].alias_info();
    if (alias != nullptr && alias->isWrite()) continue;
    for_each_floating(stack[stack.size() - count + i], [&](at::Tensor& tensor) {
      const c10::ScalarType from = tensor.scalar_type();
      if (from == *type || tensor.layout() != c10::kStrided) return false;
      check_is_no_view(op, *facts, from, *type);
      tensor = tensor.to(*type);
      CastLog* const log = current_scope->log();
      if (log != nullptr) {
        log->add({c10::toString(op.operator_name()), from, *type, list},
                 static_cast<int64_t>(tensor.nbytes()));
      }
      return true;
    });
  }
}

// LibTorch's CPU kernels have no half precision for much of what a step computes.
[[noreturn]] void throw_without_kernel(const c10::OperatorHandle& op, const c10::Error& error) {
  throw Error(concat("LibTorch has no kernel of ", c10::toString(op.operator_name()),
                     " for float16 on this device (", error.what_without_backtrace(), ")"),
              "amp.dtype = \"float16\"", "amp.dtype = \"bfloat16\", which \"auto\" is on CPUs");
}

bool misses_kernel(const c10::Error& error) {
  const std::string text = error.what_without_backtrace();
  return text.find("not implemented for 'Half'") != std::string::npos;
}

// Made of others, which autograd and a recorder see in its place. Not where the device has a kernel
// of its own for it, which LibTorch then prefers.
bool is_composite(const c10::OperatorHandle& op, c10::DispatchKeySet keys) {
  const c10::DispatchKey backend =
      c10::toRuntimePerBackendFunctionalityKey(c10::DispatchKey::Dense, keys.highestBackendKey());
  return op.hasKernelForDispatchKey(c10::DispatchKey::CompositeImplicitAutograd) &&
         !op.hasKernelForDispatchKey(backend);
}

// What a composite operator is made of is seen in turn: the key is passed by, but not switched off.
// Inside of any other it is: a recorder takes that for one operator and replays it as one, so what
// its kernel calls (the products of _trilinear, of _euclidean_dist) runs in the types it was given.
void cast_and_call(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                   torch::jit::Stack* stack) {
  if (current_scope != nullptr) {
    const c10::impl::ExcludeDispatchKeyGuard unseen(kAmpKey);
    cast_arguments(op, *stack);
  }
  const c10::DispatchKeySet below =
      keys & c10::DispatchKeySet(c10::DispatchKeySet::FULL_AFTER, kAmpKey);
  try {
    std::optional<c10::impl::ExcludeDispatchKeyGuard> unseen;
    if (!is_composite(op, keys)) unseen.emplace(kAmpKey);
    op.redispatchBoxed(below, stack);
  } catch (const c10::Error& error) {
    const bool half = current_scope != nullptr && current_scope->lower() == at::kHalf;
    if (half && misses_kernel(error)) throw_without_kernel(op, error);
    throw;
  }
}

const char* name_of(Precision list) {
  switch (list) {
    case Precision::kLower:
      return "lower";
    case Precision::kFloat32:
      return "float32";
    case Precision::kWidest:
      return "widest";
    case Precision::kAsGiven:
    case Precision::kUnsaid:
      break;
  }
  return "none";
}

}  // namespace

TORCH_LIBRARY_IMPL(_, DeferredInit, library) {
  library.fallback(torch::CppFunction::makeFromBoxedFunction<&cast_and_call>());
}

void CastLog::add(const Kind& kind, int64_t bytes) {
  Count& count = counts_[kind];
  ++count.casts;
  count.bytes += bytes;
}

std::string CastLog::str(int64_t times) const {
  std::vector<std::pair<Kind, Count>> sorted(counts_.begin(), counts_.end());
  std::stable_sort(sorted.begin(), sorted.end(),
                   [](const auto& a, const auto& b) { return a.second.bytes > b.second.bytes; });
  std::string text;
  for (const auto& [kind, count] : sorted) {
    text += concat("  ", kind.op, "  ", count.casts * times, " casts  ", dtype_name(kind.from),
                   " -> ", dtype_name(kind.to), " (", name_of(kind.list), ")  ",
                   human_bytes(count.bytes * times), "\n");
  }
  return text;
}

AmpScope::AmpScope(c10::ScalarType lower, CastLog* log)
    : lower_(lower), log_(log), outer_(current_scope), include_(kAmpKey) {
  EPL_ASSERT(is_lower(lower), "a lower precision is bfloat16 or float16");
  current_scope = this;
}

AmpScope::~AmpScope() { current_scope = outer_; }

}  // namespace epl
