// Commands on keys of any type, and PING and ECHO, which use no key.
#include "kv/engine/commands.h"
#include "kv/journal/log_record.h"

namespace verbena::kv {

namespace {

// Deletes all keys or, if there is no memory for their records, none.
void del(CommandCall& call) {
  const Arguments keys = call.arguments.subspan(1);
  if (keys.size() == 1) {
    const Entry entry = call.database.find(keys[0], false);
    if (entry) erase_key(call, entry, keys[0]);
    return call.reply.integer(entry ? 1 : 0);
  }
  size_t bytes = 0;
  for (const std::string_view key : keys) {
    if (!call.database.find(key, false)) continue;
    const std::string_view effect[] = {"DEL", key};
    bytes += record_bytes(effect);
    call.keyspace.announce(call.database, key);
  }
  call.keyspace.reserve_log(bytes);
  call.keyspace.reserve_releases(keys.size());
  int64_t gone = 0;
  for (const std::string_view key : keys) {
    const Entry entry = call.database.find(key, false);
    if (!entry) continue;
    const std::string_view effect[] = {"DEL", key};
    call.database.erase(entry);
    call.changed(key, effect, 'g', "del");
    ++gone;
  }
  call.reply.integer(gone);
}

void exists(CommandCall& call) {
  int64_t there = 0;
  for (const std::string_view key : call.arguments.subspan(1)) there += call.database.find(key) ? 1 : 0;
  call.reply.integer(there);
}

void type(CommandCall& call) {
  constexpr const char* kNames[] = {"none", "string", "hash", "list", "set", "zset"};
  call.reply.simple(kNames[static_cast<size_t>(call.database.find(call[1]).type())]);
}

void expire(CommandCall& call, bool seconds, bool absolute, const char* name) {
  bool nx = false, xx = false, gt = false, lt = false;
  for (const std::string_view argument : call.arguments.subspan(3)) {
    if (is_keyword(argument, "NX")) {
      nx = true;
    } else if (is_keyword(argument, "XX")) {
      xx = true;
    } else if (is_keyword(argument, "GT")) {
      gt = true;
    } else if (is_keyword(argument, "LT")) {
      lt = true;
    } else {
      return call.error("ERR Unsupported option " + std::string(argument));
    }
  }
  if (nx && (xx || gt || lt)) {
    return call.error("ERR NX and XX, GT or LT options at the same time are not compatible");
  }
  if (gt && lt) return call.error("ERR GT and LT options at the same time are not compatible");
  const auto time = parse_expiry(call, call[2], seconds, absolute, name);
  if (!time) return;
  const std::string_view key = call[1];
  Entry entry = call.database.find(key, false);
  if (!entry) return call.reply.integer(0);
  const uint64_t now_has = entry.expires_ms();
  if ((nx && now_has) || (xx && !now_has) || (gt && (!now_has || *time <= now_has)) ||
      (lt && now_has && *time >= now_has)) {
    return call.reply.integer(0);
  }
  if (*time <= call.keyspace.now_ms()) {
    erase_key(call, entry, key);
  } else {
    char digits[24];
    const char* end = std::to_chars(digits, digits + sizeof digits, *time).ptr;
    const std::string_view effect[] = {"PEXPIREAT", key, {digits, static_cast<size_t>(end - digits)}};
    call.prepare(key, effect);
    call.database.set_expires(entry, *time);
    call.changed(key, effect, 'g', "expire");
  }
  call.reply.integer(1);
}
// "!": zero and negative numbers are accepted; a time in the past deletes the key.
void expire_s(CommandCall& call) { expire(call, true, false, "!expire"); }
void expire_ms(CommandCall& call) { expire(call, false, false, "!pexpire"); }
void expire_at_s(CommandCall& call) { expire(call, true, true, "!expireat"); }
void expire_at_ms(CommandCall& call) { expire(call, false, true, "!pexpireat"); }

void left(CommandCall& call, bool seconds, bool absolute) {
  const Entry entry = call.database.find(call[1]);
  if (!entry) return call.reply.integer(-2);
  if (!entry.expires_ms()) return call.reply.integer(-1);
  const uint64_t ms = absolute ? entry.expires_ms() : entry.expires_ms() - call.keyspace.now_ms();
  const uint64_t rounded = absolute ? ms / 1000 : (ms + 500) / 1000;
  call.reply.integer(static_cast<int64_t>(seconds ? rounded : ms));
}
void ttl(CommandCall& call) { left(call, true, false); }
void pttl(CommandCall& call) { left(call, false, false); }
void expiretime(CommandCall& call) { left(call, true, true); }
void pexpiretime(CommandCall& call) { left(call, false, true); }

void persist(CommandCall& call) {
  Entry entry = call.database.find(call[1], false);
  if (!entry || !entry.expires_ms()) return call.reply.integer(0);
  call.prepare(call[1], call.arguments);
  call.database.set_expires(entry, 0);
  call.changed(call[1], call.arguments, 'g', "persist");
  call.reply.integer(1);
}

void ping(CommandCall& call) {
  if (call.size() > 2) return call.error("ERR wrong number of arguments for 'ping' command");
  call.size() == 2 ? call.reply.bulk(call[1]) : call.reply.simple("PONG");
}

void echo(CommandCall& call) { call.reply.bulk(call[1]); }

constexpr NativeCommand kKeyCommands[] = {
    {"DEL", -2, "write", kAllKeys, kDelete, "generic", "1.0.0", "Deletes one or more keys.", del},
    {"UNLINK", -2, "write fast", kAllKeys, kDelete, "generic", "4.0.0",
     "Deletes one or more keys and frees their memory in the background.", del},
    {"EXISTS", -2, "readonly fast", kAllKeys, kReadKey, "generic", "1.0.0",
     "Counts how many of the given keys exist.", exists},
    {"TOUCH", -2, "readonly fast", kAllKeys, kReadKey, "generic", "3.2.1",
     "Counts how many of the given keys exist and updates their last access time.", exists},
    {"TYPE", 2, "readonly fast", kFirstKey, kReadKey, "generic", "1.0.0",
     "Returns the type of the value at a key.", type},
    {"EXPIRE", -3, "write fast", kFirstKey, kUpdate, "generic", "1.0.0",
     "Sets the expiration of a key, in seconds from now.", expire_s},
    {"PEXPIRE", -3, "write fast", kFirstKey, kUpdate, "generic", "2.6.0",
     "Sets the expiration of a key, in milliseconds from now.", expire_ms},
    {"EXPIREAT", -3, "write fast", kFirstKey, kUpdate, "generic", "1.2.0",
     "Sets the expiration of a key to a Unix time in seconds.", expire_at_s},
    {"PEXPIREAT", -3, "write fast", kFirstKey, kUpdate, "generic", "2.6.0",
     "Sets the expiration of a key to a Unix time in milliseconds.", expire_at_ms},
    {"TTL", 2, "readonly fast", kFirstKey, kReadKey, "generic", "1.0.0",
     "Returns the time until a key expires, in seconds.", ttl},
    {"PTTL", 2, "readonly fast", kFirstKey, kReadKey, "generic", "2.6.0",
     "Returns the time until a key expires, in milliseconds.", pttl},
    {"EXPIRETIME", 2, "readonly fast", kFirstKey, kReadKey, "generic", "7.0.0",
     "Returns the Unix time at which a key expires, in seconds.", expiretime},
    {"PEXPIRETIME", 2, "readonly fast", kFirstKey, kReadKey, "generic", "7.0.0",
     "Returns the Unix time at which a key expires, in milliseconds.", pexpiretime},
    {"PERSIST", 2, "write fast", kFirstKey, kUpdate, "generic", "2.2.0", "Removes the expiration of a key.",
     persist},
    {"PING", -1, "fast", kNoKeys, {}, "connection", "1.0.0", "Returns PONG, or the given message.", ping},
    {"ECHO", 2, "fast loading stale", kNoKeys, {}, "connection", "1.0.0", "Returns the given message.", echo},
};

}  // namespace

std::span<const NativeCommand> key_commands() { return kKeyCommands; }

}  // namespace verbena::kv
