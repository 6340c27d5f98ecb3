// The part of the Engine that turns a client's bytes into commands. Each request is parsed once and its
// command looked up once, with the keys of a batch prefetched and a cluster's slots checked in between.
#include "kv/engine/engine.h"

namespace verbena::kv {

void Engine::feed(Client& client, std::string_view bytes) {
  note_input(client, bytes.size());
  size_t used = 0;
  if (client.in.empty()) {
    counters.input_bytes.note(bytes.size());
    process(client, bytes, Scope::all, used);
    client.in.append(bytes.substr(used));
  } else {
    client.in.append(bytes);
    counters.input_bytes.note(client.in.size());
    process(client, client.in, Scope::all, used);
    client.in.erase(0, used);
  }
  if (client.in.empty() && client.in.capacity() > 1u << 16) client.in = {};
  if (client.in.size() > max_input_bytes) {
    client.close_now = true;
    ++counters.input_disconnections;
    schedule_write(client);
  }
}

size_t Engine::feed_native(Client& client, std::string_view bytes) {
  size_t used = 0;
  refresh_time();
  process(client, bytes, Scope::native, used);
  note_input(client, used);
  counters.input_bytes.note(used);
  return used;
}

void Engine::note_input(Client& client, size_t bytes) {
  client.bytes_in += bytes;
  counters.bytes_in += bytes;
  client.last_ms = keyspace.now_ms();
}

void Engine::resume(Client& client) {
  client.blocked = false;
  size_t used = 0;
  process(client, client.in, Scope::all, used);
  client.in.erase(0, used);
}

void Engine::resume_stalled(Client& client) {
  if (!client.stalled || client.blocked || !has_reply_room(client)) return;
  size_t used = 0;
  process(client, client.in, Scope::all, used);
  client.in.erase(0, used);
}

void Engine::process(Client& client, std::string_view input, Scope scope, size_t& used) {
  client.stalled = false;
  while (!client.blocked && !client.close_after_reply && !client.close_now) {
    if (!has_reply_room(client)) {
      client.stalled = used < input.size();
      return;
    }
    const std::string_view rest = input.substr(used);
    const RequestLimits& bounds = client.unauthenticated ? kUnauthenticatedLimits : limits;
    if (client.reader.is_fresh() && !in_batch_ && batch_.parse(rest, bounds)) {
      if (!run_batch(client, input, scope, used)) return;
      continue;
    }
    switch (client.reader.read(rest, bounds)) {
      case RequestReader::Result::more:
        return;
      case RequestReader::Result::bad:
        if (scope == Scope::native) return client.reader.next();
        ++counters.errors;
        ++errors["ERR"];
        ReplyWriter(client.out, client.version).error(client.reader.fault());
        client.close_after_reply = true;
        schedule_write(client);
        used = input.size();
        return;
      case RequestReader::Result::ready:
        const Arguments arguments = client.reader.arguments();
        const size_t bytes = client.reader.consumed();
        const bool known = std::exchange(client.next_needs_python, false);
        const bool done = arguments.empty() ||
                          answer(client, arguments, known ? nullptr : commands.find(arguments[0]), scope);
        if (client.next_needs_python) return;
        client.reader.next();
        if (!done) return;
        used += bytes;
    }
  }
  if (client.close_after_reply || client.close_now) used = input.size();
}

// The buckets of all keys, then their items, are prefetched before the first request runs: the cache misses
// would take longer than everything else.
bool Engine::run_batch(Client& client, std::string_view input, Scope scope, size_t& used) {
  const std::span<ParsedRequest> requests = batch_.requests();
  const Index* const index =
      (requests.size() > 1 || scope == Scope::native) && keyspace.exists(client.database)
          ? &keyspace.database(client.database).index()
          : nullptr;
  for (ParsedRequest& request : requests) {
    if (!index || request.arguments.size() < 2) continue;
    request.hash = keyspace.hash(request.arguments[1]);
    index->prefetch_bucket(request.hash);
  }
  for (ParsedRequest& request : requests) request.command = commands.find(request.arguments[0]);
  for (ParsedRequest& request : requests) {
    if (request.hash != 0) request.place = index->prefetch_item(request.hash);
  }
  in_batch_ = true;
  struct Reset {
    Engine& engine;
    ~Reset() {
      engine.keyspace.set_prefetched({}, 0);
      engine.in_batch_ = false;
    }
  } const reset{*this};
  bool done = true;
  for (const ParsedRequest& request : requests) {
    if (request.hash != 0) keyspace.set_prefetched(request.arguments[1], request.hash, request.place);
    done = answer(client, request.arguments, request.command, scope);
    if (client.next_needs_python) {
      client.reader.adopt(input.substr(used), request.bytes, request.arguments);
    }
    if (!done) break;
    used += request.bytes;
    if (client.blocked || client.close_after_reply || client.close_now || !has_reply_room(client)) break;
  }
  return done;
}

bool Engine::answer(Client& client, Arguments arguments, NativeCommand* found, Scope scope) {
  // An earlier request of the batch may have changed python_dispatch.
  NativeCommand* const command = dispatches_to_python(client) ? nullptr : found;
  if (!command && scope == Scope::native) {
    client.next_needs_python = true;
    return false;
  }
  // Python checks the slots of the commands that it runs.
  if (slots && command && !check_slots(client, arguments, *command)) return !client.blocked;
  run(client, arguments, command);
  return true;
}

bool Engine::check_slots(Client& client, Arguments arguments, NativeCommand& command) {
  std::string error;
  Database& database = keyspace.database(client.database);
  const auto verdict = slots->check(client, database, arguments, command.keys, command.writes, error);
  if (verdict == SlotTable::Verdict::hold) {
    held_.push_back(client.id);
    client.blocked = true;
    return false;
  }
  client.asking = false;
  if (verdict == SlotTable::Verdict::serve) return true;
  ++client.commands;
  ++counters.commands;
  ++counters.errors;
  ++command.rejected;
  const size_t before = client.out.size();
  ReplyWriter(client.out, client.version).error(error);
  note_error(std::string_view(client.out).substr(before));
  schedule_write(client);
  return false;
}

void Engine::release_held() {
  for (const uint64_t id : std::exchange(held_, {})) {
    Client* const client = find(id);
    if (client && client->blocked) resume(*client);
  }
}

}  // namespace verbena::kv
