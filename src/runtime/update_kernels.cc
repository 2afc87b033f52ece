// Compiled with -O3 -ffp-contract=off -fno-math-errno -fno-trapping-math (see CMakeLists.txt): the
// loops must be vectorised, square roots and quotients included, and multiply_add() alone decides
// where a product and a sum share their rounding.
#include "runtime/update_kernels.h"

#include <cmath>
#include <type_traits>

#define EPL_INLINE inline __attribute__((always_inline))

namespace epl {
namespace {

template <typename T, bool kFused>
EPL_INLINE T multiply_add(T a, T b, T c) {
  if constexpr (!kFused) {
    return a * b + c;
  } else if constexpr (std::is_same_v<T, float>) {
    return __builtin_fmaf(a, b, c);
  } else {
    return __builtin_fma(a, b, c);
  }
}

template <typename T>
EPL_INLINE T* elements(void* array) {
  return static_cast<T*>(array);
}

template <typename T>
EPL_INLINE const T* elements(const void* array) {
  return static_cast<const T*>(array);
}

// p -= lr * (g + decay * p)
struct SgdLoop {
  template <typename T, bool kFused, bool kDecay>
  static EPL_INLINE void run(const SgdStep& step, int64_t begin, int64_t end) {
    T* __restrict parameter = elements<T>(step.parameter);
    const T* __restrict gradient = elements<T>(step.gradient);
    const T scale = static_cast<T>(step.scale);
    const T rate = static_cast<T>(-step.learning_rate);
    const T decay = static_cast<T>(step.weight_decay);
    for (int64_t i = begin; i < end; ++i) {
      const T p = parameter[i];
      T g = gradient[i] * scale;
      if constexpr (kDecay) g = multiply_add<T, kFused>(p, decay, g);
      parameter[i] = multiply_add<T, kFused>(g, rate, p);
    }
  }
};

// b = momentum * b + (1 - dampening) * g, then p -= lr * b, or lr * (g + momentum * b) for
// Nesterov.
struct SgdMomentumLoop {
  template <typename T, bool kFused, bool kDecay, bool kFirst, bool kNesterov>
  static EPL_INLINE void run(const SgdStep& step, int64_t begin, int64_t end) {
    T* __restrict parameter = elements<T>(step.parameter);
    const T* __restrict gradient = elements<T>(step.gradient);
    const T scale = static_cast<T>(step.scale);
    T* __restrict buffer = elements<T>(step.momentum_buffer);
    const T rate = static_cast<T>(-step.learning_rate);
    const T decay = static_cast<T>(step.weight_decay);
    const T momentum = static_cast<T>(step.momentum);
    const T share = static_cast<T>(1 - step.dampening);
    for (int64_t i = begin; i < end; ++i) {
      const T p = parameter[i];
      T g = gradient[i] * scale;
      if constexpr (kDecay) g = multiply_add<T, kFused>(p, decay, g);
      T b = g;
      if constexpr (!kFirst) b = multiply_add<T, kFused>(g, share, buffer[i] * momentum);
      T direction = b;
      if constexpr (kNesterov) direction = multiply_add<T, kFused>(b, momentum, g);
      buffer[i] = b;
      parameter[i] = multiply_add<T, kFused>(direction, rate, p);
    }
  }
};

// m = beta1 * m + (1 - beta1) * g, v = beta2 * v + (1 - beta2) * g^2, p -= step * m / (√v / c +
// eps)
struct AdamLoop {
  template <typename T, bool kFused, bool kDecay, bool kShrink, bool kAmsgrad>
  static EPL_INLINE void run(const AdamStep& step, int64_t begin, int64_t end) {
    T* __restrict parameter = elements<T>(step.parameter);
    const T* __restrict gradient = elements<T>(step.gradient);
    const T scale = static_cast<T>(step.scale);
    T* __restrict mean = elements<T>(step.mean);
    T* __restrict mean_square = elements<T>(step.mean_square);
    T* __restrict max_mean_square = elements<T>(step.max_mean_square);
    const T beta1 = static_cast<T>(step.beta1);
    const T beta2 = static_cast<T>(step.beta2);
    const T share1 = static_cast<T>(1 - step.beta1);
    const T share2 = static_cast<T>(1 - step.beta2);
    const T epsilon = static_cast<T>(step.epsilon);
    const T step_size = static_cast<T>(-step.step_size);
    const T root_correction2 = static_cast<T>(step.root_correction2);
    const T decay = static_cast<T>(step.weight_decay);
    const T shrink = static_cast<T>(step.shrink);
    for (int64_t i = begin; i < end; ++i) {
      T p = parameter[i];
      T g = gradient[i] * scale;
      if constexpr (kDecay) g = multiply_add<T, kFused>(p, decay, g);
      if constexpr (kShrink) p = p * shrink;
      const T m = multiply_add<T, kFused>(g, share1, mean[i] * beta1);
      const T v = multiply_add<T, kFused>(share2 * g, g, mean_square[i] * beta2);
      mean[i] = m;
      mean_square[i] = v;
      T square = v;
      if constexpr (kAmsgrad) {
        // Either operand's NaN wins, as in torch::max.
        const T largest = max_mean_square[i];
        square = v > largest || v != v ? v : largest;
        max_mean_square[i] = square;
      }
      const T denominator = std::sqrt(square) / root_correction2 + epsilon;
      parameter[i] = p + step_size * m / denominator;
    }
  }
};

// v = alpha * v + (1 - alpha) * g^2, p -= lr * g / (√v + eps). Centered: v - mean^2 under the root.
struct RmspropLoop {
  template <typename T, bool kFused, bool kDecay, bool kCentered, bool kMomentum>
  static EPL_INLINE void run(const RmspropStep& step, int64_t begin, int64_t end) {
    T* __restrict parameter = elements<T>(step.parameter);
    const T* __restrict gradient = elements<T>(step.gradient);
    const T scale = static_cast<T>(step.scale);
    T* __restrict mean_square = elements<T>(step.mean_square);
    T* __restrict mean = elements<T>(step.mean);
    T* __restrict buffer = elements<T>(step.momentum_buffer);
    const T rate = static_cast<T>(-step.learning_rate);
    const T alpha = static_cast<T>(step.alpha);
    const T share = static_cast<T>(1 - step.alpha);
    const T epsilon = static_cast<T>(step.epsilon);
    const T decay = static_cast<T>(step.weight_decay);
    const T momentum = static_cast<T>(step.momentum);
    for (int64_t i = begin; i < end; ++i) {
      const T p = parameter[i];
      T g = gradient[i] * scale;
      if constexpr (kDecay) g = multiply_add<T, kFused>(p, decay, g);
      const T v = multiply_add<T, kFused>(share * g, g, mean_square[i] * alpha);
      mean_square[i] = v;
      T square = v;
      if constexpr (kCentered) {
        const T m = multiply_add<T, kFused>(g, share, mean[i] * alpha);
        mean[i] = m;
        square = multiply_add<T, kFused>(-m, m, v);
      }
      const T denominator = std::sqrt(square) + epsilon;
      if constexpr (kMomentum) {
        const T b = buffer[i] * momentum + g / denominator;
        buffer[i] = b;
        parameter[i] = multiply_add<T, kFused>(b, rate, p);
      } else {
        parameter[i] = p + rate * g / denominator;
      }
    }
  }
};

// s += g^2, p -= lr * g / (√s + eps)
struct AdagradLoop {
  template <typename T, bool kFused, bool kDecay>
  static EPL_INLINE void run(const AdagradStep& step, int64_t begin, int64_t end) {
    T* __restrict parameter = elements<T>(step.parameter);
    const T* __restrict gradient = elements<T>(step.gradient);
    const T scale = static_cast<T>(step.scale);
    T* __restrict sum = elements<T>(step.sum);
    const T rate = static_cast<T>(-step.learning_rate);
    const T epsilon = static_cast<T>(step.epsilon);
    const T decay = static_cast<T>(step.weight_decay);
    for (int64_t i = begin; i < end; ++i) {
      const T p = parameter[i];
      T g = gradient[i] * scale;
      if constexpr (kDecay) g = multiply_add<T, kFused>(p, decay, g);
      const T s = multiply_add<T, kFused>(g, g, sum[i]);
      sum[i] = s;
      parameter[i] = p + rate * g / (std::sqrt(s) + epsilon);
    }
  }
};

// One loop, compiled for two instruction sets: x86-64 with AVX2 and FMA, and whatever the compiler
// was told to assume. The loops are bound by memory or by division, so AVX-512 adds nothing.
#ifdef __FP_FAST_FMAF
constexpr bool kBaselineFuses = true;
#else
constexpr bool kBaselineFuses = false;
#endif

template <typename Loop, typename T, bool... kFlags, typename Step>
void run_baseline(const Step& step, int64_t begin, int64_t end) {
  Loop::template run<T, kBaselineFuses, kFlags...>(step, begin, end);
}

#ifdef __x86_64__
template <typename Loop, typename T, bool... kFlags, typename Step>
__attribute__((target("avx2,fma"))) void run_avx2(const Step& step, int64_t begin, int64_t end) {
  Loop::template run<T, true, kFlags...>(step, begin, end);
}
#endif

template <typename Loop, typename T, bool... kFlags, typename Step>
void run_best(const Step& step, int64_t begin, int64_t end) {
#ifdef __x86_64__
  if (step.rounding == Rounding::kFused && __builtin_cpu_supports("avx2") &&
      __builtin_cpu_supports("fma"))
    return run_avx2<Loop, T, kFlags...>(step, begin, end);
#endif
  run_baseline<Loop, T, kFlags...>(step, begin, end);
}

// Turns run-time flags into template arguments of the loop, one at a time.
template <typename Loop, bool... kFlags, typename Step>
void run(const Step& step, int64_t begin, int64_t end) {
  if (step.type == ElementType::kFloat)
    run_best<Loop, float, kFlags...>(step, begin, end);
  else
    run_best<Loop, double, kFlags...>(step, begin, end);
}

template <typename Loop, bool... kFlags, typename Step, typename... Rest>
void run(const Step& step, int64_t begin, int64_t end, bool flag, Rest... rest) {
  if (flag)
    run<Loop, kFlags..., true>(step, begin, end, rest...);
  else
    run<Loop, kFlags..., false>(step, begin, end, rest...);
}

template <typename T>
bool all_within(const T* numbers, int64_t count, T most) {
  int outside = 0;
  for (int64_t i = 0; i < count; ++i) outside |= !(std::fabs(numbers[i]) <= most);
  return outside == 0;
}

template <typename T>
void sum_of(const void* const* sources, int count, int64_t begin, int64_t end,
            T* __restrict__ out) {
  const T* first = static_cast<const T*>(sources[0]) + begin;
  const T* second = static_cast<const T*>(sources[1]) + begin;
  const int64_t length = end - begin;
  for (int64_t i = 0; i < length; ++i) out[i] = first[i] + second[i];
  for (int k = 2; k < count; ++k) {
    const T* next = static_cast<const T*>(sources[k]) + begin;
    for (int64_t i = 0; i < length; ++i) out[i] += next[i];
  }
}

}  // namespace

bool are_within(ElementType type, const void* numbers, int64_t begin, int64_t end, double most) {
  if (type == ElementType::kFloat) {
    return all_within(elements<float>(numbers) + begin, end - begin, static_cast<float>(most));
  }
  return all_within(elements<double>(numbers) + begin, end - begin, most);
}

// At least two sources.
void sum_range(ElementType type, const void* const* sources, int count, int64_t begin, int64_t end,
               void* out) {
  if (type == ElementType::kFloat)
    sum_of(sources, count, begin, end, static_cast<float*>(out));
  else
    sum_of(sources, count, begin, end, static_cast<double*>(out));
}

void update_range(const SgdStep& step, int64_t begin, int64_t end) {
  const bool decays = step.weight_decay != 0;
  if (step.momentum_buffer == nullptr)
    run<SgdLoop>(step, begin, end, decays);
  else
    run<SgdMomentumLoop>(step, begin, end, decays, step.first, step.nesterov);
}

void update_range(const AdamStep& step, int64_t begin, int64_t end) {
  run<AdamLoop>(step, begin, end, step.weight_decay != 0, step.shrink != 1,
                step.max_mean_square != nullptr);
}

void update_range(const RmspropStep& step, int64_t begin, int64_t end) {
  run<RmspropLoop>(step, begin, end, step.weight_decay != 0, step.mean != nullptr,
                   step.momentum_buffer != nullptr);
}

void update_range(const AdagradStep& step, int64_t begin, int64_t end) {
  run<AdagradLoop>(step, begin, end, step.weight_decay != 0);
}

}  // namespace epl
