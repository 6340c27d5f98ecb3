// Applies a stream of records, as BaseCopy and BacklogReader produce it, to an engine. A record whose LSN has
// been applied is skipped, so a piece may come twice; the records of one command are applied together; a
// damaged record is never applied.
// Depends on the engine; not on sessions or on the program that receives the stream.
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
  // Runs a command that has no native implementation (database, arguments) in Python. False: it failed, and
  // is counted.
  using RunInPython = std::function<bool(uint32_t, Arguments)>;
  // `lsn`: records of the source up to this one are applied already. `slots`: the stream may only contain
  // records of these.
  LogApplier(Engine& engine, RunInPython run_in_python, uint64_t lsn = 0,
             std::unique_ptr<SlotSet> slots = nullptr)
      : engine_(engine), run_in_python_(std::move(run_in_python)), slots_(std::move(slots)), lsn_(lsn) {}

  // With the engine's lock, between commands. The stream may be cut anywhere: an incomplete record is kept
  // until the rest comes. Returns the last LSN of the source that has been applied. Throws if the stream is
  // damaged or invalid: nothing of the faulty record is applied, and the applier must not be used again.
  // `checked`: the caller has verified a checksum over these bytes, so the records' own checksums are not
  // verified. `staged`: holds values of these bytes that are already in the store's memory.
  uint64_t apply(std::string_view bytes, bool checked = false, StagedValues* staged = nullptr);
  // With the engine's lock. `bytes` are not verified yet, and may change meanwhile: finds the long values
  // that applying them next would store unchanged.
  void stage(std::string_view bytes, StagedValues& staged) const;

  // Prepares for another stream, which begins with a full base copy.
  void restart();

  uint64_t lsn() const { return lsn_; }
  uint64_t offset() const { return offset_; }  // offset in the source's log up to which everything is applied
  void set_offset(uint64_t offset) { offset_ = offset; }
  uint32_t epoch() const { return epoch_; }
  bool is_complete() const { return complete_; }  // the end record of a base copy has been applied
  bool is_idle() const { return pending_.empty() && group_.empty(); }
  uint64_t applied() const { return applied_; }
  uint64_t skipped() const { return skipped_; }
  uint64_t values() const { return values_; }
  uint64_t failed() const { return failed_; }
  const std::string& first_failure() const { return first_failure_; }

 private:
  // A record that has been checked and not applied yet.
  struct ParsedRecord {
    LogRecord record;
    size_t first_argument, arguments;
    uint64_t hash;  // of the key
    uint32_t place;
    const Index* index;
  };
  static constexpr size_t kBatch = 16;
  // Parses and checks the first record. False: it is incomplete, or fault_ describes what is wrong.
  bool parse_next(std::string_view bytes, ParsedRecord& found);
  // Applies up to kBatch complete records and returns their length in bytes.
  size_t apply_batch(std::string_view bytes);
  void prefetch(std::span<ParsedRecord> records);
  void apply_or_group(const LogRecord& record, Arguments arguments);
  void apply_group();
  void run(const LogRecord& record, Arguments arguments);
  void store_string(Database& database, std::string_view key, std::string_view value);
  void apply_database_effect(const LogRecord& record, Arguments arguments, DatabaseEffect kind);
  void clear_slots(uint32_t number);
  [[noreturn]] void fail_stream(const std::string& why);

  Engine& engine_;
  const RunInPython run_in_python_;
  const std::unique_ptr<SlotSet> slots_;
  uint64_t lsn_, offset_ = 0;
  uint32_t epoch_ = 0;
  bool complete_ = false, checked_ = false;
  std::string pending_;  // the beginning of an incomplete record
  std::array<ParsedRecord, kBatch> parsed_;
  std::vector<std::string_view> arguments_;  // of the records in parsed_
  std::string fault_;
  // Records of a command whose last record has not come yet.
  struct GroupedRecord {
    LogRecord record;
    std::string arguments;
  };
  std::vector<GroupedRecord> group_;
  uint64_t applied_ = 0, skipped_ = 0, values_ = 0, failed_ = 0;
  std::string out_, first_failure_;
  Journal* journal_ = nullptr;
  StagedValues* staged_ = nullptr;
};

}  // namespace verbena::kv
