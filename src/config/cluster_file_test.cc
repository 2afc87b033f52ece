#include "config/cluster_file.h"

#include <epl/env.h>
#include <gmock/gmock.h>

#include <fstream>
#include <random>

#include "base/text.h"
#include "config/test_environment.h"

namespace epl {
namespace {

using ::testing::HasSubstr;

// Two kinds on one host, three hosts in two levels: every field once.
const char* const kMixed = R"({
  "kinds": {
    "a100": {"flops": {"f32": 19.5e12, "bf16": 312e12}, "memory_gib": 80, "memory_gbps": 2039,
             "call_us": 4, "product_efficiency": [[128, 0.95], [16, 0.9], [1, 0.6]],
             "memory_efficiency": [[100, 0.9], [1, 0.6]], "fuses": ["pointwise", "attention"],
             "costs": "a100.costs.json"},
    "v100": {"flops": {"f32": 15.7e12}, "memory_gib": 32, "memory_gbps": 900, "call_us": 5}
  },
  "links": {
    "nvlink": {"gbps": 300, "us": 3, "efficiency": 0.65, "algorithm": "ring"},
    "ib": {"gbps": 25, "us": 8, "message_us": 0.5, "ports": 8},
    "pcie": {"gbps": 32, "us": 10}
  },
  "hosts": [
    {"count": 2, "devices": [{"kind": "a100", "count": 4}, {"kind": "v100", "count": 2}],
     "inside": "nvlink", "between_workers": "pcie", "offload": {"gib": 512, "link": "pcie"},
     "cores": 64, "memory_gbps": 200},
    {"count": 1, "devices": [{"kind": "v100", "count": 8}], "inside": "pcie"}
  ],
  "levels": [{"hosts": 2, "link": "ib"}, {"hosts": 4, "link": "pcie"}],
  "workers": "host"
})";

std::string with(const std::string& old_text, const std::string& new_text) {
  std::string text = kMixed;
  const size_t place = text.find(old_text);
  EXPECT_NE(place, std::string::npos) << old_text;
  return text.replace(place, old_text.size(), new_text);
}

std::string complaint(const std::string& text) {
  return error_of([&] { parse_cluster(text, "mixed.json", "a test"); });
}

TEST(ClusterFile, IsReadFieldByField) {
  const ClusterMap map = parse_cluster(kMixed, "mixed.json", "a test");
  const ClusterDescription& cluster = map.description();
  EXPECT_EQ(map.hosts(), 3);
  EXPECT_EQ(map.devices(), 2 * 6 + 8);
  const DeviceKind& a100 = cluster.kinds[0];
  EXPECT_EQ(a100.name, "a100");
  EXPECT_EQ(a100.flops_of("bf16"), 312e12);
  EXPECT_EQ(a100.flops_of("f16"), 19.5e12);
  EXPECT_EQ(a100.memory_bytes(), int64_t{80} << 30);
  EXPECT_EQ(a100.fuses, (std::vector<Fuses>{Fuses::kPointwise, Fuses::kAttention}));
  EXPECT_EQ(a100.costs, "a100.costs.json");
  EXPECT_EQ(cluster.links[1].ports, 8);
  EXPECT_EQ(cluster.links[1].algorithm, LinkAlgorithm::kDirect);
  EXPECT_DOUBLE_EQ(cluster.links[0].bytes_per_second(), 195e9);
  EXPECT_EQ(cluster.hosts[0].offload.at(0).gib, 512);
  EXPECT_EQ(cluster.hosts[1].between_workers, cluster.hosts[1].inside);
  EXPECT_EQ(map.kind_of(4).name, "v100");
  EXPECT_EQ(map.level_between(0, 5), 0);
  EXPECT_EQ(map.level_between(0, 6), 1);
  EXPECT_EQ(map.level_between(0, 12), 2);
  EXPECT_EQ(map.link_at(0, 0).name, "nvlink");
  EXPECT_EQ(map.link_at(1, 0).name, "ib");
}

TEST(ClusterFile, PrintsWhatParsesBack) {
  const std::string printed =
      print_cluster(parse_cluster(kMixed, "mixed.json", "a test").description());
  EXPECT_EQ(print_cluster(parse_cluster(printed, "again", "a test").description()), printed);
  for (const char* said : {"\"bf16\": 312000000000000.0", "\"ports\": 8", "\"workers\": \"host\"",
                           "\"costs\": \"a100.costs.json\"", "\"memory_gbps\": 200.0"}) {
    EXPECT_THAT(printed, HasSubstr(said));
  }
}

TEST(ClusterFile, NamesWhatIsWrongAndTheNearestName) {
  EXPECT_EQ(complaint(with("\"memory_gib\": 80", "\"memory_gb\": 80")),
            "epl: there is no field kinds.a100.memory_gb (mixed.json)\n"
            "  asked by: a test\n"
            "  try:      \"memory_gib\"");
  EXPECT_EQ(complaint(with("\"kind\": \"v100\"", "\"kind\": \"v10\"")),
            "epl: hosts[0].devices[1].kind names \"v10\", which does not exist (mixed.json)\n"
            "  asked by: a test\n"
            "  try:      \"v100\"; there is: a100, v100");
  EXPECT_EQ(complaint(with("\"inside\": \"nvlink\"", "\"inside\": \"nvlnk\"")),
            "epl: hosts[0].inside names \"nvlnk\", which does not exist (mixed.json)\n"
            "  asked by: a test\n"
            "  try:      \"nvlink\"; there is: nvlink, ib, pcie");
  EXPECT_EQ(complaint(with("\"gbps\": 25", "\"gbps\": -25")),
            "epl: links.ib.gbps must be a number greater than 0, not -25 (mixed.json)\n"
            "  asked by: a test\n"
            "  try:      \"gbps\" with a number greater than 0");
  EXPECT_EQ(complaint(with(", \"call_us\": 5", "")),
            "epl: kinds.v100.call_us is missing (mixed.json)\n"
            "  asked by: a test\n"
            "  try:      a field \"call_us\"");
}

TEST(ClusterFile, RefusesWhatCannotBe) {
  const struct {
    const char* from;
    const char* to;
    const char* what;
  } cases[] = {
      {"\"f32\": 19.5e12, ", "", "kinds.a100.flops.f32 is missing"},
      {"\"bf16\": 312e12", "\"bf17\": 312e12", "no field kinds.a100.flops.bf17"},
      {"\"bf16\": 312e12", "\"bf16\": \"312e12\"", "not \"312e12\""},
      {"\"bf16\": 312e12", "\"bf16\": 1e99", "not 1e+99"},
      {"\"bf16\": 312e12", "\"bf16\": 1e999", "is no JSON"},
      {"\"bf16\": 312e12", "\"bf16\": 1, \"bf16\": 2", "has the field \"bf16\" twice"},
      {"\"efficiency\": 0.65", "\"efficiency\": 1.5", "at most 1, not 1.5"},
      {"\"ports\": 8", "\"ports\": 0", "links.ib.ports must be an integer from 1"},
      {"\"ports\": 8", "\"ports\": 2.5", "not 2.5"},
      {"\"ports\": 8", "\"ports\": 18446744073709551615", "not 18446744073709551615"},
      {"\"ring\"", "\"rings\"", "try:      \"ring\""},
      {"\"attention\"", "\"atention\"", "try:      \"attention\""},
      {"\"workers\": \"host\"", "\"workers\": \"hosts\"", "try:      \"host\""},
      {"[[128, 0.95]", "[[128, 1.95]", "has the point [128, 1.95]"},
      {"[[128, 0.95]", "[[8, 0.95]", "[16, 0.9] behind a smaller or an equal size"},
      {"[16, 0.9], [1, 0.6]", "[16, 0.9], [1, 0.01]", "would take longer than the larger one"},
      {"[16, 0.9]", "[16]", "rows of 2 numbers"},
      {"\"count\": 2,", "\"count\": 0,", "hosts[0].count must be an integer from 1"},
      {"\"count\": 2,", "\"count\": 9999999,", "devices"},
      {"{\"hosts\": 4, \"link\": \"pcie\"}", "{\"hosts\": 3, \"link\": \"pcie\"}",
       "is 3 behind a level of 2"},
      {", {\"hosts\": 4, \"link\": \"pcie\"}", "", "levels join 2 of 3 hosts"},
      {"\"levels\"", "\"level\"", "try:      \"levels\""},
      {"{\"gib\": 512,", "{", "hosts[0].offload.gib is missing"},
      {"\"hosts\": [\n", "\"hosts\": [[],\n", "hosts[0] of mixed.json must be an object"},
  };
  for (const auto& row : cases) {
    const std::string said = complaint(with(row.from, row.to));
    EXPECT_THAT(said, HasSubstr(row.what)) << row.from << " -> " << row.to;
    EXPECT_THAT(said, HasSubstr("\n  asked by: a test\n  try:      ")) << row.to;
  }
  for (const char* text : {"", "[]", "null", "3", "{", "{}", "\xff\xfe", "{\"kinds\": {}}"}) {
    EXPECT_THAT(complaint(text), HasSubstr("mixed.json")) << text;
  }
  EXPECT_THAT(complaint(std::string(200'000, '[')), HasSubstr("is no JSON"));
}

// What comes from outside may be anything: it is read, or refused by an Error.
TEST(ClusterFile, NeverCrashesOnForeignBytes) {
  std::mt19937 random(7);
  const auto below = [&](size_t end) { return static_cast<size_t>(random() % end); };
  const std::string good = kMixed;
  const std::string spice = "{}[]\",:0-9.eE\\ntru\xff\x00";
  int refused = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string text = good;
    for (size_t change = 0, changes = 1 + below(4); change < changes; ++change) {
      const size_t place = below(text.size());
      switch (below(4)) {
        case 0:
          text[place] = static_cast<char>(random());
          break;
        case 1:
          text[place] = spice[below(spice.size())];
          break;
        case 2:
          text.erase(place, 1 + below(20));
          break;
        default:
          text.insert(place, text.substr(below(text.size()), below(30)));
      }
      if (text.empty()) text = " ";
    }
    try {
      const ClusterMap map = parse_cluster(text, "foreign", "a test");
      const std::string printed = print_cluster(map.description());
      EXPECT_EQ(print_cluster(parse_cluster(printed, "again", "a test").description()), printed);
      map.place_of(map.devices() - 1);
    } catch (const Error&) {
      ++refused;
    }
  }
  EXPECT_GT(refused, 2000);
  EXPECT_LT(refused, 4000);  // some changes leave a cluster
}

TEST(ClusterFile, IsFoundByNameOrPath) {
  for (const std::string& name : known_clusters()) {
    const ClusterMap map = load_cluster(name, "a test");
    EXPECT_EQ(map.description().name, name);
    EXPECT_EQ(print_cluster(map.description()),
              print_cluster(parse_cluster(print_cluster(map.description()), "", "").description()));
  }
  EXPECT_THAT(known_clusters(),
              ::testing::ElementsAre("a100_8", "cpu_2", "meta_16k", "selene_3072", "v100_512"));
  EXPECT_EQ(load_cluster("a100_8", "").devices(), 8);
  EXPECT_EQ(load_cluster("v100_512", "").devices(), 512);
  EXPECT_EQ(load_cluster("selene_3072", "").devices(), 3072);
  EXPECT_EQ(load_cluster("meta_16k", "").devices(), 16384);
  EXPECT_EQ(load_cluster("cpu_2", "").devices(), 2);
  const std::string path = ::testing::TempDir() + "/mixed_cluster.json";
  std::ofstream(path) << kMixed;
  EXPECT_EQ(load_cluster(path, "a test").devices(), 20);
  EXPECT_THAT(error_of([] { load_cluster("selene_307", "a test"); }),
              HasSubstr("epl: cannot read selene_307: No such file or directory\n"
                        "  asked by: a test\n"
                        "  try:      \"selene_3072\", or the path of a file; EPL knows: a100_8, "));
  EXPECT_THAT(error_of([] { load_cluster(::testing::TempDir(), "a test"); }),
              HasSubstr("cannot read"));
}

class ClusterDescriptionKey : public EnvironmentFixture {
 protected:
  ~ClusterDescriptionKey() override {
    clear();
    init();
  }
};

TEST_F(ClusterDescriptionKey, GivesTheSpeedsOfTheJob) {
  set("EPL_DEVICES", "2");
  init({{"cluster.description", "a100_8"}});
  const Cluster& cluster = Env::get().cluster;
  EXPECT_EQ(cluster.total_gpu_num, 2);
  EXPECT_DOUBLE_EQ(cluster.worker_speeds.at(0).flops_per_second, 0.75 * 19.5e12);
  EXPECT_DOUBLE_EQ(cluster.link_in_worker.bytes_per_second, 0.65 * 300e9);
  EXPECT_DOUBLE_EQ(cluster.link_in_host.seconds_per_call, 3e-6);
}

TEST_F(ClusterDescriptionKey, RefusesAJobWithMoreDevices) {
  set("EPL_DEVICES", "3");
  EXPECT_THAT(error_of([] {
                init({{"cluster.description", "cpu_2"}});
              }),
              HasSubstr("epl: cpu_2 describes 2 devices, and this job has 3\n"
                        "  asked by: cluster.description = \"cpu_2\" (code "));
  EXPECT_THAT(error_of([] {
                init({{"cluster.description", "cpu_3"}});
              }),
              HasSubstr("try:      \"cpu_2\", or the path of a file"));
}

}  // namespace
}  // namespace epl
