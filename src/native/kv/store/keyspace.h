// The keyspace: databases of keys and values with expiry, eviction and counters; watched keys and observers;
// and the memory that remote readers read. The engine's lock covers it.
// Depends on the index, the arena, hashing, Arguments and key_slot(); not on commands, clients, the engine or
// Python.h.
// Values other than strings are numbers here: the Python handlers hold them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstring>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "kv/protocol/arguments.h"
#include "kv/store/index.h"
#include "util/siphash.h"

namespace verbena::kv {

// Receives every change of the keyspace, as effects. An effect names one key, its second argument (FLUSHDB,
// FLUSHALL and SWAPDB: none). All members need the engine's lock.
class Journal {
 public:
  virtual ~Journal() = default;
  // Makes room for records of `bytes` in all (record_bytes()): appending them does not throw. Throws if there
  // is no memory.
  virtual void reserve(size_t /*bytes*/) {}
  // If it throws, nothing was appended.
  virtual void append(uint32_t database, Arguments effect) = 0;
  // Ends a command or a transaction: its effects since the last call must be applied together.
  virtual void end_command() {}
  virtual uint64_t position() const = 0;  // grows with every effect
  // True: the replies that depend on the appended effects may be sent. False: they must not be sent.
  virtual bool commit() { return true; }
  virtual void tick(uint64_t /*now_ns*/) {}
  virtual uint64_t durable() const { return 0; }  // the last effect that is on disk
  // The error reply for commands that write. Empty: writes are accepted.
  std::string write_error;
};

enum class Eviction : uint8_t {
  none,
  all_lru,
  volatile_lru,
  all_lfu,
  volatile_lfu,
  all_random,
  volatile_random,
  volatile_ttl
};

struct KeyspaceCounters {
  uint64_t hits = 0, misses = 0, expired = 0, evicted = 0, dirty = 0;
};

class Keyspace;

// A reference to an item in the store's memory. Valid until the next change of the keyspace.
class Entry {
 public:
  Entry() = default;
  Entry(ItemHeader* item, uint64_t* slot) : item_(item), slot_(slot) {}
  explicit operator bool() const { return item_ != nullptr; }
  Type type() const { return item_ ? item_->type : Type::none; }
  std::string_view key() const { return {bytes(), item_->key_bytes}; }
  std::string_view value() const { return {bytes() + item_->key_bytes, item_->value_bytes}; }
  uint64_t expires_ms() const { return item_->expires_ms; }
  uint64_t object() const { return held().object; }  // not for strings
  uint64_t object_bytes() const { return held().bytes; }
  bool is_sealed() const { return item_->sealed != 0; }
  uint32_t recency() const { return item_->recency; }
  size_t memory_bytes() const;

 private:
  friend class Database;
  friend class Keyspace;
  char* bytes() const { return reinterpret_cast<char*>(item_ + 1); }
  ObjectRef held() const {
    ObjectRef held;
    std::memcpy(&held, bytes() + item_->key_bytes, sizeof held);
    return held;
  }
  ItemHeader* item_ = nullptr;
  uint64_t* slot_ = nullptr;
};

class Database {
 public:
  Database(Keyspace& keyspace, uint32_t number);
  ~Database();

  uint32_t number() const { return number_; }
  size_t size() const { return index_->size(); }
  size_t volatile_keys() const { return volatile_; }
  size_t due_entries() const { return due_entries_; }
  // The number of keys in a slot. Requires Keyspace::count_slots().
  size_t slot_size(uint16_t slot) const { return slot_sizes_[slot]; }
  const Index& index() const { return *index_; }

  // Finds an item; empty: there is none. Removes an expired one (or only hides it, if keeps_expired). `use`:
  // updates its recency and counts a hit or a miss.
  Entry find(std::string_view key, bool use = true);
  // Finds an item without side effects, expired or not.
  Entry peek(std::string_view key) {
    uint64_t* slot = index_->find(hash(key), key);
    return slot ? at(slot) : Entry();
  }
  // True: there is an item, expired or not.
  bool contains(std::string_view key) const { return index_->find(hash(key), key) != nullptr; }
  // A function that changes items and throws (Error or std::bad_alloc: there is no memory) has changed no
  // key.

  // Stores a string in place of `existing`, which find() returned for this key. The bytes of the result must
  // not be modified.
  Entry set(Entry existing, std::string_view key, std::string_view value, uint64_t expires_ms);
  // Stores a string without expiry whose value has already been copied into `block`, which was allocated from
  // the arena for an item with this key and a value of `value_bytes`. The database owns the block afterwards.
  Entry adopt(Entry existing, std::string_view key, Location block, size_t value_bytes);
  // Stores strings without expiry, alternately keys and values: all, or none if it throws. The keys must not
  // be expired.
  void set_all(Arguments pairs);
  // Writes bytes at an offset of a string, which is created or extended with zeros as needed.
  Entry write(Entry existing, std::string_view key, size_t offset, std::string_view bytes);
  // Stores a value that Python holds. A value that it replaces is returned by take_released().
  Entry set_object(Entry existing, std::string_view key, Type type, ObjectRef object, uint64_t expires_ms);
  // Updates the memory use of a value that Python holds.
  void count_object(Entry& existing, uint64_t bytes);
  // Changes the length of a string, with zeros at the end of a longer one. To write: writable(), then seal().
  Entry resize(Entry existing, std::string_view key, size_t bytes);
  char* writable(Entry& existing);  // the value's bytes, copied first if a reader may use them
  void seal(Entry& existing);       // after writing: computes the checksum if remote readers may read it
  void set_expires(Entry& existing, uint64_t expires_ms);
  void erase(Entry existing);  // does not throw after Keyspace::reserve_releases()
  void clear();

  // Periodic work: removes expired keys until the deadline. Returns how many it removed.
  size_t expire_due(uint64_t now_ms, uint64_t deadline_ns);
  // The best key to evict in a random sample, according to the policy. Empty: there is none to evict.
  std::optional<std::string> choose_victim(Eviction policy);
  std::optional<std::string> random_key();
  // Calls `function` with about `count` entries from `cursor` on. Returns the next cursor, 0 at the end.
  template <typename Function>
  uint64_t scan(uint64_t cursor, size_t count, Function function) {
    return index_->scan(cursor, count, [&](uint64_t* slot) { function(at(slot)); });
  }

 private:
  friend class Keyspace;
  // Bytes that store() writes over a part of the value.
  struct Patch {
    size_t offset;
    std::string_view bytes;
  };
  Entry at(uint64_t* slot) const;
  uint64_t hash(std::string_view key) const;
  Entry store(Entry existing, std::string_view key, std::string_view value, size_t value_bytes, Type type,
              uint64_t expires_ms, Location filled = 0, Patch patch = {0, {}});
  bool fits_in_place(Entry existing, size_t total) const;
  // Allocates an item and fills it; nothing refers to it yet.
  Location new_string(Entry existing, std::string_view key, std::string_view value, uint64_t hash);
  // Adds an entry to due_, so that expire_due() finds an item that will expire at this time. before_ms,
  // before_due: expiry and `due` of the item that it replaces. Returns the `due` of the item. Another entry
  // than those of items does no harm.
  uint16_t schedule_expiry(uint64_t expires_ms, uint64_t hash, uint64_t before_ms, uint16_t before_due);
  void compact_due(uint64_t deadline_ns);

  std::unique_ptr<Index> new_index();

  Keyspace& keyspace_;
  uint32_t number_;
  Location root_;
  std::unique_ptr<Index> index_;
  size_t volatile_ = 0;
  // Hashes of keys, by the second in which expire_due() must check them. A key that is deleted, or gets an
  // earlier expiry, leaves its entry behind: the `due` of an item identifies the entry that is valid.
  std::map<uint64_t, std::vector<uint64_t>> due_;
  size_t due_entries_ = 0;
  std::vector<uint32_t> slot_sizes_;  // empty: slots are not counted
  uint64_t compact_second_ = 0;       // where compact_due() continues
  size_t compact_done_ = 0;
};

class Keyspace {
 public:
  Keyspace(uint32_t databases, Arena::ChunkAllocator allocate_chunk);

  Database& database(uint32_t number) {
    const auto& database = databases_[number];
    return database ? *database : open(number);
  }
  uint32_t databases() const { return static_cast<uint32_t>(databases_.size()); }
  bool exists(uint32_t number) const { return databases_[number] != nullptr; }
  void swap(uint32_t one, uint32_t other);
  // Makes databases count the keys of each slot from now on, for a node of a cluster.
  void count_slots();

  // The time at which commands run, for expiry and recency.
  void set_now(uint64_t unix_ms) { now_ms_ = unix_ms; }
  uint64_t now_ms() const { return now_ms_; }

  void set_journal(Journal* journal) { journal_ = journal; }
  Journal* swap_journal(Journal* journal) { return std::exchange(journal_, journal); }
  // Logs an effect that has happened. If that fails, the log differs from the keys, and the process ends.
  void log(uint32_t database, Arguments effect) noexcept;
  // Must be called after each change of a key: marks its watchers and calls the observers. If that fails, the
  // process ends.
  void changed(Database& database, std::string_view key) noexcept {
    ++counters.dirty;
    if (!watched_.empty() || !observers_.empty()) [[unlikely]]
      report_change(database, key);
  }
  // For changes that must not fail halfway: prepare(), then change the key, then record(), which does not
  // throw if prepare() was called for this effect. prepare() makes room in the log, marks the watchers and
  // calls the observers: a call for a change that does not happen is harmless.
  void prepare(Database& database, std::string_view key, Arguments effect) {
    if (journal_) reserve_log(effect);
    if (!watched_.empty() || !observers_.empty()) [[unlikely]]
      announce(database, key);
  }
  void record(uint32_t database, Arguments effect) noexcept {
    ++counters.dirty;
    log(database, effect);
  }
  // As prepare(), for several effects: their records have `bytes` in all; announce() follows for each key.
  void reserve_log(size_t bytes) {
    if (journal_) journal_->reserve(bytes);
  }
  void announce(Database& database, std::string_view key);
  // Makes room for the items that `count` changes release.
  void reserve_releases(size_t count);
  bool has_journal() const { return journal_ != nullptr; }
  // Registers an observer of every changed key; without a key, all keys of the database have changed. Returns
  // what unobserve() takes.
  using Observer = std::function<void(uint32_t database, std::optional<std::string_view> key)>;
  uint64_t observe(Observer observer);
  void unobserve(uint64_t id) {
    std::erase_if(observers_, [&](const auto& one) { return one.first == id; });
  }
  void watch(uint32_t database, std::string_view key, uint64_t client);
  void unwatch(uint64_t client);
  // Called for keys that no command removed: ('x', "expired") and ('e', "evicted"). May be empty.
  std::function<void(uint32_t database, char kind, const char* event, std::string_view key)> on_removed;
  std::vector<uint64_t> take_dirty_watchers() { return std::exchange(dirty_watchers_, {}); }
  bool has_dirty_watchers() const { return !dirty_watchers_.empty(); }
  // Before the whole database is replaced by another, or cleared. A key that is in neither does not change.
  void mark_all_watchers_dirty(uint32_t number, const Database* replacement = nullptr);
  // The client whose command Python runs now; 0: none, or a native command runs.
  uint64_t current_client = 0;

  // Prepares for remote readers: from now on items are replaced instead of changed in place, and freed blocks
  // are kept for a grace period.
  void expose() { exposed_ = true; }
  bool is_exposed() const { return exposed_; }
  // Held by a thread that reads values without the lock. Blocks retired from number `from` on are kept, and
  // nothing is changed in place. `from` is set with the lock; without it, it may only be raised or set to
  // kNothing.
  struct Hold {
    static constexpr uint64_t kNothing = ~uint64_t{0};
    std::atomic<uint64_t> from{kNothing};
  };
  std::shared_ptr<Hold> hold();  // in effect until the caller drops the pointer
  uint64_t retired_blocks() const { return retired_blocks_; }
  const HashKey& hash_key() const { return hash_key_; }
  void retire(Location location, size_t bytes);  // if it throws, the block is still in use
  // Periodic work until the deadline: frees retired blocks that no reader can be reading, and the contents of
  // flushed databases.
  void reclaim(uint64_t now_ns, uint64_t deadline_ns);
  size_t retired() const { return waiting_blocks() + lazy_free_.size(); }
  bool has_retired() const { return waiting_blocks() > 0 || !lazy_free_.empty(); }

  // The hash of a key. For the prefetched key (the same bytes at the same address) it is known already.
  uint64_t hash(std::string_view key) const {
    const bool is_prefetched =
        key.data() == prefetched_key_.data() && key.size() == prefetched_key_.size() && !key.empty();
    return is_prefetched ? prefetched_hash_ : siphash(hash_key_, key);
  }
  // `place`: the hint for Index::find().
  void set_prefetched(std::string_view key, uint64_t hash, uint32_t place = 0) {
    prefetched_key_ = key, prefetched_hash_ = hash, prefetched_place_ = place;
  }

  // Values of Python that the keyspace no longer refers to. The caller must pass them to
  // PythonHandler::release().
  std::vector<uint64_t> take_released() { return std::exchange(released_, {}); }
  bool has_released() const { return !released_.empty(); }

  Arena& arena() { return arena_; }
  size_t used_bytes() const { return arena_.used_bytes() + object_bytes_; }
  size_t object_bytes() const { return object_bytes_; }  // memory of values that Python holds, as it reports
  // Evicts keys until memory is below max_bytes. False: it is not possible, and writes must be refused.
  bool make_room();
  uint32_t next_recency(uint32_t before);  // an item's recency after a use
  uint64_t idle_seconds(uint32_t recency) const;
  uint32_t frequency(uint32_t recency) const;

  bool updates_recency = true;  // find() updates the recency of a key
  // For a replica: expired keys are not found, but stay until the primary's log deletes them; nothing is
  // evicted.
  bool keeps_expired = false;
  uint64_t max_bytes = 0;  // 0: no limit
  Eviction eviction = Eviction::none;
  uint32_t samples = 5;
  KeyspaceCounters counters;

 private:
  friend class Database;
  struct Retired {
    Location location;
    size_t bytes;
    uint64_t at_ns;
  };
  static constexpr uint64_t kGraceNs = 100'000'000;  // far longer than any remote read takes
  static constexpr size_t kAlwaysSealed = 4096;      // longer items get their checksum at the first GET

  Database& open(uint32_t number);
  uint16_t next_index_id();  // one that no index has, of a database or waiting to be freed
  // Gives up an item that the caller is about to remove from the index. If it throws, nothing has changed.
  void release(ItemHeader* item, Location location);
  size_t waiting_blocks() const { return retired_.size() - freed_blocks_; }
  void drop_freed() noexcept;
  void reserve_log(Arguments effect);
  void report_change(Database& database, std::string_view key) noexcept;
  uint64_t held_from() const {
    uint64_t from = Hold::kNothing;
    for (const auto& hold : holds_) from = std::min(from, hold->from.load(std::memory_order_acquire));
    return from;
  }
  // True: items must be replaced, not changed in place.
  bool is_copy_on_write() const { return exposed_ || held_from() != Hold::kNothing; }
  // Removes, logs and reports a key that expired or is evicted. Cold and not inlined, so that GCC inlines the
  // common path of find().
  [[gnu::cold, gnu::noinline]] void remove(Database& database, Entry entry, char kind, const char* event);
  void mark_watchers_dirty(uint32_t database, std::string_view key);
  void notify_observers(uint32_t database, std::optional<std::string_view> key) const {
    for (const auto& [id, observer] : observers_) observer(database, key);
  }
  uint64_t random();

  Arena arena_;
  const HashKey hash_key_;
  std::string_view prefetched_key_;
  uint64_t prefetched_hash_ = 0;
  uint32_t prefetched_place_ = 0;
  uint64_t now_ms_ = 0;
  Journal* journal_ = nullptr;
  bool exposed_ = false, counts_slots_ = false;
  // Blocks in the order of their retirement; the first freed_blocks_ have been freed. A vector, because room
  // can be reserved in it.
  std::vector<Retired> retired_;
  size_t freed_blocks_ = 0;
  uint64_t retired_blocks_ = 0;  // in total, including those that have been freed
  size_t retired_bytes_ = 0;     // not freed yet
  std::vector<std::shared_ptr<Hold>> holds_;
  struct LazyFreeIndex {
    std::unique_ptr<Index> index;
    uint64_t cursor = 0;
  };
  std::deque<LazyFreeIndex> lazy_free_;
  std::vector<uint64_t> released_;
  size_t object_bytes_ = 0;
  std::unordered_map<std::string, std::vector<uint64_t>> watched_;  // by database and key
  std::vector<uint64_t> dirty_watchers_;                            // clients whose watched keys changed
  std::vector<std::pair<uint64_t, Observer>> observers_;
  uint64_t last_observer_ = 0;
  uint16_t last_index_id_ = 0;
  uint64_t random_state_;
  std::vector<std::unique_ptr<Database>> databases_;  // last member: destroyed before the arena
};

}  // namespace verbena::kv
