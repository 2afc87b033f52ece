#include "config/cluster_file.h"

#include <algorithm>

#include "base/check.h"
#include "config/json_fields.h"
#include "config/known_clusters.h"
#include "config/spelling.h"

namespace epl {
namespace {

using Names = std::vector<std::string>;

const Names kFuseNames = {"pointwise", "attention"};
const Names kAlgorithmNames = {"threads", "shared_memory", "direct", "ring"};
const Names kWorkerNames = {"device", "host"};
const Names kTypeNames = {"f64", "f32", "f16", "bf16", "i8"};

// --- reading -----------------------------------------------------------------------------------

EfficiencyCurve read_curve(const JsonFields& fields, const std::string& key) {
  EfficiencyCurve curve;
  for (const std::vector<double>& row : fields.rows(key, 2)) {
    const EfficiencyPoint point{row[0], row[1]};
    const std::string place = concat(fields.place(key), " has the point [", row[0], ", ", row[1]);
    if (point.size <= 0 || point.share <= 0 || point.share > 1) {
      fields.refuse(place + "]", "a size above 0 and a share above 0 and at most 1");
    }
    if (!curve.empty()) {
      const EfficiencyPoint& larger = curve.back();
      if (point.size >= larger.size) {
        fields.refuse(place + "] behind a smaller or an equal size", "points by falling size");
      }
      // Time is size / share: it must not fall where the size grows.
      if (larger.size / larger.share < point.size / point.share) {
        fields.refuse(place + "], which would take longer than the larger one before it",
                      concat("a share of at least ", point.size * larger.share / larger.size));
      }
    }
    curve.push_back(point);
  }
  return curve;
}

DeviceKind read_kind(const std::string& name, const JsonFields& fields) {
  fields.only({"flops", "memory_gib", "memory_gbps", "call_us", "product_efficiency",
               "memory_efficiency", "fuses", "costs"});
  DeviceKind kind;
  kind.name = name;
  const JsonFields flops = fields.object("flops");
  flops.only(kTypeNames);
  kind.flops["f32"] = flops.positive("f32");
  for (const std::string& type : kTypeNames) {
    if (flops.has(type)) kind.flops[type] = flops.positive(type);
  }
  kind.memory_gib = fields.positive("memory_gib");
  kind.memory_gbps = fields.positive("memory_gbps");
  kind.call_us = fields.positive("call_us");
  kind.product_efficiency = read_curve(fields, "product_efficiency");
  kind.memory_efficiency = read_curve(fields, "memory_efficiency");
  for (const std::string& fused : fields.texts("fuses")) {
    const auto found = std::find(kFuseNames.begin(), kFuseNames.end(), fused);
    if (found == kFuseNames.end()) {
      fields.refuse(concat(fields.place("fuses"), " cannot have \"", fused, "\""),
                    concat("\"", nearest_word(fused, kFuseNames), "\""));
    }
    kind.fuses.push_back(static_cast<Fuses>(found - kFuseNames.begin()));
  }
  kind.costs = fields.text("costs", "");
  return kind;
}

LinkKind read_link(const std::string& name, const JsonFields& fields) {
  fields.only({"gbps", "us", "message_us", "efficiency", "ports", "algorithm"});
  LinkKind link;
  link.name = name;
  link.gbps = fields.positive("gbps");
  link.us = fields.positive("us");
  link.message_us = fields.not_negative("message_us", 0);
  link.efficiency = fields.share("efficiency", 1);
  link.ports = fields.count("ports", 1);
  const auto direct = static_cast<size_t>(LinkAlgorithm::kDirect);
  link.algorithm = static_cast<LinkAlgorithm>(fields.word("algorithm", kAlgorithmNames, direct));
  return link;
}

template <typename Kind>
Names names_of(const std::vector<Kind>& kinds) {
  Names names;
  for (const Kind& kind : kinds) names.push_back(kind.name);
  return names;
}

HostRun read_hosts(const JsonFields& fields, const Names& kinds, const Names& links) {
  fields.only({"count", "devices", "inside", "between_workers", "offload", "cores", "memory_gbps"});
  HostRun run;
  run.count = fields.count("count");
  for (const JsonFields& devices : fields.objects("devices")) {
    devices.only({"kind", "count"});
    run.devices.push_back({devices.word("kind", kinds), devices.count("count")});
  }
  run.inside = fields.word("inside", links);
  run.between_workers = fields.word("between_workers", links, run.inside);
  if (fields.has("offload")) {
    const JsonFields offload = fields.object("offload");
    offload.only({"gib", "link"});
    run.offload.push_back({offload.positive("gib"), offload.word("link", links)});
  }
  run.cores = fields.positive("cores", 0);
  run.memory_gbps = fields.positive("memory_gbps", 0);
  return run;
}

void check_size(const JsonFields& fields, const std::vector<HostRun>& hosts) {
  double devices = 0;  // cannot overflow
  for (const HostRun& run : hosts) {
    double in_host = 0;
    for (const DevicesOfKind& of_kind : run.devices) in_host += static_cast<double>(of_kind.count);
    devices += in_host * static_cast<double>(run.count);
  }
  if (devices > static_cast<double>(JsonFields::kMostCounted)) {
    fields.refuse(concat("hosts have ", devices, " devices"),
                  concat("at most ", JsonFields::kMostCounted));
  }
}

std::vector<HostLevel> read_levels(const JsonFields& fields, int64_t hosts, const Names& links) {
  std::vector<HostLevel> levels;
  if (fields.has("levels")) {
    for (const JsonFields& row : fields.objects("levels")) {
      row.only({"hosts", "link"});
      levels.push_back({row.count("hosts"), row.word("link", links)});
      const int64_t inner = levels.size() > 1 ? levels[levels.size() - 2].hosts : 1;
      const int64_t joined = levels.back().hosts;
      if (joined <= inner || joined % inner != 0) {
        row.refuse(concat(row.place("hosts"), " is ", joined, " behind a level of ", inner),
                   concat("a multiple of ", inner, ", such as ", 2 * inner));
      }
    }
  }
  if (hosts > 1 && (levels.empty() || levels.back().hosts < hosts)) {
    fields.refuse(
        concat("levels join ", levels.empty() ? 1 : levels.back().hosts, " of ", hosts, " hosts"),
        concat("a last level with \"hosts\": ", hosts));
  }
  return levels;
}

ClusterDescription read_cluster(const Json& json, const JsonSource& source) {
  const JsonFields fields(json, "", source);
  fields.only({"kinds", "links", "hosts", "levels", "workers"});
  ClusterDescription cluster;
  cluster.name = source.name;
  for (const auto& [name, kind] : fields.named("kinds")) {
    cluster.kinds.push_back(read_kind(name, kind));
  }
  for (const auto& [name, link] : fields.named("links")) {
    cluster.links.push_back(read_link(name, link));
  }
  const Names links = names_of(cluster.links);
  for (const JsonFields& hosts : fields.objects("hosts")) {
    cluster.hosts.push_back(read_hosts(hosts, names_of(cluster.kinds), links));
  }
  check_size(fields, cluster.hosts);
  int64_t hosts = 0;
  for (const HostRun& run : cluster.hosts) hosts += run.count;
  cluster.levels = read_levels(fields, hosts, links);
  cluster.workers =
      static_cast<ClusterDescription::Workers>(fields.word("workers", kWorkerNames, 0));
  return cluster;
}

// --- printing ----------------------------------------------------------------------------------

Json print_curve(const EfficiencyCurve& curve) {
  Json rows = Json::array();
  for (const EfficiencyPoint& point : curve) rows.push_back({point.size, point.share});
  return rows;
}

Json print_kind(const DeviceKind& kind) {
  Json json = Json::object();
  for (const auto& [type, flops] : kind.flops) json["flops"][type] = flops;
  json["memory_gib"] = kind.memory_gib;
  json["memory_gbps"] = kind.memory_gbps;
  json["call_us"] = kind.call_us;
  if (!kind.product_efficiency.empty()) {
    json["product_efficiency"] = print_curve(kind.product_efficiency);
  }
  if (!kind.memory_efficiency.empty()) {
    json["memory_efficiency"] = print_curve(kind.memory_efficiency);
  }
  for (const Fuses fused : kind.fuses) {
    json["fuses"].push_back(kFuseNames[static_cast<size_t>(fused)]);
  }
  if (!kind.costs.empty()) json["costs"] = kind.costs;
  return json;
}

Json print_link(const LinkKind& link) {
  Json json = Json::object();
  json["gbps"] = link.gbps;
  json["us"] = link.us;
  if (link.message_us > 0) json["message_us"] = link.message_us;
  if (link.efficiency < 1) json["efficiency"] = link.efficiency;
  if (link.ports > 1) json["ports"] = link.ports;
  json["algorithm"] = kAlgorithmNames[static_cast<size_t>(link.algorithm)];
  return json;
}

Json print_hosts(const HostRun& run, const ClusterDescription& cluster) {
  const auto link = [&](size_t index) { return cluster.links[index].name; };
  Json json = Json::object();
  json["count"] = run.count;
  for (const DevicesOfKind& devices : run.devices) {
    json["devices"].push_back(
        {{"kind", cluster.kinds[devices.kind].name}, {"count", devices.count}});
  }
  json["inside"] = link(run.inside);
  if (run.between_workers != run.inside) json["between_workers"] = link(run.between_workers);
  for (const OffloadSpace& space : run.offload) {
    json["offload"] = {{"gib", space.gib}, {"link", link(space.link)}};
  }
  if (run.cores > 0) json["cores"] = run.cores;
  if (run.memory_gbps > 0) json["memory_gbps"] = run.memory_gbps;
  return json;
}

}  // namespace

ClusterMap parse_cluster(const std::string& text, const std::string& name,
                         const std::string& asked_by) {
  const JsonSource source{name, asked_by};
  return ClusterMap(read_cluster(parse_json(text, source), source));
}

std::string print_cluster(const ClusterDescription& cluster) {
  Json json = Json::object();
  for (const DeviceKind& kind : cluster.kinds) json["kinds"][kind.name] = print_kind(kind);
  for (const LinkKind& link : cluster.links) json["links"][link.name] = print_link(link);
  for (const HostRun& run : cluster.hosts) json["hosts"].push_back(print_hosts(run, cluster));
  for (const HostLevel& level : cluster.levels) {
    json["levels"].push_back({{"hosts", level.hosts}, {"link", cluster.links[level.link].name}});
  }
  json["workers"] = kWorkerNames[static_cast<size_t>(cluster.workers)];
  return json.dump(2) + "\n";
}

std::vector<std::string> known_clusters() {
  std::vector<std::string> names;
  for (const KnownCluster& known : known_cluster_files()) names.emplace_back(known.name);
  return names;
}

ClusterMap load_cluster(const std::string& name_or_path, const std::string& asked_by) {
  for (const KnownCluster& known : known_cluster_files()) {
    if (name_or_path == known.name) return parse_cluster(known.text, known.name, asked_by);
  }
  const std::vector<std::string> known = known_clusters();
  const std::string text = read_text_file(name_or_path, asked_by,
                                          concat("\"", nearest_word(name_or_path, known),
                                                 "\", or the path of a file; "
                                                 "EPL knows: ",
                                                 join(known, ", ")));
  return parse_cluster(text, name_or_path, asked_by);
}

}  // namespace epl
