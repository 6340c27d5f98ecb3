#include "kv/engine/engine.h"

#include <algorithm>
#include <bit>
#include <ctime>
#include <new>
#include <stdexcept>

#include "kv/journal/backlog.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/fatal.h"

namespace verbena::kv {

namespace {

std::string lower_case(std::string_view name) {
  std::string text(name);
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return text;
}

// Whether a "command" is the first line, or a header, of an HTTP request that a web page makes a browser send
// to this port. The lines after it would run as commands.
bool is_http(std::string_view name) {
  const auto equals = [&](std::string_view other) {
    return std::equal(name.begin(), name.end(), other.begin(), other.end(),
                      [](char a, char b) { return (a | 0x20) == b; });
  };
  return equals("post") || equals("host:");
}

}  // namespace

constexpr std::string_view kLoading = "LOADING Verbena is loading the dataset in memory";

Engine::Engine(uint32_t databases, Arena::ChunkAllocator allocate_chunk)
    : keyspace(databases, std::move(allocate_chunk)) {}

Engine::~Engine() = default;

void Engine::use_journal(Journal* journal) {
  journal_ = journal;
  keyspace.set_journal(journal);
  committed_ = journal ? journal->position() : 0;
}

void Engine::set_log(Journal* log) {
  log_ = log;
  if (backlog_) backlog_->set_log(log);
  use_journal(backlog_ ? backlog_.get() : log);
}

Backlog& Engine::backlog() {
  if (!backlog_) {
    commit();
    backlog_ =
        std::make_unique<Backlog>(BacklogOptions{.lsn = log_ ? log_->position() : 0, .offset = offset_});
    backlog_->set_log(log_);
    use_journal(backlog_.get());
  }
  return *backlog_;
}

void Engine::restart_at(uint64_t offset) {
  offset_ = offset;
  if (backlog_) backlog_->restart_at(offset);
}

void Engine::refresh_time() {
  // While loading, the clock stands at 0 so that no key expires: the log has a record of each expiry that
  // happened, and all other keys expire after loading.
  keyspace.set_now(loading ? 0 : unix_ms());
}

void Engine::add(Client& client) {
  client.created_ms = client.last_ms = keyspace.now_ms();
  uncommitted_clients_.reserve(clients_.size() + 1);  // for all that schedule_write() adds
  clients_[client.id] = &client;
  ++counters.connections;
  if (handler_ && client.python_dispatch) handler_->opened(client);
}

void Engine::remove(Client& client) {
  clients_.erase(client.id);
  if (handler_) handler_->closed(client);
}

Client* Engine::find(uint64_t id) const {
  const auto found = clients_.find(id);
  return found == clients_.end() ? nullptr : found->second;
}

void Engine::schedule_write(Client& client) {
  counters.output_bytes.note(client.pending_out());
  if (client.out_limit != 0 && client.pending_out() > client.out_limit && !client.close_now) {
    client.close_now = true;
    ++counters.output_disconnections;
  }
  if (journal_ && journal_->position() != committed_ && !std::exchange(client.is_uncommitted, true)) {
    or_end_process("noting a reply that depends on the log",
                   [&] { uncommitted_clients_.push_back(client.id); });
  }
  if (client.write_scheduled) return;
  client.queue_write();
  client.write_scheduled = true;
}

void Engine::fail_client(Client& client, const char* operation) noexcept {
  report(operation, "the client is disconnected");
  client.close_now = true;
  or_end_process(operation, [&] { schedule_write(client); });
}

void Engine::commit() {
  if (!journal_) return;
  const bool kept = or_end_process("committing the log", [&] { return journal_->commit(); });
  committed_ = journal_->position();
  for (size_t i = 0; i < uncommitted_clients_.size(); ++i) {  // adds none: the position is committed_
    Client* const client = find(uncommitted_clients_[i]);
    if (client) client->is_uncommitted = false;
    if (kept || !client) continue;
    client->out.clear();
    client->close_now = true;
    schedule_write(*client);
  }
  uncommitted_clients_.clear();
}

void Engine::run(Client& client, Arguments arguments) {
  run(client, arguments, dispatches_to_python(client) ? nullptr : commands.find(arguments[0]));
}

void Engine::run(Client& client, Arguments arguments, NativeCommand* command) {
  ++client.commands;
  ++counters.commands;
  if (!command && is_http(arguments[0])) {
    ++counters.http_requests;
    client.close_now = true;
    return schedule_write(client);
  }
  keyspace.updates_recency = !client.no_touch;
  if (command) {
    if (loading && !command->runs_while_loading) {
      const size_t before = client.out.size();
      ReplyWriter(client.out, client.version).error(kLoading);
      note_error(std::string_view(client.out).substr(before));
      ++counters.errors, ++command->rejected;
    } else {
      run_native(client, arguments, *command);
    }
  } else if (handler_) {
    ++counters.program_commands;
    if (keyspace.has_dirty_watchers()) handler_->watched_changed(keyspace.take_dirty_watchers());
    deliver_invalidations();
    keyspace.current_client = client.id;
    handler_->run(client, arguments);
    keyspace.current_client = 0;
    if (!pending_notifications_.empty()) deliver_notifications();
    deliver_invalidations();
    clock_ns_ = 0;
  } else {
    ReplyWriter(client.out, client.version).error("ERR unknown command");
  }
  if (journal_) journal_->end_command();
  if (!client.out.empty()) schedule_write(client);
}

bool Engine::run_native(Client& client, Arguments arguments) {
  NativeCommand* const command = commands.find(arguments[0]);
  if (command) run_native(client, arguments, *command);
  return command != nullptr;
}

void Engine::run_native(Client& client, Arguments arguments, NativeCommand& command) {
  client.last_command = command.name.data();
  std::function<void(char, const char*, std::string_view)> notify;
  if (notifications_enabled_ && handler_) {
    notify = [this, &client](char kind, const char* event, std::string_view key) {
      note_event(client.database, kind, event, key);
    };
  }
  const size_t before = client.out.size();
  bool failed = true;
  try {
    if (client.out.capacity() - before < kReplyRoom) client.out.reserve(before + kReplyRoom);
    CommandCall call{keyspace, keyspace.database(client.database), arguments,
                     ReplyWriter(client.out, client.version), notify ? &notify : nullptr};
    call_native(client, call, command);
    failed = call.failed;
  } catch (const std::exception&) {
    answer_failure(client, before);
  }
  if (failed) {
    ++counters.errors;
    note_error(std::string_view(client.out).substr(before));
  }
  if (!pending_notifications_.empty()) deliver_notifications();
}

void Engine::call_native(Client& client, CommandCall& call, NativeCommand& command) {
  const auto reject = [&](std::string_view why) {
    call.error(why);
    ++command.rejected;
  };
  if (!command.takes(call.size())) {
    return reject("ERR wrong number of arguments for '" + lower_case(command.name) + "' command");
  }
  if (command.writes && !refusal().empty()) return reject(refusal());
  if (command.needs_memory && !keyspace.make_room()) {
    return reject("OOM command not allowed when used memory > 'maxmemory'.");
  }
  if (time_commands && clock_ns_ == 0) clock_ns_ = now_ns();
  const size_t before = client.out.size();
  try {
    command.run(call);
  } catch (const std::exception&) {
    call.failed = true;
    answer_failure(client, before);
  }
  ++command.calls;
  if (time_commands) {
    const uint64_t now = now_ns(), took = now - clock_ns_;
    command.ns += took;
    ++command
          .buckets[std::min<size_t>(static_cast<size_t>(std::bit_width(took)), NativeCommand::kBuckets - 1)];
    clock_ns_ = now;
    if (took >= slow_ns) note_slow(client, call.arguments, took);
  }
  command.failed += call.failed;
}

void Engine::answer_failure(Client& client, size_t before) noexcept {
  client.out.resize(before);
  if (before == 0 && client.out.capacity() > kTurnReplyBytes) std::string().swap(client.out);
  try {
    if (client.out.capacity() - before < kReplyRoom) client.out.reserve(before + kReplyRoom);
    ReplyWriter reply(client.out, client.version);
    try {
      throw;
    } catch (const std::bad_alloc&) {
      reply.error(kNoMemory);
    } catch (const std::length_error&) {
      reply.error(kNoMemory);
    } catch (const Error& error) {
      if (error.code() != "no_memory") throw;
      reply.error(kNoMemory);
    }
  } catch (const std::bad_alloc&) {  // there is not even memory for the error
    fail_client(client, "replying to a command");
  } catch (...) {
    report("running a command", "its client gets an error");
    reply_error(client, "ERR internal error: ", current_reason());
  }
}

// In the room that answer_failure() has made.
void Engine::reply_error(Client& client, std::string_view text, std::string_view reason) noexcept {
  client.out.append("-").append(text);
  for (const char c : reason.substr(0, kReplyRoom / 2))
    client.out.push_back(c == '\r' || c == '\n' ? ' ' : c);
  client.out.append("\r\n");
}

// Statistics are not worth a failure: without memory the error is not counted by its code.
void Engine::note_error(std::string_view reply) noexcept {
  if (reply.empty()) return;
  try {  // `reply` begins with an error reply
    ++errors[std::string(reply.substr(1, reply.find(' ') - 1))];
  } catch (const std::bad_alloc&) {
  }
}

// Keyspace notifications are not reliable, in Redis either: without memory the event is lost.
void Engine::note_event(uint32_t database, char kind, const char* event, std::string_view key) noexcept {
  try {
    pending_notifications_.push_back({database, kind, event, std::string(key)});
  } catch (const std::bad_alloc&) {
    report("noting a keyspace event", "the event is lost");
  }
}

void Engine::set_notifications(bool wanted) {
  notifications_enabled_ = wanted;
  keyspace.on_removed = nullptr;
  if (wanted) {
    keyspace.on_removed = [this](uint32_t database, char kind, const char* event, std::string_view key) {
      note_event(database, kind, event, key);
    };
  }
}

void Engine::deliver_notifications() {
  const auto notices = std::exchange(pending_notifications_, {});
  if (!handler_) return;
  for (const Notification& notice : notices) {
    handler_->notify(notice.database, notice.kind, notice.event, notice.key);
  }
}

// Call it between replies only: a client that received an old value after the invalidation would cache it.
void Engine::deliver_invalidations() {
  if (tracking.has_messages()) handler_->invalidated(tracking.take_messages());
}

void Engine::note_slow(const Client& client, Arguments arguments, uint64_t ns) noexcept {
  constexpr size_t kArguments = 32, kBytes = 128;
  if (slow_.size() >= 128) return;
  try {
    Slow slow{client.id, ns, keyspace.now_ms(), {}};
    for (const std::string_view argument : arguments.first(std::min(arguments.size(), kArguments))) {
      slow.arguments.emplace_back(argument.substr(0, kBytes));
    }
    slow_.push_back(std::move(slow));
  } catch (const std::bad_alloc&) {  // the entry is lost
  }
}

void Engine::finish_batch() {
  clock_ns_ = 0;
  if (!handler_) return;
  if (!pending_notifications_.empty()) deliver_notifications();
  if (keyspace.has_dirty_watchers()) handler_->watched_changed(keyspace.take_dirty_watchers());
  deliver_invalidations();
  if (tracking.has_broadcasts()) handler_->invalidated(tracking.take_broadcasts());
  if (keyspace.has_released()) handler_->release(keyspace.take_released());
  handler_->release_gil();
}

void Engine::tick(uint64_t now) {
  constexpr uint64_t kBudgetNs = 1'000'000;
  counters.input_bytes.pass(now), counters.output_bytes.pass(now);
  if (journal_) journal_->tick(now);
  if (keyspace.has_retired()) keyspace.reclaim(now, now + kBudgetNs);
  // The budget grows with the number of waiting elements, so that deleting values cannot outpace freeing
  // them.
  if (const uint64_t left = handler_ ? handler_->lazy_free_pending() : 0; left > 0) {
    handler_->lazy_free(now_ns() + kBudgetNs * std::min<uint64_t>(1 + left / 4'000'000, 5));
  }
  tracking.tidy();
  if (loading) return;
  for (uint32_t i = 0; active_expiry && i < keyspace.databases(); ++i) {
    if (keyspace.exists(i)) keyspace.database(i).expire_due(keyspace.now_ms(), now + 2 * kBudgetNs);
  }
  if (background && !background->work(now_ns() + kBudgetNs)) background = nullptr;
  counters.longest_tick_ns = std::max(counters.longest_tick_ns, now_ns() - now);
}

}  // namespace verbena::kv
