// The arithmetic of an optimizer's step over the elements [begin, end) of one parameter: each
// element of the parameter, its gradient and its state is loaded and stored once.
//
// The functions are free of torch and of shared state, so that several threads may update disjoint
// ranges side by side. All arrays of a step have the same element type and lie alike in memory.
//
// Every rounding of LibTorch's own sequence of operators is done here, in the same order, so the
// bits are LibTorch's. A coefficient is computed in double and cast to the element type where
// LibTorch casts an at::Scalar, that is once before the loop. Whether `a * b + c` rounds once or
// twice depends on the instruction set that LibTorch chose for its kernels, see Rounding.
#pragma once

#include <cstdint>

namespace epl {

enum class Rounding : uint8_t {
  kSeparate,  // the product is rounded, then the sum: LibTorch on plain x86-64
  kFused,     // one rounding, as the FMA instruction does: LibTorch with AVX2 or AVX-512
};

enum class ElementType : uint8_t { kFloat, kDouble };

struct ElementStep {
  ElementType type = ElementType::kFloat;
  Rounding rounding = Rounding::kFused;
  void* parameter = nullptr;
  const void* gradient = nullptr;
  double scale = 1;  // of the gradient: it is multiplied by this before all else
};

struct SgdStep : ElementStep {
  void* momentum_buffer = nullptr;  // null without momentum
  bool first = false;               // the buffer holds nothing yet and becomes the gradient
  bool nesterov = false;
  double learning_rate = 0;
  double momentum = 0;
  double dampening = 0;
  double weight_decay = 0;
};

struct AdamStep : ElementStep {
  void* mean = nullptr;             // exp_avg
  void* mean_square = nullptr;      // exp_avg_sq
  void* max_mean_square = nullptr;  // max_exp_avg_sq; null without amsgrad
  double beta1 = 0;
  double beta2 = 0;
  double epsilon = 0;
  double step_size = 0;         // learning rate / bias correction of the mean
  double root_correction2 = 1;  // square root of the bias correction of the mean square
  double weight_decay = 0;      // Adam: added to the gradient
  double shrink = 1;            // AdamW: factor on the parameter, 1 - learning rate * weight decay
};

struct RmspropStep : ElementStep {
  void* mean_square = nullptr;      // square_avg
  void* mean = nullptr;             // grad_avg; null if not centered
  void* momentum_buffer = nullptr;  // null without momentum
  double learning_rate = 0;
  double alpha = 0;
  double epsilon = 0;
  double weight_decay = 0;
  double momentum = 0;
};

struct AdagradStep : ElementStep {
  void* sum = nullptr;
  double learning_rate = 0;  // after its decay
  double epsilon = 0;
  double weight_decay = 0;
};

void update_range(const SgdStep& step, int64_t begin, int64_t end);
void update_range(const AdamStep& step, int64_t begin, int64_t end);
void update_range(const RmspropStep& step, int64_t begin, int64_t end);
void update_range(const AdagradStep& step, int64_t begin, int64_t end);

// Whether each of these numbers lies between -most and most; NaN lies nowhere.
bool are_within(ElementType type, const void* numbers, int64_t begin, int64_t end, double most);

// out[i - begin] = sources[0][i] + sources[1][i] + ..., from left to right, for i in [begin, end).
void sum_range(ElementType type, const void* const* sources, int count, int64_t begin, int64_t end,
               void* out);

}  // namespace epl
