// Where a copy of a list stands that is made in pieces while the list changes. The other end has a run of
// elements; each change says what has become of them here, and next() what the other end must do about it.
// Only places are kept here: who has the list reads the elements when a step asks for them.
#pragma once

#include <cstddef>
#include <set>

namespace verbena::kv {

class ListCopyCursor {
 public:
  struct Step {
    enum class What { trim, push_right, set, push_left, done, lost } what;
    // trim: so many at the left and at the right of what the other end has. push_right: elements of the list
    // from `first`, `count` of them. push_left: those before `first`, the nearest first. set: the other
    // end's place `count` gets the element at `first`.
    size_t first = 0, count = 0;
  };

  // The list is told to do something about its elements: `count` of them are now at `place`, or are gone from
  // there, or the one there is another.
  void inserted(size_t place, size_t count);
  void erased(size_t place, size_t count);
  void replaced(size_t place);

  // At most `most` elements at a time; taken() says how many of them the step's maker has used.
  Step next(size_t length, size_t most);
  void taken(const Step& step, size_t count);

 private:
  static constexpr size_t kMostAgain = 8;

  // The list is: new_ elements that the other end lacks, had_ that it has, and the rest, which is to come.
  // The other end has, around those, what is gone from here.
  size_t new_ = 0, had_ = 0, gone_left_ = 0, gone_right_ = 0;
  size_t again_ = 0;           // elements that must be said once more, since the middle has changed
  std::set<size_t> replaced_;  // places at the other end
};

}  // namespace verbena::kv
