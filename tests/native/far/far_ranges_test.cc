// A set of byte offsets, compared with one that lists them.
#include <random>
#include <set>

#include "check.h"
#include "far/ranges.h"

using verbena::far::Range;
using verbena::far::Ranges;

namespace {

constexpr uint64_t kEnd = 70;

std::set<uint64_t> listed(const Ranges& ranges) {
  std::set<uint64_t> all;
  for (const Range& range : ranges) {
    for (uint64_t at = range.start; at < range.stop; ++at) all.insert(at);
  }
  return all;
}

}  // namespace

TEST("ranges that are added in any order are a set, and never touch") {
  std::mt19937 random(1);
  for (int round = 0; round < 300; ++round) {
    Ranges ranges;
    std::set<uint64_t> model;
    for (int i = 0; i < 12; ++i) {
      const uint64_t start = random() % 50, length = random() % 20;
      ranges.add({start, start + length});
      for (uint64_t at = start; at < start + length; ++at) model.insert(at);
      CHECK(listed(ranges) == model);
      CHECK(ranges.bytes() == model.size());
      CHECK(ranges.empty() == model.empty());
      for (auto one = ranges.begin(); one != ranges.end(); ++one) {
        CHECK(one->start < one->stop);
        CHECK(one == ranges.begin() || (one - 1)->stop < one->start);
      }
    }
  }
}

TEST("covers() and each_gap() agree with the listed offsets") {
  std::mt19937 random(2);
  for (int round = 0; round < 100; ++round) {
    Ranges ranges;
    for (int i = 0; i < 5; ++i) {
      const uint64_t start = random() % 50;
      ranges.add({start, start + random() % 15});
    }
    const std::set<uint64_t> model = listed(ranges);
    for (uint64_t start = 0; start < kEnd; ++start) {
      for (uint64_t stop = start; stop <= kEnd; ++stop) {
        std::set<uint64_t> missing;
        for (uint64_t at = start; at < stop; ++at) {
          if (!model.contains(at)) missing.insert(at);
        }
        CHECK(ranges.covers({start, stop}) == missing.empty());
        Ranges gaps;
        uint64_t bytes = 0;
        ranges.each_gap({start, stop}, [&](const Range& gap) {
          gaps.add(gap);
          bytes += gap.length();
        });
        CHECK(listed(gaps) == missing);
        CHECK(bytes == missing.size());
      }
    }
  }
}

RUN_TESTS()
