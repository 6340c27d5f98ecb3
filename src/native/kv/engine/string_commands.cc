// Commands on strings.
#include <cmath>
#include <limits>

#include "kv/engine/commands.h"
#include "kv/journal/log_record.h"

namespace verbena::kv {

namespace {

// Finds the string at a key; `entry` is empty if the key does not exist. False: the value has another type,
// and the error reply has been written.
bool find_string(CommandCall& call, std::string_view key, Entry& entry, bool use = true) {
  entry = call.database.find(key, use);
  if (!entry || entry.type() == Type::string) return true;
  call.error(kWrongType);
  return false;
}

void store(CommandCall& call, Entry there, std::string_view key, std::string_view value, uint64_t expires_ms,
           const char* event = "set") {
  if (expires_ms != 0 && expires_ms <= call.keyspace.now_ms()) {  // it would expire immediately
    return erase_key(call, there, key);
  }
  char digits[24];
  const char* end = std::to_chars(digits, digits + sizeof digits, expires_ms).ptr;
  const std::string_view timed[] = {"SET", key, value, "PXAT", {digits, static_cast<size_t>(end - digits)}};
  const Arguments effect = Arguments(timed).first(expires_ms == 0 ? 3 : 5);
  call.prepare(key, effect);
  call.database.set(there, key, value, expires_ms);
  call.changed(key, effect, '$', event);
  if (call.notify && expires_ms != 0) (*call.notify)('g', "expire", key);
}

// Compares two known options, ignoring case. Length and first letter are enough to tell EX, PX, EXAT and PXAT
// apart.
bool is_same_keyword(std::string_view one, std::string_view other) {
  return one.size() == other.size() && ((one[0] ^ other[0]) & ~0x20) == 0;
}

// Seals the item as well: a value that one client reads may be read by others, which then need no command.
void reply_with(CommandCall& call, Entry& entry) {
  if (call.keyspace.is_exposed() && !entry.is_sealed()) call.database.seal(entry);
  call.reply.bulk(entry.value());
}

void get(CommandCall& call) {
  Entry entry;
  if (!find_string(call, call[1], entry)) return;
  entry ? reply_with(call, entry) : call.reply.null();
}

void set(CommandCall& call) {
  enum { always, if_absent, if_present } when = always;
  bool keep = false, wants_old = false;
  std::string_view unit, time;  // the last one applies; different units are a syntax error
  for (size_t i = 3; i < call.size(); ++i) {
    const std::string_view argument = call[i];
    if (is_keyword(argument, "NX") && when != if_present) {
      when = if_absent;
    } else if (is_keyword(argument, "XX") && when != if_absent) {
      when = if_present;
    } else if (is_keyword(argument, "GET")) {
      wants_old = true;
    } else if (is_keyword(argument, "KEEPTTL") && unit.empty()) {
      keep = true;
    } else if (i + 1 < call.size() && !keep && (unit.empty() || is_same_keyword(argument, unit)) &&
               (is_keyword(argument, "EX") || is_keyword(argument, "PX") || is_keyword(argument, "EXAT") ||
                is_keyword(argument, "PXAT"))) {
      unit = argument;
      time = call[++i];
    } else {
      return call.error(kSyntax);
    }
  }
  uint64_t expires_ms = 0;
  if (!unit.empty()) {
    const auto parsed = parse_expiry(call, time, (unit[0] & ~0x20) == 'E', unit.size() == 4, "set");
    if (!parsed) return;
    expires_ms = *parsed;
  }
  const std::string_view key = call[1];
  Entry there = call.database.find(key, false);
  if (wants_old) {
    if (there && there.type() != Type::string) return call.error(kWrongType);
    there ? call.reply.bulk(there.value()) : call.reply.null();
  }
  if ((when == if_absent && there) || (when == if_present && !there)) {
    if (!wants_old) call.reply.null();
    return;
  }
  if (keep && there) expires_ms = there.expires_ms();
  store(call, there, key, call[2], expires_ms);
  if (!wants_old) call.reply.ok();
}

void setnx(CommandCall& call) {
  if (call.database.find(call[1], false)) return call.reply.integer(0);
  store(call, {}, call[1], call[2], 0);
  call.reply.integer(1);
}

void set_with_time(CommandCall& call, bool seconds, const char* name) {
  const auto time = parse_expiry(call, call[2], seconds, false, name);
  if (!time) return;
  store(call, call.database.find(call[1], false), call[1], call[3], *time);
  call.reply.ok();
}
void setex(CommandCall& call) { set_with_time(call, true, "setex"); }
void psetex(CommandCall& call) { set_with_time(call, false, "psetex"); }

void set_expires(CommandCall& call, Entry& entry, std::string_view key, uint64_t expires_ms) {
  char digits[24];
  const char* end = std::to_chars(digits, digits + sizeof digits, expires_ms).ptr;
  const std::string_view timed[] = {"PEXPIREAT", key, {digits, static_cast<size_t>(end - digits)}};
  const std::string_view never[] = {"PERSIST", key};
  const Arguments effect = expires_ms ? Arguments(timed) : Arguments(never);
  call.prepare(key, effect);
  call.database.set_expires(entry, expires_ms);
  call.changed(key, effect, 'g', expires_ms ? "expire" : "persist");
}

void getex(CommandCall& call) {
  bool persist = false, timed = false;
  std::string_view unit, time;
  uint64_t expires_ms = 0;
  for (size_t i = 2; i < call.size(); ++i) {
    const std::string_view argument = call[i];
    if (is_keyword(argument, "PERSIST") && !timed && !persist) {
      persist = true;
    } else if (i + 1 < call.size() && !timed && !persist &&
               (is_keyword(argument, "EX") || is_keyword(argument, "PX") || is_keyword(argument, "EXAT") ||
                is_keyword(argument, "PXAT"))) {
      if (i + 2 < call.size()) return call.error(kSyntax);
      unit = argument;
      time = call[++i];
      timed = true;
    } else {
      return call.error(kSyntax);
    }
  }
  Entry entry;
  const std::string_view key = call[1];
  if (!find_string(call, key, entry)) return;
  if (!entry) return call.reply.null();  // before the time is parsed, as in Redis
  if (timed) {
    const auto parsed = parse_expiry(call, time, (unit[0] & ~0x20) == 'E', unit.size() == 4, "getex");
    if (!parsed) return;
    expires_ms = *parsed;
  }
  call.reply.bulk(entry.value());
  if (timed && expires_ms <= call.keyspace.now_ms()) {
    erase_key(call, entry, key);
  } else if (timed || (persist && entry.expires_ms() != 0)) {
    set_expires(call, entry, key, expires_ms);
  }
}

void getdel(CommandCall& call) {
  Entry entry;
  if (!find_string(call, call[1], entry)) return;
  if (!entry) return call.reply.null();
  call.reply.bulk(entry.value());
  erase_key(call, entry, call[1]);
}

void getset(CommandCall& call) {
  Entry entry;
  if (!find_string(call, call[1], entry)) return;
  entry ? call.reply.bulk(entry.value()) : call.reply.null();
  store(call, entry, call[1], call[2], 0);
}

void mget(CommandCall& call) {
  call.reply.array(call.size() - 1);
  for (const std::string_view key : call.arguments.subspan(1)) {
    Entry entry = call.database.find(key);
    entry&& entry.type() == Type::string ? reply_with(call, entry) : call.reply.null();
  }
}

void set_many(CommandCall& call) {
  if (call.size() == 3) return store(call, call.database.find(call[1], false), call[1], call[2], 0);
  size_t bytes = 0;
  for (size_t i = 1; i < call.size(); i += 2) {
    call.database.find(call[i], false);  // removes it if it has expired
    const std::string_view effect[] = {"SET", call[i], call[i + 1]};
    bytes += record_bytes(effect);
  }
  call.keyspace.reserve_log(bytes);
  for (size_t i = 1; i < call.size(); i += 2) call.keyspace.announce(call.database, call[i]);
  call.database.set_all(call.arguments.subspan(1));
  for (size_t i = 1; i < call.size(); i += 2) {
    const std::string_view effect[] = {"SET", call[i], call[i + 1]};
    call.changed(call[i], effect, '$', "set");
  }
}

bool has_pairs(CommandCall& call, const char* name) {
  if (call.size() % 2 == 1) return true;
  call.error(std::string("ERR wrong number of arguments for '") + name + "' command");
  return false;
}

void mset(CommandCall& call) {
  if (!has_pairs(call, "mset")) return;
  set_many(call);
  call.reply.ok();
}

void msetnx(CommandCall& call) {
  if (!has_pairs(call, "msetnx")) return;
  for (size_t i = 1; i < call.size(); i += 2) {
    if (call.database.find(call[i], false)) return call.reply.integer(0);
  }
  set_many(call);
  call.reply.integer(1);
}

bool is_too_long(CommandCall& call, size_t bytes) {
  if (bytes <= kLongestString) return false;
  call.error("ERR string exceeds maximum allowed size (proto-max-bulk-len)");
  return true;
}

// Writes bytes at an offset of a string, which is created or extended with zeros as needed.
void write_at(CommandCall& call, Entry entry, size_t offset, std::string_view bytes, const char* event) {
  const std::string_view key = call[1];
  const size_t had = entry ? entry.value().size() : 0, needed = std::max(had, offset + bytes.size());
  call.prepare(key, call.arguments);
  entry = call.database.write(entry, key, offset, bytes);
  call.database.seal(entry);
  call.changed(key, call.arguments, '$', event);
  call.reply.integer(static_cast<int64_t>(needed));
}

void append(CommandCall& call) {
  Entry entry;
  if (!find_string(call, call[1], entry)) return;
  const size_t had = entry ? entry.value().size() : 0;
  if (is_too_long(call, had + call[2].size())) return;
  if (entry && call[2].empty()) return call.reply.integer(static_cast<int64_t>(had));
  write_at(call, entry, had, call[2], "append");
}

void strlen(CommandCall& call) {
  Entry entry;
  if (!find_string(call, call[1], entry)) return;
  call.reply.integer(entry ? static_cast<int64_t>(entry.value().size()) : 0);
}

void getrange(CommandCall& call) {
  const auto first = parse_integer(call[2]), last = parse_integer(call[3]);
  if (!first || !last) return call.error(kNotAnInteger);
  Entry entry;
  if (!find_string(call, call[1], entry)) return;
  const std::string_view value = entry ? entry.value() : std::string_view();
  const auto length = static_cast<int64_t>(value.size());
  if (*first < 0 && *last < 0 && *first > *last) return call.reply.bulk({});
  int64_t start = *first < 0 ? std::max<int64_t>(length + std::max(*first, -length), 0) : *first;
  int64_t stop = *last < 0 ? (*last < -length ? 0 : length + *last) : *last;
  stop = std::min(stop, length - 1);
  if (start > stop || length == 0) return call.reply.bulk({});
  call.reply.bulk(value.substr(static_cast<size_t>(start), static_cast<size_t>(stop - start + 1)));
}

void setrange(CommandCall& call) {
  const auto offset = parse_integer(call[2]);
  if (!offset) return call.error(kNotAnInteger);
  if (*offset < 0) return call.error("ERR offset is out of range");
  Entry entry;
  if (!find_string(call, call[1], entry)) return;
  const std::string_view bytes = call[3];
  if (bytes.empty()) return call.reply.integer(entry ? static_cast<int64_t>(entry.value().size()) : 0);
  if (static_cast<uint64_t>(*offset) > kLongestString) return (void)is_too_long(call, kLongestString + 1);
  if (is_too_long(call, static_cast<size_t>(*offset) + bytes.size())) return;
  write_at(call, entry, static_cast<size_t>(*offset), bytes, "setrange");
}

void add(CommandCall& call, int64_t amount, bool subtract) {
  Entry entry;
  if (!find_string(call, call[1], entry)) return;
  const auto old = entry ? parse_integer(entry.value()) : 0;
  if (!old) return call.error(kNotAnInteger);
  int64_t sum;
  if (subtract ? __builtin_sub_overflow(*old, amount, &sum) : __builtin_add_overflow(*old, amount, &sum)) {
    return call.error("ERR increment or decrement would overflow");
  }
  char digits[24];
  const char* end = std::to_chars(digits, digits + sizeof digits, sum).ptr;
  const std::string_view value(digits, static_cast<size_t>(end - digits));
  const uint64_t expires_ms = entry ? entry.expires_ms() : 0;
  const std::string_view timed[] = {"SET", call[1], value, "KEEPTTL"};
  const Arguments effect = Arguments(timed).first(expires_ms ? 4 : 3);
  call.prepare(call[1], effect);
  call.database.set(entry, call[1], value, expires_ms);
  call.changed(call[1], effect, '$', subtract ? "decrby" : "incrby");
  call.reply.integer(sum);
}

void incr(CommandCall& call) { add(call, 1, false); }
void decr(CommandCall& call) { add(call, 1, true); }
void incrby(CommandCall& call) {
  const auto amount = parse_integer(call[2]);
  amount ? add(call, *amount, false) : call.error(kNotAnInteger);
}
void decrby(CommandCall& call) {
  const auto amount = parse_integer(call[2]);
  if (!amount) return call.error(kNotAnInteger);
  if (*amount == std::numeric_limits<int64_t>::min()) {
    return call.error("ERR decrement would overflow");
  }
  add(call, *amount, true);
}

std::optional<long double> parse_long_double(std::string_view text) {
  if (text.empty() || text.size() > 255 || std::isspace(static_cast<unsigned char>(text[0])))
    return std::nullopt;
  const std::string copy(text);
  char* end = nullptr;
  const long double value = std::strtold(copy.c_str(), &end);
  if (end != copy.c_str() + copy.size() || std::isnan(value)) return std::nullopt;
  return value;
}

void incrbyfloat(CommandCall& call) {
  Entry entry;
  if (!find_string(call, call[1], entry)) return;
  const auto old = entry ? parse_long_double(entry.value()) : 0.0L;
  const auto amount = parse_long_double(call[2]);
  if (!old || !amount) return call.error("ERR value is not a valid float");
  const long double sum = *old + *amount;
  if (std::isnan(sum) || std::isinf(sum)) return call.error("ERR increment would produce NaN or Infinity");
  char text[5200];
  int length = std::snprintf(text, sizeof text, "%.17Lf", sum);
  while (length > 0 && text[length - 1] == '0') --length;
  if (length > 0 && text[length - 1] == '.') --length;
  if (length == 2 && text[0] == '-' && text[1] == '0') text[0] = '0', length = 1;
  const std::string_view value(text, static_cast<size_t>(length));
  const uint64_t expires_ms = entry ? entry.expires_ms() : 0;
  const std::string_view effect[] = {"SET", call[1], value, "KEEPTTL"};
  call.reply.bulk(value);
  call.prepare(call[1], effect);
  call.database.set(entry, call[1], value, expires_ms);
  call.changed(call[1], effect, '$', "incrbyfloat");
}

constexpr NativeCommand kStringCommands[] = {
    {"GET", 2, "readonly fast", kFirstKey, kReadValue, "string", "1.0.0", "Returns the string at a key.",
     get},
    {"SET", -3, "write denyoom", kFirstKey, kOverwrite, "string", "1.0.0",
     "Sets a key to a string, replacing any value it held.", set},
    {"SETNX", 3, "write denyoom fast", kFirstKey, kInsert, "string", "1.0.0",
     "Sets a key to a string only if the key does not exist.", setnx},
    {"SETEX", 4, "write denyoom", kFirstKey, kOverwrite, "string", "2.0.0",
     "Sets a key to a string that expires after a number of seconds.", setex},
    {"PSETEX", 4, "write denyoom", kFirstKey, kOverwrite, "string", "2.6.0",
     "Sets a key to a string that expires after a number of milliseconds.", psetex},
    {"GETEX", -2, "write fast", kFirstKey, kReadAndUpdate, "string", "6.2.0",
     "Returns the string at a key and sets or removes its expiration.", getex},
    {"GETDEL", 2, "write fast", kFirstKey, kReadAndDelete, "string", "6.2.0",
     "Returns the string at a key and deletes the key.", getdel},
    {"GETSET", 3, "write denyoom fast", kFirstKey, kReadAndUpdate, "string", "1.0.0",
     "Sets a key to a string and returns the previous one.", getset},
    {"MGET", -2, "readonly fast", kAllKeys, kReadValue, "string", "1.0.0",
     "Returns the strings at one or more keys.", mget},
    {"MSET", -3, "write denyoom", kKeysAndValues, kOverwrite, "string", "1.0.1",
     "Sets one or more keys to strings.", mset},
    {"MSETNX", -3, "write denyoom", kKeysAndValues, kOverwrite, "string", "1.0.1",
     "Sets one or more keys to strings only if none of the keys exists.", msetnx},
    {"APPEND", 3, "write denyoom fast", kFirstKey, kInsert, "string", "2.0.0",
     "Appends bytes to the string at a key.", append},
    {"STRLEN", 2, "readonly fast", kFirstKey, kReadKey, "string", "2.2.0",
     "Returns the length of the string at a key, in bytes.", strlen},
    {"GETRANGE", 4, "readonly", kFirstKey, kReadValue, "string", "2.4.0",
     "Returns a substring of the string at a key.", getrange},
    {"SETRANGE", 4, "write denyoom", kFirstKey, kUpdate, "string", "2.2.0",
     "Overwrites part of the string at a key, from an offset on.", setrange},
    {"INCR", 2, "write denyoom fast", kFirstKey, kReadAndUpdate, "string", "1.0.0",
     "Adds one to the integer at a key.", incr},
    {"DECR", 2, "write denyoom fast", kFirstKey, kReadAndUpdate, "string", "1.0.0",
     "Subtracts one from the integer at a key.", decr},
    {"INCRBY", 3, "write denyoom fast", kFirstKey, kReadAndUpdate, "string", "1.0.0",
     "Adds a number to the integer at a key.", incrby},
    {"DECRBY", 3, "write denyoom fast", kFirstKey, kReadAndUpdate, "string", "1.0.0",
     "Subtracts a number from the integer at a key.", decrby},
    {"INCRBYFLOAT", 3, "write denyoom fast", kFirstKey, kReadAndUpdate, "string", "2.6.0",
     "Adds a floating-point number to the number at a key.", incrbyfloat},
};

}  // namespace

std::span<const NativeCommand> string_commands() { return kStringCommands; }

}  // namespace verbena::kv
