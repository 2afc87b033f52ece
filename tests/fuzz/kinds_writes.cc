// Kinds that write in place, that stand outside of autograd, that keep state, that draw numbers.
#include <ATen/TensorIndexing.h>

#include <algorithm>

#include "tests/fuzz/draft.h"
#include "tests/fuzz/kinds.h"

namespace epl::fuzz {
namespace {

// Windows that share elements: what a write to all of them leaves is not defined.
bool overlaps_itself(const Tensor& tensor) {
  std::vector<std::pair<int64_t, int64_t>> dims;  // stride and size
  for (int64_t d = 0; d < tensor.dim(); ++d) {
    if (tensor.size(d) > 1) dims.emplace_back(tensor.stride(d), tensor.size(d));
  }
  std::sort(dims.begin(), dims.end());
  int64_t reach = 0;  // the last element that smaller strides come to
  for (const auto& [stride, size] : dims) {
    if (stride <= reach) return true;
    reach += stride * (size - 1);
  }
  return false;
}

bool writable(const Value& value) {
  return value.floating() && !value.leaf && !overlaps_itself(value.tensor) &&
         !(value.tensor.is_leaf() && value.tensor.requires_grad());
}

bool propose_write(Draft& draft, Node& node) {
  const Value* x = draft.find(writable);
  if (x == nullptr) return false;
  node.in = {x->id};
  node.f = {draft.dice.real(-1, 1)};
  return true;
}

// The write's result is the tensor itself: a value of its own all the same.
Kind write(std::string name, void (*compute)(Tensor, double)) {
  return {std::move(name), Group::kApart, propose_write, [compute](const Call& call) {
            compute(call.x(), call.f());
            return Tensors{call.x()};
          }};
}

bool propose_write_of_two(Draft& draft, Node& node) {
  if (!propose_write(draft, node)) return false;
  const Tensor like = draft.at(node.in[0]).tensor;
  const int first = node.in[0];
  const Value* y = draft.find([&](const Value& value) {
    return value.floating() && value.id != first && !value.tensor.is_same(like) &&
           value.tensor.sizes().equals(like.sizes());
  });
  if (y == nullptr)
    y = draft.find([](const Value& value) { return value.floating() && value.dim() == 0; });
  if (y == nullptr) return false;
  node.in.push_back(y->id);
  return true;
}

Kind write_of_two(std::string name, void (*compute)(Tensor, const Tensor&)) {
  return {std::move(name), Group::kApart, propose_write_of_two, [compute](const Call& call) {
            compute(call.x(0), call.x(1));
            return Tensors{call.x(0)};
          }};
}

bool propose_write_of_part(Draft& draft, Node& node) {
  const Value* x = draft.find([](const Value& value) {
    return writable(value) && value.dim() > value.first() && value.size(-1) >= 2;
  });
  if (x == nullptr) return false;
  node.in = {x->id};
  const int64_t d = draft.free_dim(*x);
  node.n = {d, draft.dice.below(x->size(d))};
  node.f = {draft.dice.real(-1, 1)};
  return true;
}

Kind write_of_part(std::string name, void (*compute)(const Call&)) {
  return {std::move(name), Group::kApart, propose_write_of_part, [compute](const Call& call) {
            compute(call);
            return Tensors{call.x()};
          }};
}

Kind on_float(std::string name, Group group, Tensor (*compute)(const Tensor&)) {
  return {std::move(name), group,
          [](Draft& draft, Node& node) {
            const Value* x = draft.floats();
            if (x == nullptr) return false;
            node.in = {x->id};
            return true;
          },
          [compute](const Call& call) { return Tensors{compute(call.x())}; }};
}

// Doubles forward; its own backward says so.
struct Doubled : torch::autograd::Function<Doubled> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x) {
    context->save_for_backward({x});
    return x * 2;
  }
  static Tensors backward(torch::autograd::AutogradContext* context, Tensors gradients) {
    return {gradients[0] * 2 + context->get_saved_variables()[0] * 0};
  }
};

// Computes tanh(x w) again in its backward, by a backward() of its own, as checkpointing does.
struct Recomputed : torch::autograd::Function<Recomputed> {
  static Tensor forward(torch::autograd::AutogradContext* context, const Tensor& x,
                        const Tensor& weight) {
    context->save_for_backward({x, weight});
    const torch::NoGradGuard no_grad;
    return torch::tanh(torch::matmul(x, weight));
  }
  static Tensors backward(torch::autograd::AutogradContext* context, Tensors gradients) {
    const Tensors saved = context->get_saved_variables();
    const torch::AutoGradMode grad(true);
    const Tensor x = saved[0].detach().requires_grad_(true);
    torch::tanh(torch::matmul(x, saved[1])).backward(gradients[0]);
    return {x.grad(), Tensor()};
  }
};

// Buffers that follow the values of a step.
bool propose_state(Draft& draft, Node& node) {
  const Value* x = draft.floats(1);
  if (x == nullptr || x->dim() == 0) return false;
  const int id = x->id;
  const int64_t width = x->size(-1);
  const Value* known = draft.find([&](const Value& value) {
    return value.leaf && value.floating() && !value.rows && !value.tensor.requires_grad() &&
           value.dim() == 1 && value.size(0) == width;
  });
  node.in = {id, known != nullptr ? known->id : draft.buffer({width})};
  return true;
}

Tensor mean_of_last(const Tensor& x) { return x.detach().reshape({-1, x.size(-1)}).mean(0); }

Kind state(std::string name, void (*compute)(const Tensor&, Tensor)) {
  return {std::move(name), Group::kState, propose_state, [compute](const Call& call) {
            const torch::NoGradGuard no_grad;
            compute(call.x(0), call.x(1));
            return Tensors{call.x(1).clone()};
          }};
}

bool propose_weight(Draft& draft, Node& node) {
  const Value* x = draft.find([](const Value& value) {
    return value.leaf && value.floating() && !value.rows && value.tensor.requires_grad();
  });
  if (x == nullptr) return false;
  node.in = {x->id};
  return true;
}

}  // namespace

Family write_kinds() {
  return {
      write("add_", [](Tensor x, double f) { x.add_(f); }),
      write("mul_", [](Tensor x, double f) { x.mul_(f); }),
      write("relu_", [](Tensor x, double) { x.relu_(); }),
      write("tanh_", [](Tensor x, double) { x.tanh_(); }),
      write("sigmoid_", [](Tensor x, double) { x.sigmoid_(); }),
      write("neg_", [](Tensor x, double) { x.neg_(); }),
      write("fill_", [](Tensor x, double f) { x.fill_(f); }),
      write("zero_", [](Tensor x, double) { x.zero_(); }),
      write("clamp_", [](Tensor x, double f) { x.clamp_min_(f); }),
      write("leaky_relu_", [](Tensor x, double) { torch::leaky_relu_(x, 0.2); }),
      write_of_two("add_tensor_", [](Tensor x, const Tensor& y) { x.add_(y, 0.5); }),
      write_of_two("mul_tensor_", [](Tensor x, const Tensor& y) { x.mul_(y); }),
      write_of_two("copy_", [](Tensor x, const Tensor& y) { x.copy_(y); }),
      write_of_two("addcmul_", [](Tensor x, const Tensor& y) { x.addcmul_(y, y, 0.5); }),
      write_of_two("lerp_", [](Tensor x, const Tensor& y) { x.lerp_(y, 0.25); }),
      write_of_two("masked_fill_",
                   [](Tensor x, const Tensor& y) { x.masked_fill_(y.detach() > 0, 0.5); }),
      write_of_part(
          "select_fill_",
          [](const Call& call) { call.x().select(call.n(0), call.n(1)).fill_(call.f()); }),
      write_of_part("select_add_",
                    [](const Call& call) { call.x().select(call.n(0), call.n(1)).add_(call.f()); }),
      write_of_part("select_relu_",
                    [](const Call& call) { call.x().select(call.n(0), call.n(1)).relu_(); }),
      write_of_part("index_put_",
                    [](const Call& call) {
                      std::vector<torch::indexing::TensorIndex> at(static_cast<size_t>(call.n(0)),
                                                                   torch::indexing::Slice());
                      at.emplace_back(torch::tensor({call.n(1)}));
                      Tensor(call.x()).index_put_(at, call.f());
                    }),
      write_of_part("index_fill_",
                    [](const Call& call) {
                      Tensor(call.x()).index_fill_(call.n(0), torch::tensor({call.n(1)}), call.f());
                    }),
      write_of_part("narrow_copy_",
                    [](const Call& call) {
                      Tensor part = call.x().narrow(call.n(0), 0, 1);
                      part.copy_(call.x().narrow(call.n(0), call.n(1), 1).clone() * 0.5);
                    }),
      write_of_part("unsqueeze_",
                    [](const Call& call) { call.x().unsqueeze(-1).squeeze(-1).mul_(call.f()); }),
  };
}

Family region_kinds() {
  return {
      on_float("detach", Group::kApart, [](const Tensor& x) { return x.detach(); }),
      on_float("no_grad", Group::kApart,
               [](const Tensor& x) {
                 const torch::NoGradGuard no_grad;
                 return x.tanh() * 0.5;
               }),
      on_float("stop_half", Group::kApart,
               [](const Tensor& x) { return x + (x.tanh() - x).detach(); }),
      on_float("doubled", Group::kApart, [](const Tensor& x) { return Doubled::apply(x); }),
      {"recomputed", Group::kLeaves,
       [](Draft& draft, Node& node) {
         const Value* x = draft.find([](const Value& value) {
           return value.floating() && value.dim() >= 2 && value.tensor.requires_grad();
         });
         if (x == nullptr) return false;
         const int64_t in = x->size(-1);
         node.in = {x->id, draft.parameter({in, 3}, 0.5)};
         return true;
       },
       [](const Call& call) { return Tensors{Recomputed::apply(call.x(0), call.x(1))}; }},
      on_float("turned_in_place", Group::kApart,
               [](const Tensor& x) {
                 Tensor y = x * 1;
                 y.unsqueeze_(-1);
                 y.transpose_(-1, -1);
                 return y.squeeze_(-1) * 2;
               }),
      on_float("zeros_like", Group::kApart, [](const Tensor& x) { return torch::zeros_like(x); }),
      on_float("full_like", Group::kApart,
               [](const Tensor& x) { return torch::full_like(x, 0.5); }),
      on_float("empty_then_filled", Group::kApart,
               [](const Tensor& x) {
                 Tensor made = torch::empty_like(x);
                 made.fill_(0.25);
                 made.add_(x);
                 return made;
               }),
      on_float("scratch", Group::kApart,
               [](const Tensor& x) {
                 Tensor made = torch::zeros_like(x);
                 made.add_(x);
                 made.unsqueeze(0).mul_(0.5);
                 return made;
               }),
      on_float("arange_times", Group::kApart,
               [](const Tensor& x) {
                 if (x.dim() == 0) return x * 2;
                 return x * torch::arange(x.size(-1), x.options()) * 0.2;
               }),
      on_float("hooked", Group::kApart,
               [](const Tensor& x) {
                 Tensor y = x * 1;
                 if (y.requires_grad()) y.register_hook([](const Tensor& g) { return g * 0.5; });
                 return y;
               }),
  };
}

Family state_kinds() {
  return {
      state("running_mean",
            [](const Tensor& x, Tensor held) { held.mul_(0.9).add_(mean_of_last(x), 0.1); }),
      state("copied_state", [](const Tensor& x, Tensor held) { held.copy_(mean_of_last(x)); }),
      state("counter", [](const Tensor&, Tensor held) { held.add_(1).clamp_max_(4); }),
      state("lerped_state", [](const Tensor& x, Tensor held) { held.lerp_(mean_of_last(x), 0.3); }),
      {"batch_norm", Group::kState,
       [](Draft& draft, Node& node) {
         const Value* x = draft.floats(2, 4);
         if (x == nullptr || !x->rows) return false;
         const int id = x->id;
         const int64_t width = x->size(1);
         node.in = {id, draft.parameter({width}, 1), draft.parameter({width}, 0.2),
                    draft.buffer({width}), draft.buffer({width})};
         return true;
       },
       [](const Call& call) {
         return Tensors{torch::batch_norm(call.x(0), call.x(1), call.x(2), call.x(3), call.x(4),
                                          true, 0.1, 0.1, false)};
       }},
      {"clamped_weight", Group::kLeaves, propose_weight,
       [](const Call& call) {
         const torch::NoGradGuard no_grad;
         Tensor(call.x()).clamp_(-0.6, 0.6);
         return Tensors{call.x().detach().clone()};
       }},
      {"normed_weight", Group::kLeaves, propose_weight,
       [](const Call& call) {
         Tensor(call.x()).data().div_(call.x().detach().norm() + 0.5);
         return Tensors{call.x().detach().clone()};
       }},
  };
}

Family random_kinds() {
  return {
      on_float("dropout", Group::kRandom,
               [](const Tensor& x) { return torch::dropout(x, 0.4, true); }),
      on_float("rand_like", Group::kRandom,
               [](const Tensor& x) { return x * torch::rand_like(x); }),
      on_float("noise", Group::kRandom,
               [](const Tensor& x) { return x + 0.1 * torch::randn_like(x); }),
      on_float("bernoulli", Group::kRandom,
               [](const Tensor& x) { return x * torch::bernoulli(x.detach().sigmoid()); }),
      on_float("normal_", Group::kRandom,
               [](const Tensor& x) { return x + torch::empty_like(x).normal_(0, 0.2); }),
      on_float("uniform_", Group::kRandom,
               [](const Tensor& x) {
                 return torch::where(torch::zeros_like(x).uniform_() > 0.5, x, x * 0.5);
               }),
      on_float("shuffled", Group::kRandom,
               [](const Tensor& x) {
                 if (x.dim() == 0) return x.clone();
                 return x.index_select(-1, torch::randperm(x.size(-1)));
               }),
      on_float("dropout_", Group::kRandom,
               [](const Tensor& x) {
                 Tensor y = x * 1;
                 return torch::dropout_(y, 0.3, true);
               }),
  };
}

Family mixing_kinds() {
  const auto over_rows = [](std::string name, Tensor (*compute)(const Tensor&)) {
    return Kind{std::move(name), Group::kMixes,
                [](Draft& draft, Node& node) {
                  const Value* x =
                      draft.find([](const Value& value) { return value.floating() && value.rows; });
                  if (x == nullptr) return false;
                  node.in = {x->id};
                  return true;
                },
                [compute](const Call& call) { return Tensors{compute(call.x())}; }};
  };
  return {
      over_rows("centred", [](const Tensor& x) { return x - x.mean(0, true); }),
      over_rows("mixed_up", [](const Tensor& x) { return 0.7 * x + 0.3 * x.flip(0); }),
      over_rows("rolled", [](const Tensor& x) { return x.roll(1, 0); }),
      over_rows("sorted_rows", [](const Tensor& x) { return std::get<0>(x.sort(0)); }),
      over_rows("softmax_rows", [](const Tensor& x) { return x.softmax(0); }),
      over_rows("cumulated", [](const Tensor& x) { return x.cumsum(0) * 0.2; }),
      over_rows("mean_row", [](const Tensor& x) { return x.mean(0); }),
      over_rows("largest_row", [](const Tensor& x) { return x.amax(0); }),
      over_rows("half_of_rows", [](const Tensor& x) { return x.narrow(0, 0, x.size(0) / 2); }),
      over_rows("hard_rows",
                [](const Tensor& x) {
                  const Tensor each = x.reshape({x.size(0), -1}).square().mean(1);
                  return std::get<0>(each.topk(2));
                }),
      over_rows("root_of_mean", [](const Tensor& x) { return (x.square().mean() + 0.1).sqrt(); }),
      over_rows("transposed_rows",
                [](const Tensor& x) {
                  return x.dim() > 1 ? x.transpose(0, 1).contiguous().transpose(0, 1) * 2 : x.t();
                }),
      over_rows("gram",
                [](const Tensor& x) {
                  const Tensor flat = x.reshape({x.size(0), -1});
                  return torch::mm(flat.t(), flat) / x.size(0);
                }),
  };
}

Family reading_kinds() {
  return {
      on_float("times_item", Group::kReadsBack,
               [](const Tensor& x) {
                 return x * (1 + 0.1 * std::tanh(x.detach().mean().item<double>()));
               }),
      on_float(
          "if_positive", Group::kReadsBack,
          [](const Tensor& x) { return x.detach().sum().item<double>() > 0 ? x * 0.5 : x.tanh(); }),
      on_float("masked_select", Group::kReadsBack,
               [](const Tensor& x) { return x.masked_select(x.detach() > 0); }),
      on_float("nonzero_mean", Group::kReadsBack,
               [](const Tensor& x) { return x.flatten().index({x.detach().flatten() > 0.1}); }),
  };
}

}  // namespace epl::fuzz
