// The state of a list copy that is made in pieces while the list changes. The other end holds one contiguous
// run of the elements. The list reports its changes, and next() returns what the other end must do next.
// Stores positions only, no elements; depends on nothing else of the project.
#pragma once

#include <cstddef>
#include <set>

namespace verbena::kv {

class ListCopyCursor {
 public:
  struct Step {
    enum class What { trim, push_right, set, push_left, done, lost } what;
    // trim: the other end removes `first` elements at its left and `count` at its right. push_right: it
    // appends the `count` elements of the list from `first` on. push_left: it prepends the `count` elements
    // before `first`, the nearest first. set: its position `count` gets the list's element at `first`. done:
    // the copy equals the list. lost: the list changes too fast, and must be copied as a whole.
    size_t first = 0, count = 0;
  };

  // The list calls these after each change: `count` elements were inserted before `place`, or erased from
  // `place` on, or the one at `place` was replaced.
  void inserted(size_t place, size_t count);
  void erased(size_t place, size_t count);
  void replaced(size_t place);

  // The next step, with at most `most` elements, for a list of `length` elements. When the caller has sent
  // it, it must call taken() with the number of elements that it used, before the list changes again.
  Step next(size_t length, size_t most);
  void taken(const Step& step, size_t count);

 private:
  static constexpr size_t kMostAgain = 8;

  // The list consists of new_ elements that the other end lacks, had_ elements that it has, and the rest,
  // which is still to be copied. Around the had_ elements, the other end has gone_left_ and gone_right_
  // elements that are no longer in the list.
  size_t new_ = 0, had_ = 0, gone_left_ = 0, gone_right_ = 0;
  size_t again_ = 0;           // elements that must be copied again, because the middle has changed
  std::set<size_t> replaced_;  // positions at the other end
};

}  // namespace verbena::kv
