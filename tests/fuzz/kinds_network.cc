// Kinds with weights, norms and reductions.
#include "tests/fuzz/draft.h"
#include "tests/fuzz/kinds.h"

namespace epl::fuzz {
namespace {

namespace F = torch::nn::functional;

double scale_for(int64_t inputs) { return 1 / std::sqrt(static_cast<double>(inputs)); }

// A weight of that shape: one that there is (tied), or a new one.
int weight(Draft& draft, std::vector<int64_t> shape, double scale) {
  if (draft.dice.chance(0.35)) {
    const Value* known = draft.find([&](const Value& value) {
      return value.leaf && value.floating() && !value.rows &&
             value.tensor.sizes().equals(c10::IntArrayRef(shape));
    });
    if (known != nullptr) return known->id;
  }
  return draft.parameter(std::move(shape), scale);
}

Kind linear() {
  return {"linear", Group::kApart,
          [](Draft& draft, Node& node) {
            const Value* x = draft.floats(1);
            if (x == nullptr || x->dim() - x->first() < 1) return false;
            const int64_t in = x->size(-1), out = draft.dice.between(2, 5);
            node.in = {x->id, weight(draft, {out, in}, scale_for(in))};
            if (draft.dice.chance(0.7)) node.in.push_back(weight(draft, {out}, 0.3));
            return true;
          },
          [](const Call& call) {
            return Tensors{
                torch::linear(call.x(0), call.x(1), call.in.size() > 2 ? call.x(2) : Tensor())};
          }};
}

// matmul by a weight as it is or transposed, so that one weight serves both ways.
Kind matmul() {
  return {"matmul", Group::kApart,
          [](Draft& draft, Node& node) {
            const Value* x = draft.floats(1);
            if (x == nullptr || x->dim() - x->first() < 1) return false;
            const int64_t in = x->size(-1), out = draft.dice.between(2, 5);
            const bool turned = draft.dice.chance(0.5);
            std::vector<int64_t> shape{in, out};
            if (turned) std::swap(shape[0], shape[1]);
            node.in = {x->id, weight(draft, shape, scale_for(in))};
            node.n = {turned};
            return true;
          },
          [](const Call& call) {
            return Tensors{torch::matmul(call.x(0), call.n(0) != 0 ? call.x(1).t() : call.x(1))};
          }};
}

bool propose_batched(Draft& draft, Node& node) {
  const Value* x = draft.floats(3, 3);
  if (x == nullptr) return false;
  const int id = x->id;
  const Tensor like = x->tensor;
  const Value* y = draft.find([&](const Value& value) {
    return value.floating() && value.dim() == 3 && value.size(0) == like.size(0) &&
           value.size(2) == like.size(2);
  });
  node.in = {id, y->id};
  return true;
}

Kind convolution(std::string name, int64_t dims) {
  return {std::move(name), Group::kApart,
          [dims](Draft& draft, Node& node) {
            const Value* x = draft.floats(dims + 2, dims + 2);
            if (x == nullptr) return false;
            const int64_t in = x->size(1), out = draft.dice.between(2, 4);
            const int64_t kernel = draft.dice.between(1, 3);
            std::vector<int64_t> shape{out, in};
            for (int64_t i = 0; i < dims; ++i) shape.push_back(kernel);
            const int id = x->id;
            node.in = {id, weight(draft, shape, scale_for(in * kernel)), weight(draft, {out}, 0.2)};
            node.n = {draft.dice.between(1, 2), draft.dice.between(0, 1)};
            return true;
          },
          [dims](const Call& call) {
            return Tensors{
                dims == 1 ? torch::conv1d(call.x(0), call.x(1), call.x(2), call.n(0), call.n(1))
                          : torch::conv2d(call.x(0), call.x(1), call.x(2), call.n(0), call.n(1))};
          }};
}

// One layer over rows, times and features.
Kind recurrent(std::string name, int64_t gates) {
  return {std::move(name), Group::kApart,
          [gates](Draft& draft, Node& node) {
            const Value* x = draft.find([](const Value& value) {
              return value.floating() && value.rows && value.dim() == 3;
            });
            if (x == nullptr) return false;
            const int64_t in = x->size(2), hidden = draft.dice.between(2, 3);
            const int64_t rows = gates * hidden;
            node.in = {x->id, weight(draft, {rows, in}, 0.5), weight(draft, {rows, hidden}, 0.5),
                       weight(draft, {rows}, 0.2), weight(draft, {rows}, 0.2)};
            node.n = {hidden};
            return true;
          },
          [gates](const Call& call) {
            const Tensor zero = torch::zeros({1, call.x().size(0), call.n(0)}, call.x().options());
            const Tensors weights(call.in.begin() + 1, call.in.end());
            if (gates == 4) {
              return Tensors{std::get<0>(
                  torch::lstm(call.x(), {zero, zero}, weights, true, 1, 0, true, false, true))};
            }
            return Tensors{
                std::get<0>(torch::gru(call.x(), zero, weights, true, 1, 0, true, false, true))};
          }};
}

bool propose_dim(Draft& draft, Node& node) {
  int64_t d = 0;
  const Value* x = draft.with_dim(d, 2);
  if (x == nullptr) return false;
  node.in = {x->id};
  node.n = {d, draft.dice.chance(0.4)};
  return true;
}

Kind over_dim(std::string name, Tensor (*compute)(const Tensor&, int64_t)) {
  return {std::move(name), Group::kApart, propose_dim,
          [compute](const Call& call) { return Tensors{compute(call.x(), call.n(0))}; }};
}

Kind reduction(std::string name, Tensor (*compute)(const Tensor&, int64_t, bool)) {
  return {std::move(name), Group::kApart, propose_dim, [compute](const Call& call) {
            return Tensors{compute(call.x(), call.n(0), call.n(1) != 0)};
          }};
}

bool propose_norm(Draft& draft, Node& node) {
  const Value* x = draft.floats(2);
  if (x == nullptr || x->size(-1) < 2) return false;
  const int64_t width = x->size(-1);
  node.in = {x->id, weight(draft, {width}, 1), weight(draft, {width}, 0.3)};
  return true;
}

Kind pool(std::string name, Tensor (*compute)(const Tensor&)) {
  return {std::move(name), Group::kApart,
          [](Draft& draft, Node& node) {
            // Outside of autograd LibTorch pools without an operator that a recorder sees.
            const Value* x = draft.find([&](const Value& value) {
              return value.floating() && value.dim() == 3 && value.size(2) >= 2 &&
                     (value.tensor.requires_grad() || draft.may(Group::kLeaves));
            });
            if (x == nullptr) return false;
            node.in = {x->id};
            return true;
          },
          [compute](const Call& call) { return Tensors{compute(call.x())}; }};
}

}  // namespace

Family product_kinds() {
  return {
      linear(),
      linear(),  // programs without weights train nothing
      matmul(),
      convolution("conv1d", 1),
      convolution("conv2d", 2),
      recurrent("lstm", 4),
      recurrent("gru", 3),
      {"bmm", Group::kApart, propose_batched,
       [](const Call& call) { return Tensors{torch::bmm(call.x(0), call.x(1).transpose(1, 2))}; }},
      {"baddbmm", Group::kApart, propose_batched,
       [](const Call& call) {
         const Tensor product = torch::bmm(call.x(0), call.x(1).transpose(1, 2));
         return Tensors{torch::baddbmm(product, call.x(0), call.x(1).transpose(1, 2), 0.5, 0.5)};
       }},
      {"attention", Group::kApart, propose_batched,
       [](const Call& call) {
         const Tensor scores = torch::bmm(call.x(0), call.x(1).transpose(1, 2));
         return Tensors{torch::bmm(scores.softmax(-1), call.x(1))};
       }},
      {"einsum", Group::kApart, propose_batched,
       [](const Call& call) {
         return Tensors{torch::einsum("bik,bjk->bij", {call.x(0), call.x(1)})};
       }},
      {"conv_transpose1d", Group::kApart,
       [](Draft& draft, Node& node) {
         const Value* x = draft.floats(3, 3);
         if (x == nullptr) return false;
         const int64_t in = x->size(1);
         node.in = {x->id, weight(draft, {in, 3, 2}, scale_for(in))};
         return true;
       },
       [](const Call& call) {
         return Tensors{torch::conv_transpose1d(call.x(0), call.x(1), {}, 2)};
       }},
      {"bilinear", Group::kApart,
       [](Draft& draft, Node& node) {
         const Value* x = draft.find(
             [](const Value& value) { return value.floating() && value.rows && value.dim() == 2; });
         if (x == nullptr) return false;
         const int64_t in = x->size(1);
         node.in = {x->id, weight(draft, {3, in, in}, scale_for(in))};
         return true;
       },
       [](const Call& call) {
         return Tensors{torch::bilinear(call.x(0), call.x(0), call.x(1), {})};
       }},
  };
}

Family norm_kinds() {
  return {
      over_dim("softmax", [](const Tensor& x, int64_t d) { return torch::softmax(x, d); }),
      over_dim("log_softmax", [](const Tensor& x, int64_t d) { return torch::log_softmax(x, d); }),
      over_dim("normalize",
               [](const Tensor& x, int64_t d) { return x / (x.norm(2, {d}, true) + 0.5); }),
      over_dim("standardize",
               [](const Tensor& x, int64_t d) {
                 return (x - x.mean(d, true)) / (x.var(d, false, true) + 0.1).sqrt();
               }),
      {"layer_norm", Group::kApart, propose_norm,
       [](const Call& call) {
         return Tensors{
             torch::layer_norm(call.x(0), {call.x(0).size(-1)}, call.x(1), call.x(2), 1e-2)};
       }},
      {"group_norm", Group::kApart,
       [](Draft& draft, Node& node) {
         const Value* x = draft.floats(3, 4);
         if (x == nullptr) return false;
         const int64_t channels = x->size(1);
         node.in = {x->id, weight(draft, {channels}, 1), weight(draft, {channels}, 0.3)};
         return true;
       },
       [](const Call& call) {
         return Tensors{torch::group_norm(call.x(0), 1, call.x(1), call.x(2), 1e-2)};
       }},
      pool("max_pool1d", [](const Tensor& x) { return torch::max_pool1d(x, 2, 1); }),
      pool("avg_pool1d", [](const Tensor& x) { return torch::avg_pool1d(x, 2, 1); }),
      pool("adaptive_pool", [](const Tensor& x) { return torch::adaptive_avg_pool1d(x, 2); }),
  };
}

Family reduction_kinds() {
  Family family{
      reduction("sum", [](const Tensor& x, int64_t d, bool keep) { return x.sum(d, keep); }),
      reduction("mean", [](const Tensor& x, int64_t d, bool keep) { return x.mean(d, keep); }),
      reduction("amax", [](const Tensor& x, int64_t d, bool keep) { return x.amax(d, keep); }),
      reduction("amin", [](const Tensor& x, int64_t d, bool keep) { return x.amin(d, keep); }),
      reduction("max",
                [](const Tensor& x, int64_t d, bool keep) { return std::get<0>(x.max(d, keep)); }),
      reduction("median", [](const Tensor& x, int64_t d,
                             bool keep) { return std::get<0>(x.median(d, keep)); }),
      reduction("var", [](const Tensor& x, int64_t d, bool keep) { return x.var(d, true, keep); }),
      reduction("prod", [](const Tensor& x, int64_t d, bool keep) { return x.prod(d, keep); }),
      reduction("logsumexp",
                [](const Tensor& x, int64_t d, bool keep) { return torch::logsumexp(x, d, keep); }),
      over_dim("cumsum", [](const Tensor& x, int64_t d) { return x.cumsum(d); }),
      over_dim("cumprod", [](const Tensor& x, int64_t d) { return x.cumprod(d); }),
      over_dim("sort", [](const Tensor& x, int64_t d) { return std::get<0>(x.sort(d)); }),
      over_dim("topk", [](const Tensor& x, int64_t d) { return std::get<0>(x.topk(2, d)); }),
  };
  family.push_back(
      {"argmax", Group::kApart,
       [](Draft& draft, Node& node) {
         if (!propose_dim(draft, node)) return false;
         node.range = draft.at(node.in[0]).size(node.n[0]);
         return true;
       },
       [](const Call& call) { return Tensors{call.x().argmax(call.n(0), call.n(1) != 0)}; }});
  family.push_back({"argsort", Group::kApart,
                    [](Draft& draft, Node& node) {
                      if (!propose_dim(draft, node)) return false;
                      node.range = draft.at(node.in[0]).size(node.n[0]);
                      return true;
                    },
                    [](const Call& call) { return Tensors{call.x().argsort(call.n(0))}; }});
  return family;
}

}  // namespace epl::fuzz
