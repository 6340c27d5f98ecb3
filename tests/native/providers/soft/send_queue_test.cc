// The send queue while its storage grows: requests keep their order, pieces and inline bytes.
#include "providers/soft/send_queue.h"

#include <cstring>
#include <random>
#include <string>
#include <vector>

#include "check.h"

using namespace verbena;
using soft::SendQueue;

namespace {

constexpr uint32_t kDepth = 100, kMaxSge = 3, kMaxInline = 40;

// The request with this number: of one to three pieces, and every third one inline.
struct Numbered {
  explicit Numbered(uint64_t number)
      : bytes(1 + number % kMaxInline, static_cast<char>(number)), is_inline(number % 3 == 0) {
    if (is_inline) {
      pieces = {{reinterpret_cast<uint64_t>(bytes.data()), static_cast<uint32_t>(bytes.size()), 0}};
    } else {
      for (uint64_t i = 0; i <= number % kMaxSge; ++i) pieces.push_back({number * 8 + i, 5, 7});
    }
    request = {.id = number,
               .flags = is_inline ? send_flag::inline_data : 0,
               .remote_addr = number * 100,
               .local = pieces};
  }

  std::string bytes;
  bool is_inline;
  std::vector<Sge> pieces;
  SendRequest request;
};

PostResult post(SendQueue& queue, uint64_t number) {
  const Numbered numbered(number);
  return queue.append({&numbered.request, 1}, false, 0);
}

void check_entry(const SendQueue& queue, uint64_t index, uint64_t number) {
  const Numbered expected(number);
  CHECK(queue.at(index).id == number);
  CHECK(queue.at(index).remote_addr == number * 100);
  const auto local = queue.local(index);
  CHECK(local.size() == expected.pieces.size());
  if (expected.is_inline) {
    CHECK(local[0].length == expected.bytes.size());
    CHECK(std::memcmp(reinterpret_cast<const void*>(local[0].addr), expected.bytes.data(),
                      expected.bytes.size()) == 0);
    return;
  }
  for (size_t i = 0; i < local.size(); ++i) CHECK(local[i].addr == expected.pieces[i].addr);
}

}  // namespace

TEST("requests keep their order, pieces and inline bytes while the storage grows") {
  SendQueue queue({.max_send = kDepth, .max_send_sge = kMaxSge, .max_inline = kMaxInline});
  std::mt19937 random(7);
  uint64_t posted = 0;
  for (uint32_t limit : {5u, 16u, 17u, 33u, 70u, kDepth}) {  // more requests at once in each round
    for (int turn = 0; turn < 300; ++turn) {
      while (queue.tail() - queue.head() < limit && random() % 4 != 0) {
        CHECK(post(queue, posted++).accepted == 1);
      }
      for (uint64_t index = queue.head(); index != queue.tail(); ++index) check_entry(queue, index, index);
      while (queue.head() != queue.tail() && random() % 4 != 0) {
        if (queue.next() == queue.head()) queue.advance_next();
        queue.pop_head();
      }
    }
  }
}

TEST("a full queue refuses the next request") {
  SendQueue queue({.max_send = kDepth, .max_send_sge = kMaxSge, .max_inline = kMaxInline});
  for (uint64_t number = 0; number < kDepth; ++number) {
    CHECK(post(queue, number).accepted == 1);
  }
  const PostResult refused = post(queue, kDepth);
  CHECK(refused.accepted == 0);
  CHECK(refused.error == PostError::full);
  for (uint64_t number = 0; number < kDepth; ++number) check_entry(queue, number, number);
}

RUN_TESTS()
