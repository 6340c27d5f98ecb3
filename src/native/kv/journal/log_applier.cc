#include "kv/journal/log_applier.h"

#include <cstring>

#include "util/error.h"

namespace verbena::kv {

namespace {

constexpr size_t kMinExpected = 8u << 10;  // a shorter value is copied as fast as it is found

bool stores_a_string(Arguments words) { return words.size() == 3 && words[0] == "SET"; }

// What the engine is while the source's effects are applied: nothing expires, is refused or evicted, and
// nothing is written down but the effects themselves. Afterwards no hash of a key of theirs is expected.
class Obedience {
 public:
  explicit Obedience(Engine& engine)
      : engine_(engine),
        journal_(engine.keyspace.swap_journal(nullptr)),
        max_bytes_(std::exchange(engine.keyspace.max_bytes, 0)),
        refusal_(std::exchange(engine.refuse_writes, {})),
        keeps_expired_(std::exchange(engine.keyspace.keeps_expired, false)) {
    engine.keyspace.set_now(0);
  }
  ~Obedience() {
    engine_.keyspace.set_prefetched({}, 0);
    engine_.keyspace.swap_journal(journal_);
    engine_.keyspace.max_bytes = max_bytes_;
    engine_.refuse_writes = std::move(refusal_);
    engine_.keyspace.keeps_expired = keeps_expired_;
    engine_.refresh_time();
  }
  Obedience(const Obedience&) = delete;
  Obedience& operator=(const Obedience&) = delete;
  Journal* journal() const { return journal_; }

 private:
  Engine& engine_;
  Journal* const journal_;
  const uint64_t max_bytes_;
  std::string refusal_;
  const bool keeps_expired_;
};

}  // namespace

void LogApplier::refuse(const std::string& why) {
  throw Error("log_failed", "apply the log of another node",
              "behind LSN " + std::to_string(lsn_) + ": " + why);
}

bool LogApplier::look(std::string_view bytes, Ahead& found) {
  const auto is_wrong = [this](std::string why) {
    fault_ = std::move(why);
    return false;
  };
  LogRecordHeader header;
  if (bytes.size() < sizeof header) return false;
  std::memcpy(&header, bytes.data(), sizeof header);
  if (header.flags & ~(kMore | kEnd | kImage)) return is_wrong("a record's flags are unknown");
  if (header.length > kLongestRecord) return is_wrong("a record is too long");
  const size_t size = sizeof header + padded(header.length);
  if (bytes.size() < size) return false;
  if (!checked_ && record_checksum(kStreamSeed, bytes.data(), size) != header.checksum) {
    return is_wrong("a checksum is wrong");
  }
  const size_t first = words_.size();
  if (!append_arguments(bytes.substr(sizeof header, header.length), words_) || words_.size() == first) {
    return is_wrong("a record's words do not fit it");
  }
  const LogRecord record{0, size, header.lsn, header.epoch, header.database, header.slot, header.flags};
  if (record.database >= engine_.keyspace.databases()) {
    return is_wrong("a record is of database " + std::to_string(record.database) + ", and there are " +
                    std::to_string(engine_.keyspace.databases()));
  }
  if (record.slot != kNoSlot && record.slot >= kSlotCount) return is_wrong("there is no such slot");
  // Whoever sends some slots has no say over the others, whatever its headers say.
  if (slots_ && !record.is_end()) {
    const bool sweeps = sweep_of(words_[first]) != Sweep::none;
    if (sweeps != (record.slot == kNoSlot)) return is_wrong("a record does not say which slot it is of");
    if (!sweeps && (words_.size() < first + 2 || key_slot(words_[first + 1]) != record.slot ||
                    !slots_->test(record.slot))) {
      return is_wrong("a record is of another slot");
    }
  }
  found = {record, first, words_.size() - first, 0, 0, nullptr};
  return true;
}

void LogApplier::stage(std::string_view bytes, StagedValues& staged) const {
  LogRecordHeader header;
  if (!pending_.empty()) {
    if (pending_.size() < sizeof header) return;  // nobody knows yet where the next record begins
    std::memcpy(&header, pending_.data(), sizeof header);
    bytes.remove_prefix(std::min(bytes.size(), sizeof header + padded(header.length) - pending_.size()));
  }
  std::vector<std::string_view> words;
  while (bytes.size() >= sizeof header) {
    std::memcpy(&header, bytes.data(), sizeof header);
    const size_t size = sizeof header + padded(header.length);
    if (size > bytes.size()) return;
    if (header.length >= kMinExpected && parse_arguments(bytes.substr(sizeof header, header.length), words) &&
        stores_a_string(words) && words[2].size() >= kMinExpected &&
        !staged.expect(words[1].size(), words[2])) {
      return;
    }
    bytes.remove_prefix(size);
  }
}

uint64_t LogApplier::apply(std::string_view bytes, bool checked, StagedValues* staged) {
  const Obedience obedience(engine_);
  staged_ = staged;
  checked_ = checked && (pending_.empty() || checked_);  // a record's beginning counts, too
  journal_ = obedience.journal();
  // The end of a record whose beginning came before.
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
    if (const size_t size = apply_some(pending_)) {
      pending_.clear();
      if (size != wanted) refuse("a record is not where it should be");
    } else if (more == 0) {
      break;
    }
  }
  while (const size_t size = apply_some(bytes)) bytes.remove_prefix(size);
  pending_.append(bytes);
  return lsn_;
}

size_t LogApplier::apply_some(std::string_view bytes) {
  size_t count = 0, done = 0;
  words_.clear();
  fault_.clear();
  while (count < kAhead && look(bytes.substr(done), ahead_[count])) done += ahead_[count++].record.bytes;
  const auto records = std::span(ahead_).first(count);
  if (count > 1) expect(records);
  for (const Ahead& ahead : records) {
    const Arguments words = Arguments(words_).subspan(ahead.first_word, ahead.words);
    if (ahead.hash != 0) engine_.keyspace.set_prefetched(words[1], ahead.hash, ahead.place);
    take(ahead.record, words);
  }
  if (!fault_.empty()) refuse(fault_);
  return done;
}

// As the engine does for its clients: while one is applied, the memory that the next ones need is on its way.
void LogApplier::expect(std::span<Ahead> records) {
  Keyspace& keyspace = engine_.keyspace;
  for (Ahead& ahead : records) {
    if (ahead.words < 2 || ahead.record.is_end() || !keyspace.exists(ahead.record.database)) continue;
    ahead.hash = keyspace.hash(words_[ahead.first_word + 1]);
    ahead.index = &keyspace.database(ahead.record.database).index();
    ahead.index->prefetch_bucket(ahead.hash);
  }
  for (Ahead& ahead : records) {
    if (ahead.hash != 0) ahead.place = ahead.index->prefetch_item(ahead.hash);
  }
}

void LogApplier::restart() {
  lsn_ = offset_ = 0;
  complete_ = false;
  pending_.clear();
  group_.clear();
}

void LogApplier::take(const LogRecord& record, Arguments words) {
  if (record.more() || !group_.empty()) {
    Kept kept{record, {}};
    for (const std::string_view word : words) {
      const auto length = static_cast<uint32_t>(word.size());
      kept.words.append(reinterpret_cast<const char*>(&length), sizeof length).append(word);
    }
    group_.push_back(std::move(kept));
    if (!record.more()) apply_group();
    return;
  }
  run(record, words);
  if (journal_) journal_->boundary();
}

void LogApplier::apply_group() {
  const auto group = std::exchange(group_, {});
  std::vector<std::string_view> words;
  for (const Kept& kept : group) {
    parse_arguments(kept.words, words);
    run(kept.record, words);
  }
  if (journal_) journal_->boundary();
}

void LogApplier::run(const LogRecord& record, Arguments words) {
  epoch_ = std::max(epoch_, record.epoch);
  if (record.is_end()) {
    if (words.size() != 2 || words[1].size() != sizeof offset_) refuse("a copy's end makes no sense");
    lsn_ = std::max(lsn_, record.lsn);
    std::memcpy(&offset_, words[1].data(), sizeof offset_);
    complete_ = true;
    return;
  }
  // An image may come at the LSN that has been reached, and changes nothing if it comes again.
  if (record.is_image() ? record.lsn < lsn_ : record.lsn <= lsn_) {
    ++skipped_;
    return;
  }
  lsn_ = record.lsn;
  ++applied_;
  if (record.is_image()) {
    ++images_;
  } else {
    offset_ += record.bytes;
  }
  if (const Sweep kind = sweep_of(words[0]); kind != Sweep::none) {
    sweep(record, words, kind);
  } else {
    Database& database = engine_.keyspace.database(record.database);
    if (stores_a_string(words)) {
      store(database, words[1], words[2]);
      engine_.keyspace.changed(database, words[1]);
    } else if (const NativeCommand* command = engine_.commands.find(words[0])) {
      out_.clear();
      CommandCall call{engine_.keyspace, database, words, ReplyWriter(out_, 2)};
      const auto count = static_cast<int64_t>(words.size());
      if (command->arity > 0 ? count != command->arity : count < -command->arity) {
        call.error("ERR wrong number of arguments");
      } else {
        command->run(call);
      }
      // Before its image is here, a key may lack what an effect wants of it.
      if (call.failed && ++failed_ == 1) first_failure_ = std::string(words[0]) + ": " + out_;
    } else if (!foreign_ || !foreign_(record.database, words)) {
      if (++failed_ == 1) first_failure_ = std::string(words[0]);
    }
  }
  if (journal_ && (record.slot != kNoSlot || !slots_)) journal_->append(record.database, words);
}

void LogApplier::store(Database& database, std::string_view key, std::string_view value) {
  const Entry there = database.find(key, false);
  if (const Location block = staged_ ? staged_->find(key.size(), value) : 0) {
    database.adopt(there, key, block, value.size());
    staged_->taken();
  } else {
    database.set(there, key, value, 0);
  }
}

void LogApplier::sweep(const LogRecord& record, Arguments words, Sweep kind) {
  Keyspace& keyspace = engine_.keyspace;
  if (slots_ && kind == Sweep::swap) refuse("SWAPDB while slots move");
  if (kind == Sweep::swap) {
    const auto one = words.size() > 2 ? parse_integer(words[1]) : std::nullopt;
    const auto other = words.size() > 2 ? parse_integer(words[2]) : std::nullopt;
    const auto count = static_cast<int64_t>(keyspace.databases());
    if (!one || !other || *one < 0 || *other < 0 || *one >= count || *other >= count) {
      refuse("SWAPDB names databases that are not there");
    }
    keyspace.swap(static_cast<uint32_t>(*one), static_cast<uint32_t>(*other));
    return;
  }
  for (uint32_t i = 0; i < keyspace.databases(); ++i) {
    if ((kind == Sweep::flush && i != record.database) || !keyspace.exists(i)) continue;
    if (slots_) {
      clear_slots(i);
    } else {
      keyspace.mark_all_watchers_dirty(i);
      keyspace.database(i).clear();
    }
  }
}

// What the source has flushed is more than what it sends: the rest here is not its to flush.
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
    if (!entry) continue;  // it was seen twice
    database.erase(entry);
    engine_.keyspace.changed(database, key);
    const std::string_view effect[] = {"DEL", key};
    if (journal_) journal_->append(number, effect);
  }
}

}  // namespace verbena::kv
