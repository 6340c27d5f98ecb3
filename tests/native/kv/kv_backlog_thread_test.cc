// Followers on other threads, while the engine goes on.
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "check.h"
#include "kv/journal/backlog.h"
#include "util/clock.h"

using namespace verbena::kv;

TEST("readers on their own threads get the bytes that were appended, while they are appended") {
  Backlog tail({.keep_bytes = 200'000, .hold_bytes = size_t{1} << 30});
  constexpr uint64_t kRecords = 20'000;
  std::vector<std::unique_ptr<Follower>> followers;
  for (int i = 0; i < 3; ++i) followers.push_back(tail.follow(1));
  std::vector<std::string> seen(followers.size());
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < followers.size(); ++i) {
      threads.emplace_back([&, i] {
        Follower& follower = *followers[i];
        while (follower.next_lsn() <= kRecords) {
          tail.wait_beyond(follower.offset(), verbena::now_ns() + 1'000'000'000, tail.wakes());
          CHECK(follower.read(seen[i], 10'000));
        }
      });
    }
    for (uint64_t i = 0; i < kRecords; ++i) {
      const std::string value(i % 200, 'v');
      const std::string_view words[] = {"SET", "key", value};
      tail.append(0, words);
      tail.boundary();
      if (i % 7 == 0) tail.commit();
    }
    tail.commit();
  }
  for (const std::string& bytes : seen) CHECK(bytes.size() == tail.visible_offset() && bytes == seen[0]);
}

RUN_TESTS()
