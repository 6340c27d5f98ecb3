// A set of byte offsets, as sorted ranges [start, stop) that never touch. Depends on the standard library
// only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace verbena::far {

struct Range {
  uint64_t start, stop;

  uint64_t length() const { return stop - start; }
  bool operator==(const Range&) const = default;
};

class Ranges {
 public:
  // Adds a range, merged with those that it touches.
  void add(Range range) {
    if (range.start >= range.stop) return;
    const auto first = first_ending_at(range.start);
    const auto last = std::upper_bound(first, all_.end(), range.stop,
                                       [](uint64_t stop, const Range& known) { return stop < known.start; });
    if (first == last) {
      all_.insert(first, range);
      return;
    }
    first->start = std::min(first->start, range.start);
    first->stop = std::max((last - 1)->stop, range.stop);
    all_.erase(first + 1, last);
  }
  // Whether all of the range is in the set.
  bool covers(Range range) const {
    const auto found = first_ending_at(range.start + 1);
    return range.start >= range.stop ||
           (found != all_.end() && found->start <= range.start && range.stop <= found->stop);
  }
  // Calls `visit` for the parts of the range that are not in the set.
  template <typename Visit>
  void each_gap(Range range, Visit visit) const {
    for (auto known = first_ending_at(range.start); known != all_.end() && known->start < range.stop;
         ++known) {
      if (known->start > range.start) visit(Range{range.start, known->start});
      range.start = std::max(range.start, known->stop);
    }
    if (range.start < range.stop) visit(range);
  }
  uint64_t bytes() const {
    uint64_t sum = 0;
    for (const Range& range : all_) sum += range.length();
    return sum;
  }
  void clear() { all_.clear(); }
  bool empty() const { return all_.empty(); }
  auto begin() const { return all_.begin(); }
  auto end() const { return all_.end(); }

 private:
  // The first range that ends at `offset` or later.
  std::vector<Range>::iterator first_ending_at(uint64_t offset) {
    return std::lower_bound(all_.begin(), all_.end(), offset,
                            [](const Range& known, uint64_t at) { return known.stop < at; });
  }
  std::vector<Range>::const_iterator first_ending_at(uint64_t offset) const {
    return const_cast<Ranges*>(this)->first_ending_at(offset);
  }

  std::vector<Range> all_;
};

}  // namespace verbena::far
