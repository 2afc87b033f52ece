// Compiled with -O3 -ffp-contract=off -fno-trapping-math (see CMakeLists.txt): the loops must be
// vectorised.
#include "comm/reduce_kernels.h"

#include <c10/util/BFloat16.h>
#include <c10/util/Half.h>

#include <algorithm>
#include <cstring>
#include <type_traits>

#include "base/check.h"

#ifdef __x86_64__
#include <immintrin.h>
#endif

#define EPL_INLINE inline __attribute__((always_inline))

namespace epl::comm {
namespace {

struct Arrays {
  const void* const* sources;
  int source_count;
  void* const* targets;
  int target_count;
  int64_t count;
};

// --- what is computed with ---------------------------------------------------------------------

// The type in which elements of type T are combined. Sums and products of integers are made in
// unsigned types at least as wide as int, where overflow is defined.
template <typename T, bool kWraps>
struct Wide {
  using type = T;
};
template <>
struct Wide<c10::Half, false> {
  using type = float;
};
template <>
struct Wide<c10::BFloat16, false> {
  using type = float;
};
template <typename T>
struct Wide<T, true> {
  using type = std::conditional_t<sizeof(T) == 8, uint64_t, uint32_t>;
};

struct Sum {
  static constexpr bool kWraps = true;
  template <typename W>
  static EPL_INLINE W combine(W a, W b) {
    return static_cast<W>(a + b);
  }
};
struct Product {
  static constexpr bool kWraps = true;
  template <typename W>
  static EPL_INLINE W combine(W a, W b) {
    return static_cast<W>(a * b);
  }
};
// a != a: NaN stays NaN, whichever member has it.
struct Maximum {
  static constexpr bool kWraps = false;
  template <typename W>
  static EPL_INLINE W combine(W a, W b) {
    return a > b || a != a ? a : b;
  }
};
struct Minimum {
  static constexpr bool kWraps = false;
  template <typename W>
  static EPL_INLINE W combine(W a, W b) {
    return a < b || a != a ? a : b;
  }
};

template <typename T, typename Op>
using WideFor = typename Wide<T, std::is_integral_v<T> && Op::kWraps>::type;

template <typename W, bool kMean>
EPL_INLINE W finish(W value, W members) {
  if constexpr (kMean) return value / members;
  return value;
}

// --- loops -------------------------------------------------------------------------------------

constexpr int64_t kPage = 4096;

// Any number of arrays, block by block through memory that stays in the first cache.
template <typename T, typename Op, bool kMean>
EPL_INLINE void combine_many(const Arrays& arrays) {
  using W = WideFor<T, Op>;
  constexpr int64_t kBlock = kPage / static_cast<int64_t>(sizeof(W));
  alignas(64) W block[kBlock];
  const W members = static_cast<W>(arrays.source_count);
  for (int64_t begin = 0; begin < arrays.count; begin += kBlock) {
    const int64_t size = std::min(kBlock, arrays.count - begin);
    const T* first = static_cast<const T*>(arrays.sources[0]) + begin;
    for (int64_t i = 0; i < size; ++i) block[i] = static_cast<W>(first[i]);
    for (int s = 1; s < arrays.source_count; ++s) {
      const T* source = static_cast<const T*>(arrays.sources[s]) + begin;
      for (int64_t i = 0; i < size; ++i) {
        block[i] = Op::template combine<W>(block[i], static_cast<W>(source[i]));
      }
    }
    for (int t = 0; t < arrays.target_count; ++t) {
      T* target = static_cast<T*>(arrays.targets[t]) + begin;
      for (int64_t i = 0; i < size; ++i) {
        target[i] = static_cast<T>(finish<W, kMean>(block[i], members));
      }
    }
  }
}

// AMD's first cache finds a line by a hash of its address, so that two lines at the same place of
// pages with the same hash throw each other out although there is room for both. (Moritz Lipp et
// al., "Take A Way", 2020, section 3: each bit is the exclusive or of two bits of the address.)
// Arrays of 128 MiB that the allocator put side by side are such a pair: a loop over both is three
// times slower.
inline bool throw_each_other_out(const void* a, const void* b) {
  const uint64_t differ = reinterpret_cast<uintptr_t>(a) ^ reinterpret_cast<uintptr_t>(b);
  if (differ % kPage >= 64 || differ == 0) return false;
  const auto bit = [&](int number) { return differ >> number & 1; };
  uint64_t hash = (bit(12) ^ bit(27)) | (bit(13) ^ bit(26)) | (bit(14) ^ bit(25));
  for (int low = 15; low < 20; ++low) hash |= bit(low) ^ bit(low + 5);
  return hash == 0;
}

// The common case in one pass, without a detour over memory: arrays overlap only where they are the
// same, so no iteration depends on another.
template <typename T, typename Op, bool kMean, int kTargets>
EPL_INLINE void combine_two_directly(const T* a, const T* b, T* x, T* y, int64_t count) {
  using W = WideFor<T, Op>;
#ifdef __clang__
#pragma clang loop vectorize(assume_safety)
#else
#pragma GCC ivdep
#endif
  for (int64_t i = 0; i < count; ++i) {
    const W value = Op::template combine<W>(static_cast<W>(a[i]), static_cast<W>(b[i]));
    const T result = static_cast<T>(finish<W, kMean>(value, static_cast<W>(2)));
    x[i] = result;
    if constexpr (kTargets == 2) y[i] = result;
  }
}

template <typename T, typename Op, bool kMean, int kTargets>
EPL_INLINE void combine_two(const Arrays& arrays) {
  const T* a = static_cast<const T*>(arrays.sources[0]);
  const T* b = static_cast<const T*>(arrays.sources[1]);
  T* x = static_cast<T*>(arrays.targets[0]);
  T* y = static_cast<T*>(arrays.targets[kTargets - 1]);
  for (int64_t i = 0; i < arrays.count;) {
    const auto rest_of_page =
        kPage - static_cast<int64_t>(reinterpret_cast<uintptr_t>(a + i) % kPage);
    const int64_t count = std::min(
        arrays.count - i, std::max<int64_t>(1, rest_of_page / static_cast<int64_t>(sizeof(T))));
    if (throw_each_other_out(a + i, b + i)) {
      const void* sources[] = {a + i, b + i};
      void* targets[] = {y + i, x + i};  // what was read last is still in the cache
      combine_many<T, Op, kMean>({sources, 2, targets, kTargets, count});
    } else {
      combine_two_directly<T, Op, kMean, kTargets>(a + i, b + i, x + i, y + i, count);
    }
    i += count;
  }
}

template <typename T, typename Op, bool kMean>
EPL_INLINE void combine(const Arrays& arrays) {
  if (arrays.source_count == 2 && arrays.target_count == 2) {
    combine_two<T, Op, kMean, 2>(arrays);
  } else if (arrays.source_count == 2 && arrays.target_count == 1) {
    combine_two<T, Op, kMean, 1>(arrays);
  } else {
    combine_many<T, Op, kMean>(arrays);
  }
}

template <typename T, typename Op, bool kMean>
void run_baseline(const Arrays& arrays) {
  combine<T, Op, kMean>(arrays);
}

#ifdef __x86_64__
template <typename T, typename Op, bool kMean>
__attribute__((target("avx2"))) void run_avx2(const Arrays& arrays) {
  combine<T, Op, kMean>(arrays);
}
#endif

template <typename T, typename Op, bool kMean>
void run(const Arrays& arrays) {
#ifdef __x86_64__
  if (__builtin_cpu_supports("avx2")) return run_avx2<T, Op, kMean>(arrays);
#endif
  run_baseline<T, Op, kMean>(arrays);
}

// --- which loop --------------------------------------------------------------------------------

template <typename T>
void run_op(ReduceOp op, const Arrays& arrays) {
  switch (op) {
    case ReduceOp::kSum:
      return run<T, Sum, false>(arrays);
    case ReduceOp::kMean:
      if constexpr (!std::is_integral_v<T>) return run<T, Sum, true>(arrays);
      break;
    case ReduceOp::kMax:
      return run<T, Maximum, false>(arrays);
    case ReduceOp::kMin:
      return run<T, Minimum, false>(arrays);
    case ReduceOp::kProd:
      return run<T, Product, false>(arrays);
  }
  EPL_ASSERT(false, "a mean of integers is refused before elements are touched");
}

// A bool is 0 or 1, so that "or" is the larger and "and" the smaller one.
void run_bool(ReduceOp op, const Arrays& arrays) {
  const bool either = op == ReduceOp::kSum || op == ReduceOp::kMax;
  run_op<uint8_t>(either ? ReduceOp::kMax : ReduceOp::kMin, arrays);
}

}  // namespace

bool can_reduce(c10::ScalarType type, ReduceOp op) {
  switch (type) {
    case c10::ScalarType::Float:
    case c10::ScalarType::Double:
    case c10::ScalarType::Half:
    case c10::ScalarType::BFloat16:
      return true;
    case c10::ScalarType::Byte:
    case c10::ScalarType::Char:
    case c10::ScalarType::Short:
    case c10::ScalarType::Int:
    case c10::ScalarType::Long:
    case c10::ScalarType::Bool:
      return op != ReduceOp::kMean;
    default:
      return false;
  }
}

void reduce_elements(c10::ScalarType type, ReduceOp op, const void* const* sources,
                     int source_count, void* const* targets, int target_count, int64_t count) {
  const Arrays arrays = {sources, source_count, targets, target_count, count};
  switch (type) {
    case c10::ScalarType::Float:
      return run_op<float>(op, arrays);
    case c10::ScalarType::Double:
      return run_op<double>(op, arrays);
    case c10::ScalarType::Half:
      return run_op<c10::Half>(op, arrays);
    case c10::ScalarType::BFloat16:
      return run_op<c10::BFloat16>(op, arrays);
    case c10::ScalarType::Byte:
      return run_op<uint8_t>(op, arrays);
    case c10::ScalarType::Char:
      return run_op<int8_t>(op, arrays);
    case c10::ScalarType::Short:
      return run_op<int16_t>(op, arrays);
    case c10::ScalarType::Int:
      return run_op<int32_t>(op, arrays);
    case c10::ScalarType::Long:
      return run_op<int64_t>(op, arrays);
    case c10::ScalarType::Bool:
      return run_bool(op, arrays);
    default:
      EPL_ASSERT(false, "an element type that has no loop is refused before elements are touched");
  }
}

}  // namespace epl::comm
