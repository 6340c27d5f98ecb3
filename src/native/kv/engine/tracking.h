// Client-side caching (CLIENT TRACKING): remembers which clients have read which keys, or follow which
// prefixes, and collects the invalidation messages for them. It observes the keyspace only while a client
// tracks. The engine's lock covers it.
// Depends on the keyspace only; the engine delivers the messages.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <unordered_map>
#include <vector>

#include "kv/store/keyspace.h"

namespace verbena::kv {

class Tracking {
 public:
  explicit Tracking(Keyspace& keyspace) : keyspace_(keyspace) {}
  ~Tracking();
  Tracking(const Tracking&) = delete;
  Tracking& operator=(const Tracking&) = delete;

  struct Options {
    bool broadcasts = false;  // BCAST: keys with one of its prefixes, instead of keys that it has read
    bool skips_own = false;   // NOLOOP: no messages about its own changes
  };
  // Starts tracking for a client, or changes its options. Prefixes are added to those that it has.
  void start(uint64_t client, Options options, Arguments prefixes);
  void stop(uint64_t client);
  // Records that the client has read the key, if it tracks.
  void remember(uint64_t client, std::string_view key);
  // Invalidates all keys for all clients.
  void all_changed();
  // Sets how many keys are remembered. Keys beyond it are invalidated and forgotten. 0: no limit.
  void limit(size_t keys) { most_keys_ = keys; }

  // One invalidation for some clients. Without `keys`: everything that they have cached.
  struct Message {
    std::vector<uint64_t> clients;
    std::optional<std::vector<std::string>> keys;
  };
  bool has_messages() const { return !messages_.empty(); }
  std::vector<Message> take_messages() { return std::exchange(messages_, {}); }
  // The messages for prefixes, collected over many changes. The caller takes them once per batch.
  bool has_broadcasts() const { return has_broadcasts_; }
  std::vector<Message> take_broadcasts();

  // Periodic work in bounded slices: forgets keys beyond the limit, and entries of clients that have stopped.
  void tidy();

  size_t keys() const { return table_.size(); }
  size_t items() const { return items_; }  // pairs of a key and a client
  size_t prefixes() const { return prefixes_.size(); }

 private:
  // Without the database number: an unneeded invalidation does no harm. Not a hash table: growing one with a
  // million keys takes 100 ms.
  using Table = std::map<std::string, std::vector<uint64_t>, std::less<>>;
  struct Prefix {
    std::set<uint64_t> clients;
    std::map<std::string, uint64_t, std::less<>> changed;  // key -> the client that changed it last
  };

  void changed(std::string_view key);
  void forget(Table::iterator at);
  void trim(size_t most);
  void sweep(size_t most);

  Keyspace& keyspace_;
  uint64_t observer_ = 0;  // 0: no client tracks
  std::unordered_map<uint64_t, Options> clients_;
  Table table_;
  std::vector<Table> retired_;  // tables that tidy() frees in slices
  size_t items_ = 0, most_keys_ = 1'000'000;
  std::map<std::string, Prefix, std::less<>> prefixes_;
  std::vector<Message> messages_;
  bool has_broadcasts_ = false;
  std::string trim_cursor_;  // the key that trim() forgot last; it continues with the next one
  std::optional<std::string> sweep_cursor_;  // where sweep() continues; empty: there is nothing to sweep
  bool sweep_again_ = false;                 // a client stopped during the sweep: another one must follow
};

}  // namespace verbena::kv
