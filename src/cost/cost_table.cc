#include "cost/cost_table.h"

#include <algorithm>

#include "base/check.h"
#include "config/json_fields.h"
#include "config/spelling.h"

namespace epl {
namespace {

constexpr int64_t kTableVersion = 1;

LineFit read_line(const JsonFields& fields) {
  fields.only({"first", "each", "points", "error"});
  LineFit line;
  line.first = fields.not_negative("first", 0);
  line.each = fields.not_negative("each", 0);
  line.points = fields.count("points", 1);
  line.error = fields.not_negative("error", 0);
  return line;
}

Json print_line(const LineFit& line) {
  return {{"first", line.first},
          {"each", line.each},
          {"points", std::max<int64_t>(1, line.points)},
          {"error", line.error}};
}

std::vector<int64_t> read_sizes(const JsonFields& fields, const std::string& key) {
  std::vector<int64_t> sizes;
  for (const double number : fields.numbers(key)) {
    const auto size = static_cast<int64_t>(std::min(number, 1e15));
    if (size < 1 || (!sizes.empty() && size <= sizes.back())) {
      fields.refuse(concat(fields.place(key), " has ", number), "rising sizes from 1");
    }
    sizes.push_back(size);
  }
  if (sizes.empty()) fields.refuse(concat(fields.place(key), " is empty"), "rising sizes from 1");
  return sizes;
}

ProductGrid read_grid(const JsonFields& fields) {
  fields.only({"m", "n", "k", "seconds"});
  ProductGrid grid;
  grid.m = read_sizes(fields, "m");
  grid.n = read_sizes(fields, "n");
  grid.k = read_sizes(fields, "k");
  for (const std::vector<double>& row : fields.rows("seconds", grid.k.size())) {
    grid.seconds.insert(grid.seconds.end(), row.begin(), row.end());
  }
  const bool fits = grid.seconds.size() == grid.m.size() * grid.n.size() * grid.k.size();
  const bool positive = std::all_of(grid.seconds.begin(), grid.seconds.end(),
                                    [](double seconds) { return seconds > 0; });
  if (!fits || !positive) {
    fields.refuse(concat(fields.place("seconds"), " has no time above 0 for each m, n and k"),
                  concat(grid.m.size() * grid.n.size(), " rows of ", grid.k.size(), " times"));
  }
  grid.make_rising();
  return grid;
}

Json print_grid(const ProductGrid& grid) {
  Json json = {{"m", grid.m}, {"n", grid.n}, {"k", grid.k}};
  Json rows = Json::array();
  for (size_t begin = 0; begin < grid.seconds.size(); begin += grid.k.size()) {
    Json row = Json::array();
    for (size_t i = 0; i < grid.k.size(); ++i) row.push_back(grid.seconds[begin + i]);
    rows.push_back(std::move(row));
  }
  json["seconds"] = std::move(rows);
  return json;
}

// "2" -> 2.
int64_t read_members(const JsonFields& fields, const std::string& text) {
  const bool digits =
      !text.empty() && text.size() < 8 && text.find_first_not_of("0123456789") == std::string::npos;
  const int64_t members = digits ? std::stoll(text) : 0;
  if (members < 2) fields.refuse(concat(fields.place(text), " is no number of members"), "\"2\"");
  return members;
}

std::map<int64_t, std::vector<TimePoint>> read_curves(const JsonFields& fields,
                                                      const std::vector<std::string>& members) {
  std::map<int64_t, std::vector<TimePoint>> curves;
  for (const std::string& text : members) {
    std::vector<TimePoint> points;
    for (const std::vector<double>& row : fields.rows(text, 2)) {
      if (row[1] <= 0) fields.refuse(concat(fields.place(text), " has a time of 0"), "a time");
      points.push_back({row[0], row[1]});
    }
    if (points.empty()) fields.refuse(concat(fields.place(text), " is empty"), "[bytes, seconds]");
    curves[read_members(fields, text)] = rising_curve(std::move(points));
  }
  return curves;
}

void read_collectives(const JsonFields& fields, CostTable& table) {
  for (const auto& [link, of_link] : fields.named("collectives")) {
    of_link.only(collective_names());
    for (const std::string& collective : collective_names()) {
      if (!of_link.has(collective)) continue;
      const JsonFields curves = of_link.object(collective);
      table.collectives[link][collective] = read_curves(curves, curves.names());
    }
  }
}

Json print_collectives(const CostTable& table) {
  Json json = Json::object();
  for (const auto& [link, of_link] : table.collectives) {
    for (const auto& [collective, curves] : of_link) {
      for (const auto& [members, curve] : curves) {
        Json rows = Json::array();
        for (const TimePoint& point : curve) {
          rows.push_back(Json::array({point.size, point.seconds}));
        }
        json[link][collective][std::to_string(members)] = std::move(rows);
      }
    }
  }
  return json;
}

void read_lines(const JsonFields& fields, const std::string& key,
                std::map<std::string, LineFit>& lines) {
  if (!fields.has(key)) return;
  for (const auto& [name, line] : fields.named(key)) lines[name] = read_line(line);
}

}  // namespace

void CostTable::merge(const CostTable& other, const std::string& asked_by) {
  for (const auto& [name, value] : other.machine) {
    const auto mine = machine.find(name);
    EPL_CHECK(mine != machine.end() && mine->second == value,
              concat("cannot join costs of two machines: ", name, " is \"",
                     mine == machine.end() ? "" : mine->second, "\" and \"", value, "\""),
              asked_by, "a table for each of them");
  }
  for (const auto& [signature, theirs] : other.operators) {
    const auto [place, is_new] = operators.try_emplace(signature, theirs);
    if (is_new) continue;
    MeasuredTime& mine = place->second;
    const auto a = static_cast<double>(mine.count);
    const auto b = static_cast<double>(theirs.count);
    mine.seconds = (mine.seconds * a + theirs.seconds * b) / (a + b);
    mine.count = std::min(mine.count + theirs.count, JsonFields::kMostCounted);
  }
  for (const auto& [type, grid] : other.products) products[type] = grid;
  for (const auto& [family, line] : other.families) families[family] = line;
  for (const auto& [optimizer, line] : other.updates) updates[optimizer] = line;
  for (const auto& [link, of_link] : other.collectives) {
    for (const auto& [collective, curves] : of_link) {
      for (const auto& [members, curve] : curves) collectives[link][collective][members] = curve;
    }
  }
  if (!other.copies.empty()) copies = other.copies;
}

std::string print_cost_table(const CostTable& table) {
  Json json = {{"version", kTableVersion}};
  for (const auto& [name, value] : table.machine) json["machine"][name] = value;
  for (const auto& [signature, time] : table.operators) {
    json["operators"][signature] = {{"seconds", time.seconds}, {"count", time.count}};
  }
  for (const auto& [type, grid] : table.products) json["products"][type] = print_grid(grid);
  for (const auto& [family, line] : table.families) json["families"][family] = print_line(line);
  if (!table.collectives.empty()) json["collectives"] = print_collectives(table);
  for (const auto& [optimizer, line] : table.updates) json["updates"][optimizer] = print_line(line);
  for (const CopySpeed& copy : table.copies) {
    json["copies"].push_back(Json::array({copy.threads, copy.gbps}));
  }
  return json.dump(1) + "\n";
}

CostTable parse_cost_table(const std::string& text, const std::string& name,
                           const std::string& asked_by) {
  const JsonSource source{name, asked_by};
  const Json json = parse_json(text, source);
  const JsonFields fields(json, "", source);
  fields.only({"version", "machine", "operators", "products", "families", "collectives", "updates",
               "copies"});
  if (const int64_t version = fields.count("version"); version != kTableVersion) {
    fields.refuse(concat("version is ", version), "measure again: epl-plan --calibrate");
  }
  CostTable table;
  if (fields.has("machine")) {
    const JsonFields machine = fields.object("machine");
    for (const std::string& key : machine.names()) table.machine[key] = machine.text(key);
  }
  if (fields.has("operators")) {
    for (const auto& [signature, time] : fields.named("operators")) {
      time.only({"seconds", "count"});
      table.operators[signature] = {time.positive("seconds"), time.count("count")};
    }
  }
  if (fields.has("products")) {
    for (const auto& [type, grid] : fields.named("products")) {
      table.products[type] = read_grid(grid);
    }
  }
  read_lines(fields, "families", table.families);
  read_lines(fields, "updates", table.updates);
  if (fields.has("collectives")) read_collectives(fields, table);
  for (const std::vector<double>& row : fields.rows("copies", 2)) {
    if (row[0] < 1 || row[1] <= 0) fields.refuse("copies has a row of 0", "[threads, gbps]");
    table.copies.push_back({static_cast<int64_t>(std::min(row[0], 1e9)), row[1]});
  }
  return table;
}

}  // namespace epl
