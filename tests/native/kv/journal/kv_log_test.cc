// The log on disk: records are read back as written, cut or flipped bytes are detected, and a disk that fails
// or is slow stops writes, never the server.
#include <fcntl.h>
#include <sys/resource.h>
#include <sys/stat.h>

#include <atomic>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <latch>

#include "check.h"
#include "kv/journal/log.h"
#include "kv/journal/recovery.h"
#include "kv/journal/snapshot.h"
#include "kv_contents.h"
#include "kv_engine.h"
#include "util/clock.h"

using namespace verbena::kv;
using engines::contents;
using engines::heap;
using engines::QuietClient;
using verbena::now_ns;
namespace fs = std::filesystem;

namespace {

class Folder {
 public:
  Folder() {
    char name[] = "/tmp/verbena-log-XXXXXX";
    CHECK(::mkdtemp(name));
    path = name;
  }
  ~Folder() { fs::remove_all(path); }
  std::string segment(uint64_t first) const {
    char name[64];
    std::snprintf(name, sizeof name, "/log-%020llu.vlog", static_cast<unsigned long long>(first));
    return path + name;
  }
  std::string path;
};

std::string read_file(const std::string& path) {
  const MappedFile file(path);
  return std::string(file.bytes());
}

// A log of three commands, the second of which consists of two records.
std::string small_log(const Folder& folder) {
  Log log({.directory = folder.path, .fsync = Fsync::always});
  const std::string_view one[] = {"SET", "a", "1"}, two[] = {"SET", "b", "22"}, three[] = {"SET", "c", "333"},
                         four[] = {"APPEND", "a", "four"};
  log.append(0, one);
  log.end_command();
  CHECK(log.commit());
  log.append(1, two);
  log.append(2, three);
  log.end_command();
  CHECK(log.commit());
  log.append(0, four);
  log.end_command();
  CHECK(log.commit());
  CHECK(log.position() == 4 && log.durable_lsn() == 4);
  log.close();
  return read_file(folder.segment(1));
}

}  // namespace

TEST("slots are those of Redis Cluster, hash tags included") {
  CHECK(key_slot("123456789") == 0x31c3);
  CHECK(key_slot("{user1000}.following") == key_slot("user1000"));
  CHECK(key_slot("foo{}{bar}") == key_slot("foo{}{bar}") && key_slot("foo{}{bar}") != key_slot("bar"));
  CHECK(key_slot("foo{{bar}}zap") == key_slot("{bar"));
}

TEST("records are read back in order, with LSN, database, slot and grouping") {
  const Folder folder;
  const std::string file = small_log(folder);
  CHECK(header_fault(file, kLogMagic).empty());
  LogReader reader(file, LogReader::Kind::log);
  std::vector<LogRecord> records;
  std::vector<std::string> texts;
  while (reader.next()) {
    if (reader.record().is_mark()) continue;
    records.push_back(reader.record());
    std::string text;
    for (const std::string_view word : reader.arguments()) text += std::string(word) + " ";
    texts.push_back(text);
  }
  CHECK(reader.fault().empty() && reader.position() == file.size());
  CHECK(texts == std::vector<std::string>({"SET a 1 ", "SET b 22 ", "SET c 333 ", "APPEND a four "}));
  for (size_t i = 0; i < 4; ++i) CHECK(records[i].lsn == i + 1 && records[i].epoch == 1);
  CHECK(!records[0].more() && records[1].more() && !records[2].more() && !records[3].more());
  CHECK(records[1].database == 1 && records[2].database == 2 && records[0].slot == key_slot("a"));
}

TEST("a log cut at any byte yields complete commands only, and is reported as torn") {
  const Folder folder;
  const std::string file = small_log(folder);
  uint64_t before = 0;
  for (size_t size = 0; size <= file.size(); ++size) {
    const std::string cut(file.data(), size);
    const FileReport report = examine(cut, LogReader::Kind::log);
    CHECK(report.readable == (size >= sizeof(LogFileHeader)));
    if (!report.readable) continue;
    CHECK(report.records == 0 || report.records == 1 || report.records == 3 || report.records == 4);
    CHECK(report.records >= before && report.next_lsn == report.records + 1);
    before = report.records;
    CHECK(report.whole_bytes <= size && report.fault.empty() == (report.whole_bytes == size));
    // The remaining part claims nothing about the missing part.
    CHECK(report.durable_lsn < report.next_lsn && report.durable_behind == 0 && report.records_behind == 0);
  }
  CHECK(before == 4);
}

TEST("a flipped byte anywhere is detected, and intact records behind it show that it is no torn end") {
  const Folder folder;
  const std::string file = small_log(folder);
  const FileReport whole = examine(file, LogReader::Kind::log);
  CHECK(whole.fault.empty() && whole.durable_lsn == 4);
  const size_t last_mark = file.size() - sizeof(LogRecordHeader);
  for (size_t at = 0; at < file.size(); ++at) {
    for (const int bit : {0x01, 0x80, 0xff}) {
      std::string bad = file;
      bad[at] = static_cast<char>(bad[at] ^ bit);
      const FileReport report = examine(bad, LogReader::Kind::log);
      CHECK(!report.fault.empty());
      if (at < sizeof(LogFileHeader)) {
        CHECK(!report.readable);
        continue;
      }
      CHECK(report.fault_offset <= at && report.whole_bytes <= at);
      if (at >= last_mark) {
        CHECK(report.records == 4);  // the damaged record is the mark: nothing is lost
      } else {
        CHECK(std::max(report.durable_lsn, report.durable_behind) >= report.next_lsn || report.records == 4);
        CHECK(report.durable_behind == 4 || report.records == 4);
      }
    }
  }
}

TEST("an unknown version is refused, and so are other files") {
  const Folder folder;
  std::string file = small_log(folder);
  CHECK(header_fault(file, kSnapshotMagic).find("VERBSNP") != std::string::npos);
  LogFileHeader header;
  std::memcpy(&header, file.data(), sizeof header);
  header.version = 2;
  std::memcpy(file.data(), &header, sizeof header);
  CHECK(header_fault(file, kLogMagic) == "the file has format version 2, but only version 1 is known here");
}

TEST("a log inside a value is not read as the log") {
  const Folder folder;
  const std::string inner = small_log(folder);
  const Folder other;
  {
    Log log({.directory = other.path, .fsync = Fsync::always});
    const std::string_view effect[] = {"SET", "log", inner};
    log.append(0, effect);
    CHECK(log.commit());
    log.close();
  }
  std::string file = read_file(other.segment(1));
  file[sizeof(LogFileHeader) + sizeof(LogRecordHeader) + 1] ^= 1;  // the record around it is damaged
  const FileReport report = examine(file, LogReader::Kind::log);
  CHECK(report.records == 0 && report.records_behind == 0 && report.durable_behind == 1);
}

TEST("with a full disk writes are refused until there is room, and nothing is lost") {
  const Folder folder;
  Engine engine(4, heap);
  engine.refresh_time();
  rlimit before;
  CHECK(::getrlimit(RLIMIT_FSIZE, &before) == 0);
  std::signal(SIGXFSZ, SIG_IGN);
  {
    Log log({.directory = folder.path, .fsync = Fsync::always});
    engine.set_log(&log);
    QuietClient client(engine.next_client()), reader(engine.next_client());
    engine.add(client);
    engine.add(reader);
    engines::run(engine, client, {"SET", "a", "kept"});
    engine.commit();
    CHECK(client.out == "+OK\r\n" && !client.close_now);
    const rlimit tiny{400, before.rlim_max};
    CHECK(::setrlimit(RLIMIT_FSIZE, &tiny) == 0);
    engines::run(engine, reader, {"GET", "a"});
    engines::run(engine, client, {"SET", "b", std::string(1000, 'b')});
    engine.commit();
    // It is unknown whether the write will survive: the client gets no reply and is disconnected.
    CHECK(client.close_now && client.out.empty() && !reader.close_now);
    CHECK(log.write_error.starts_with("MISCONF ") && log.counters().failures == 1);
    QuietClient next(engine.next_client());
    engine.add(next);
    engines::run(engine, next, {"SET", "c", "1"});
    engine.commit();
    CHECK(next.out.starts_with("-MISCONF ") && !next.close_now);
    next.out.clear();
    engines::run(engine, next, {"GET", "a"});
    engine.tick(now_ns());
    engine.commit();
    CHECK(next.out == "$4\r\nkept\r\n" && !log.write_error.empty());
    CHECK(::setrlimit(RLIMIT_FSIZE, &before) == 0);
    engine.tick(now_ns() + 1'000'000'000);
    CHECK(log.write_error.empty());
    next.out.clear();
    engines::run(engine, next, {"SET", "c", "1"});
    engine.commit();
    CHECK(next.out == "+OK\r\n");
    engine.set_log(nullptr);
    log.close();
    for (Client* gone :
         {static_cast<Client*>(&client), static_cast<Client*>(&reader), static_cast<Client*>(&next)})
      engine.remove(*gone);
  }
  const FileReport report = examine(read_file(folder.segment(1)), LogReader::Kind::log);
  CHECK(report.fault.empty() && report.records == 3);
}

TEST("after a failed fsync writes are refused until a snapshot is on disk") {
  const Folder folder;
  Engine engine(4, heap);
  engine.refresh_time();
  std::atomic<bool> broken{false};
  Log log({.directory = folder.path, .fsync = Fsync::always, .sync = [&](int fd) {
             if (!broken) return ::fdatasync(fd);
             errno = EIO;
             return -1;
           }});
  engine.set_log(&log);
  QuietClient client(engine.next_client());
  engine.add(client);
  broken = true;
  engines::run(engine, client, {"SET", "a", "1"});
  engine.commit();
  CHECK(client.close_now && log.counters().needs_snapshot &&
        log.write_error.find("fsync") != std::string::npos);
  broken = false;
  engine.tick(now_ns());
  CHECK(!log.write_error.empty());  // the kernel may have dropped the pages: another fsync proves nothing
  {
    Snapshot snapshot(engine, log, folder.path + "/snapshot", 1);
    CHECK(snapshot.finish() && snapshot.first_lsn() == 2 && snapshot.records() == 1);
  }
  log.clear_sync_failure();
  engine.tick(now_ns() + 1'000'000'000);
  CHECK(log.write_error.empty() && !log.counters().needs_snapshot);
  engine.remove(client);
  engine.set_log(nullptr);
}

TEST("syncs run on another thread, and writes continue meanwhile") {
  const Folder folder;
  std::latch entered(1), leave(1);
  std::atomic<int> calls{0};
  Log log({.directory = folder.path, .period_ns = 0, .slow_sync_ns = ~uint64_t{0}, .sync = [&](int fd) {
             if (++calls == 2) {  // the first sync is that of the new file
               entered.count_down();
               leave.wait();
             }
             return ::fdatasync(fd);
           }});
  const std::string_view effect[] = {"SET", "a", "1"};
  for (int i = 0; i < 3; ++i) {
    log.append(0, effect);
    CHECK(log.commit() && log.durable_lsn() == 0);
    if (i == 0) entered.wait();
  }
  CHECK(log.counters().syncing && log.counters().delayed_syncs == 0);
  CHECK(examine(read_file(folder.segment(1)), LogReader::Kind::log).records == 3);
  leave.count_down();
  log.close();
  CHECK(log.durable_lsn() == 3);
}

TEST("writers wait for a sync that takes too long") {
  const Folder folder;
  std::latch entered(1), leave(1);
  std::atomic<int> calls{0};
  Log log({.directory = folder.path, .period_ns = 0, .slow_sync_ns = 0, .sync = [&](int fd) {
             if (++calls == 2) {
               entered.count_down();
               leave.wait();
             }
             return ::fdatasync(fd);
           }});
  const std::string_view effect[] = {"SET", "a", "1"};
  log.append(0, effect);
  CHECK(log.commit());
  entered.wait();
  const std::jthread helper([&] { leave.count_down(); });
  log.append(0, effect);
  CHECK(log.commit() && log.durable_lsn() >= 1 && log.counters().delayed_syncs == 1);
}

TEST("a snapshot made during commands, and the log behind it, restore the contents") {
  std::srand(7);
  for (int round = 0; round < 12; ++round) {
    const Folder folder;
    Engine engine(4, heap);
    engine.refresh_time();
    Log log({.directory = folder.path, .fsync = Fsync::no});
    engine.set_log(&log);
    QuietClient client(engine.next_client());
    engine.add(client);
    const auto random_command = [&] {
      const std::string key = "k" + std::to_string(std::rand() % 400), far = "99999999999999";
      client.database = static_cast<uint32_t>(std::rand() % 3);
      switch (std::rand() % 16) {
        case 0:
          return engines::run(engine, client, {"DEL", key, key + "x"});
        case 1:
          return engines::run(engine, client, {"INCRBY", "n" + key, "3"});
        case 2:
          return engines::run(engine, client, {"SET", key, "timed", "PXAT", far});
        case 3:
          return engines::run(engine, client, {"PEXPIREAT", key, far});
        case 4:
          return engines::run(engine, client, {"PERSIST", key});
        case 5:
          return engines::run(engine, client, {"SETRANGE", key, "3", "zz"});
        case 6:
          return engines::run(engine, client, {"MSET", key, "m", key + "x", "mm"});
        case 7:
          return engines::run(engine, client, {"GETDEL", key});
        case 8: {
          if (std::rand() % 40 != 0) return;
          engine.keyspace.database(client.database).clear();
          const std::string_view effect[] = {"FLUSHDB"};
          return engine.keyspace.log(client.database, effect);
        }
        case 9: {
          if (std::rand() % 20 != 0) return;
          engine.keyspace.swap(0, 2);
          const std::string_view effect[] = {"SWAPDB", "0", "2"};
          return engine.keyspace.log(client.database, effect);
        }
        default:
          return engines::run(engine, client, {"APPEND", key, "+"});
      }
    };
    for (int i = 0; i < 3000; ++i) random_command();
    engine.commit();
    Snapshot snapshot(engine, log, folder.path + "/snapshot", 1);
    const uint64_t base = snapshot.first_lsn();
    while (snapshot.state() == Snapshot::State::scanning) {
      for (int i = std::rand() % 40; i > 0; --i) random_command();
      snapshot.work(0);  // the shortest slice
    }
    for (int i = 0; i < 300; ++i) random_command();
    CHECK(snapshot.finish());
    client.out.clear();
    engine.commit();
    log.close();
    CHECK(snapshot.last_lsn() > base);

    // Loads the whole log, and the snapshot with the log behind it.
    for (const bool whole : {true, false}) {
      Engine other(4, heap);
      Loader loader(other, [](uint32_t, Arguments) { CHECK(false && "a run_in_python command"); });
      const auto load = [&](Loader::Phase phase, const std::string& path) {
        loader.begin(phase, path, fs::file_size(path), whole ? 0 : snapshot.last_lsn());
        while (loader.step(0)) {
        }
      };
      if (whole) {
        load(Loader::Phase::log, folder.segment(1));
      } else {
        load(Loader::Phase::survey, folder.segment(base));
        load(Loader::Phase::snapshot, folder.path + "/snapshot");
      }
      load(Loader::Phase::log, folder.segment(base));
      CHECK(loader.failed() == 0);
      CHECK(contents(other) == contents(engine));
      if (!whole) CHECK(loader.skipped() > 0);
    }
    const FileReport report = examine(read_file(folder.path + "/snapshot"), LogReader::Kind::snapshot);
    CHECK(report.fault.empty() && report.last_lsn == snapshot.last_lsn());
    engine.remove(client);
    engine.set_log(nullptr);
  }
}

TEST("a snapshot that is cut, or continues behind its end, is invalid") {
  const Folder folder;
  Engine engine(1, heap);
  Log log({.directory = folder.path, .fsync = Fsync::no});
  engine.set_log(&log);
  for (int i = 0; i < 3; ++i) {
    const std::string key = "key" + std::to_string(i);
    engine.keyspace.database(0).set({}, key, "value", 0);
  }
  const std::string path = folder.path + "/snapshot";
  {
    Snapshot snapshot(engine, log, path, 1);
    CHECK(snapshot.finish());
  }
  engine.set_log(nullptr);
  const std::string file = read_file(path);
  CHECK(examine(file, LogReader::Kind::snapshot).fault.empty());
  for (size_t size = 0; size < file.size(); ++size) {
    CHECK(!examine(std::string(file.data(), size), LogReader::Kind::snapshot).fault.empty());
  }
  CHECK(!examine(file + file.substr(sizeof(LogFileHeader)), LogReader::Kind::snapshot).fault.empty());
}

RUN_TESTS()
