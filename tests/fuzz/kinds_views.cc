// Kinds that show, join and pick what there is.
#include "tests/fuzz/draft.h"
#include "tests/fuzz/kinds.h"

namespace epl::fuzz {
namespace {

using torch::indexing::Slice;

bool propose_dim(Draft& draft, Node& node, int64_t min_size = 1) {
  int64_t d = 0;
  const Value* x = draft.with_dim(d, min_size);
  if (x == nullptr) return false;
  node.in = {x->id};
  node.n = {d};
  return true;
}

int64_t size_of(const Draft& draft, const Node& node) {
  return draft.at(node.in[0]).size(node.n[0]);
}

Kind narrow() {
  return {
      "narrow", Group::kApart,
      [](Draft& draft, Node& node) {
        if (!propose_dim(draft, node, 2)) return false;
        const int64_t size = size_of(draft, node);
        const int64_t begin = draft.dice.below(size);
        node.n.push_back(begin);
        node.n.push_back(draft.dice.between(1, size - begin));
        return true;
      },
      [](const Call& call) { return Tensors{call.x().narrow(call.n(0), call.n(1), call.n(2))}; }};
}

Kind two_dims(std::string name, Tensor (*compute)(const Tensor&, int64_t, int64_t)) {
  return {std::move(name), Group::kApart,
          [](Draft& draft, Node& node) {
            const Value* x = draft.with_free_dims(2);
            if (x == nullptr) return false;
            const int64_t a = draft.free_dim(*x), b = draft.free_dim(*x);
            node.in = {x->id};
            node.n = {a, b};
            return a != b;
          },
          [compute](const Call& call) { return Tensors{compute(call.x(), call.n(0), call.n(1))}; }};
}

// Sizes of a value with two neighbouring dims joined, or one cut in two.
bool propose_sizes(Draft& draft, Node& node) {
  const Value* x = draft.floats(1);
  if (x == nullptr || x->dim() <= x->first()) return false;
  node.in = {x->id};
  std::vector<int64_t> sizes = draft.sizes(*x);
  const auto first = static_cast<size_t>(x->first());
  const size_t at = first + static_cast<size_t>(draft.dice.below(x->dim() - x->first()));
  if (draft.dice.chance(0.5) && at + 1 < sizes.size()) {
    sizes[at] *= sizes[at + 1];
    sizes.erase(sizes.begin() + static_cast<std::ptrdiff_t>(at) + 1);
  } else if (sizes[at] % 2 == 0) {
    sizes[at] /= 2;
    sizes.insert(sizes.begin() + static_cast<std::ptrdiff_t>(at), 2);
  } else {
    return false;
  }
  node.n = sizes;
  return true;
}

// Windows over what lies behind each row of a contiguous value, overlapping ones too.
Kind as_strided() {
  return {
      "as_strided", Group::kApart,
      [](Draft& draft, Node& node) {
        const Value* x = draft.find([](const Value& value) {
          return value.floating() && value.rows && value.dim() >= 2 && value.tensor.is_contiguous();
        });
        if (x == nullptr) return false;
        const int64_t row = x->tensor.numel() / x->size(0);
        if (row < 3) return false;
        node.in = {x->id};
        const int64_t stride = draft.dice.between(1, 2);
        const int64_t width = draft.dice.between(1, (row - 2) / stride + 1);
        node.n = {row, width, stride, draft.dice.below(2)};
        return true;
      },
      [](const Call& call) {
        return Tensors{call.x().as_strided({call.x().size(0), call.n(1)}, {call.n(0), call.n(2)},
                                           call.x().storage_offset() + call.n(3))};
      }};
}

Kind pieces(std::string name, std::function<Tensors(const Call&)> compute) {
  return {std::move(name), Group::kApart,
          [](Draft& draft, Node& node) { return propose_dim(draft, node, 2); }, std::move(compute)};
}

bool propose_join(Draft& draft, Node& node) {
  if (!propose_dim(draft, node)) return false;
  const Tensor like = draft.at(node.in[0]).tensor;
  const bool rows = draft.at(node.in[0]).rows;
  const int64_t more = draft.dice.between(1, 2);
  for (int64_t i = 0; i < more; ++i) {
    const Value* y = draft.find([&](const Value& value) {
      return value.floating() && value.rows == rows && value.tensor.sizes().equals(like.sizes());
    });
    if (y != nullptr) node.in.push_back(y->id);
  }
  return true;
}

Kind along(std::string name, Tensor (*compute)(const Tensor&, int64_t)) {
  return {std::move(name), Group::kApart,
          [](Draft& draft, Node& node) { return propose_dim(draft, node); },
          [compute](const Call& call) { return Tensors{compute(call.x(), call.n(0))}; }};
}

// Places along a dim, as numbers of the program.
bool propose_places(Draft& draft, Node& node) {
  if (!propose_dim(draft, node, 2)) return false;
  const int64_t size = size_of(draft, node), count = draft.dice.between(1, 3);
  for (int64_t i = 0; i < count; ++i) node.n.push_back(draft.dice.below(size));
  return true;
}

Tensor places(const Call& call) {
  return torch::tensor(std::vector<int64_t>(call.node.n.begin() + 1, call.node.n.end()));
}

// An integer value of the shape of a floating one, with numbers that are places along dim d.
bool propose_gather(Draft& draft, Node& node) {
  const Value* index = draft.find(
      [](const Value& value) { return value.integer() && value.range > 0 && value.dim() >= 2; });
  if (index == nullptr) return false;
  const int id = index->id;
  const int64_t range = index->range;
  const Tensor like = index->tensor;
  const int64_t d = draft.dice.between(1, index->dim() - 1);
  const Value* x = draft.find([&](const Value& value) {
    if (!value.floating() || value.dim() != like.dim() || value.size(d) < range) return false;
    for (int64_t i = 0; i < value.dim(); ++i) {
      if (i != d && value.size(i) != like.size(i)) return false;
    }
    return true;
  });
  if (x == nullptr) return false;
  node.in = {x->id, id};
  node.n = {d};
  return true;
}

}  // namespace

Family view_kinds() {
  return {
      narrow(),
      narrow(),
      pieces("select",
             [](const Call& call) {
               return Tensors{call.x().select(call.n(0), call.x().size(call.n(0)) - 1)};
             }),
      two_dims("transpose",
               [](const Tensor& x, int64_t a, int64_t b) { return x.transpose(a, b); }),
      two_dims("movedim", [](const Tensor& x, int64_t a, int64_t b) { return x.movedim(a, b); }),
      two_dims("diagonal",
               [](const Tensor& x, int64_t a, int64_t b) { return x.diagonal(0, a, b); }),
      {"reshape", Group::kApart, propose_sizes,
       [](const Call& call) { return Tensors{call.x().reshape(call.sizes())}; }},
      {"view", Group::kApart, propose_sizes,
       [](const Call& call) { return Tensors{call.x().view(call.sizes())}; }},
      {"flatten", Group::kApart,
       [](Draft& draft, Node& node) {
         const Value* x = draft.with_free_dims(2);
         if (x != nullptr) node.in = {x->id}, node.n = {x->first()};
         return x != nullptr;
       },
       [](const Call& call) { return Tensors{call.x().flatten(call.n(0))}; }},
      along("unsqueeze", [](const Tensor& x, int64_t d) { return x.unsqueeze(d); }),
      along("squeeze", [](const Tensor& x, int64_t d) { return x.squeeze(d); }),
      along("expand",
            [](const Tensor& x, int64_t d) {
              std::vector<int64_t> sizes = x.unsqueeze(d).sizes().vec();
              sizes[static_cast<size_t>(d)] = 2;
              return x.unsqueeze(d).expand(sizes);
            }),
      along("unfold", [](const Tensor& x,
                         int64_t d) { return x.unfold(d, std::min<int64_t>(2, x.size(d)), 1); }),
      along("slice", [](const Tensor& x, int64_t d) { return x.slice(d, 0, x.size(d), 2); }),
      as_strided(),
      pieces("chunk", [](const Call& call) { return call.x().chunk(2, call.n(0)); }),
      pieces("split", [](const Call& call) { return call.x().split(1, call.n(0)); }),
      pieces("unbind", [](const Call& call) { return call.x().unbind(call.n(0)); }),
  };
}

Family join_kinds() {
  return {
      {"cat", Group::kApart, propose_join,
       [](const Call& call) { return Tensors{torch::cat(call.in, call.n(0))}; }},
      {"stack", Group::kApart, propose_join,
       [](const Call& call) { return Tensors{torch::stack(call.in, call.n(0))}; }},
      along("flip", [](const Tensor& x, int64_t d) { return x.flip(d); }),
      along("roll", [](const Tensor& x, int64_t d) { return x.roll(1, d); }),
      along("repeat_interleave",
            [](const Tensor& x, int64_t d) { return x.repeat_interleave(2, d); }),
      along("repeat",
            [](const Tensor& x, int64_t d) {
              std::vector<int64_t> times(static_cast<size_t>(x.dim()), 1);
              times[static_cast<size_t>(d)] = 2;
              return x.repeat(times);
            }),
      along("pad",
            [](const Tensor& x, int64_t d) {
              std::vector<int64_t> widths(static_cast<size_t>(2 * x.dim()), 0);
              widths[static_cast<size_t>(2 * (x.dim() - 1 - d))] = 1;
              return torch::constant_pad_nd(x, widths, 0.5);
            }),
      along("tril", [](const Tensor& x, int64_t) { return x.dim() < 3 ? x.neg() : x.tril(); }),
  };
}

Family index_kinds() {
  return {
      {"index_select", Group::kApart, propose_places,
       [](const Call& call) { return Tensors{call.x().index_select(call.n(0), places(call))}; }},
      {"index", Group::kApart, propose_places,
       [](const Call& call) {
         std::vector<torch::indexing::TensorIndex> at(static_cast<size_t>(call.n(0)), Slice());
         at.emplace_back(places(call));
         return Tensors{call.x().index(at)};
       }},
      {"gather", Group::kApart, propose_gather,
       [](const Call& call) { return Tensors{call.x(0).gather(call.n(0), call.x(1))}; }},
      {"scatter_add", Group::kApart, propose_gather,
       [](const Call& call) {
         const Tensor added = torch::ones_like(call.x(1), call.x(0).options()) * 0.5;
         return Tensors{call.x(0).scatter_add(call.n(0), call.x(1), added)};
       }},
      {"scatter", Group::kApart, propose_gather,
       [](const Call& call) { return Tensors{call.x(0).scatter(call.n(0), call.x(1), 0.25)}; }},
      {"index_add", Group::kApart, propose_places,
       [](const Call& call) {
         const Tensor at = places(call);
         return Tensors{call.x().index_add(call.n(0), at, call.x().index_select(call.n(0), at))};
       }},
      {"embedding", Group::kApart,
       [](Draft& draft, Node& node) {
         const Value* index = draft.find([](const Value& value) {
           return value.integer() && value.range > 0 && value.dim() >= 1;
         });
         if (index == nullptr) return false;
         const int id = index->id;
         node.in = {id, draft.parameter({index->range, draft.dice.between(2, 4)}, 1)};
         return true;
       },
       [](const Call& call) { return Tensors{torch::embedding(call.x(1), call.x(0))}; }},
      {"one_hot", Group::kApart,
       [](Draft& draft, Node& node) {
         const Value* index = draft.find([](const Value& value) {
           return value.integer() && value.range > 0 && value.dim() >= 1;
         });
         const Value* like = draft.floats();
         if (index == nullptr || like == nullptr) return false;
         node.in = {index->id, like->id};
         node.n = {index->range};
         return true;
       },
       [](const Call& call) {
         return Tensors{torch::one_hot(call.x(0), call.n(0)).to(call.x(1).scalar_type())};
       }},
  };
}

}  // namespace epl::fuzz
