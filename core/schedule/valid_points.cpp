#include "core/schedule/valid_points.h"

#include <algorithm>
#include <limits>
#include <numeric>

namespace amk {
namespace {

constexpr std::uint64_t kMostPlaces = std::uint64_t{1} << 63;
// Combinations that one join of lists may look at: half a second at the worst. What would take more is left to trial.
constexpr std::uint64_t kMostJoined = 8'000'000;
// Longer lists are made for a rule that refuses an eighth of them at least; one that refuses less costs less where it is left to trial.
constexpr std::uint64_t kShort = 50'000;
constexpr int kSample = 256, kMostlyHeld = 224;

std::uint64_t product(std::uint64_t a, std::uint64_t b) { return b != 0 && a > kMostPlaces / b ? kMostPlaces : a * b; }

}  // namespace

std::shared_ptr<const ValidPoints> ValidPoints::of(const SearchSpace& space) {
  std::shared_ptr<ValidPoints> out(new ValidPoints);
  for (const Knob& knob : space.knobs) out->choices_.push_back(static_cast<std::uint32_t>(knob.choices.size()));
  out->rules_ = space.constraints;
  out->default_ = space.default_point();
  return out;
}

std::shared_ptr<const ValidPoints> ValidPoints::listed(const SearchSpace& space, const std::vector<Point>& points) {
  std::shared_ptr<ValidPoints> out(new ValidPoints);
  for (const Knob& knob : space.knobs) out->choices_.push_back(static_cast<std::uint32_t>(knob.choices.size()));
  out->default_ = space.default_point();
  Group all;
  all.listed = true;
  all.knobs.resize(space.knobs.size());
  std::iota(all.knobs.begin(), all.knobs.end(), std::uint16_t{0});
  for (const Point& point : points) {
    std::uint64_t code = 0;
    for (std::size_t k = point.size(); k-- > 0;) code = code * out->choices_[k] + point[k];
    all.codes.push_back(code);
  }
  all.rows = all.codes.size();
  std::call_once(out->built_, [&] { out->groups_.push_back(std::move(all)); });
  return out;
}

void ValidPoints::set(const Group& group, std::uint64_t row, Point& point) const {
  std::uint64_t code = group.listed ? group.codes[row] : row;
  for (const std::uint16_t k : group.knobs) {
    point[k] = static_cast<std::uint16_t>(code % choices_[k]);
    code /= choices_[k];
  }
}

bool ValidPoints::allowed(const Point& point) const {
  return std::all_of(trial_.begin(), trial_.end(), [&](const Constraint* rule) { return rule->holds(point); });
}

const std::vector<ValidPoints::Group>& ValidPoints::groups() const {
  std::call_once(built_, [this] { build(); });
  return groups_;
}

// The members become one group of the combinations that these rules allow.
void ValidPoints::join(const std::vector<std::size_t>& members, const std::vector<const Constraint*>& rules) const {
  Group joined;
  joined.listed = true;
  for (const std::size_t m : members) joined.knobs.insert(joined.knobs.end(), groups_[m].knobs.begin(), groups_[m].knobs.end());
  std::vector<std::uint64_t> scale(choices_.size(), 0);
  std::uint64_t unit = 1;
  for (const std::uint16_t k : joined.knobs) scale[k] = unit, unit *= choices_[k];
  Point point = default_;
  std::vector<std::uint64_t> row(members.size(), 0);
  bool any = true;
  for (const std::size_t m : members) {
    any = any && groups_[m].rows > 0;
    if (any) set(groups_[m], 0, point);
  }
  while (any) {
    if (std::all_of(rules.begin(), rules.end(), [&](const Constraint* rule) { return rule->holds(point); })) {
      std::uint64_t code = 0;
      for (const std::uint16_t k : joined.knobs) code += scale[k] * point[k];
      joined.codes.push_back(code);
    }
    std::size_t i = 0;
    for (; i < members.size(); ++i) {
      if (++row[i] == groups_[members[i]].rows) row[i] = 0;
      set(groups_[members[i]], row[i], point);
      if (row[i] != 0) break;
    }
    any = i < members.size();
  }
  joined.rows = joined.codes.size();
  joined.codes.shrink_to_fit();
  for (std::size_t i = members.size(); i-- > 0;) groups_.erase(groups_.begin() + static_cast<std::ptrdiff_t>(members[i]));  // members ascend
  groups_.push_back(std::move(joined));
}

// Joins the groups that a rule reads, always where the fewest combinations have to be looked at, so that lists are short when they meet.
void ValidPoints::build() const {
  for (std::size_t k = 0; k < choices_.size(); ++k) groups_.push_back({{static_cast<std::uint16_t>(k)}, {}, choices_[k], false});
  std::vector<const Constraint*> open;
  for (const Constraint& rule : rules_) (rule.reads ? open : trial_).push_back(&rule);
  const auto members_of = [&](const Constraint& rule) {
    std::vector<std::size_t> out;
    for (std::size_t g = 0; g < groups_.size(); ++g)
      if (std::any_of(rule.reads->begin(), rule.reads->end(), [&](std::uint16_t k) {
            return choices_[k] > 1 && std::find(groups_[g].knobs.begin(), groups_[g].knobs.end(), k) != groups_[g].knobs.end();
          }))
        out.push_back(g);
    return out;
  };
  // Rules about knobs of one choice hold for all points or for none.
  std::erase_if(open, [&](const Constraint* rule) {
    if (!members_of(*rule).empty()) return false;
    if (!rule->holds(default_)) trial_.push_back(rule);
    return true;
  });
  Rng rng(1);
  const auto mostly_holds = [&](const Constraint& rule, const std::vector<std::size_t>& members) {
    Point point = default_;
    int held = 0;
    for (int i = 0; i < kSample; ++i) {
      for (const std::size_t m : members)
        if (groups_[m].rows > 0) set(groups_[m], rng.below(groups_[m].rows), point);
      held += rule.holds(point);
    }
    return held >= kMostlyHeld;
  };
  while (!open.empty()) {
    std::vector<std::size_t> best;
    const Constraint* first = nullptr;
    std::uint64_t least = std::numeric_limits<std::uint64_t>::max();
    for (const Constraint* rule : open) {
      auto members = members_of(*rule);
      std::uint64_t work = 1, codes = 1;
      for (const std::size_t m : members) {
        work = product(work, groups_[m].rows);
        for (const std::uint16_t k : groups_[m].knobs) codes = product(codes, choices_[k]);
      }
      if (codes < kMostPlaces && work < least) least = work, best = std::move(members), first = rule;
    }
    if (first == nullptr || least > kMostJoined) break;
    if (least > kShort && mostly_holds(*first, best)) {
      trial_.push_back(first);
      std::erase(open, first);
      continue;
    }
    std::vector<const Constraint*> now;
    std::erase_if(open, [&](const Constraint* rule) {
      const auto members = members_of(*rule);
      const bool inside = std::includes(best.begin(), best.end(), members.begin(), members.end());
      if (inside) now.push_back(rule);
      return inside;
    });
    join(best, now);
  }
  trial_.insert(trial_.end(), open.begin(), open.end());
}

std::optional<Point> ValidPoints::draw(Rng& rng, int tries) const {
  const std::vector<Group>& all = groups();
  Point point = default_;
  for (int t = 0; t < tries; ++t) {
    for (const Group& group : all) {
      if (group.rows == 0) return std::nullopt;
      set(group, rng.below(group.rows), point);
    }
    if (allowed(point)) return point;
  }
  return std::nullopt;
}

std::uint64_t ValidPoints::places() const {
  std::uint64_t out = 1;
  for (const Group& group : groups()) out = product(out, group.rows);
  return out;
}

std::optional<Point> ValidPoints::at(std::uint64_t place) const {
  Point point = default_;
  for (const Group& group : groups()) {
    set(group, place % group.rows, point);
    place /= group.rows;
  }
  return allowed(point) ? std::optional(point) : std::nullopt;
}

}  // namespace amk
