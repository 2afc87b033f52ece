#include "sharding/search.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/check.h"

namespace epl {
namespace {

// A layout as one character: R, P, S(0), S(1), ...
using Code = uint8_t;

Code code_of(Layout layout) {
  return static_cast<Code>(layout.is_whole() ? 0 : layout.is_partial() ? 1 : 2 + layout.dim);
}

Layout layout_of(Code code) {
  if (code == 0) return Layout::whole();
  return code == 1 ? Layout::partial() : Layout::cut(code - 2);
}

// What is known of a value that is still open: how it is made, and into which other layouts it has
// been brought, which costs once.
struct Open {
  Code made = 0;
  uint16_t brought = 0;  // a bit for each code
};

// One way to decide all units so far.
struct View {
  std::vector<Open> open;  // as Search::open_
  double seconds = 0;
  // The way here: the view before, the option of the unit, and the values that it decided.
  uint32_t before = 0;
  uint32_t option = 0;
  std::vector<Code> decided;  // as Step::fresh
};

std::string key_of(const View& view) {
  std::string key;
  key.reserve(view.open.size() * 3);
  for (const Open& open : view.open) {
    key.push_back(static_cast<char>(open.made));
    key.push_back(static_cast<char>(open.brought & 255));
    key.push_back(static_cast<char>(open.brought >> 8));
  }
  return key;
}

// What stays of a step to find the way back.
struct Step {
  std::vector<ValueId> fresh;  // values that were touched for the first time
  struct Back {
    uint32_t before;
    uint32_t option;
    std::vector<Code> decided;
  };
  std::vector<Back> views;
};

class Search {
 public:
  Search(const ShardingRequest& request, const Units& units) : request_(request), units_(units) {
    for (const auto& unit : units.units) {
      for (ValueId id : touched_by(unit)) ++uses_[id];
    }
  }

  Decision run() {
    views_ = {View()};
    for (const auto& unit : units_.units) {
      decide(unit);
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
    const auto slot = std::make_tuple(id, from, to);
    const auto known = costs_.find(slot);
    if (known != costs_.end()) return known->second;
    const double seconds = facts(id).stays
                               ? kImpossible
                               : reshard_seconds(request_.graph.value(id).type, layout_of(from),
                                                 layout_of(to), request_.parts);
    return costs_[slot] = seconds;
  }

  double price(ValueId id, Code made) const {
    const ValueFacts& value = facts(id);
    for (size_t i = 0; i < value.made.size(); ++i) {
      if (code_of(value.made[i]) == made) return value.price[i];
    }
    return kImpossible;
  }

  void decide(const Unit& unit) {
    Step step;
    const std::vector<ValueId> touched = touched_by(unit);
    std::vector<ValueId> all = open_;
    for (ValueId id : touched) {
      if (std::binary_search(open_.begin(), open_.end(), id)) continue;
      step.fresh.push_back(id);
      all.push_back(id);
    }
    std::sort(all.begin(), all.end());
    std::vector<ValueId> next;
    for (ValueId id : touched) --uses_[id];
    for (ValueId id : all) {
      if (uses_[id] > 0) next.push_back(id);
    }
    unit_ = &unit;
    fresh_ = &step.fresh;
    next_ = &next;
    found_.clear();
    for (size_t i = 0; i < views_.size(); ++i) {
      known_.clear();
      for (size_t j = 0; j < open_.size(); ++j) known_[open_[j]] = views_[i].open[j];
      for (size_t option = 0; option < unit.options.size(); ++option) {
        before_ = static_cast<uint32_t>(i);
        option_ = static_cast<uint32_t>(option);
        try_option(unit.options[option], views_[i].seconds);
      }
    }
    open_ = next;
    keep_best(step);
    steps_.push_back(std::move(step));
  }

  void try_option(const UnitOption& option, double seconds) {
    std::vector<Code> decided(fresh_->size(), 255);
    guess(option, seconds + option.seconds, 0, decided);
  }

  // Values that nobody has touched yet are tried in every layout that they may be made in; those
  // that the option makes are known.
  void guess(const UnitOption& option, double seconds, size_t at, std::vector<Code>& decided) {
    if (at == fresh_->size()) return finish(option, seconds, decided);
    const ValueId id = (*fresh_)[at];
    const auto made =
        std::find(unit_->outputs.begin(), unit_->outputs.end(), id) - unit_->outputs.begin();
    if (made < static_cast<std::ptrdiff_t>(unit_->outputs.size())) {
      decided[at] = code_of(option.outputs[static_cast<size_t>(made)]);
      return guess(option, seconds, at + 1, decided);
    }
    for (Layout layout : facts(id).made) {
      const Code code = code_of(layout);
      if (!may_be_read(option, id, code)) continue;
      decided[at] = code;
      guess(option, seconds + price(id, code), at + 1, decided);
    }
  }

  bool may_be_read(const UnitOption& option, ValueId id, Code made) {
    for (size_t i = 0; i < unit_->inputs.size(); ++i) {
      if (unit_->inputs[i] == id && bring(id, made, code_of(option.inputs[i])) >= kImpossible) {
        return false;
      }
    }
    return true;
  }

  void finish(const UnitOption& option, double seconds, const std::vector<Code>& decided) {
    std::map<ValueId, Open> now = known_;
    for (size_t i = 0; i < decided.size(); ++i) now[(*fresh_)[i]] = {decided[i], 0};
    for (size_t i = 0; i < unit_->outputs.size(); ++i) {
      if (now[unit_->outputs[i]].made != code_of(option.outputs[i])) return;
    }
    for (size_t i = 0; i < unit_->inputs.size(); ++i) {
      Open& open = now[unit_->inputs[i]];
      const Code wanted = code_of(option.inputs[i]);
      const auto bit = static_cast<uint16_t>(1U << wanted);
      if (open.made == wanted || (open.brought & bit) != 0) continue;
      seconds += bring(unit_->inputs[i], open.made, wanted);
      open.brought = static_cast<uint16_t>(open.brought | bit);
    }
    if (seconds >= kImpossible) return;
    View view;
    for (ValueId id : *next_) view.open.push_back(now[id]);
    view.seconds = seconds;
    view.before = before_;
    view.option = option_;
    view.decided = decided;
    const std::string key = key_of(view);
    const auto [entry, fresh] = found_.try_emplace(key, view);
    if (!fresh && seconds < entry->second.seconds) entry->second = std::move(view);
  }

  // Whether all that is open could be brought from the layouts of `cheap` into those of `dear` for
  // what it is cheaper.
  bool is_beaten(const View& dear, const View& cheap) {
    double seconds = cheap.seconds;
    for (size_t i = 0; i < open_.size(); ++i) {
      const Open& from = cheap.open[i];
      const Open& to = dear.open[i];
      const ValueId id = open_[i];
      if (from.made != to.made) {
        // One of them may be a promise that is still to be kept.
        seconds += std::max(bring(id, from.made, to.made), bring(id, to.made, from.made));
      }
      for (Code code = 0; code < 16; ++code) {
        const bool only_dear = (to.brought >> code & 1) != 0 && (from.brought >> code & 1) == 0;
        if (only_dear) seconds += bring(id, to.made, code);
      }
      if (seconds > dear.seconds) return false;
    }
    return true;
  }

  void keep_best(Step& step) {
    std::vector<std::pair<std::string, View>> sorted(
        std::make_move_iterator(found_.begin()), std::make_move_iterator(found_.end()));
    std::sort(sorted.begin(), sorted.end(), [](const auto& a, const auto& b) {
      return a.second.seconds != b.second.seconds ? a.second.seconds < b.second.seconds
                                                  : a.first < b.first;
    });
    views_.clear();
    constexpr size_t kRivals = 24;
    for (auto& [key, view] : sorted) {
      bool beaten = false;
      for (size_t i = 0; i < std::min(kRivals, views_.size()) && !beaten; ++i) {
        beaten = is_beaten(view, views_[i]);
      }
      if (beaten) continue;
      if (views_.size() == kMostViews) {
        complete_ = false;
        break;
      }
      views_.push_back(std::move(view));
    }
    for (const auto& view : views_) step.views.push_back({view.before, view.option, view.decided});
  }

  Decision impossible() const {
    Decision decision;
    decision.options.assign(steps_.size(), 0);  // so far it went
    decision.seconds = kImpossible;
    return decision;
  }

  Decision way_back() const {
    Decision decision;
    decision.options.resize(steps_.size());
    decision.values.resize(units_.values.size());
    decision.seconds = views_[0].seconds;
    decision.complete = complete_;
    uint32_t at = 0;
    for (size_t i = steps_.size(); i-- > 0;) {
      const Step::Back& back = steps_[i].views[at];
      decision.options[i] = back.option;
      for (size_t j = 0; j < back.decided.size(); ++j) {
        decision.values[static_cast<size_t>(steps_[i].fresh[j])] = layout_of(back.decided[j]);
      }
      at = back.before;
    }
    return decision;
  }

  const ShardingRequest& request_;
  const Units& units_;
  std::map<ValueId, int> uses_;  // units that have still to be decided
  std::map<std::tuple<ValueId, Code, Code>, double> costs_;
  std::vector<ValueId> open_;  // ascending
  std::vector<View> views_;
  std::vector<Step> steps_;
  bool complete_ = true;

  // Of the unit that is being decided.
  const Unit* unit_ = nullptr;
  const std::vector<ValueId>* fresh_ = nullptr;
  const std::vector<ValueId>* next_ = nullptr;
  std::map<ValueId, Open> known_;
  uint32_t before_ = 0;
  uint32_t option_ = 0;
  std::unordered_map<std::string, View> found_;
};

}  // namespace

Decision search_layouts(const ShardingRequest& request, const Units& units) {
  return Search(request, units).run();
}

}  // namespace epl
