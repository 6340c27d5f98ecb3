// The engine of the store: runs one command at a time under one lock. It runs native commands itself and
// passes all others to the Python handlers. The event loop calls it for sockets; any other thread may call it
// when it holds the lock.
// Depends on the store, the protocol and the journal; not on frontends, sessions or Python.h.
#pragma once

#include <memory>
#include <mutex>
#include <string>
#include <tuple>
#include <unordered_map>
#include <vector>

#include "kv/engine/client.h"
#include "kv/engine/commands.h"
#include "kv/engine/recent_max.h"
#include "kv/engine/request_batch.h"
#include "kv/engine/tracking.h"
#include "kv/store/keyspace.h"
#include "kv/store/slot_table.h"
#include "util/spinlock.h"

namespace verbena::kv {

class Backlog;

// Serializes a large value that Python holds as commands that recreate it, a few elements at a time. The
// value may change between them: each command describes its elements at that moment, and an element that
// changes afterwards is returned again.
class ValueWalk {
 public:
  enum class Step : uint8_t {
    more,   // the arguments are the next command
    whole,  // the commands so far recreate the value as it is now
    lost,   // the value changes too fast: the caller must dump it as a whole
    failed  // the value could not be read
  };
  virtual ~ValueWalk() = default;
  // The arguments are valid as long as the engine's lock is held.
  virtual Step next(std::string_view key, std::vector<std::string_view>& arguments) = 0;
};

// A checksum over the elements of a value that Python holds. It depends on their order only for types whose
// order matters. After a change of the value the checksum is invalid, and the caller must start another.
class ValueSum {
 public:
  virtual ~ValueSum() = default;
  virtual bool add(size_t most) = 0;  // adds at most `most` elements; true: all have been added
  uint64_t sum() const { return sum_; }
  uint64_t count() const { return count_; }

 protected:
  uint64_t sum_ = 0, count_ = 0;
};

// The Python handlers as the engine calls them: with its lock held, on the loop's thread or on another thread
// that holds the lock.
class PythonHandler {
 public:
  virtual ~PythonHandler() = default;
  // Runs a command that is not native, or any command when python_dispatch is set. The reply goes to
  // client.out.
  virtual void run(Client& client, Arguments arguments) = 0;
  virtual void opened(Client& client) = 0;
  virtual void closed(Client& client) = 0;
  // Takes over the keyspace's references to values that it no longer holds.
  virtual void release(const std::vector<uint64_t>& objects) = 0;
  // lazy_free_pending() returns the number of elements of released values that are not freed yet; lazy_free()
  // frees some of them, until the deadline.
  virtual uint64_t lazy_free_pending() const { return 0; }
  virtual void lazy_free(uint64_t /*deadline_ns*/) {}
  // Called when watched keys of these clients have changed.
  virtual void watched_changed(const std::vector<uint64_t>& clients) = 0;
  // Called when keys have changed whose values clients may have cached.
  virtual void invalidated(const std::vector<Tracking::Message>& /*messages*/) {}
  virtual void notify(uint32_t database, char kind, const char* event, std::string_view key) = 0;
  // Called periodically, and when the timer of the loop is due.
  virtual void tick() = 0;
  // Serializes a value into bytes that RESTORE accepts. False: it failed.
  virtual bool dump(uint64_t object, std::string& bytes) = 0;
  // Starts a walk of a large value. Null: the value is small, so the caller uses dump().
  virtual std::unique_ptr<ValueWalk> walk(uint64_t /*object*/) { return nullptr; }
  virtual std::unique_ptr<ValueSum> sum(uint64_t /*object*/) { return nullptr; }
  virtual uint64_t count(uint64_t /*object*/) { return 0; }  // the number of elements
  // The batch of calls is over: a handler that kept the GIL releases it.
  virtual void release_gil() = 0;
};

// Work that is done between commands, in short slices.
class Background {
 public:
  virtual ~Background() = default;
  // Works until the deadline. False: the work is finished.
  virtual bool work(uint64_t deadline_ns) = 0;
};

struct EngineCounters {
  uint64_t commands = 0, connections = 0, rejected_connections = 0, errors = 0;
  uint64_t bytes_in = 0, bytes_out = 0, program_commands = 0;
  uint64_t reads = 0, writes = 0;                                // system calls on sockets that moved bytes
  uint64_t input_disconnections = 0, output_disconnections = 0;  // clients over the input or output limit
  uint64_t http_requests = 0;  // clients that sent a line of HTTP and were disconnected
  uint64_t longest_tick_ns = 0;
  RecentMax input_bytes, output_bytes;  // the largest buffers of any one client
};

class Engine {
 public:
  Engine(uint32_t databases, Arena::ChunkAllocator allocate_chunk);
  ~Engine();

  // Recursive, because Python code that runs within run() calls the engine again.
  using Lock = std::unique_lock<std::recursive_mutex>;
  Lock lock() { return Lock(mutex_); }
  Lock try_lock() { return Lock(mutex_, std::try_to_lock); }
  // Spins for a short time: long enough for a turn of the loop with short commands, not for a long command.
  // The returned lock may not own the mutex; the caller must check.
  Lock lock_soon() {
    constexpr int kSpins = 1000;  // about 20 µs
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
  // The log on disk; null: none.
  void set_log(Journal* log);
  Journal* log() const { return log_; }
  // Receives every change: the backlog if it exists, else the log on disk. Null: neither exists.
  Journal* journal() const { return journal_; }
  // The backlog. The first call creates it.
  Backlog& backlog();
  bool has_backlog() const { return backlog_ != nullptr; }
  // Sets the offset of the next record, to continue after the end of another node's history.
  void restart_at(uint64_t offset);
  uint64_t first_offset() const { return offset_; }  // where the backlog will begin, if there is none yet

  void add(Client& client);
  void remove(Client& client);
  Client* find(uint64_t id) const;
  uint64_t next_client() { return ++last_client_; }
  const std::unordered_map<uint64_t, Client*>& clients() const { return clients_; }

  // Takes bytes from a client: runs the complete requests and keeps the rest in client.in.
  void feed(Client& client, std::string_view bytes);
  // Sets the time and runs the requests before the first that is incomplete or not native. Returns their
  // length: the caller must pass the rest to feed(), which does not parse it again. client.in must be empty.
  size_t feed_native(Client& client, std::string_view bytes);
  // Unblocks a client and runs the requests that arrived meanwhile.
  void resume(Client& client);
  // Runs requests of a stalled client, if enough of its replies have been sent. The frontend calls this after
  // it has sent some.
  void resume_stalled(Client& client);
  // Replies of one client that are made before other clients have their turn, and the most that may wait for
  // a client that does not read: its further requests stay unprocessed.
  static constexpr size_t kTurnReplyBytes = 1u << 20, kMaxWaitingReplyBytes = 16u << 20;
  // A frontend stops reading from a stalled client with this much input. Clients that send a long pipeline
  // before they read the first reply need it to be long.
  static constexpr size_t kMaxStalledInputBytes = 64u << 20;
  // Each command finds this much room in `out`, for an error or for a short reply after a change.
  static constexpr size_t kReplyRoom = 512;
  static constexpr std::string_view kNoMemory = "OOM command failed: not enough memory";
  // Call it while an exception is handled that concerns this client only: disconnects the client, and reports
  // that on standard error. `operation`: what failed, a string literal.
  void fail_client(Client& client, const char* operation) noexcept;
  // Runs one command of a client, natively or in Python. The reply goes to client.out, and the client is
  // queued for writing. A native command that throws gets an error reply and has changed nothing.
  void run(Client& client, Arguments arguments);
  // Runs a native command whatever python_dispatch is. False: the command is not native, nothing was done.
  bool run_native(Client& client, Arguments arguments);
  // Queues the client for writing. A client over its output limit is also marked close_now.
  void schedule_write(Client& client);
  // Commits what was logged, as the journal guarantees it; call this before replies are sent. If the commit
  // fails, clients with replies that depend on it are disconnected without them.
  void commit();
  // The error reply for commands that write. Empty: writes are accepted.
  std::string_view refusal() const {
    if (!refuse_writes.empty()) return refuse_writes;
    return log_ ? std::string_view(log_->write_error) : std::string_view();
  }

  // Ends a batch of commands: passes pending events and released values to the Python handlers, which then
  // release the GIL.
  void finish_batch();
  // Whether finish_batch() has something to pass on.
  bool has_pending_events() const {
    return keyspace.has_dirty_watchers() || keyspace.has_released() || tracking.has_messages() ||
           tracking.has_broadcasts();
  }
  // Periodic work, in slices of a few milliseconds: expiry, reclaiming, lazy free, background work.
  void tick(uint64_t now_ns);

  // Sets the time at which the next commands run.
  void refresh_time();

  // Turns keyspace notifications on or off. The Python handlers receive them between commands, so that a
  // message to a client cannot land within a reply.
  void set_notifications(bool wanted);
  bool notifications() const { return notifications_enabled_; }

  Keyspace keyspace;
  Tracking tracking{keyspace};
  CommandTable commands;
  RequestLimits limits;
  size_t max_input_bytes = size_t{1} << 30;          // of one client's incomplete or waiting requests
  std::unordered_map<std::string, uint64_t> errors;  // by code, such as "WRONGTYPE"
  EngineCounters counters;
  bool python_dispatch = false;  // Python runs every command of every client: a MONITOR is active
  bool active_expiry = true;     // tick() removes expired keys, not only the commands that find them
  bool loading = false;          // the dataset is being loaded: time stands still, most commands are refused
  Background* background = nullptr;
  std::unique_ptr<SlotTable> slots;  // null: this node is not part of a cluster
  // Resumes the clients that waited because their slots were fenced.
  void release_held();
  bool time_commands = true;
  std::string refuse_writes;  // the error reply for writes; empty: they are accepted
  uint64_t slow_ns = 10'000'000;
  // A slow native command, for SLOWLOG in Python.
  struct Slow {
    uint64_t client, ns, unix_ms;
    std::vector<std::string> arguments;
  };
  std::vector<Slow> take_slow() { return std::exchange(slow_, {}); }

 private:
  // The requests that process() runs: all, or those before the first that is incomplete or not native.
  enum class Scope : uint8_t { all, native };
  void process(Client& client, std::string_view input, Scope scope, size_t& used);
  // Runs the requests of batch_, which begin at `used` in the input. False: one of them must stay there.
  bool run_batch(Client& client, std::string_view input, Scope scope, size_t& used);
  // Runs a command, or replies with a redirect; `found` is its row in the table. False: nothing was done,
  // because the client is blocked or the command is out of scope.
  bool answer(Client& client, Arguments arguments, NativeCommand* found, Scope scope);
  // Checks the slots of a command in a cluster. False: an error reply has been written, or the client is
  // blocked.
  bool check_slots(Client& client, Arguments arguments, NativeCommand& command);
  void run(Client& client, Arguments arguments, NativeCommand* command);  // null: Python runs it
  void run_native(Client& client, Arguments arguments, NativeCommand& command);
  void call_native(Client& client, CommandCall& call, NativeCommand& command);
  // Replaces what a command that has thrown wrote behind `before` by an error reply, while the exception is
  // handled.
  void answer_failure(Client& client, size_t before) noexcept;
  static void reply_error(Client& client, std::string_view text, std::string_view reason) noexcept;
  bool dispatches_to_python(const Client& client) const { return python_dispatch || client.python_dispatch; }
  void note_input(Client& client, size_t bytes);
  static bool has_reply_room(const Client& client) {
    return client.out.size() < kTurnReplyBytes && client.pending_out() < kMaxWaitingReplyBytes;
  }
  void note_error(std::string_view reply) noexcept;
  void note_event(uint32_t database, char kind, const char* event, std::string_view key) noexcept;
  void deliver_notifications();
  void deliver_invalidations();
  void note_slow(const Client& client, Arguments arguments, uint64_t ns) noexcept;
  void use_journal(Journal* journal);

  RequestBatch batch_;
  bool in_batch_ = false;  // batch_ is in use: a command that runs in it fed or resumed another client

  std::recursive_mutex mutex_;
  PythonHandler* handler_ = nullptr;
  Journal *log_ = nullptr, *journal_ = nullptr;
  std::unique_ptr<Backlog> backlog_;
  uint64_t offset_ = 0;  // at which the backlog begins
  std::unordered_map<uint64_t, Client*> clients_;
  std::vector<uint64_t> uncommitted_clients_;  // clients with replies that depend on the next commit()
  uint64_t committed_ = 0;                     // the journal's position at the last commit()
  uint64_t last_client_ = 0;
  std::vector<uint64_t> held_;  // clients that wait because their slots are fenced
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
