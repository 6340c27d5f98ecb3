// The commands that native code runs: those on strings and those on keys of any type; their table, and what
// they share.
// Depends on clients, the keyspace and the protocol; not on the Engine, frontends or Python.h.
#pragma once

#include <array>
#include <charconv>
#include <optional>

#include "kv/engine/client.h"
#include "kv/protocol/keyword.h"
#include "kv/store/keyspace.h"
#include "kv/store/slot_table.h"

namespace verbena::kv {

// One execution of a command: its input, and where its reply goes.
struct CommandCall {
  Keyspace& keyspace;
  Database& database;
  Arguments arguments;
  ReplyWriter reply;
  // For keyspace notifications: (class, event, key). Does not throw. Null: notifications are off.
  std::function<void(char, const char*, std::string_view)>* notify = nullptr;
  bool failed = false;

  std::string_view operator[](size_t i) const { return arguments[i]; }
  size_t size() const { return arguments.size(); }
  void error(std::string_view text) {
    failed = true;
    reply.error(text);
  }
  // A command that throws must have changed nothing. So a command that writes calls prepare() for an effect,
  // then changes the key, then calls changed() for the same effect. Neither the last change nor anything
  // behind it may throw: a short reply has room (Engine::kReplyRoom), a long one is written before the
  // change.
  void prepare(std::string_view key, Arguments effect) { keyspace.prepare(database, key, effect); }
  // Logs the effect and notifies.
  void changed(std::string_view key, Arguments effect, char kind, const char* event) noexcept {
    keyspace.record(database.number(), effect);
    if (notify) (*notify)(kind, event, key);
  }
};

// Whether a list of names separated by spaces contains `flag`.
constexpr bool has_flag(std::string_view flags, std::string_view flag) {
  for (;;) {
    const size_t end = flags.find(' ');
    if (flags.substr(0, end) == flag) return true;
    if (end == std::string_view::npos) return false;
    flags.remove_prefix(end + 1);
  }
}

// One native command: its function and the facts that COMMAND, ACL and the reference page report. Python
// builds its rows from these (verbena/kv/commands/declare.py).
struct NativeCommand {
  std::string_view name;   // upper case
  int arity;               // counts the name; negative: the minimum
  std::string_view flags;  // Redis's names, separated by spaces
  KeySpec keys;
  std::string_view key_flags;  // what the command does with each key, in the flags of COMMAND GETKEYSANDFLAGS
  std::string_view group;
  std::string_view since;  // the Redis version that introduced the command
  std::string_view summary;
  void (*run)(CommandCall&);

  // Whether the command takes this number of arguments, its name included.
  bool takes(size_t arguments) const {
    return arity > 0 ? arguments == static_cast<size_t>(arity) : arguments >= static_cast<size_t>(-arity);
  }
  // Runs a command of a log. A wrong number of arguments is an error reply.
  void run_logged(CommandCall& call) const {
    if (!takes(call.arguments.size())) return call.error("ERR wrong number of arguments");
    run(call);
  }

  bool writes = has_flag(flags, "write");
  bool needs_memory = has_flag(flags, "denyoom");
  bool runs_while_loading = has_flag(flags, "loading");

  // Counters for INFO.
  uint64_t calls = 0, ns = 0, failed = 0, rejected = 0;
  static constexpr size_t kBuckets = 40;
  std::array<uint64_t, kBuckets> buckets = {};  // [n]: calls that took at least 2^(n-1) and less than 2^n ns
};

// Values of `keys` and `key_flags` that many commands share.
constexpr KeySpec kNoKeys = {}, kFirstKey = {1, 1, 1}, kAllKeys = {1, -1, 1}, kKeysAndValues = {1, -1, 2};
constexpr std::string_view kReadValue = "RO access", kReadKey = "RO", kUpdate = "RW update",
                           kInsert = "RW insert", kReadAndUpdate = "RW access update",
                           kReadAndDelete = "RW access delete", kOverwrite = "OW update",
                           kDelete = "RM delete";

std::span<const NativeCommand> string_commands();
std::span<const NativeCommand> key_commands();
std::vector<NativeCommand> native_commands();  // both, with counters at 0

// Finds native commands by name, ignoring case, and holds the counters of one engine.
class CommandTable {
 public:
  CommandTable();
  CommandTable(const CommandTable&) = delete;
  CommandTable& operator=(const CommandTable&) = delete;
  NativeCommand* find(std::string_view name) const;
  std::span<NativeCommand> all() { return all_; }

 private:
  struct Name {
    uint64_t low = 0, high = 0;
    bool operator==(const Name&) const = default;
  };
  static constexpr size_t kRoom = 256;
  static constexpr size_t kLongest = 16;
  static Name fold(std::string_view name);
  static size_t place(const Name& name) {
    return (name.low * 0x9e3779b97f4a7c15 ^ name.high * 0xc2b2ae3d27d4eb4f) >> 56;
  }
  struct Row {
    Name name;
    NativeCommand* command = nullptr;
  };
  std::array<Row, kRoom> rows_;
  std::vector<NativeCommand> all_;
};

// Error replies and limits that several commands use.
constexpr std::string_view kWrongType = "WRONGTYPE Operation against a key holding the wrong kind of value";
constexpr std::string_view kNotAnInteger = "ERR value is not an integer or out of range";
constexpr std::string_view kSyntax = "ERR syntax error";
constexpr size_t kLongestString = 512u << 20;

// Deletes the key and reports that, also if it does not exist (`entry` is empty).
void erase_key(CommandCall& call, Entry entry, std::string_view key);
// Parses a number as Redis does: an optional minus sign and digits without leading zeros. Empty: it is no
// such number, or out of range.
std::optional<int64_t> parse_integer(std::string_view text);
// Converts an expiry argument to Unix ms. Empty: an error reply has been written, and the caller returns.
// A `command` that begins with '!' accepts zero and negative numbers.
std::optional<uint64_t> parse_expiry(CommandCall& call, std::string_view argument, bool seconds,
                                     bool absolute, const char* command);

}  // namespace verbena::kv
