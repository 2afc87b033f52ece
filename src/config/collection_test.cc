#include <ATen/Functions.h>
#include <epl/collection.h>

#include "base/text.h"
#include "config/collected.h"
#include "config/scopes.h"
#include "config/test_environment.h"

namespace epl {
namespace {

at::Tensor one() { return at::ones({1}); }

std::string text_of(const std::vector<CollectionEntry>& entries) {
  std::vector<std::string> lines;
  for (const CollectionEntry& entry : entries) {
    lines.push_back(concat(entry.collection, ":", entry.name));
  }
  return join(lines, " ");
}

TEST(CollectionTest, HoldsTheTensorsOfARecording) {
  const at::Tensor tensor = one();
  Recording recording;
  add_to_collection(collections::kGlobalMean, tensor, "accuracy");
  recording.finish();
  const std::vector<CollectionEntry> entries = take_collections();
  ASSERT_EQ(text_of(entries), "GLOBAL_MEAN:accuracy");
  EXPECT_TRUE(entries[0].tensor.is_same(tensor));
  EXPECT_TRUE(take_collections().empty());
}

TEST(CollectionTest, TakesEveryKindInOrder) {
  Recording recording;
  for (const char* collection :
       {"GLOBAL_MEAN", "GLOBAL_SUM", "GLOBAL_CONCAT", "LOCAL_MEAN", "LOCAL_SUM", "LOCAL_CONCAT"}) {
    add_to_collection(collection, one());
  }
  add_to_collection("checkpoints", one());
  EXPECT_EQ(text_of(take_collections()),
            "GLOBAL_MEAN:GLOBAL_MEAN_0 GLOBAL_SUM:GLOBAL_SUM_0 GLOBAL_CONCAT:GLOBAL_CONCAT_0 "
            "LOCAL_MEAN:LOCAL_MEAN_0 LOCAL_SUM:LOCAL_SUM_0 LOCAL_CONCAT:LOCAL_CONCAT_0 "
            "checkpoints:");
}

TEST(CollectionTest, NamesMetricsByTheirPositionInTheirCollection) {
  Recording recording;
  add_to_collection("LOCAL_SUM", one());
  add_to_collection("GLOBAL_SUM", one());
  add_to_collection("LOCAL_SUM", one(), "named");
  add_to_collection("LOCAL_SUM", one());
  EXPECT_EQ(text_of(take_collections()),
            "LOCAL_SUM:LOCAL_SUM_0 GLOBAL_SUM:GLOBAL_SUM_0 LOCAL_SUM:named LOCAL_SUM:LOCAL_SUM_2");
}

TEST(CollectionTest, StaysEmptyWhenNothingIsRecorded) {
  add_to_collection("GLOBAL_MEAN", one(), "accuracy");
  add_to_collection("GLOBAL_MEAN", one(), "accuracy");
  EXPECT_TRUE(take_collections().empty());
}

TEST(CollectionTest, DropsTheTensorsOfABrokenRecording) {
  const at::Tensor tensor = one();
  {
    Recording recording;
    add_to_collection("GLOBAL_MEAN", tensor);
  }
  EXPECT_EQ(tensor.use_count(), 1u);
  EXPECT_TRUE(take_collections().empty());
}

TEST(CollectionTest, StartsEmptyWithEachRecording) {
  for (int i = 0; i < 2; ++i) {
    Recording recording;
    add_to_collection("GLOBAL_MEAN", one(), "accuracy");
    recording.finish();
  }
  EXPECT_EQ(take_collections().size(), 1u);
}

TEST(CollectionTest, RefusesAnUnknownName) {
  const std::string message =
      "epl: there is no collection \"GLOBAL_MAX\"\n"
      "  asked by: epl::add_to_collection(\"GLOBAL_MAX\", tensor)\n"
      "  try:      one of GLOBAL_MEAN, GLOBAL_SUM, GLOBAL_CONCAT, LOCAL_MEAN, LOCAL_SUM, "
      "LOCAL_CONCAT, checkpoints";
  EXPECT_EQ(error_of([] { add_to_collection("GLOBAL_MAX", one()); }), message);
  Recording recording;
  EXPECT_EQ(error_of([] { add_to_collection("GLOBAL_MAX", one()); }), message);
}

TEST(CollectionTest, RefusesTwoMetricsOfOneName) {
  Recording recording;
  add_to_collection("GLOBAL_MEAN", one(), "accuracy");
  EXPECT_EQ(error_of([] { add_to_collection("LOCAL_SUM", one(), "accuracy"); }),
            "epl: two metrics of one step have the name \"accuracy\"\n"
            "  asked by: epl::add_to_collection(\"LOCAL_SUM\", tensor, \"accuracy\"), after one in "
            "GLOBAL_MEAN\n"
            "  try:      a name of its own for each");
}

TEST(CollectionTest, AllowsCheckpointsOfAnyName) {
  Recording recording;
  add_to_collection("GLOBAL_MEAN", one(), "layer");
  add_to_collection("checkpoints", one(), "layer");
  add_to_collection("checkpoints", one(), "layer");
  add_to_collection("GLOBAL_SUM", one(), "other");
  EXPECT_EQ(take_collections().size(), 4u);
}

TEST(CollectionTest, RefusesAnUndefinedTensor) {
  EXPECT_EQ(error_of([] { add_to_collection("checkpoints", at::Tensor()); }),
            "epl: an undefined tensor cannot be added to a collection\n"
            "  asked by: epl::add_to_collection(\"checkpoints\", tensor)\n"
            "  try:      a tensor that the step has computed");
}

}  // namespace
}  // namespace epl
