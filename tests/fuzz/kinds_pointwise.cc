// Kinds that look at one element at a time, masks among them.
#include "tests/fuzz/draft.h"
#include "tests/fuzz/kinds.h"

namespace epl::fuzz {
namespace {

namespace F = torch::nn::functional;

bool propose_one(Draft& draft, Node& node) {
  const Value* x = draft.floats();
  if (x == nullptr) return false;
  node.in = {x->id};
  return true;
}

Kind unary(std::string name, Tensor (*compute)(const Tensor&)) {
  return {std::move(name), Group::kApart, propose_one,
          [compute](const Call& call) { return Tensors{compute(call.x())}; }};
}

// The second value: of the same shape, the shape of the last dim, a new parameter, or whatever
// LibTorch broadcasts.
bool propose_two(Draft& draft, Node& node) {
  const Value* x = draft.floats();
  if (x == nullptr) return false;
  const int first = x->id;
  const Tensor like = x->tensor;
  const int64_t way = draft.dice.below(4);
  if (way == 0 && like.dim() > 0) {
    node.in = {first, draft.parameter({like.size(-1)}, 0.7)};
    return true;
  }
  const Value* y = way == 1 ? draft.floats() : draft.find([&](const Value& value) {
    return value.floating() && value.id != first && value.tensor.sizes().equals(like.sizes());
  });
  if (y == nullptr) return false;
  node.in = {first, y->id};
  if (draft.dice.chance(0.3)) std::swap(node.in[0], node.in[1]);
  return true;
}

Kind binary(std::string name, Tensor (*compute)(const Tensor&, const Tensor&)) {
  return {std::move(name), Group::kApart, propose_two,
          [compute](const Call& call) { return Tensors{compute(call.x(0), call.x(1))}; }};
}

bool propose_mask(Draft& draft, Node& node) {
  const Value* mask = draft.find([](const Value& value) { return value.boolean(); });
  if (mask == nullptr) return false;
  const int id = mask->id;
  const Tensor like = mask->tensor;
  const auto same = [&](const Value& value) {
    return value.floating() && value.tensor.sizes().equals(like.sizes());
  };
  const Value* x = draft.find(same);
  if (x == nullptr) return false;
  const int first = x->id;
  const Value* y = draft.find(same);
  node.in = {id, first, y->id};
  node.f = {draft.dice.real(-1, 1)};
  return true;
}

}  // namespace

Family pointwise_kinds() {
  Family family{
      unary("relu", [](const Tensor& x) { return torch::relu(x); }),
      unary("tanh", [](const Tensor& x) { return torch::tanh(x); }),
      unary("sigmoid", [](const Tensor& x) { return torch::sigmoid(x); }),
      unary("gelu", [](const Tensor& x) { return torch::gelu(x); }),
      unary("elu", [](const Tensor& x) { return torch::elu(x); }),
      unary("softplus", [](const Tensor& x) { return torch::softplus(x); }),
      unary("leaky_relu", [](const Tensor& x) { return torch::leaky_relu(x, 0.1); }),
      unary("silu", [](const Tensor& x) { return torch::silu(x); }),
      unary("hardtanh", [](const Tensor& x) { return torch::hardtanh(x); }),
      unary("exp_clamped", [](const Tensor& x) { return torch::exp(x.clamp_max(1)); }),
      unary("log_abs", [](const Tensor& x) { return torch::log(x.abs() + 0.5); }),
      unary("sqrt_abs", [](const Tensor& x) { return torch::sqrt(x.abs() + 0.1); }),
      unary("abs", [](const Tensor& x) { return x.abs(); }),
      unary("neg", [](const Tensor& x) { return -x; }),
      unary("square", [](const Tensor& x) { return x.square(); }),
      unary("sin", [](const Tensor& x) { return torch::sin(x); }),
      unary("erf", [](const Tensor& x) { return torch::erf(x); }),
      unary("reciprocal", [](const Tensor& x) { return torch::reciprocal(x.abs() + 1); }),
      unary("rsqrt", [](const Tensor& x) { return torch::rsqrt(x.square() + 1); }),
      unary("pow3", [](const Tensor& x) { return torch::pow(x, 3); }),
      unary("log_sigmoid", [](const Tensor& x) { return torch::log_sigmoid(x); }),
      unary("to_and_fro",
            [](const Tensor& x) { return x.to(torch::kDouble).mul(0.5).to(x.scalar_type()); }),
      unary("clone", [](const Tensor& x) { return x.clone(); }),
      unary("contiguous", [](const Tensor& x) { return x.contiguous(); }),
      unary("round_trip", [](const Tensor& x) { return x.mul(3).div(3).sub(x).add(x); }),
  };
  family.push_back({"scaled", Group::kApart,
                    [](Draft& draft, Node& node) {
                      node.f = {draft.dice.real(-1.5, 1.5), draft.dice.real(-1, 1)};
                      return propose_one(draft, node);
                    },
                    [](const Call& call) { return Tensors{call.x() * call.f(0) + call.f(1)}; }});
  family.push_back(
      {"clamp", Group::kApart,
       [](Draft& draft, Node& node) {
         node.f = {draft.dice.real(-1, 0), draft.dice.real(0, 1)};
         return propose_one(draft, node);
       },
       [](const Call& call) { return Tensors{call.x().clamp(call.f(0), call.f(1))}; }});
  return family;
}

Family pair_kinds() {
  return {
      binary("add", [](const Tensor& x, const Tensor& y) { return x + y; }),
      binary("sub", [](const Tensor& x, const Tensor& y) { return torch::sub(x, y, 0.5); }),
      binary("mul", [](const Tensor& x, const Tensor& y) { return x * y; }),
      binary("div", [](const Tensor& x, const Tensor& y) { return x / (y.abs() + 1); }),
      binary("maximum", [](const Tensor& x, const Tensor& y) { return torch::maximum(x, y); }),
      binary("minimum", [](const Tensor& x, const Tensor& y) { return torch::minimum(x, y); }),
      binary("lerp", [](const Tensor& x, const Tensor& y) { return torch::lerp(x, y, 0.3); }),
      binary("addcmul",
             [](const Tensor& x, const Tensor& y) { return torch::addcmul(x, y, y, 0.5); }),
      binary("addcdiv", [](const Tensor& x,
                           const Tensor& y) { return torch::addcdiv(x, y, y.square() + 1, 0.5); }),
      binary("atan2",
             [](const Tensor& x, const Tensor& y) { return torch::atan2(x, y.abs() + 1); }),
      binary("hypot",
             [](const Tensor& x, const Tensor& y) { return torch::hypot(x + 0.1, y.abs() + 1); }),
      binary("prelu",
             [](const Tensor& x, const Tensor& y) { return torch::where(x > 0, x, x * y.tanh()); }),
  };
}

Family mask_kinds() {
  return {
      {"gt", Group::kApart, propose_two,
       [](const Call& call) { return Tensors{call.x(0) > call.x(1)}; }},
      {"gt_number", Group::kApart,
       [](Draft& draft, Node& node) {
         node.f = {draft.dice.real(-0.5, 0.5)};
         return propose_one(draft, node);
       },
       [](const Call& call) { return Tensors{call.x() > call.f()}; }},
      {"logical_not", Group::kApart,
       [](Draft& draft, Node& node) {
         const Value* mask = draft.find([](const Value& value) { return value.boolean(); });
         if (mask != nullptr) node.in = {mask->id};
         return mask != nullptr;
       },
       [](const Call& call) { return Tensors{torch::logical_not(call.x())}; }},
      {"where", Group::kApart, propose_mask,
       [](const Call& call) { return Tensors{torch::where(call.x(0), call.x(1), call.x(2))}; }},
      {"masked_fill", Group::kApart, propose_mask,
       [](const Call& call) { return Tensors{call.x(1).masked_fill(call.x(0), call.f())}; }},
      {"mask_to_float", Group::kApart, propose_mask,
       [](const Call& call) {
         return Tensors{call.x(1) * call.x(0).to(call.x(1).scalar_type()) + call.x(2)};
       }},
      {"integer_to_float", Group::kApart,
       [](Draft& draft, Node& node) {
         const Value* x = draft.find([](const Value& value) { return value.integer(); });
         const Value* like = draft.floats();
         if (x == nullptr || like == nullptr) return false;
         node.in = {x->id, like->id};
         return true;
       },
       [](const Call& call) { return Tensors{call.x(0).to(call.x(1).scalar_type()) * 0.1}; }},
  };
}

}  // namespace epl::fuzz
