// Copies of lists in pieces among changes: what the other end has made of the steps is the list.
#include <deque>
#include <random>
#include <vector>

#include "check.h"
#include "kv/values/list_copy_cursor.h"

using namespace verbena::kv;

namespace {

using What = ListCopyCursor::Step::What;

struct Copied {
  std::deque<int> list, other;
  ListCopyCursor walk;
  int number = 0;

  void insert(size_t place, size_t count) {
    for (size_t i = 0; i < count; ++i) list.insert(list.begin() + static_cast<long>(place + i), ++number);
    walk.inserted(place, count);
  }
  void erase(size_t place, size_t count) {
    const auto first = list.begin() + static_cast<long>(place);
    list.erase(first, first + static_cast<long>(count));
    walk.erased(place, count);
  }
  void replace(size_t place) {
    list[place] = ++number;
    walk.replaced(place);
  }

  // False: it was the last step.
  bool step(size_t most) {
    const ListCopyCursor::Step step = walk.next(list.size(), most);
    switch (step.what) {
      case What::trim:
        CHECK(step.first + step.count <= other.size());
        other.erase(other.begin(), other.begin() + static_cast<long>(step.first));
        other.resize(other.size() - step.count);
        break;
      case What::push_right:
        for (size_t i = 0; i < step.count; ++i) other.push_back(list[step.first + i]);
        break;
      case What::set:
        CHECK(step.count < other.size());
        other[step.count] = list[step.first];
        break;
      case What::push_left:
        for (size_t i = 1; i <= step.count; ++i) other.push_front(list[step.first - i]);
        break;
      case What::done:
      case What::lost:
        return false;
    }
    walk.taken(step, step.count);
    return true;
  }
};

}  // namespace

TEST("whatever changes between the pieces, in the end the copy is the list") {
  std::mt19937 chance(7);
  const auto below = [&](size_t most) { return most == 0 ? 0 : chance() % most; };
  for (int round = 0; round < 3000; ++round) {
    Copied copied;
    copied.insert(0, 1 + below(200));
    copied.walk = {};
    size_t changes = below(60);
    const bool only_ends = round % 3 == 0;
    do {
      for (size_t i = below(4); i > 0 && changes > 0; --i, --changes) {
        const size_t length = copied.list.size();
        const size_t count = 1 + below(6);
        const size_t kind = below(7);
        if (kind == 0) copied.insert(0, count);
        if (kind == 1) copied.insert(length, count);
        if (kind == 2 && length >= count) copied.erase(0, count);
        if (kind == 3 && length >= count) copied.erase(length - count, count);
        if (kind == 4 && length > 0) copied.replace(below(length));
        if (kind == 5 && !only_ends) copied.insert(below(length + 1), count);
        if (kind == 6 && !only_ends && length >= count) copied.erase(below(length - count + 1), count);
        if (changes == 30 && below(20) == 0) copied.erase(0, copied.list.size());
      }
    } while (copied.step(1 + below(40)) || changes > 0);
    if (copied.walk.next(copied.list.size(), 1).what != What::lost) CHECK(copied.list == copied.other);
    if (only_ends) CHECK(copied.walk.next(copied.list.size(), 1).what == What::done);
  }
}

TEST("a change of the middle costs the shorter part, and too many of them end the walk") {
  Copied copied;
  copied.insert(0, 100);
  copied.walk = {};
  while (copied.step(10)) continue;
  copied.insert(90, 1);
  CHECK(copied.step(100));  // trims ten
  CHECK(copied.other.size() == 90);
  CHECK(copied.step(100));  // says them, and the new one
  CHECK(!copied.step(100));
  CHECK(copied.list == copied.other);
  int changes = 0;
  for (; copied.walk.next(copied.list.size(), 1).what != What::lost; ++changes) {
    copied.erase(50, 1);
    copied.insert(50, 1);
    while (copied.step(100)) continue;
  }
  CHECK(changes > 8);
  CHECK(changes < 100);
}
RUN_TESTS()
