#include "checkpoint/tensor_part.h"

#include <gtest/gtest.h>

#include <random>

#include "checkpoint/stored_type.h"

namespace epl {
namespace {

// The elements of a part in order, by looking at every element of the tensor.
std::vector<int64_t> elements_one_by_one(const TensorPart& part, const Shape& shape) {
  int64_t inner = 1;
  for (size_t i = static_cast<size_t>(part.dim + 1); part.dim >= 0 && i < shape.size(); ++i) {
    inner *= shape[i];
  }
  std::vector<int64_t> of_slab;
  for (int64_t element = 0; element < *element_count(shape); ++element) {
    const int64_t place = part.dim < 0 ? 0 : element / inner % shape[static_cast<size_t>(part.dim)];
    if (part.dim < 0 || (place >= part.begin && place < part.end)) of_slab.push_back(element);
  }
  return {of_slab.begin() + part.first, of_slab.begin() + part.last};
}

struct RandomParts {
  int64_t below(int64_t end) { return static_cast<int64_t>(random() % static_cast<uint64_t>(end)); }

  Shape shape() {
    Shape shape(static_cast<size_t>(below(4)));
    for (int64_t& size : shape) size = below(6);
    return shape;
  }

  TensorPart part(const Shape& shape) {
    TensorPart part = whole(shape);
    if (!shape.empty() && below(3) > 0) {
      const int64_t dim = below(static_cast<int64_t>(shape.size()));
      const int64_t begin = below(shape[static_cast<size_t>(dim)] + 1);
      part = slab(shape, dim, begin, begin + below(shape[static_cast<size_t>(dim)] - begin + 1));
    }
    part.first = below(part.last + 1);
    part.last = part.first + below(part.last - part.first + 1);
    return part;
  }

  std::mt19937_64 random{3};
};

TEST(TensorPart, HasTheElementsOfItsRuns) {
  RandomParts random;
  for (int i = 0; i < 5000; ++i) {
    const Shape shape = random.shape();
    const TensorPart part = random.part(shape);
    std::vector<int64_t> elements;
    for (PartRuns runs(part, shape); !runs.is_done();) {
      const PartRun run = runs.run();
      ASSERT_EQ(run.in_part, static_cast<int64_t>(elements.size()));
      for (int64_t k = 0; k < run.count; ++k) elements.push_back(run.in_whole + k);
      runs.skip_to(run.in_whole + run.count);
    }
    ASSERT_EQ(elements, elements_one_by_one(part, shape)) << print_shape(shape) << print_part(part);
  }
}

TEST(TensorPart, HasInCommonWithAnotherWhatBothHave) {
  RandomParts random;
  for (int i = 0; i < 5000; ++i) {
    const Shape shape = random.shape();
    const TensorPart a = random.part(shape);
    const TensorPart b = random.part(shape);
    const std::vector<int64_t> of_a = elements_one_by_one(a, shape);
    const std::vector<int64_t> of_b = elements_one_by_one(b, shape);
    std::vector<int64_t> common;
    for_overlaps(a, b, shape, [&](int64_t in_a, int64_t in_b, int64_t count) {
      for (int64_t k = 0; k < count; ++k) {
        ASSERT_EQ(of_a.at(static_cast<size_t>(in_a + k)), of_b.at(static_cast<size_t>(in_b + k)));
        common.push_back(of_a[static_cast<size_t>(in_a + k)]);
      }
    });
    std::vector<int64_t> both;
    std::set_intersection(of_a.begin(), of_a.end(), of_b.begin(), of_b.end(),
                          std::back_inserter(both));
    ASSERT_EQ(common, both) << print_shape(shape) << print_part(a) << print_part(b);
  }
}

TEST(TensorPart, SaysWhichElementIsMissingOrThereTwice) {
  const Shape shape{4, 6};
  EXPECT_EQ(fault_of_cover({slab(shape, 1, 0, 2), slab(shape, 1, 2, 6)}, shape), "");
  EXPECT_EQ(fault_of_cover({rows(shape, 0, 1), rows(shape, 2, 4)}, shape),
            "element 6 is in no piece");
  EXPECT_EQ(fault_of_cover({slab(shape, 1, 0, 3), slab(shape, 1, 2, 6)}, shape),
            "element 2 is in two pieces");
  EXPECT_EQ(fault_of_cover({}, {3, 0}), "");
  EXPECT_EQ(fault_of_cover({}, {}), "element 0 is in no piece");
}

TEST(TensorPart, IsNoneWhereItLiesOutside) {
  EXPECT_TRUE(is_part_of({1, 0, 6, 0, 24}, {4, 6}));
  EXPECT_FALSE(is_part_of({1, 0, 7, 0, 24}, {4, 6}));
  EXPECT_FALSE(is_part_of({2, 0, 1, 0, 1}, {4, 6}));
  EXPECT_FALSE(is_part_of({1, 0, 3, 0, 13}, {4, 6}));
  EXPECT_FALSE(is_part_of({1, 3, 2, 0, 0}, {4, 6}));
  EXPECT_FALSE(is_part_of({-1, 0, 0, 5, 4}, {4, 6}));
  EXPECT_FALSE(is_part_of({-1, 0, 0, -1, 4}, {4, 6}));
}

TEST(ElementCount, IsNoneWhereNoMemoryHoldsThem) {
  EXPECT_EQ(element_count({}), 1);
  EXPECT_EQ(element_count({3, 0, 5}), 0);
  EXPECT_FALSE(element_count({-1}).has_value());
  EXPECT_FALSE(element_count({int64_t{1} << 40, int64_t{1} << 40}).has_value());
  EXPECT_FALSE(element_count({0, int64_t{1} << 40, int64_t{1} << 40}).has_value());
  EXPECT_FALSE(element_count({int64_t{1} << 61}).has_value());
}

}  // namespace
}  // namespace epl
