// Applies a stream of records, as a base copy and a reader give them, to an engine. Records that have been
// applied are known by their LSN and passed over, so a piece may come twice; what belongs together is applied
// together; nothing damaged is applied at all.
#pragma once

#include <array>
#include <functional>
#include <string>
#include <vector>

#include "kv/engine/engine.h"
#include "kv/journal/backlog.h"
#include "kv/journal/log_record.h"
#include "kv/values/staged_values.h"

namespace verbena::kv {

class LogApplier {
 public:
  // What native code does not know goes to `foreign` (database, words); false: it failed, and is counted.
  using Foreign = std::function<bool(uint32_t, Arguments)>;
  // `lsn`: the source's records up to this one are here already. `slots`: the stream is of these alone.
  LogApplier(Engine& engine, Foreign foreign, uint64_t lsn = 0, std::unique_ptr<SlotSet> slots = nullptr)
      : engine_(engine), foreign_(std::move(foreign)), slots_(std::move(slots)), lsn_(lsn) {}

  // With the engine's lock, between commands. The stream may be cut anywhere: the rest of a record is waited
  // for. Returns the last LSN of the source's that has been applied. Throws if the stream is damaged or makes
  // no sense: then nothing of the faulty record was applied, and the applier is of no use any more.
  // `checked`: the caller has checked a sum over these bytes, so those of the records are not looked at.
  // `staged`: has values of these bytes.
  uint64_t apply(std::string_view bytes, bool checked = false, StagedValues* staged = nullptr);
  // With the engine's lock, about bytes that nobody has checked: finds the long values that applying them
  // next would store as they are.
  void stage(std::string_view bytes, StagedValues& staged) const;

  // Another stream begins, with a copy of everything.
  void restart();

  uint64_t lsn() const { return lsn_; }
  uint64_t offset() const { return offset_; }  // of the source's log: all of it up to there has been applied
  void set_offset(uint64_t offset) { offset_ = offset; }
  uint32_t epoch() const { return epoch_; }
  bool is_complete() const { return complete_; }  // a base copy's end has been seen
  bool is_idle() const { return pending_.empty() && group_.empty(); }
  uint64_t applied() const { return applied_; }
  uint64_t skipped() const { return skipped_; }
  uint64_t images() const { return images_; }
  uint64_t failed() const { return failed_; }
  const std::string& first_failure() const { return first_failure_; }

 private:
  // A record that has been looked at, and not applied yet.
  struct Ahead {
    LogRecord record;
    size_t first_word, words;
    uint64_t hash;  // of its key
    uint32_t place;
    const Index* index;
  };
  static constexpr size_t kAhead = 16;
  // Reads the first record; false: it is not whole, or fault_ says what is wrong with it.
  bool look(std::string_view bytes, Ahead& found);
  // Applies the records that are whole, some at a time; returns how many bytes they have.
  size_t apply_some(std::string_view bytes);
  void expect(std::span<Ahead> records);
  void take(const LogRecord& record, Arguments words);
  void apply_group();
  void run(const LogRecord& record, Arguments words);
  void store(Database& database, std::string_view key, std::string_view value);
  void sweep(const LogRecord& record, Arguments words, Sweep kind);
  void clear_slots(uint32_t number);
  [[noreturn]] void refuse(const std::string& why);

  Engine& engine_;
  const Foreign foreign_;
  const std::unique_ptr<SlotSet> slots_;
  uint64_t lsn_, offset_ = 0;
  uint32_t epoch_ = 0;
  bool complete_ = false, checked_ = false;
  std::string pending_;  // a record that is not whole
  std::array<Ahead, kAhead> ahead_;
  std::vector<std::string_view> words_;  // of those
  std::string fault_;
  // Records of a command that has more: kept until its last one is here.
  struct Kept {
    LogRecord record;
    std::string words;
  };
  std::vector<Kept> group_;
  uint64_t applied_ = 0, skipped_ = 0, images_ = 0, failed_ = 0;
  std::string out_, first_failure_;
  Journal* journal_ = nullptr;
  StagedValues* staged_ = nullptr;
};

}  // namespace verbena::kv
