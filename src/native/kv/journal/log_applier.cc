#include "kv/journal/log_applier.h"

#include <cstring>

#include "util/error.h"

namespace verbena::kv {

namespace {

constexpr size_t kMinStagedBytes = 8u << 10;  // below this, copying is as fast as staging

bool is_plain_set(Arguments arguments) { return arguments.size() == 3 && arguments[0] == "SET"; }

// The engine's state while effects of the source are applied: keys do not expire, writes are not refused,
// nothing is evicted, and only the effects themselves are logged. The destructor restores it and clears the
// keyspace's expected hash.
class ApplyMode {
 public:
  explicit ApplyMode(Engine& engine)
      : engine_(engine),
        journal_(engine.keyspace.swap_journal(nullptr)),
        max_bytes_(std::exchange(engine.keyspace.max_bytes, 0)),
        refusal_(std::exchange(engine.refuse_writes, {})),
        keeps_expired_(std::exchange(engine.keyspace.keeps_expired, false)) {
    engine.keyspace.set_now(0);
  }
  ~ApplyMode() {
    engine_.keyspace.set_prefetched({}, 0);
    engine_.keyspace.swap_journal(journal_);
    engine_.keyspace.max_bytes = max_bytes_;
    engine_.refuse_writes = std::move(refusal_);
    engine_.keyspace.keeps_expired = keeps_expired_;
    engine_.refresh_time();
  }
  ApplyMode(const ApplyMode&) = delete;
  ApplyMode& operator=(const ApplyMode&) = delete;
  Journal* journal() const { return journal_; }

 private:
  Engine& engine_;
  Journal* const journal_;
  const uint64_t max_bytes_;
  std::string refusal_;
  const bool keeps_expired_;
};

}  // namespace

void LogApplier::fail_stream(const std::string& why) {
  throw Error("log_failed", "apply the log of another node",
              "after LSN " + std::to_string(lsn_) + ": " + why);
}

bool LogApplier::parse_next(std::string_view bytes, ParsedRecord& found) {
  const auto is_wrong = [this](std::string why) {
    fault_ = std::move(why);
    return false;
  };
  LogRecordHeader header;
  if (bytes.size() < sizeof header) return false;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.flags & ~(kMore | kEnd | kValueRecord)) return is_wrong("unknown record flags");
  if (header.length > kLongestRecord) return is_wrong("record too long");
  const size_t size = sizeof header + padded(header.length);
  if (bytes.size() < size) return false;
  if (!checked_ && record_checksum(kStreamSeed, bytes.data(), size) != header.checksum) {
    return is_wrong("record checksum mismatch");
  }
  const size_t first = arguments_.size();
  if (!append_arguments(bytes.substr(sizeof header, header.length), arguments_) ||
      arguments_.size() == first) {
    return is_wrong("argument lengths do not match the record");
  }
  const LogRecord record{0, size, header.lsn, header.epoch, header.database, header.slot, header.flags};
  if (record.database >= engine_.keyspace.databases()) {
    return is_wrong("record of database " + std::to_string(record.database) +
                    ", but the number of databases is " + std::to_string(engine_.keyspace.databases()));
  }
  if (record.slot != kNoSlot && record.slot >= kSlotCount) return is_wrong("slot out of range");
  // A source that sends some slots must not change others, whatever the headers claim.
  if (slots_ && !record.is_end()) {
    const bool is_database_effect = database_effect(arguments_[first]) != DatabaseEffect::none;
    if (is_database_effect != (record.slot == kNoSlot)) return is_wrong("record without the slot of its key");
    if (!is_database_effect &&
        (arguments_.size() < first + 2 || key_slot(arguments_[first + 1]) != record.slot ||
         !slots_->test(record.slot))) {
      return is_wrong("record of another slot");
    }
  }
  found = {record, first, arguments_.size() - first, 0, 0, nullptr};
  return true;
}

void LogApplier::stage(std::string_view bytes, StagedValues& staged) const {
  LogRecordHeader header;
  if (!pending_.empty()) {
    if (pending_.size() < sizeof header) return;  // the start of the next record is unknown
    std::memcpy(&header, pending_.data(), sizeof header);
    bytes.remove_prefix(std::min(bytes.size(), sizeof header + padded(header.length) - pending_.size()));
  }
  std::vector<std::string_view> arguments;
  while (bytes.size() >= sizeof header) {
    std::memcpy(&header, bytes.data(), sizeof header);
    const size_t size = sizeof header + padded(header.length);
    if (size > bytes.size()) return;
    if (header.length >= kMinStagedBytes &&
        parse_arguments(bytes.substr(sizeof header, header.length), arguments) && is_plain_set(arguments) &&
        arguments[2].size() >= kMinStagedBytes && !staged.expect(arguments[1].size(), arguments[2])) {
      return;
    }
    bytes.remove_prefix(size);
  }
}

uint64_t LogApplier::apply(std::string_view bytes, bool checked, StagedValues* staged) {
  const ApplyMode mode(engine_);
  staged_ = staged;
  checked_ = checked && (pending_.empty() ||
                         checked_);  // the kept beginning of a record must have been verified as well
  journal_ = mode.journal();
  // Completes the record whose beginning came before.
  while (!pending_.empty() && !bytes.empty()) {
    LogRecordHeader header;
    size_t wanted = sizeof header;
    if (pending_.size() >= sizeof header) {
      std::memcpy(&header, pending_.data(), sizeof header);
      wanted += padded(header.length);
    }
    const size_t more = std::min(bytes.size(), wanted - std::min(wanted, pending_.size()));
    pending_.append(bytes.substr(0, more));
    bytes.remove_prefix(more);
    if (const size_t size = apply_batch(pending_)) {
      pending_.clear();
      if (size != wanted) fail_stream("record length does not match its header");
    } else if (more == 0) {
      break;
    }
  }
  while (const size_t size = apply_batch(bytes)) bytes.remove_prefix(size);
  pending_.append(bytes);
  return lsn_;
}

size_t LogApplier::apply_batch(std::string_view bytes) {
  size_t count = 0, done = 0;
  arguments_.clear();
  fault_.clear();
  while (count < kBatch && parse_next(bytes.substr(done), parsed_[count]))
    done += parsed_[count++].record.bytes;
  const auto records = std::span(parsed_).first(count);
  if (count > 1) prefetch(records);
  for (const ParsedRecord& parsed : records) {
    const Arguments arguments = Arguments(arguments_).subspan(parsed.first_argument, parsed.arguments);
    if (parsed.hash != 0) engine_.keyspace.set_prefetched(arguments[1], parsed.hash, parsed.place);
    apply_or_group(parsed.record, arguments);
  }
  if (!fault_.empty()) fail_stream(fault_);
  return done;
}

// Prefetches index buckets and items of the batch, as the engine does for pipelined commands.
void LogApplier::prefetch(std::span<ParsedRecord> records) {
  Keyspace& keyspace = engine_.keyspace;
  for (ParsedRecord& parsed : records) {
    if (parsed.arguments < 2 || parsed.record.is_end() || !keyspace.exists(parsed.record.database)) continue;
    parsed.hash = keyspace.hash(arguments_[parsed.first_argument + 1]);
    parsed.index = &keyspace.database(parsed.record.database).index();
    parsed.index->prefetch_bucket(parsed.hash);
  }
  for (ParsedRecord& parsed : records) {
    if (parsed.hash != 0) parsed.place = parsed.index->prefetch_item(parsed.hash);
  }
}

void LogApplier::restart() {
  lsn_ = offset_ = 0;
  complete_ = false;
  pending_.clear();
  group_.clear();
}

void LogApplier::apply_or_group(const LogRecord& record, Arguments arguments) {
  if (record.more() || !group_.empty()) {
    GroupedRecord grouped{record, {}};
    for (const std::string_view argument : arguments) {
      const auto length = static_cast<uint32_t>(argument.size());
      grouped.arguments.append(reinterpret_cast<const char*>(&length), sizeof length).append(argument);
    }
    group_.push_back(std::move(grouped));
    if (!record.more()) apply_group();
    return;
  }
  run(record, arguments);
  if (journal_) journal_->end_command();
}

void LogApplier::apply_group() {
  const auto group = std::exchange(group_, {});
  std::vector<std::string_view> arguments;
  for (const GroupedRecord& grouped : group) {
    parse_arguments(grouped.arguments, arguments);
    run(grouped.record, arguments);
  }
  if (journal_) journal_->end_command();
}

void LogApplier::run(const LogRecord& record, Arguments arguments) {
  epoch_ = std::max(epoch_, record.epoch);
  if (record.is_end()) {
    if (arguments.size() != 2 || arguments[1].size() != sizeof offset_)
      fail_stream("invalid end of the base copy");
    lsn_ = std::max(lsn_, record.lsn);
    std::memcpy(&offset_, arguments[1].data(), sizeof offset_);
    complete_ = true;
    return;
  }
  // A value may have the LSN that has been reached; applying it twice changes nothing.
  if (record.is_value() ? record.lsn < lsn_ : record.lsn <= lsn_) {
    ++skipped_;
    return;
  }
  lsn_ = record.lsn;
  ++applied_;
  if (record.is_value()) {
    ++values_;
  } else {
    offset_ += record.bytes;
  }
  if (const DatabaseEffect kind = database_effect(arguments[0]); kind != DatabaseEffect::none) {
    apply_database_effect(record, arguments, kind);
  } else {
    Database& database = engine_.keyspace.database(record.database);
    if (is_plain_set(arguments)) {
      store_string(database, arguments[1], arguments[2]);
      engine_.keyspace.changed(database, arguments[1]);
    } else if (const NativeCommand* command = engine_.commands.find(arguments[0])) {
      out_.clear();
      CommandCall call{engine_.keyspace, database, arguments, ReplyWriter(out_, 2)};
      command->run_logged(call);
      // An effect may fail here while the value of its key has not come yet.
      if (call.failed && ++failed_ == 1) first_failure_ = std::string(arguments[0]) + ": " + out_;
    } else if (!run_in_python_ || !run_in_python_(record.database, arguments)) {
      if (++failed_ == 1) first_failure_ = std::string(arguments[0]);
    }
  }
  if (journal_ && (record.slot != kNoSlot || !slots_)) journal_->append(record.database, arguments);
}

void LogApplier::store_string(Database& database, std::string_view key, std::string_view value) {
  const Entry there = database.find(key, false);
  if (const Location block = staged_ ? staged_->find(key.size(), value) : 0) {
    database.adopt(there, key, block, value.size());
    staged_->taken();
  } else {
    database.set(there, key, value, 0);
  }
}

void LogApplier::apply_database_effect(const LogRecord& record, Arguments arguments, DatabaseEffect kind) {
  Keyspace& keyspace = engine_.keyspace;
  if (slots_ && kind == DatabaseEffect::swap) fail_stream("SWAPDB during a slot move");
  if (kind == DatabaseEffect::swap) {
    const auto one = arguments.size() > 2 ? parse_integer(arguments[1]) : std::nullopt;
    const auto other = arguments.size() > 2 ? parse_integer(arguments[2]) : std::nullopt;
    const auto count = static_cast<int64_t>(keyspace.databases());
    if (!one || !other || *one < 0 || *other < 0 || *one >= count || *other >= count) {
      fail_stream("SWAPDB with invalid database numbers");
    }
    keyspace.swap(static_cast<uint32_t>(*one), static_cast<uint32_t>(*other));
    return;
  }
  for (uint32_t i = 0; i < keyspace.databases(); ++i) {
    if ((kind == DatabaseEffect::flush && i != record.database) || !keyspace.exists(i)) continue;
    if (slots_) {
      clear_slots(i);
    } else {
      keyspace.mark_all_watchers_dirty(i);
      keyspace.database(i).clear();
    }
  }
}

// The source flushed more slots than it sends; keys of other slots here are not affected.
void LogApplier::clear_slots(uint32_t number) {
  Database& database = engine_.keyspace.database(number);
  std::vector<std::string> keys;
  for (uint64_t cursor = 0;;) {
    cursor = database.scan(cursor, 1024, [&](Entry entry) {
      if (slots_->test(key_slot(entry.key()))) keys.emplace_back(entry.key());
    });
    if (cursor == 0) break;
  }
  for (const std::string& key : keys) {
    const Entry entry = database.peek(key);
    if (!entry) continue;  // the scan returned it twice
    database.erase(entry);
    engine_.keyspace.changed(database, key);
    const std::string_view effect[] = {"DEL", key};
    if (journal_) journal_->append(number, effect);
  }
}

}  // namespace verbena::kv
