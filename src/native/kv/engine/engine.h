// The store itself: runs one command at a time, native ones here and the others by asking the program.
// Whoever holds its lock is the engine; a loop serves sockets, others may call from their own threads.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "kv/engine/client.h"
#include "kv/engine/commands.h"
#include "kv/engine/recent_max.h"
#include "kv/engine/tracking.h"
#include "kv/store/keyspace.h"
#include "kv/store/slot_table.h"
#include "util/spinlock.h"

namespace verbena::kv {

class Backlog;

// A large value of the program's as commands that make it again, some elements at a time while it changes.
// Each says how elements are at that moment; what changes after it was said is said again.
class ValueWalk {
 public:
  enum class Step : uint8_t {
    more,   // the words are a command
    whole,  // all that has been said makes the value as it is now
    lost,   // it changes too fast: it has to be dumped at once
    failed
  };
  virtual ~ValueWalk() = default;
  // The words stay as long as the lock is held.
  virtual Step next(std::string_view key, std::vector<std::string_view>& arguments) = 0;
};

// A sum over the elements of a value of the program's, whatever the order in which they came, if that does
// not matter to its type. It has to be begun anew when the value has changed.
class ValueSum {
 public:
  virtual ~ValueSum() = default;
  virtual bool add(size_t most) = 0;  // so many elements; true: there are no more
  uint64_t sum() const { return sum_; }
  uint64_t count() const { return count_; }

 protected:
  uint64_t sum_ = 0, count_ = 0;
};

// What the engine asks of the program, with its lock, from the loop's thread.
class PythonHandler {
 public:
  virtual ~PythonHandler() = default;
  // A command that native code does not answer, or whose client is ruled.
  virtual void run(Client& client, Arguments arguments) = 0;
  virtual void opened(Client& client) = 0;
  virtual void closed(Client& client) = 0;
  // Values that nothing refers to any more.
  virtual void release(const std::vector<uint64_t>& objects) = 0;
  // Elements of released values that are still to be freed, and freeing some of them: until then at the
  // latest.
  virtual uint64_t lazy_free_pending() const { return 0; }
  virtual void lazy_free(uint64_t /*deadline_ns*/) {}
  // Watched keys of these clients have changed.
  virtual void watched_changed(const std::vector<uint64_t>& clients) = 0;
  // Clients have values of keys that have changed.
  virtual void invalidated(const std::vector<Tracking::Message>& /*messages*/) {}
  virtual void notify(uint32_t database, char kind, const char* event, std::string_view key) = 0;
  // From time to time, or when its timer is due.
  virtual void tick() = 0;
  // A value of its own in bytes, from which RESTORE makes it again; false: it cannot.
  virtual bool dump(uint64_t object, std::string& bytes) = 0;
  // The same in pieces; null: it is not so large.
  virtual std::unique_ptr<ValueWalk> walk(uint64_t /*object*/) { return nullptr; }
  virtual std::unique_ptr<ValueSum> sum(uint64_t /*object*/) { return nullptr; }
  virtual uint64_t count(uint64_t /*object*/) { return 0; }  // its elements
  // The engine has nothing more to ask for now.
  virtual void release_gil() = 0;
};

// Work that goes on between commands, a little at a time.
class Background {
 public:
  virtual ~Background() = default;
  // False: there is nothing to do any more.
  virtual bool work(uint64_t deadline_ns) = 0;
};

struct EngineCounters {
  uint64_t commands = 0, connections = 0, rejected_connections = 0, errors = 0;
  uint64_t bytes_in = 0, bytes_out = 0, program_commands = 0;
  uint64_t reads = 0, writes = 0;                                // of sockets, that moved something
  uint64_t input_disconnections = 0, output_disconnections = 0;  // for what they sent, or did not fetch
  uint64_t longest_tick_ns = 0;
  RecentMax input_bytes, output_bytes;  // of any one client, at once
};

class Engine {
 public:
  Engine(uint32_t databases, Arena::ChunkAllocator allocate_chunk);
  ~Engine();

  // Recursive: what the program does within run() comes back here.
  using Lock = std::unique_lock<std::recursive_mutex>;
  Lock lock() { return Lock(mutex_); }
  Lock try_lock() { return Lock(mutex_, std::try_to_lock); }
  // Waits for a turn of the loop's between commands, and not for one that takes long. May come back without
  // it.
  Lock lock_soon() {
    constexpr int kSpins = 1000;  // some twenty microseconds
    Lock lock = try_lock();
    for (int spins = 0; !lock.owns_lock() && spins < kSpins; ++spins) {
      cpu_relax();
      std::ignore = lock.try_lock();
    }
    return lock;
  }

  // Everything below needs the lock.

  void set_handler(PythonHandler* handler) { handler_ = handler; }
  PythonHandler* handler() const { return handler_; }
  // The log on disk, if there is one.
  void set_log(Journal* log);
  Journal* log() const { return log_; }
  // Who hears of changes: the backlog, or the log itself while nobody has followed yet.
  Journal* journal() const { return journal_; }
  // The log in memory; there is one from now on.
  Backlog& backlog();
  bool has_backlog() const { return backlog_ != nullptr; }
  // What is logged from now on goes on from this offset: another node's history ended there.
  void count_from(uint64_t offset);
  uint64_t first_offset() const { return offset_; }  // of the backlog, if there is none yet

  void add(Client& client);
  void remove(Client& client);
  Client* find(uint64_t id) const;
  uint64_t next_client() { return ++last_client_; }
  const std::unordered_map<uint64_t, Client*>& clients() const { return clients_; }

  // A client said something: runs what is whole, keeps the rest.
  void feed(Client& client, std::string_view bytes);
  // A client that was blocked may go on with what it has said meanwhile.
  void resume(Client& client);
  // Runs one command of a client's, whoever it is ruled by: the reply goes to its `out`.
  void run(Client& client, Arguments arguments);
  // The same for native commands only; false: it is not one.
  bool run_native(Client& client, Arguments arguments, NativeCommand* command = nullptr);
  // Can this be run here and now by whoever holds the lock, without the program?
  NativeCommand* native_for(const Client& client, Arguments arguments) const;
  // There is something for the client in `out`.
  void schedule_write(Client& client);
  // What has changed is to be kept as the journal promises: then replies may go. Clients whose replies would
  // say what is not so are closed instead.
  void commit();
  // Why a command that changes something is refused now; empty: it is not.
  std::string_view refusal() const {
    if (!refuse_writes.empty()) return refuse_writes;
    return log_ ? std::string_view(log_->write_error) : std::string_view();
  }

  // Between batches: what the program has to know. `tick`: and what is to be done from time to time.
  void finish_batch();
  // There is something that the program has to know.
  bool has_pending_events() const {
    return keyspace.has_dirty_watchers() || keyspace.has_released() || tracking.has_messages() ||
           tracking.has_broadcasts();
  }
  void tick(uint64_t now_ns);

  void refresh_time();

  // The program wants to hear of changes. It hears of them between commands, so that nothing it says to
  // clients can come in the middle of a reply.
  void set_notifications(bool wanted);
  bool notifications() const { return notifications_enabled_; }

  Keyspace keyspace;
  Tracking tracking{keyspace};
  CommandTable commands;
  RequestLimits limits;
  size_t max_input_bytes = size_t{1} << 30;          // of requests that are not whole, or wait
  std::unordered_map<std::string, uint64_t> errors;  // by code, such as "WRONGTYPE"
  EngineCounters counters;
  bool python_dispatch = false;  // every command goes by the program: somebody monitors
  bool active_expiry = true;  // keys whose time has come go by themselves, not only when they are asked for
  bool loading = false;       // contents come from a disk: no time passes, and commands have to wait
  Background* background = nullptr;
  std::unique_ptr<SlotTable> slots;  // this node is one of a cluster
  // Those who waited for their slots may try again.
  void release_held();
  bool time_commands = true;
  std::string refuse_writes;  // why; empty: they are welcome
  uint64_t slow_ns = 10'000'000;
  // Slow native commands, for the program's log.
  struct Slow {
    uint64_t client, ns, unix_ms;
    std::vector<std::string> arguments;
  };
  std::vector<Slow> take_slow() { return std::exchange(slow_, {}); }

 private:
  void process(Client& client, std::string_view input, size_t& used);
  // Runs requests that are there as a whole, some at a time; false: there is none.
  bool process_batch(Client& client, std::string_view input, const RequestLimits& bounds, size_t& used);
  // False: it has to wait, and is to be read again.
  bool answer(Client& client, Arguments arguments);
  // In a cluster, native commands: false if the client was told to go elsewhere, or waits (it is blocked).
  bool check_slots(Client& client, Arguments arguments);
  void note_error(std::string_view reply);
  void deliver_notifications();
  void deliver_invalidations();
  void note_slow(const Client& client, Arguments arguments, uint64_t ns);
  void use_journal(Journal* journal);

  static constexpr size_t kBatch = 16;
  std::array<std::string_view, 4 * kBatch> batch_arguments_;  // the words of requests that were read ahead
  bool in_batch_ = false;                                     // they are in use: one client at a time

  std::recursive_mutex mutex_;
  PythonHandler* handler_ = nullptr;
  Journal *log_ = nullptr, *journal_ = nullptr;
  std::unique_ptr<Backlog> backlog_;
  uint64_t offset_ = 0;  // from which the backlog counts
  std::unordered_map<uint64_t, Client*> clients_;
  std::vector<uint64_t> uncommitted_clients_;  // clients with replies that count on the next commit()
  uint64_t committed_ = 0;                     // the journal's position then
  uint64_t last_client_ = 0;
  std::vector<uint64_t> held_;  // clients whose slots are changing hands
  uint64_t clock_ns_ = 0;       // when the last command ended
  std::vector<Slow> slow_;
  struct Notification {
    uint32_t database;
    char kind;
    const char* event;
    std::string key;
  };
  bool notifications_enabled_ = false;
  std::vector<Notification> pending_notifications_;
};

}  // namespace verbena::kv
