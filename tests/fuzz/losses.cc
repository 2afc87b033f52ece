// What makes a scalar of values, and the list of all families.
#include "tests/fuzz/draft.h"
#include "tests/fuzz/kinds.h"

namespace epl::fuzz {
namespace {

namespace F = torch::nn::functional;

bool propose_any(Draft& draft, Node& node) {
  const Value* x = draft.find([](const Value& value) {
    return value.floating() && value.tensor.requires_grad() && !value.leaf;
  });
  if (x == nullptr) return false;
  node.in = {x->id};
  return true;
}

Kind of_one(std::string name, Tensor (*compute)(const Tensor&)) {
  return {std::move(name), Group::kApart, propose_any,
          [compute](const Call& call) { return Tensors{compute(call.x())}; }};
}

Kind of_two(std::string name, Tensor (*compute)(const Tensor&, const Tensor&)) {
  return {std::move(name), Group::kApart,
          [](Draft& draft, Node& node) {
            if (!propose_any(draft, node)) return false;
            const Tensor like = draft.at(node.in[0]).tensor;
            const Value* y = draft.find([&](const Value& value) {
              return value.floating() && value.tensor.sizes().equals(like.sizes());
            });
            node.in.push_back(y->id);
            return true;
          },
          [compute](const Call& call) { return Tensors{compute(call.x(0), call.x(1))}; }};
}

// Scores of rows and classes, and the classes of the rows.
Kind of_classes(std::string name, Tensor (*compute)(const Tensor&, const Tensor&)) {
  return {std::move(name), Group::kApart,
          [](Draft& draft, Node& node) {
            const Value* label = draft.find([](const Value& value) {
              return value.integer() && value.rows && value.dim() == 1 && value.range > 0;
            });
            if (label == nullptr) return false;
            const int id = label->id;
            const int64_t range = label->range;
            const Value* x = draft.find([&](const Value& value) {
              return value.floating() && value.tensor.requires_grad() && value.rows &&
                     value.dim() == 2 && value.size(1) >= range;
            });
            if (x == nullptr) return false;
            node.in = {x->id, id};
            return true;
          },
          [compute](const Call& call) { return Tensors{compute(call.x(0), call.x(1))}; }};
}

}  // namespace

const Family& mean_losses() {
  static const Family family{
      of_one("mean", [](const Tensor& x) { return x.mean(); }),
      of_one("square_mean", [](const Tensor& x) { return x.square().mean(); }),
      of_one("abs_mean", [](const Tensor& x) { return x.abs().mean(); }),
      of_two("mse_loss", [](const Tensor& x, const Tensor& y) { return torch::mse_loss(x, y); }),
      of_two("l1_loss", [](const Tensor& x, const Tensor& y) { return torch::l1_loss(x, y); }),
      of_two("smooth_l1_loss",
             [](const Tensor& x, const Tensor& y) { return torch::smooth_l1_loss(x, y); }),
      of_two("huber_loss",
             [](const Tensor& x, const Tensor& y) { return torch::huber_loss(x, y); }),
      of_two("bce_with_logits",
             [](const Tensor& x, const Tensor& y) {
               return torch::binary_cross_entropy_with_logits(x, y.detach().sigmoid());
             }),
      of_two("kl_div",
             [](const Tensor& x, const Tensor& y) {
               return torch::kl_div(torch::log_sigmoid(x), y.detach().sigmoid());
             }),
      of_classes("cross_entropy",
                 [](const Tensor& x, const Tensor& y) { return F::cross_entropy(x, y); }),
      of_classes("nll_loss",
                 [](const Tensor& x, const Tensor& y) {
                   return torch::nll_loss(torch::log_softmax(x, 1), y);
                 }),
      of_classes("cross_entropy",
                 [](const Tensor& x, const Tensor& y) { return F::cross_entropy(x, y); }),
  };
  return family;
}

const Family& sum_losses() {
  static const Family family{
      of_one("square_sum",
             [](const Tensor& x) { return x.dim() == 0 ? x.square() : x.square().sum(); }),
      of_two("mse_sum", [](const Tensor& x,
                           const Tensor& y) { return torch::mse_loss(x, y, at::Reduction::Sum); }),
      of_classes("cross_entropy_sum",
                 [](const Tensor& x, const Tensor& y) {
                   return F::cross_entropy(x, y,
                                           F::CrossEntropyFuncOptions().reduction(torch::kSum));
                 }),
  };
  return family;
}

const std::vector<Family>& families() {
  static const std::vector<Family> all{
      pointwise_kinds(), pair_kinds(),  mask_kinds(),   product_kinds(), norm_kinds(),
      reduction_kinds(), view_kinds(),  join_kinds(),   index_kinds(),   write_kinds(),
      region_kinds(),    state_kinds(), random_kinds(), mixing_kinds(),  reading_kinds()};
  return all;
}

}  // namespace epl::fuzz
