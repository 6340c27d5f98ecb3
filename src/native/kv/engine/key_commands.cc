// Commands on keys, whatever they hold, and two that need none.
#include "kv/engine/commands.h"

namespace verbena::kv {

namespace {

void del(CommandCall& call) {
  int64_t gone = 0;
  for (const std::string_view key : call.arguments.subspan(1)) {
    const Entry entry = call.database.find(key, false);
    if (!entry) continue;
    call.database.erase(entry);
    const std::string_view effect[] = {"DEL", key};
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
    call.database.erase(entry);
    const std::string_view effect[] = {"DEL", key};
    call.changed(key, effect, 'g', "del");
  } else {
    call.database.set_expires(entry, *time);
    char digits[24];
    const char* end = std::to_chars(digits, digits + sizeof digits, *time).ptr;
    const std::string_view effect[] = {"PEXPIREAT", key, {digits, static_cast<size_t>(end - digits)}};
    call.changed(key, effect, 'g', "expire");
  }
  call.reply.integer(1);
}
// "!": times in the past are allowed, and delete.
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
    {"DEL", -2, true, false, del},
    {"UNLINK", -2, true, false, del},
    {"EXISTS", -2, false, false, exists},
    {"TOUCH", -2, false, false, exists},
    {"TYPE", 2, false, false, type},
    {"EXPIRE", -3, true, false, expire_s},
    {"PEXPIRE", -3, true, false, expire_ms},
    {"EXPIREAT", -3, true, false, expire_at_s},
    {"PEXPIREAT", -3, true, false, expire_at_ms},
    {"TTL", 2, false, false, ttl},
    {"PTTL", 2, false, false, pttl},
    {"EXPIRETIME", 2, false, false, expiretime},
    {"PEXPIRETIME", 2, false, false, pexpiretime},
    {"PERSIST", 2, true, false, persist},
    {"PING", -1, false, false, ping},
    {"ECHO", 2, false, false, echo},
};

}  // namespace

std::span<const NativeCommand> key_commands() { return kKeyCommands; }

}  // namespace verbena::kv
