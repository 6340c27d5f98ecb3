#include "kv/values/list_copy_cursor.h"

#include <algorithm>

namespace verbena::kv {

void ListCopyCursor::inserted(size_t place, size_t count) {
  if (place > new_ && place < new_ + had_) {
    // The other end must keep one contiguous run: of the two parts, the shorter one is copied again.
    const size_t left = place - new_, right = had_ - left;
    again_ += std::min(left, right);
    if (left < right) {
      gone_left_ += left, new_ += left, had_ = right;
    } else {
      gone_right_ += right, had_ = left;
    }
  }
  if (place < new_ || (place == new_ && had_ > 0)) new_ += count;
}

void ListCopyCursor::erased(size_t place, size_t count) {
  const size_t end = place + count, first = new_, last = new_ + had_;
  if (place < first) new_ -= std::min(end, first) - place;
  const size_t from = std::clamp(place, first, last) - first, to = std::clamp(end, first, last) - first;
  if (from == to) return;
  const size_t right = had_ - to;
  if (from > 0 && right > 0) again_ += std::min(from, right);
  if (from >= right && from > 0) {
    gone_right_ += had_ - from, had_ = from;
  } else {
    gone_left_ += to, new_ += from, had_ = right;
  }
}

void ListCopyCursor::replaced(size_t place) {
  if (place >= new_ && place < new_ + had_) replaced_.insert(place - new_ + gone_left_);
}

ListCopyCursor::Step ListCopyCursor::next(size_t length, size_t most) {
  using What = Step::What;
  if (again_ > kMostAgain * length) return {What::lost};
  if (gone_left_ + gone_right_ > 0) return {What::trim, gone_left_, gone_right_};
  if (const size_t end = new_ + had_; end < length) {
    return {What::push_right, end, std::min(most, length - end)};
  }
  if (!replaced_.empty()) return {What::set, *replaced_.begin() + new_, *replaced_.begin()};
  if (new_ > 0) return {What::push_left, new_, std::min(most, new_)};
  return {What::done};
}

void ListCopyCursor::taken(const Step& step, size_t count) {
  switch (step.what) {
    case Step::What::trim: {
      std::set<size_t> left;
      for (const size_t place : replaced_) {
        if (place >= gone_left_ && place < gone_left_ + had_) left.insert(place - gone_left_);
      }
      replaced_ = std::move(left);
      gone_left_ = gone_right_ = 0;
      break;
    }
    case Step::What::push_right:
      had_ += count;
      break;
    case Step::What::set:
      replaced_.erase(step.count);
      break;
    case Step::What::push_left:
      new_ -= count, had_ += count;
      break;
    case Step::What::done:
    case Step::What::lost:
      break;
  }
}

}  // namespace verbena::kv
