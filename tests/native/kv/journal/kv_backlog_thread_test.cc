// Backlog readers on other threads, while the engine runs commands.
#include <cstdlib>
#include <cstring>
#include <thread>
#include <vector>

#include "check.h"
#include "kv/journal/backlog.h"
#include "util/clock.h"

using namespace verbena::kv;

TEST("readers on other threads get the appended bytes during appends") {
  Backlog backlog({.keep_bytes = 200'000, .max_bytes = size_t{1} << 30});
  constexpr uint64_t kRecords = 20'000;
  std::vector<std::unique_ptr<BacklogReader>> readers;
  for (int i = 0; i < 3; ++i) readers.push_back(backlog.read_from(1));
  std::vector<std::string> seen(readers.size());
  {
    std::vector<std::jthread> threads;
    for (size_t i = 0; i < readers.size(); ++i) {
      threads.emplace_back([&, i] {
        BacklogReader& reader = *readers[i];
        while (reader.next_lsn() <= kRecords) {
          backlog.wait_for_records(reader.offset(), verbena::now_ns() + 1'000'000'000, backlog.wakes());
          CHECK(reader.read(seen[i], 10'000));
        }
      });
    }
    for (uint64_t i = 0; i < kRecords; ++i) {
      const std::string value(i % 200, 'v');
      const std::string_view arguments[] = {"SET", "key", value};
      backlog.append(0, arguments);
      backlog.end_command();
      if (i % 7 == 0) backlog.commit();
    }
    backlog.commit();
  }
  for (const std::string& bytes : seen) CHECK(bytes.size() == backlog.visible_offset() && bytes == seen[0]);
}

RUN_TESTS()
