// The keys and their values, with expiry, eviction and figures: all that commands stand on. The engine's lock
// covers it; remote readers see its memory.
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

#include "kv/store/index.h"
#include "util/siphash.h"

namespace verbena::kv {

using Arguments = std::span<const std::string_view>;

// Whoever wants to know what changes. Every effect names one key, its second word (FLUSHDB, FLUSHALL and
// SWAPDB: none). All of it is for whoever holds the engine's lock.
class Journal {
 public:
  virtual ~Journal() = default;
  virtual void append(uint32_t database, Arguments effect) = 0;
  // A command, or a transaction, is over: what it appended since the last call belongs together.
  virtual void boundary() {}
  virtual uint64_t position() const = 0;  // grows with every effect
  // The replies to what was appended may go when this has returned true; false: they must not.
  virtual bool commit() { return true; }
  virtual void tick(uint64_t /*now_ns*/) {}
  virtual uint64_t durable() const { return 0; }  // the last effect that is on disk
  // Why commands that change something are refused: an error reply. Empty: they are welcome.
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

// An item where it is: valid until the next change of the keyspace.
class Entry {
 public:
  Entry() = default;
  Entry(ItemHeader* item, uint64_t* slot) : item_(item), slot_(slot) {}
  explicit operator bool() const { return item_ != nullptr; }
  Type type() const { return item_ ? item_->type : Type::none; }
  std::string_view key() const { return {bytes(), item_->key_bytes}; }
  std::string_view value() const { return {bytes() + item_->key_bytes, item_->value_bytes}; }
  uint64_t expires_ms() const { return item_->expires_ms; }
  uint64_t object() const { return held().object; }  // of a type that is not a string
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
  // How many keys of a slot there are; the keyspace must count them.
  size_t slot_size(uint16_t slot) const { return slot_sizes_[slot]; }
  const Index& index() const { return *index_; }

  // The item; one that has expired is removed. `use` counts as a use of it, and as a hit or a miss.
  Entry find(std::string_view key, bool use = true);
  // The same without any consequence: expired or not, no use of it.
  Entry peek(std::string_view key) {
    uint64_t* slot = index_->find(hash(key), key);
    return slot ? at(slot) : Entry();
  }
  // Is there an item, expired or not?
  bool contains(std::string_view key) const { return index_->find(hash(key), key) != nullptr; }
  // Stores a string instead of what is there, as find() told. Returns where its bytes are to be changed by
  // nobody. Throws if there is no memory.
  Entry set(Entry existing, std::string_view key, std::string_view value, uint64_t expires_ms);
  // The same with a value that has been copied to its place: `block` is of the arena's, for an item with
  // this key and a value of so many bytes.
  Entry adopt(Entry existing, std::string_view key, Location block, size_t value_bytes);
  // The same for a value that the program holds, in so many bytes; the one that was there is given back.
  Entry set_object(Entry existing, std::string_view key, Type type, ObjectRef object, uint64_t expires_ms);
  // It has grown or shrunk.
  void count_object(Entry& existing, uint64_t bytes);
  // A string's value made longer or shorter, zeros at its end; write to the result, then seal().
  Entry resize(Entry existing, std::string_view key, size_t bytes);
  char* writable(Entry& existing);  // the value's bytes, nobody else's any more
  void seal(Entry& existing);       // after writing
  void set_expires(Entry& existing, uint64_t expires_ms);
  void erase(Entry existing);
  void clear();

  // Time for a while: keys whose time has come. Stops at the deadline; returns how many went.
  size_t expire_due(uint64_t now_ms, uint64_t deadline_ns);
  // A key that the policy would rather lose, among a sample; none: there is nothing to evict.
  std::optional<std::string> choose_victim(Eviction policy);
  std::optional<std::string> random_key();
  // About `count` keys from `cursor` on, and the next cursor.
  template <typename Function>
  uint64_t scan(uint64_t cursor, size_t count, Function function) {
    return index_->scan(cursor, count, [&](uint64_t* slot) { function(at(slot)); });
  }

 private:
  friend class Keyspace;
  Entry at(uint64_t* slot) const;
  uint64_t hash(std::string_view key) const;
  Entry store(Entry existing, std::string_view key, std::string_view value, size_t value_bytes, Type type,
              uint64_t expires_ms, Location filled = 0);
  // Sees to it that an item is looked at when its time has come; `before`: the one whose place it takes.
  void schedule_expiry(ItemHeader& item, uint64_t hash, uint64_t before_ms, uint16_t before_due);
  void compact_due(uint64_t deadline_ns);

  std::unique_ptr<Index> new_index();

  Keyspace& keyspace_;
  uint32_t number_;
  Location root_;
  std::unique_ptr<Index> index_;
  size_t volatile_ = 0;
  // Hashes of keys, by the second in which to look whether they have expired. A key that is deleted, or gets
  // an earlier time, leaves its entry behind: an item tells by its `due` which one is its.
  std::map<uint64_t, std::vector<uint64_t>> due_;
  size_t due_entries_ = 0;
  std::vector<uint32_t> slot_sizes_;  // empty: nobody wants to know
  uint64_t compact_second_ = 0;       // how far tidy_due() has come
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
  // From now on databases know how many keys each slot has: for a node of a cluster.
  void count_slots();

  // Every command sets the time it runs at.
  void set_now(uint64_t unix_ms) { now_ms_ = unix_ms; }
  uint64_t now_ms() const { return now_ms_; }

  void set_journal(Journal* journal) { journal_ = journal; }
  Journal* swap_journal(Journal* journal) { return std::exchange(journal_, journal); }
  void log(uint32_t database, Arguments effect) {
    if (journal_) journal_->append(database, effect);
  }
  // After a change of a key: whoever watches it hears of it.
  void changed(Database& database, std::string_view key) {
    ++counters.dirty;
    if (!watched_.empty()) mark_watchers_dirty(database.number(), key);
    if (!observers_.empty()) [[unlikely]]
      notify_observers(database.number(), key);
  }
  // Hears of every key that has changed, or that all of a database has; returns what unobserve() takes.
  using Observer = std::function<void(uint32_t database, std::optional<std::string_view> key)>;
  uint64_t observe(Observer observer);
  void unobserve(uint64_t id) {
    std::erase_if(observers_, [&](const auto& one) { return one.first == id; });
  }
  void watch(uint32_t database, std::string_view key, uint64_t client);
  void unwatch(uint64_t client);
  // Keys that have gone by themselves: ('x', "expired") and ('e', "evicted"), if somebody wants to know.
  std::function<void(uint32_t database, char kind, const char* event, std::string_view key)> on_removed;
  std::vector<uint64_t> take_dirty_watchers() { return std::exchange(dirty_watchers_, {}); }
  bool has_dirty_watchers() const { return !dirty_watchers_.empty(); }
  void mark_all_watchers_dirty(uint32_t database);
  // Whose command the program runs; 0: nobody's, or native code's.
  uint64_t current_client = 0;

  // Remote readers: from now on nothing is changed in place, and blocks are kept for a while.
  void expose() { exposed_ = true; }
  bool is_exposed() const { return exposed_; }
  // Somebody who reads values without the lock. What is retired from block `from` on is kept, and nothing is
  // changed in place: set with the lock, raised or set to kNothing without it.
  struct Hold {
    static constexpr uint64_t kNothing = ~uint64_t{0};
    std::atomic<uint64_t> from{kNothing};
  };
  std::shared_ptr<Hold> hold();  // as long as somebody has it
  uint64_t retired_blocks() const { return retired_blocks_; }
  const HashKey& hash_key() const { return hash_key_; }
  void retire(Location location, size_t bytes);
  // Time for a while: gives memory back that nobody can be reading any more, and what was flushed.
  void reclaim(uint64_t now_ns, uint64_t deadline_ns);
  size_t retired() const { return retired_.size() + lazy_free_.size(); }
  bool has_retired() const { return !retired_.empty() || !lazy_free_.empty(); }
  void lazy_free(std::unique_ptr<Index> index) { lazy_free_.push_back({std::move(index), 0}); }

  // The hash of a key. The one that was expected, these very bytes, has been hashed already.
  uint64_t hash(std::string_view key) const {
    const bool is_prefetched =
        key.data() == prefetched_key_.data() && key.size() == prefetched_key_.size() && !key.empty();
    return is_prefetched ? prefetched_hash_ : siphash(hash_key_, key);
  }
  // `place`: where its item may be, see Index::find().
  void set_prefetched(std::string_view key, uint64_t hash, uint32_t place = 0) {
    prefetched_key_ = key, prefetched_hash_ = hash, prefetched_place_ = place;
  }

  // Objects that nothing refers to any more: the program's to release.
  std::vector<uint64_t> take_released() { return std::exchange(released_, {}); }
  bool has_released() const { return !released_.empty(); }

  Arena& arena() { return arena_; }
  size_t used_bytes() const { return arena_.used_bytes() + object_bytes_; }
  size_t object_bytes() const { return object_bytes_; }  // what the program says to hold
  // Evicts until there is room; false: there is not, and writes must be refused.
  bool make_room();
  uint32_t next_recency(uint32_t before);  // an item's recency after a use
  uint64_t idle_seconds(uint32_t recency) const;
  uint32_t frequency(uint32_t recency) const;

  bool updates_recency = true;  // a use makes a key younger
  // A replica's: what has expired is not found, but stays until the primary says that it is gone; and nothing
  // is evicted.
  bool keeps_expired = false;
  uint64_t max_bytes = 0;  // 0: no bound
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
  static constexpr uint64_t kGraceNs = 100'000'000;  // far longer than any read takes
  static constexpr size_t kAlwaysSealed = 4096;  // longer items get a checksum when somebody asks for them

  Database& open(uint32_t number);
  void release(ItemHeader* item, Location location);
  uint64_t held_from() const {
    uint64_t from = Hold::kNothing;
    for (const auto& hold : holds_) from = std::min(from, hold->from.load(std::memory_order_acquire));
    return from;
  }
  // Items are replaced, not changed.
  bool is_copy_on_write() const { return exposed_ || held_from() != Hold::kNothing; }
  // A key has gone by itself. Rare: it must not keep GCC from inlining what find() does always.
  [[gnu::cold, gnu::noinline]] void report_removal(Database& database, std::string_view key, char kind,
                                                   const char* event);
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
  std::deque<Retired> retired_;
  uint64_t retired_blocks_ = 0;  // ever
  size_t retired_bytes_ = 0;     // that are kept
  std::vector<std::shared_ptr<Hold>> holds_;
  struct LazyFreeIndex {
    std::unique_ptr<Index> index;
    uint64_t cursor;
  };
  std::deque<LazyFreeIndex> lazy_free_;
  std::vector<uint64_t> released_;
  size_t object_bytes_ = 0;
  std::unordered_map<std::string, std::vector<uint64_t>> watched_;  // by database and key
  std::vector<uint64_t> dirty_watchers_;                            // clients whose watched keys changed
  std::vector<std::pair<uint64_t, Observer>> observers_;
  uint64_t last_observer_ = 0;
  uint64_t random_state_;
  std::vector<std::unique_ptr<Database>> databases_;  // before the arena goes
};

}  // namespace verbena::kv
