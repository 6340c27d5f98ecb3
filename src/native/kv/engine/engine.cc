#include "kv/engine/engine.h"

#include <algorithm>
#include <bit>
#include <ctime>

#include "kv/journal/backlog.h"
#include "util/clock.h"
#include "util/error.h"

namespace verbena::kv {

namespace {

bool is_arity_wrong(const NativeCommand& command, size_t words) {
  return command.arity > 0 ? words != static_cast<size_t>(command.arity)
                           : words < static_cast<size_t>(-command.arity);
}

std::string small_letters(std::string_view name) {
  std::string text(name);
  for (char& c : text) c = c >= 'A' && c <= 'Z' ? static_cast<char>(c + 32) : c;
  return text;
}

}  // namespace

constexpr std::string_view kLoading = "LOADING Verbena is loading the dataset in memory";

Engine::Engine(uint32_t databases, Arena::Source source) : keyspace(databases, std::move(source)) {}

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

void Engine::count_from(uint64_t offset) {
  offset_ = offset;
  if (backlog_) backlog_->count_from(offset);
}

void Engine::refresh_time() {
  // What is read back expires when it did, which the log says itself, or later.
  keyspace.set_now(loading ? 0 : unix_ms());
}

void Engine::add(Client& client) {
  client.created_ms = client.last_ms = keyspace.now_ms();
  clients_[client.id] = &client;
  ++figures.connections;
  if (program_ && client.ruled) program_->opened(client);
}

void Engine::remove(Client& client) {
  clients_.erase(client.id);
  if (program_) program_->closed(client);
}

Client* Engine::find(uint64_t id) const {
  const auto found = clients_.find(id);
  return found == clients_.end() ? nullptr : found->second;
}

void Engine::told(Client& client) {
  figures.output_bytes.note(client.pending_out());
  if (client.out_limit != 0 && client.pending_out() > client.out_limit && !client.doomed) {
    client.doomed = true;
    ++figures.output_disconnections;
  }
  if (journal_ && journal_->position() != committed_) pledged_.push_back(client.id);
  if (client.waking) return;
  client.waking = true;
  client.wake();
}

void Engine::commit() {
  if (!journal_) return;
  const bool kept = journal_->commit();
  committed_ = journal_->position();
  if (kept) return pledged_.clear();
  for (const uint64_t id : std::exchange(pledged_, {})) {
    Client* const client = find(id);
    if (!client) continue;
    client->out.clear();
    client->doomed = true;
    told(*client);
  }
}

void Engine::hear(Client& client, std::string_view bytes) {
  client.bytes_in += bytes.size();
  figures.bytes_in += bytes.size();
  client.last_ms = keyspace.now_ms();
  size_t used = 0;
  if (client.in.empty()) {
    figures.input_bytes.note(bytes.size());
    process(client, bytes, used);
    client.in.append(bytes.substr(used));
  } else {
    client.in.append(bytes);
    figures.input_bytes.note(client.in.size());
    process(client, client.in, used);
    client.in.erase(0, used);
  }
  if (client.in.empty() && client.in.capacity() > 1u << 16) client.in = {};
  if (client.in.size() > max_input_bytes) {
    client.doomed = true;
    ++figures.input_disconnections;
    told(client);
  }
}

void Engine::resume(Client& client) {
  client.blocked = false;
  size_t used = 0;
  process(client, client.in, used);
  client.in.erase(0, used);
}

void Engine::process(Client& client, std::string_view input, size_t& used) {
  while (!client.blocked && !client.closing && !client.doomed) {
    const RequestLimits& bounds = client.stranger ? kStrangerLimits : limits;
    if (client.reader.is_fresh() && process_whole(client, input.substr(used), bounds, used)) continue;
    switch (client.reader.read(input.substr(used), bounds)) {
      case RequestReader::Result::more:
        return;
      case RequestReader::Result::bad:
        ++figures.errors;
        ++errors["ERR"];
        ReplyWriter(client.out, client.version).error(client.reader.fault());
        client.closing = true;
        told(client);
        used = input.size();
        return;
      case RequestReader::Result::ready:
        const size_t bytes = client.reader.consumed();
        if (!client.reader.words().empty() && !answer(client, client.reader.words())) {
          return client.reader.next();  // it is read again when it may go on
        }
        client.reader.next();
        used += bytes;
    }
  }
  if (client.closing || client.doomed) used = input.size();
}

bool Engine::answer(Client& client, Arguments words) {
  if (!slots || admits(client, words)) {
    run(client, words);
  } else if (client.blocked) {
    return false;
  }
  return true;
}

// Requests that came together are read together: while one runs, the memory that the next ones need is on its
// way. Waiting for it would take longer than all the rest.
bool Engine::process_whole(Client& client, std::string_view input, const RequestLimits& bounds,
                           size_t& used) {
  struct Request {
    size_t bytes;
    Arguments words;
    uint64_t hash;
    uint32_t place;
  };
  if (is_ahead_) return false;
  std::array<Request, kAhead> requests;
  size_t count = 0, taken = 0;
  for (size_t at = 0; count < kAhead; ++count) {
    size_t words = 0;
    const auto room = std::span(ahead_).subspan(taken);
    const size_t bytes = take_plain_request(input.substr(at), bounds, room, words);
    if (bytes == 0) break;
    requests[count] = {bytes, room.first(words), 0, 0};
    taken += words;
    at += bytes;
  }
  if (count == 0) return false;
  if (count > 1 && keyspace.exists(client.database)) {
    const Index& index = keyspace.database(client.database).index();
    for (Request& request : std::span(requests).first(count)) {
      if (request.words.size() < 2) continue;
      request.hash = keyspace.hash(request.words[1]);
      index.prefetch_bucket(request.hash);
    }
    for (Request& request : std::span(requests).first(count)) {
      if (request.words.size() > 1) request.place = index.prefetch_item(request.hash);
    }
  }
  is_ahead_ = true;
  for (const Request& request : std::span(requests).first(count)) {
    if (request.hash != 0) keyspace.expect(request.words[1], request.hash, request.place);
    if (!answer(client, request.words)) break;
    used += request.bytes;
    if (client.blocked || client.closing || client.doomed) break;
  }
  keyspace.expect({}, 0);
  is_ahead_ = false;
  return true;
}

bool Engine::admits(Client& client, Arguments words) {
  NativeCommand* const command = native_for(client, words);
  if (!command) return true;  // the program asks for itself
  const KeySpec keys = slots->keys[static_cast<size_t>(command - commands.all().data())];
  std::string error;
  Database& database = keyspace.database(client.database);
  const auto verdict = slots->judge(client, database, words, keys, command->writes, error);
  if (verdict == SlotTable::Verdict::hold) {
    client.blocked = true;
    held_.push_back(client.id);
    return false;
  }
  client.asking = false;
  if (verdict == SlotTable::Verdict::serve) return true;
  ++client.commands;
  ++figures.commands;
  ++figures.errors;
  ++command->rejected;
  const size_t before = client.out.size();
  ReplyWriter(client.out, client.version).error(error);
  note_error(std::string_view(client.out).substr(before));
  told(client);
  return false;
}

void Engine::release_held() {
  for (const uint64_t id : std::exchange(held_, {})) {
    Client* const client = find(id);
    if (client && client->blocked) resume(*client);
  }
}

NativeCommand* Engine::native_for(const Client& client, Arguments words) const {
  return ruled || client.ruled ? nullptr : commands.find(words[0]);
}

void Engine::run(Client& client, Arguments words) {
  ++client.commands;
  ++figures.commands;
  keyspace.touching = !client.no_touch;
  if (NativeCommand* command = native_for(client, words)) {
    if (loading && command->name != "ECHO") {
      const size_t before = client.out.size();
      ReplyWriter(client.out, client.version).error(kLoading);
      note_error(std::string_view(client.out).substr(before));
      ++figures.errors, ++command->rejected;
    } else {
      run_native(client, words, command);
    }
  } else if (program_) {
    ++figures.program_commands;
    if (keyspace.has_disturbed()) program_->disturbed(keyspace.take_disturbed());
    tell_invalidated();
    keyspace.author = client.id;
    program_->run(client, words);
    keyspace.author = 0;
    if (!notices_.empty()) tell_notices();
    tell_invalidated();
    clock_ns_ = 0;
  } else {
    ReplyWriter(client.out, client.version).error("ERR unknown command");
  }
  if (journal_) journal_->boundary();
  if (!client.out.empty()) told(client);
}

bool Engine::run_native(Client& client, Arguments words, NativeCommand* command) {
  if (!command) command = commands.find(words[0]);
  if (!command) return false;
  client.last_command = command->name.data();
  Database& database = keyspace.database(client.database);
  std::function<void(char, const char*, std::string_view)> notify;
  if (notifications_ && program_) {
    notify = [&](char kind, const char* event, std::string_view key) {
      notices_.push_back({client.database, kind, event, std::string(key)});
    };
  }
  Call call{keyspace, database, words, ReplyWriter(client.out, client.version), notify ? &notify : nullptr};
  const size_t before = client.out.size();
  if (is_arity_wrong(*command, words.size())) {
    call.error("ERR wrong number of arguments for '" + small_letters(command->name) + "' command");
    ++command->rejected;
  } else if (command->writes && !refusal().empty()) {
    call.error(refusal());
    ++command->rejected;
  } else if (command->needs_memory && !keyspace.make_room()) {
    call.error("OOM command not allowed when used memory > 'maxmemory'.");
    ++command->rejected;
  } else {
    if (time_commands && clock_ns_ == 0) clock_ns_ = now_ns();
    try {
      command->run(call);
    } catch (const Error& error) {  // no memory
      client.out.resize(before);
      call.error("OOM " + error.detail());
    }
    ++command->calls;
    if (time_commands) {
      const uint64_t now = now_ns(), took = now - clock_ns_;
      command->ns += took;
      ++command->buckets[std::min<size_t>(static_cast<size_t>(std::bit_width(took)),
                                          NativeCommand::kBuckets - 1)];
      clock_ns_ = now;
      if (took >= slow_ns) note_slow(client, words, took);
    }
    command->failed += call.failed;
  }
  if (call.failed) {
    ++figures.errors;
    note_error(std::string_view(client.out).substr(before));
  }
  if (!notices_.empty()) tell_notices();
  return true;
}

// `reply` begins with an error.
void Engine::note_error(std::string_view reply) {
  ++errors[std::string(reply.substr(1, reply.find(' ') - 1))];
}

void Engine::set_notifications(bool wanted) {
  notifications_ = wanted;
  keyspace.on_gone = nullptr;
  if (wanted) {
    keyspace.on_gone = [this](uint32_t database, char kind, const char* event, std::string_view key) {
      notices_.push_back({database, kind, event, std::string(key)});
    };
  }
}

void Engine::tell_notices() {
  const auto notices = std::exchange(notices_, {});
  if (!program_) return;
  for (const Notice& notice : notices) {
    program_->notify(notice.database, notice.kind, notice.event, notice.key);
  }
}

// Between a client's replies: it never keeps an old value that it hears after the news.
void Engine::tell_invalidated() {
  if (tracking.has_messages()) program_->invalidated(tracking.take_messages());
}

void Engine::note_slow(const Client& client, Arguments words, uint64_t ns) {
  constexpr size_t kWords = 32, kBytes = 128;
  if (slow_.size() >= 128) return;
  Slow slow{client.id, ns, keyspace.now_ms(), {}};
  for (const std::string_view word : words.first(std::min(words.size(), kWords))) {
    slow.words.emplace_back(word.substr(0, kBytes));
  }
  slow_.push_back(std::move(slow));
}

void Engine::settle() {
  clock_ns_ = 0;
  if (!program_) return;
  if (!notices_.empty()) tell_notices();
  if (keyspace.has_disturbed()) program_->disturbed(keyspace.take_disturbed());
  tell_invalidated();
  if (tracking.has_broadcasts()) program_->invalidated(tracking.take_broadcasts());
  if (keyspace.has_released()) program_->release(keyspace.take_released());
  program_->rest();
}

void Engine::tick(uint64_t now) {
  constexpr uint64_t kBudgetNs = 1'000'000;
  figures.input_bytes.pass(now), figures.output_bytes.pass(now);
  if (journal_) journal_->tick(now);
  if (keyspace.has_rubbish()) keyspace.reclaim(now, now + kBudgetNs);
  // The more is waiting the longer: who deletes as fast as others fill must not get ahead.
  if (const uint64_t left = program_ ? program_->unburied() : 0; left > 0) {
    program_->bury(now_ns() + kBudgetNs * std::min<uint64_t>(1 + left / 4'000'000, 5));
  }
  tracking.tidy();
  if (loading) return;
  for (uint32_t i = 0; active_expiry && i < keyspace.databases(); ++i) {
    if (keyspace.exists(i)) keyspace.database(i).expire_due(keyspace.now_ms(), now + 2 * kBudgetNs);
  }
  if (background && !background->work(now_ns() + kBudgetNs)) background = nullptr;
  figures.longest_tick_ns = std::max(figures.longest_tick_ns, now_ns() - now);
}

}  // namespace verbena::kv
