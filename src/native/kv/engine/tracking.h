// Who is to hear that keys have changed: clients that keep what they have read, or that want to hear of all
// keys with a prefix. The engine's lock covers it. It listens to the keyspace only while there is such a
// client.
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
    bool broadcasts = false;  // of whatever has one of its prefixes, instead of what it has read
    bool skips_own = false;   // not what it has changed itself
  };
  // From now on, or from now on in another way. Prefixes are added to those that it has.
  void start(uint64_t client, Options options, Arguments prefixes);
  void stop(uint64_t client);
  // It has read the key.
  void remember(uint64_t client, std::string_view key);
  // All keys have changed, or may have.
  void all_changed();
  // So many keys at most are remembered, others are said to have changed; 0: no bound.
  void limit(size_t keys) { most_keys_ = keys; }

  // What is to be said. No keys: all that they have may be out of date.
  struct Message {
    std::vector<uint64_t> clients;
    std::optional<std::vector<std::string>> keys;
  };
  bool has_messages() const { return !messages_.empty(); }
  std::vector<Message> take_messages() { return std::exchange(messages_, {}); }
  // The same for prefixes: once in a while, for many changes together.
  bool has_broadcasts() const { return has_broadcasts_; }
  std::vector<Message> take_broadcasts();

  // From time to time: keys beyond the limit, and what is left of clients that have gone, a little at a time.
  void tidy();

  size_t keys() const { return table_.size(); }
  size_t items() const { return items_; }  // clients, of all keys
  size_t prefixes() const { return prefixes_.size(); }

 private:
  // Whatever the database: a client that is told too often has nothing wrong. No hash table: to grow one of a
  // million keys takes 100 ms.
  using Table = std::map<std::string, std::vector<uint64_t>, std::less<>>;
  struct Prefix {
    std::set<uint64_t> clients;
    std::map<std::string, uint64_t, std::less<>> changed;  // and by whom last
  };

  void changed(std::string_view key);
  void forget(Table::iterator at);
  void trim(size_t most);
  void sweep(size_t most);

  Keyspace& keyspace_;
  uint64_t observer_ = 0;  // 0: nobody tracks
  std::unordered_map<uint64_t, Options> clients_;
  Table table_;
  std::vector<Table> retired_;  // to be freed
  size_t items_ = 0, most_keys_ = 1'000'000;
  std::map<std::string, Prefix, std::less<>> prefixes_;
  std::vector<Message> messages_;
  bool has_broadcasts_ = false;
  std::string trim_cursor_;  // the last key that was beyond the limit: the next one is behind it
  std::optional<std::string> sweep_cursor_;  // up to this key; empty: there is nothing to sweep
  bool sweep_again_ = false;                 // once it is through
};

}  // namespace verbena::kv
