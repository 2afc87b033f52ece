#include "layout/constant_text.h"

#include <gtest/gtest.h>

#include <limits>

#include "layout/dtype_names.h"

namespace epl {
namespace {

TEST(PrintConstant, WritesEveryKind) {
  const double infinity = std::numeric_limits<double>::infinity();
  const std::pair<c10::IValue, const char*> table[] = {
      {c10::IValue(), "none"},
      {true, "true"},
      {false, "false"},
      {0, "0"},
      {std::numeric_limits<int64_t>::min(), "-9223372036854775808"},
      {1.0, "1.0"},
      {-0.0, "-0.0"},
      {0.1, "0.1"},
      {1.0 / 3, "0.33333333333333331"},
      {1e-5, "1e-05"},
      {1e300, "1e+300"},
      {static_cast<double>(0.1F), "0.10000000149011612"},
      {infinity, "inf"},
      {-infinity, "-inf"},
      {std::nan(""), "nan"},
      {-std::nan(""), "nan"},
      {c10::complex<double>(1, -0.5), "complex(1.0, -0.5)"},
      {"mean", "\"mean\""},
      {"a \"b\" \\ c", "\"a \\\"b\\\" \\\\ c\""},
      {"two\nlines", "\"two\\nlines\""},
      {c10::Device("cpu"), "device(\"cpu\")"},
      {c10::Device("cuda:1"), "device(\"cuda:1\")"},
      {c10::List<int64_t>({1, -2}), "[1, -2]"},
      {c10::List<double>({1, 0.5}), "[1.0, 0.5]"},
      {c10::List<bool>({true, false}), "[true, false]"},
      {c10::List<std::string>({"a", "b"}), "[\"a\", \"b\"]"},
      {c10::List<int64_t>(), "[]"},
      {at::Scalar(2), "2"},
      {at::Scalar(2.0), "2.0"},
      {at::Scalar(true), "true"},
  };
  for (const auto& [value, text] : table) EXPECT_EQ(print_constant(value), text);
}

TEST(PrintConstant, WritesAGeneratorWithoutItsState) {
  EXPECT_EQ(print_constant(at::detail::getDefaultCPUGenerator()), "generator");
}

TEST(PrintConstant, HasNoTextForATensor) {
  try {
    print_constant(at::zeros({2}));
    FAIL() << "no exception";
  } catch (const std::logic_error& error) {
    EXPECT_STREQ(error.what(), "epl internal error: no text form for an argument of type Tensor");
  }
}

TEST(DtypeName, ReadsBackToTheSameType) {
  const std::pair<c10::ScalarType, const char*> table[] = {
      {at::kFloat, "f32"},     {at::kDouble, "f64"},       {at::kHalf, "f16"},
      {at::kBFloat16, "bf16"}, {at::kLong, "i64"},         {at::kInt, "i32"},
      {at::kShort, "i16"},     {at::kChar, "i8"},          {at::kByte, "u8"},
      {at::kBool, "b8"},       {at::kComplexFloat, "c64"}, {at::kComplexDouble, "c128"},
  };
  for (const auto& [dtype, name] : table) {
    EXPECT_EQ(dtype_name(dtype), name);
    EXPECT_EQ(dtype_from_name(name), dtype);
  }
}

TEST(DtypeName, OfATypeWithoutAShortNameIsThatOfLibTorch) {
  EXPECT_EQ(dtype_name(at::kQInt8), "QInt8");
}

TEST(DtypeName, UnknownReadsAsNothing) {
  EXPECT_EQ(dtype_from_name("float"), std::nullopt);
  EXPECT_EQ(dtype_from_name(""), std::nullopt);
}

}  // namespace
}  // namespace epl
