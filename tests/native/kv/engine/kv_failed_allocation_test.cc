// Commands without memory: for every native command, the n-th allocation fails, or all from the n-th on, for
// each n until the command succeeds. A command that has failed has changed nothing, a command that has not
// has done everything, and the engine serves the next one. The log, the backlog, watchers and tracking agree
// with the keys.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cstdio>
#include <filesystem>
#include <map>
#include <new>

#include "check.h"
#include "kv/engine/engine.h"
#include "kv/journal/backlog.h"
#include "kv/journal/log.h"
#include "kv/journal/log_applier.h"
#include "kv_contents.h"
#include "kv_engine.h"

using namespace verbena;
using namespace verbena::kv;

namespace {

// The allocations of this thread until one fails, or all fail from there on; negative: none fails.
thread_local long allocations_left = -1;
thread_local bool all_fail = false, is_failed = false;

bool fails() {
  if (allocations_left < 0) return false;
  if (allocations_left > 0) {
    --allocations_left;
    return false;
  }
  if (!all_fail) allocations_left = -1;
  return is_failed = true;
}

void* allocate(size_t bytes, size_t alignment) {
  if (fails()) throw std::bad_alloc();
  void* const memory = alignment > alignof(std::max_align_t)
                           ? std::aligned_alloc(alignment, (bytes + alignment - 1) / alignment * alignment)
                           : std::malloc(bytes == 0 ? 1 : bytes);
  if (!memory) throw std::bad_alloc();
  return memory;
}

}  // namespace

void* operator new(size_t bytes) { return allocate(bytes, 0); }
void* operator new[](size_t bytes) { return allocate(bytes, 0); }
void* operator new(size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<size_t>(alignment));
}
void* operator new[](size_t bytes, std::align_val_t alignment) {
  return allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void* memory) noexcept { std::free(memory); }
void operator delete[](void* memory) noexcept { std::free(memory); }
void operator delete(void* memory, size_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t) noexcept { std::free(memory); }
void operator delete(void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, std::align_val_t) noexcept { std::free(memory); }
void operator delete(void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }
void operator delete[](void* memory, size_t, std::align_val_t) noexcept { std::free(memory); }

namespace {

ChunkMemory chunk(size_t bytes) {
  if (fails()) throw Error("no_memory", "store a value", "no chunk");
  // Not from the heap: sanitizers would touch a shadow of each chunk, and the tests make thousands.
  void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  CHECK(memory != MAP_FAILED);
  const auto unmap = [bytes](void* at) { munmap(at, bytes); };
  return {static_cast<std::byte*>(memory), bytes, std::shared_ptr<void>(memory, unmap)};
}

using Command = std::vector<std::string>;

constexpr uint64_t kNowMs = 1'000'000;
const std::string kLong(20'000, 'l'), kLonger(300'000, 'm');

// The keys before each call.
const std::vector<Command> kBefore = {
    {"SET", "text", "hello"},
    {"SET", "number", "41"},
    {"SET", "float", "1.5"},
    {"SET", "long", kLong},
    {"SET", "a key whose name is so long that a copy needs memory", "value"},
    {"SET", "timed", "soon", "PXAT", "2000000"},
    {"SET", "expired", "gone", "PXAT", "1000100"},
};

// At least one call of each native command.
const std::vector<Command> kCalls = {
    {"GET", "text"},
    {"GET", "long"},
    {"GET", "expired"},
    {"GET", "none"},
    {"SET", "text", "other"},
    {"SET", "text", kLong},
    {"SET", "new", "value"},
    {"SET", "new", kLonger},
    {"SET", "long", kLonger, "GET"},
    {"SET", "text", "x", "EX", "100"},
    {"SET", "text", "x", "PXAT", "1"},
    {"SET", "timed", "x", "KEEPTTL"},
    {"SET", "a key whose name is so long that a copy needs memory", "x"},
    {"SETNX", "new", "value"},
    {"SETNX", "expired", "value"},
    {"SETEX", "new", "100", kLong},
    {"PSETEX", "text", "100", "value"},
    {"GETEX", "text", "EX", "100"},
    {"GETEX", "timed", "PERSIST"},
    {"GETEX", "long", "PXAT", "1"},
    {"GETDEL", "long"},
    {"GETSET", "long", kLonger},
    {"GETSET", "new", "value"},
    {"MGET", "text", "long", "none", "expired"},
    {"MSET", "text", "x", "new", kLong, "long", "short", "timed", "t", "expired", "again", "more", kLonger},
    {"MSET", "new", "first", "new", kLong},
    {"MSETNX", "new", "value", "more", kLong},
    {"APPEND", "text", kLonger},
    {"APPEND", "new", kLong},
    {"APPEND", "long", "x"},
    {"STRLEN", "long"},
    {"GETRANGE", "long", "0", "-1"},
    {"SETRANGE", "text", "300000", "x"},
    {"SETRANGE", "new", "5", "x"},
    {"SETRANGE", "long", "5", "x"},
    {"INCR", "number"},
    {"INCR", "new"},
    {"INCR", "text"},
    {"DECR", "number"},
    {"INCRBY", "number", "1000000"},
    {"DECRBY", "number", "5"},
    {"INCRBYFLOAT", "float", "1e300"},
    {"INCRBYFLOAT", "new", "0.5"},
    {"DEL", "text"},
    {"DEL", "text", "long", "none", "timed", "expired"},
    {"UNLINK", "text", "long"},
    {"EXISTS", "text", "expired"},
    {"TOUCH", "text"},
    {"TYPE", "text"},
    {"EXPIRE", "text", "100"},
    {"EXPIRE", "timed", "1"},
    {"EXPIRE", "long", "-1"},
    {"PEXPIRE", "text", "100"},
    {"EXPIREAT", "long", "3000"},
    {"PEXPIREAT", "text", "3000000"},
    {"TTL", "timed"},
    {"PTTL", "expired"},
    {"EXPIRETIME", "timed"},
    {"PEXPIRETIME", "timed"},
    {"PERSIST", "timed"},
    {"PING"},
    {"PING", kLong},
    {"ECHO", kLong},
    {"ECHO"},
};

struct Setup {
  bool exposed = false, has_log = false, has_backlog = false, watches = false;
  bool all_fail = false;  // all allocations from the n-th on, not the n-th only
  bool is_full = false;   // there is room for a long value and no new page; more needs another chunk
};

struct Folder {
  Folder() {
    char name[] = "/tmp/verbena-allocations-XXXXXX";
    path = ::mkdtemp(name);
  }
  ~Folder() { std::filesystem::remove_all(path); }
  std::string path;
};

struct Store {
  Store(const Setup& wanted, const std::string& folder) : setup(wanted) {
    if (setup.has_log) {
      std::filesystem::remove_all(folder);
      std::filesystem::create_directory(folder);
      log = std::make_unique<Log>(
          LogOptions{.directory = folder, .fsync = Fsync::no, .sync = [](int) { return 0; }});
      engine.set_log(log.get());
    }
    if (setup.has_backlog) reader = engine.backlog().read_from(engine.backlog().position() + 1);
    if (setup.exposed) engine.keyspace.expose();
    engine.add(client);
    engine.keyspace.set_now(kNowMs);
    for (const Command& command : kBefore) run(command);
    engine.keyspace.set_now(kNowMs + 200);  // "expired" has
    Arena& arena = engine.keyspace.arena();
    if (setup.is_full) arena.allocate(arena.spare_bytes() - 2 * Arena::block_bytes(kLong.size()));
    if (!setup.watches) return;
    engine.tracking.start(77, {}, {});
    for (const Command& command : kCalls) {
      if (command.size() < 2) continue;
      engine.keyspace.watch(0, command[1], 77);
      engine.tracking.remember(77, command[1]);
    }
  }
  ~Store() {
    reader.reset();
    engine.remove(client);
    engine.set_log(nullptr);
  }

  std::string run(const Command& command) {
    engine.run(client, std::vector<std::string_view>(command.begin(), command.end()));
    return take_reply();
  }
  std::string take_reply() {
    client.write_scheduled = false;
    return std::exchange(client.out, {});
  }
  // The keys that are not expired.
  std::string keys() {
    std::string all = engines::contents(engine);
    const size_t expired = all.find("0 expired = gone");
    if (expired != all.npos) all.erase(expired, all.find('\n', expired) + 1 - expired);
    return all;
  }
  // The keys that a replica has after it has applied the records of the backlog.
  std::string keys_of_replica() {
    engine.commit();
    std::string records;
    CHECK(reader->read(records, ~size_t{0}));
    replica.keyspace.set_now(0);
    LogApplier applier(replica, {}, applied);
    applied = applier.apply(records);
    std::string all = engines::contents(replica);
    const size_t expired = all.find("0 expired = gone");
    if (expired != all.npos) all.erase(expired, all.find('\n', expired) + 1 - expired);
    return all;
  }

  const Setup setup;
  Engine engine{2, chunk}, replica{2, chunk};
  std::unique_ptr<Log> log;
  std::unique_ptr<BacklogReader> reader;
  engines::QuietClient client{1};
  uint64_t applied = 0;
};

// Runs a command with the n-th allocation failing, for n = 0, 1, …, until no allocation fails. Returns how
// many times it failed.
long try_command(const Command& command, const Setup& setup, const std::string& folder) {
  std::string complete, reply_of_complete;
  {
    Store store(setup, folder);
    reply_of_complete = store.run(command);
    complete = store.keys();
  }
  long failures = 0;
  const std::vector<std::string_view> arguments(command.begin(), command.end());
  for (long n = 0;; ++n) {
    Store store(setup, folder);
    const std::string before = store.keys();
    is_failed = false;
    all_fail = setup.all_fail;
    allocations_left = n;
    store.engine.run(store.client, arguments);
    allocations_left = -1;
    const bool was_failed = is_failed;
    const bool closed = store.client.close_now;
    const std::string reply = store.take_reply();
    const std::string after = store.keys();
    const auto explain = [&](const char* what) {
      std::fprintf(stderr, "%s, allocation %ld: %s; reply %.60s\n", command[0].c_str(), n, what,
                   reply.c_str());
      return false;
    };
    const bool is_refused = reply == "-OOM command failed: not enough memory\r\n" || closed;
    CHECK((is_refused ? after == before || after == complete : after == complete) || explain("wrong keys"));
    CHECK(is_refused || reply == reply_of_complete || explain("wrong reply"));
    CHECK(was_failed || (reply == reply_of_complete && after == complete) ||
          explain("wrong without failure"));
    store.client.close_now = false;
    CHECK(store.run({"PING"}) == "+PONG\r\n" || explain("no PONG"));
    if (setup.watches && after != before) {
      const auto dirty = store.engine.keyspace.take_dirty_watchers();
      CHECK(!dirty.empty() || explain("the watcher was not marked"));
      CHECK(store.engine.tracking.has_messages() || explain("the reader was not notified"));
    }
    if (setup.has_backlog && !store.reader->is_lost()) {
      CHECK(store.keys_of_replica() == store.keys() || explain("the replica differs"));
    }
    // The index and the allocator still work: all keys can be changed and deleted.
    CHECK(store.run({"SET", "text", kLonger}) == "+OK\r\n" &&
          store.run({"GET", "text"}).size() > kLonger.size());
    CHECK(store.run({"SET", "quite new", kLong}) == "+OK\r\n");
    store.run({"DEL", "text", "number", "float", "long", "timed", "new", "more", "quite new", "expired"});
    store.run({"DEL", "a key whose name is so long that a copy needs memory"});
    CHECK(store.keys().empty() || explain("a key cannot be deleted"));
    if (!was_failed) return failures;
    ++failures;
  }
}

void try_all(Setup setup) {
  const Folder folder;
  for (bool Setup::* option : {&Setup::all_fail, &Setup::is_full}) {
    if (setup.all_fail || setup.is_full) break;
    setup.*option = true;
    try_all(setup);
    setup.*option = false;
  }
  CommandTable table;
  std::map<std::string, int> called;
  long failures = 0;
  for (const Command& command : kCalls) {
    ++called[command[0]];
    failures += try_command(command, setup, folder.path);
  }
  for (const NativeCommand& command : table.all()) {
    if (!called.contains(std::string(command.name)))
      std::fprintf(stderr, "no call of %s\n", command.name.data());
    CHECK(called.contains(std::string(command.name)));
  }
  std::printf("(%ld failed allocations) ", failures);
  CHECK(failures > 50);
}

}  // namespace

TEST("without memory, a native command fails as a whole") { try_all({}); }

TEST("the same if remote readers may read the items, which are replaced and not changed in place") {
  try_all({.exposed = true});
}

TEST("the same with a log on disk, with watchers and with clients that cache keys") {
  try_all({.has_log = true, .watches = true});
}

TEST("the same with a backlog, and a replica that applies it has the same keys") {
  try_all({.exposed = true, .has_log = true, .has_backlog = true});
  try_all({.has_backlog = true});
}

TEST("the index grows as a whole, and the memory of deleted values can be used again") {
  Store store({}, "");
  const auto key = [](int i) { return "key:" + std::to_string(i); };
  const auto run = [&](const Command& command, long n) {
    const std::vector<std::string_view> arguments(command.begin(), command.end());
    all_fail = n % 2 == 1;
    allocations_left = n / 2;
    store.engine.run(store.client, arguments);
    allocations_left = -1;
    store.client.close_now = false;
    return store.take_reply();
  };
  constexpr int kKeys = 6000;
  long refused = 0;
  for (int i = 0; i < kKeys; ++i) {
    const std::string value = i % 50 == 0 ? kLong : key(i);
    for (long n = 0; run({"SET", key(i), value}, n) != "+OK\r\n"; ++n) ++refused;
    CHECK(store.engine.keyspace.database(0).size() == kBefore.size() + static_cast<size_t>(i) + 1);
  }
  CHECK(refused > 50);
  const size_t chunks = store.engine.keyspace.arena().chunks();
  for (int round = 0; round < 20; ++round) {
    for (int i = round; i < kKeys; i += 3) {
      CHECK(store.run({"GET", key(i)}).size() > key(i).size());
      const bool is_gone =
          run({"DEL", key(i)}, 1) == ":1\r\n";  // frees memory although no allocation succeeds
      CHECK(is_gone == !store.engine.keyspace.database(0).contains(key(i)));
      CHECK(store.run({"SET", key(i), i % 50 == 0 ? kLong : key(i)}) == "+OK\r\n");
    }
  }
  CHECK(store.engine.keyspace.arena().chunks() == chunks);
}

RUN_TESTS()
