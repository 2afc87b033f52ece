#include "sharding/search.h"

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <set>
#include <unordered_map>

#include "base/check.h"
#include "base/progress.h"

namespace epl {
namespace {

// A layout as one character: R, P, S(0), S(1), ...
using Code = uint8_t;
constexpr size_t kCodes = 16;
constexpr Code kToBeMade = kCodes - 1;

using Codes = uint16_t;  // a bit for each

bool has_code(Codes codes, Code code) { return (codes >> code & 1) != 0; }
Codes with_code(Codes codes, Code code) { return static_cast<Codes>(codes | 1U << code); }

constexpr size_t kRivals = 64;  // that a view is compared with

static_assert(2 + kDimsThatAreCut == kToBeMade, "every layout has a code of its own");

Code code_of(Layout layout) {
  EPL_ASSERT(
      layout.dim < kDimsThatAreCut,
      concat("dimension ", layout.dim, " of a tensor is cut, which the search cannot write"));
  return static_cast<Code>(layout.is_whole() ? 0 : layout.is_partial() ? 1 : 2 + layout.dim);
}

Layout layout_of(Code code) {
  if (code == 0) return Layout::whole();
  return code == 1 ? Layout::partial() : Layout::cut(code - 2);
}

// What is known of a value that is still open: how it is made, and into which other layouts it has
// been brought, which costs once. While its maker is not decided yet: which layouts it has to be
// brought into, and the maker pays.
struct Open {
  Code made = 0;
  Codes brought = 0;

  bool has(Code code) const { return made == code || has_code(brought, code); }
  bool operator==(const Open& other) const {
    return made == other.made && brought == other.brought;
  }
};

// One way to decide all units so far.
struct View {
  std::vector<Open> open;  // as Search::open_
  double cost = 0;         // seconds, and the weight of what is against what was asked for
  double to_come = 0;      // that makers will have to pay at least
  // The way here: the view before, the option of the unit, and how the leaves lie that it was the
  // first to read.
  uint32_t before = 0;
  uint32_t option = 0;
  std::vector<Code> decided;  // as Step::leaves
};

// What stays of a step to find the way back.
struct Step {
  std::vector<ValueId> leaves;  // that were read for the first time
  struct Back {
    uint32_t before;
    uint32_t option;
    std::vector<Code> decided;
  };
  std::vector<Back> views;
};

// A unit with its values by their places among all values that are open when it is decided.
struct Scene {
  const Unit* unit = nullptr;
  std::vector<ValueId> all;        // open before, and fresh; ascending
  std::vector<size_t> from_open;   // place of each value that was open
  std::vector<size_t> to_be_made;  // places of those that are fresh, and no leaves
  std::vector<size_t> leaves;      // places of those that are fresh
  std::vector<size_t> inputs;      // places
  std::vector<size_t> outputs;     // places
  std::vector<size_t> next;        // places of those that stay open
  std::vector<size_t> next_fixed;  // those of them that cannot change their layout
  double slack = 0;                // what it costs at most to bring all that stay open elsewhere
};

class Search {
 public:
  Search(const ShardingRequest& request, const Units& units)
      : request_(request),
        units_(units),
        reads_(units.values.size(), 0),
        wanted_(units.values.size(), 0),
        costs_(units.values.size()) {
    for (const auto& unit : units.units) {
      for (ValueId id : touched_by(unit)) ++uses_[id];
      made_by_units_.insert(unit.outputs.begin(), unit.outputs.end());
      for (size_t i = 0; i < unit.inputs.size(); ++i) {
        const auto id = static_cast<size_t>(unit.inputs[i]);
        ++reads_[id];
        for (const auto& option : unit.options) {
          wanted_[id] = with_code(wanted_[id], code_of(option.inputs[i]));
        }
      }
    }
  }

  Decision run() {
    views_ = {View()};
    Progress progress(
        concat("searching how to cut the step over ", request_.parts.size, " devices"));
    for (const auto& unit : units_.units) {
      decide(unit);
      progress.reached(steps_.size(), units_.units.size());
      if (views_.empty()) return impossible();
    }
    return way_back();
  }

 private:
  static std::vector<ValueId> touched_by(const Unit& unit) {
    std::vector<ValueId> touched = unit.inputs;
    touched.insert(touched.end(), unit.outputs.begin(), unit.outputs.end());
    std::sort(touched.begin(), touched.end());
    touched.erase(std::unique(touched.begin(), touched.end()), touched.end());
    return touched;
  }

  const ValueFacts& facts(ValueId id) const { return units_.values[static_cast<size_t>(id)]; }

  double bring(ValueId id, Code from, Code to) {
    if (from == to) return 0;
    std::vector<double>& table = costs_[static_cast<size_t>(id)];
    if (table.empty()) table.assign(kCodes * kCodes, -1);
    double& seconds = table[from * kCodes + to];
    if (seconds >= 0) return seconds;
    seconds = facts(id).stays ? kImpossible
                              : reshard_seconds(request_.graph.value(id).type, layout_of(from),
                                                layout_of(to), request_.parts, request_.machine);
    return seconds;
  }

  LayoutPrice price(ValueId id, Code made) const {
    const ValueFacts& value = facts(id);
    for (size_t i = 0; i < value.made.size(); ++i) {
      if (code_of(value.made[i]) == made) return value.price[i];
    }
    return {kImpossible, 0};
  }

  template <typename Visit>
  static void for_each_code(Codes codes, const Visit& visit) {
    for (Code code = 0; codes >> code != 0; ++code) {
      if (has_code(codes, code)) visit(code);
    }
  }

  // What it costs at most to bring it into a layout that somebody may want.
  double dearest(ValueId id, Code wanted) {
    double most = 0;
    for (Layout made : facts(id).made) most = std::max(most, bring(id, code_of(made), wanted));
    return most;
  }

  // What its maker will have to pay at least.
  double to_come(ValueId id, const Open& open) {
    if (open.made != kToBeMade || open.brought == 0) return 0;
    const auto [known, fresh] = to_come_.try_emplace({id, open.brought}, kImpossible);
    if (!fresh) return known->second;
    for (Layout made : facts(id).made) {
      double seconds = 0;
      for_each_code(open.brought, [&](Code code) { seconds += bring(id, code_of(made), code); });
      known->second = std::min(known->second, seconds);
    }
    return known->second;
  }

  // What it costs at most to serve all its readers.
  double slack_of(ValueId id) {
    double all = 0;
    for_each_code(wanted_[static_cast<size_t>(id)], [&](Code code) { all += dearest(id, code); });
    return all;
  }

  Scene make_scene(const Unit& unit) {
    Scene scene;
    scene.unit = &unit;
    scene.all = open_;
    const std::vector<ValueId> touched = touched_by(unit);
    scene.all.insert(scene.all.end(), touched.begin(), touched.end());
    std::sort(scene.all.begin(), scene.all.end());
    scene.all.erase(std::unique(scene.all.begin(), scene.all.end()), scene.all.end());
    const auto place = [&](ValueId id) {
      return static_cast<size_t>(std::lower_bound(scene.all.begin(), scene.all.end(), id) -
                                 scene.all.begin());
    };
    for (ValueId id : open_) scene.from_open.push_back(place(id));
    for (ValueId id : unit.inputs) {
      scene.inputs.push_back(place(id));
      --reads_[static_cast<size_t>(id)];
    }
    for (ValueId id : unit.outputs) scene.outputs.push_back(place(id));
    for (ValueId id : touched) {
      --uses_[id];
      if (std::binary_search(open_.begin(), open_.end(), id)) continue;
      const bool is_leaf = made_by_units_.count(id) == 0;
      (is_leaf ? scene.leaves : scene.to_be_made).push_back(place(id));
    }
    for (size_t i = 0; i < scene.all.size(); ++i) {
      const ValueId id = scene.all[i];
      if (uses_[id] == 0) continue;
      scene.next.push_back(i);
      if (facts(id).stays) {
        scene.next_fixed.push_back(i);
      } else {
        scene.slack += slack_of(id);
      }
    }
    return scene;
  }

  void decide(const Unit& unit) {
    const Scene scene = make_scene(unit);
    scene_ = &scene;
    found_.clear();
    cheapest_.clear();
    now_.assign(scene.all.size(), Open());
    for (size_t place : scene.to_be_made) now_[place] = {kToBeMade, 0};
    decided_.assign(scene.leaves.size(), 0);
    for (size_t i = 0; i < views_.size(); ++i) {
      for (size_t j = 0; j < scene.from_open.size(); ++j) {
        now_[scene.from_open[j]] = views_[i].open[j];
      }
      before_ = static_cast<uint32_t>(i);
      for (size_t option = 0; option < unit.options.size(); ++option) {
        option_ = static_cast<uint32_t>(option);
        guess(unit.options[option], views_[i].cost + unit.options[option].seconds, 0);
      }
    }
    open_.clear();
    for (size_t place : scene.next) open_.push_back(scene.all[place]);
    Step step;
    for (size_t place : scene.leaves) step.leaves.push_back(scene.all[place]);
    keep_best(step);
    steps_.push_back(std::move(step));
  }

  // Leaves that nobody has read yet are tried in every layout that they may lie in.
  void guess(const UnitOption& option, double cost, size_t at) {
    const Scene& scene = *scene_;
    if (at == scene.leaves.size()) return finish(option, cost);
    const size_t place = scene.leaves[at];
    const ValueId id = scene.all[place];
    for (Layout layout : facts(id).made) {
      const Code code = code_of(layout);
      if (!may_be_read(option, place, code)) continue;
      decided_[at] = code;
      now_[place] = {code, 0};
      guess(option, cost + price(id, code).weighed(), at + 1);
    }
  }

  bool may_be_read(const UnitOption& option, size_t place, Code made) {
    for (size_t i = 0; i < scene_->inputs.size(); ++i) {
      const bool impossible =
          scene_->inputs[i] == place &&
          bring(scene_->all[place], made, code_of(option.inputs[i])) >= kImpossible;
      if (impossible) return false;
    }
    return true;
  }

  void finish(const UnitOption& option, double cost) {
    const Scene& scene = *scene_;
    std::vector<std::pair<size_t, Open>> before;  // what is changed here is set back
    for (size_t i = 0; i < scene.inputs.size(); ++i) {
      Open& open = now_[scene.inputs[i]];
      const Code wanted = code_of(option.inputs[i]);
      if (open.has(wanted)) continue;
      if (open.made != kToBeMade) cost += bring(scene.all[scene.inputs[i]], open.made, wanted);
      before.emplace_back(scene.inputs[i], open);
      open.brought = with_code(open.brought, wanted);
    }
    for (size_t i = 0; i < scene.outputs.size(); ++i) {
      Open& open = now_[scene.outputs[i]];
      before.emplace_back(scene.outputs[i], open);
      open.made = code_of(option.outputs[i]);
      open.brought = static_cast<Codes>(open.brought & ~(1U << open.made));
      for_each_code(open.brought, [&](Code code) {
        cost += bring(scene.all[scene.outputs[i]], open.made, code);
      });
    }
    if (cost < kImpossible && !is_hopeless(cost)) note(cost);
    for (size_t i = before.size(); i-- > 0;) now_[before[i].first] = before[i].second;
  }

  // So much dearer than another one that all values could be brought elsewhere for the difference.
  bool is_hopeless(double cost) {
    std::string fixed;
    for (size_t place : scene_->next_fixed) append(now_[place], fixed);
    const auto [entry, fresh] = cheapest_.try_emplace(fixed, cost);
    entry->second = std::min(entry->second, cost);
    return cost > entry->second + scene_->slack;
  }

  // Three characters of a key for each value.
  static void put(const Open& open, size_t at, std::string& key) {
    key[3 * at] = static_cast<char>(open.made);
    key[3 * at + 1] = static_cast<char>(open.brought & 255);
    key[3 * at + 2] = static_cast<char>(open.brought >> 8);
  }
  static void append(const Open& open, std::string& key) {
    key.resize(key.size() + 3);
    put(open, key.size() / 3 - 1, key);
  }

  void note(double cost) {
    key_.clear();
    for (size_t place : scene_->next) append(now_[place], key_);
    const auto [entry, fresh] = found_.try_emplace(key_);
    View& view = entry->second;
    if (!fresh && view.cost <= cost) return;
    view.cost = cost;
    view.before = before_;
    view.option = option_;
    view.decided = decided_;
    if (!fresh) return;
    for (size_t place : scene_->next) {
      view.open.push_back(now_[place]);
      view.to_come += to_come(scene_->all[place], now_[place]);
    }
  }

  // What it costs at most to do with the value as `cheap` has it whatever can be done with it as
  // `dear` has it.
  double extra(ValueId id, const Open& cheap, const Open& dear) {
    if (cheap == dear) return 0;
    double seconds = 0;
    if (cheap.made == kToBeMade) {
      for_each_code(static_cast<Codes>(cheap.brought & ~dear.brought),
                    [&](Code code) { seconds += dearest(id, code); });
      return seconds;
    }
    // Each of the readers that are left may want another layout.
    std::array<double, kCodes> each{};
    size_t count = 0;
    for_each_code(wanted_[static_cast<size_t>(id)], [&](Code code) {
      const double own = cheap.has(code) ? 0 : bring(id, cheap.made, code);
      const double other = dear.has(code) ? 0 : bring(id, dear.made, code);
      if (own > other) each[count++] = own - other;
    });
    std::sort(each.begin(), each.begin() + count, std::greater<>());
    const size_t readers = std::min(count, reads_[static_cast<size_t>(id)]);
    return std::accumulate(each.begin(), each.begin() + readers, 0.0);
  }

  // Whether `cheap` stays the cheaper one, whatever comes.
  bool is_beaten(const View& dear, const View& cheap) {
    double cost = cheap.cost;
    for (size_t i = 0; i < open_.size() && cost <= dear.cost; ++i) {
      cost += extra(open_[i], cheap.open[i], dear.open[i]);
    }
    return cost <= dear.cost;
  }

  // Whether another one that differs in a single value beats it. Of two that cost the same the one
  // with the lesser key stays.
  bool is_beaten_by_neighbour(const std::string& key, const View& view,
                              const std::vector<std::vector<Open>>& states) {
    std::string other = key;
    for (size_t i = 0; i < open_.size(); ++i) {
      for (const Open& state : states[i]) {
        if (state == view.open[i]) continue;
        put(state, i, other);
        const auto found = found_.find(other);
        if (found == found_.end() || found->second.cost > view.cost) continue;
        const double cost = found->second.cost + extra(open_[i], state, view.open[i]);
        const bool beaten = cost < view.cost || (cost == view.cost && other < key);
        if (beaten) return true;
      }
      put(view.open[i], i, other);
    }
    return false;
  }

  // By open value: all ways in which it lies in some view.
  std::vector<std::vector<Open>> all_states() const {
    std::vector<std::vector<Open>> states(open_.size());
    for (const auto& [key, view] : found_) {
      for (size_t i = 0; i < open_.size(); ++i) {
        const bool known =
            std::find(states[i].begin(), states[i].end(), view.open[i]) != states[i].end();
        if (!known) states[i].push_back(view.open[i]);
      }
    }
    return states;
  }

  static size_t changed_layouts(const View& view) {
    return static_cast<size_t>(
        std::count_if(view.open.begin(), view.open.end(), [](const Open& open) {
          return open.made == kToBeMade ? open.brought > 1 : open.made != 0;
        }));
  }

  // The one with the fewest changes of layout comes before the end.
  static void keep_way_of_whole(std::vector<std::pair<const std::string*, View*>>& sorted) {
    const auto end = sorted.begin() + static_cast<std::ptrdiff_t>(3 * kMostViews);
    const auto least = std::min_element(end, sorted.end(), [](const auto& a, const auto& b) {
      return changed_layouts(*a.second) < changed_layouts(*b.second);
    });
    std::swap(*least, *std::prev(end));
  }

  void keep_best(Step& step) {
    std::vector<std::pair<const std::string*, View*>> sorted;
    for (auto& [key, view] : found_) sorted.emplace_back(&key, &view);
    const auto rank = [](const View& view) { return view.cost + view.to_come; };
    std::sort(sorted.begin(), sorted.end(), [&](const auto& a, const auto& b) {
      return rank(*a.second) != rank(*b.second) ? rank(*a.second) < rank(*b.second)
                                                : *a.first < *b.first;
    });
    // So many that most are lost anyway: only the cheapest of them are looked at.
    if (sorted.size() > 3 * kMostViews) {
      complete_ = false;
      keep_way_of_whole(sorted);
      sorted.resize(3 * kMostViews);
    }
    const auto states = all_states();
    // Before any of them moves away.
    sorted.erase(std::remove_if(sorted.begin(), sorted.end(),
                                [&](const auto& each) {
                                  return is_beaten_by_neighbour(*each.first, *each.second, states);
                                }),
                 sorted.end());
    views_.clear();
    bool complete = true;  // of this unit
    for (auto& [key, view] : sorted) {
      // Once ways were lost, nobody asks whether another one would have been beaten.
      const bool full = views_.size() == kMostViews;
      bool beaten = false;
      for (size_t i = 0; i < std::min(kRivals, views_.size()) && !beaten && !(full && !complete);
           ++i) {
        beaten = is_beaten(*view, views_[i]);
      }
      if (beaten) continue;
      if (!full) {
        views_.push_back(std::move(*view));
        continue;
      }
      complete = complete_ = false;
      // The way on from what is whole is always open.
      if (changed_layouts(*view) < changed_layouts(views_.back())) {
        views_.back() = std::move(*view);
      }
    }
    for (const auto& view : views_) step.views.push_back({view.before, view.option, view.decided});
  }

  Decision impossible() const {
    Decision decision;
    decision.options.assign(steps_.size() - 1, 0);  // so far it went
    decision.seconds = kImpossible;
    return decision;
  }

  Decision way_back() const {
    Decision decision;
    decision.options.resize(steps_.size());
    decision.values.resize(units_.values.size());
    decision.complete = complete_;
    uint32_t at = 0;
    for (size_t i = steps_.size(); i-- > 0;) {
      const Step::Back& back = steps_[i].views[at];
      decision.options[i] = back.option;
      for (size_t j = 0; j < back.decided.size(); ++j) {
        const ValueId leaf = steps_[i].leaves[j];
        decision.values[static_cast<size_t>(leaf)] = layout_of(back.decided[j]);
        decision.uncut_matrices += price(leaf, back.decided[j]).uncut_matrices;
      }
      const Unit& unit = units_.units[i];
      for (size_t j = 0; j < unit.outputs.size(); ++j) {
        decision.values[static_cast<size_t>(unit.outputs[j])] =
            unit.options[back.option].outputs[j];
      }
      at = back.before;
    }
    decision.seconds = views_[0].cost - kWeightOfUncutMatrix * decision.uncut_matrices;
    return decision;
  }

  const ShardingRequest& request_;
  const Units& units_;
  std::map<ValueId, int> uses_;  // units that have still to be decided
  std::vector<ValueId> open_;    // ascending
  std::set<ValueId> made_by_units_;
  std::vector<size_t> reads_;               // by value: that have still to be decided
  std::vector<Codes> wanted_;               // by value: layouts that readers may want
  std::vector<std::vector<double>> costs_;  // by value: of each change of its layout
  std::map<std::pair<ValueId, Codes>, double> to_come_;
  std::vector<View> views_;
  std::vector<Step> steps_;
  bool complete_ = true;

  // Of the unit that is being decided.
  const Scene* scene_ = nullptr;
  std::vector<Open> now_;      // as Scene::all
  std::vector<Code> decided_;  // as Scene::leaves
  uint32_t before_ = 0;
  uint32_t option_ = 0;
  std::string key_;
  std::unordered_map<std::string, View> found_;
  std::map<std::string, double> cheapest_;  // by the layouts of what cannot change it
};

}  // namespace

Decision search_layouts(const ShardingRequest& request, const Units& units) {
  return Search(request, units).run();
}

}  // namespace epl
