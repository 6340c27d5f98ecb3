// Recovery: checks log segments and snapshots, and loads a snapshot and the log that follows it into an
// engine.
// Depends on the engine and on log records; not on the running log.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "kv/engine/engine.h"
#include "kv/journal/log_record.h"

namespace verbena::kv {

// A file mapped read-only. Throws if it cannot be read.
class MappedFile {
 public:
  explicit MappedFile(const std::string& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;
  std::string_view bytes() const { return {data_, size_}; }

 private:
  const char* data_ = nullptr;
  size_t size_ = 0;
};

// The result of checking all records of a file.
struct FileReport {
  uint64_t file_bytes = 0, whole_bytes = 0;  // whole_bytes: up to the end of the last complete command
  uint64_t records = 0, first_lsn = 0, next_lsn = 0;
  uint64_t last_lsn = 0;     // of a snapshot: at which it was complete
  uint64_t durable_lsn = 0;  // the highest LSN that a mark in the readable part reports to be on disk
  uint32_t version = 0, epoch = 0;
  uint64_t created_ms = 0;
  bool readable = false;  // the header is valid
  // Position of the damage, the LSN expected there, and a description; empty: no damage.
  uint64_t fault_offset = 0, fault_lsn = 0;
  std::string fault;
  // Behind the damage: the number of intact records, and the highest LSN that a mark reports to be on disk.
  uint64_t records_behind = 0, durable_behind = 0;
};
FileReport examine(std::string_view file, LogReader::Kind kind);

// Applies files to an engine, whose `loading` is true meanwhile. If there is a snapshot: survey every log
// segment, then load the snapshot, then replay the segments. For each file call begin(), then step() until it
// returns false.
class Loader {
 public:
  // Runs a command that has no native implementation (database, arguments) in Python, from within step().
  using RunInPython = std::function<void(uint32_t, Arguments)>;
  Loader(Engine& engine, RunInPython run_in_python);
  ~Loader();

  enum class Phase : uint8_t { survey, snapshot, log };
  // Opens a file whose first `bytes` examine() has found intact. `last_lsn`: at which the snapshot was
  // complete.
  void begin(Phase phase, const std::string& path, uint64_t bytes, uint64_t last_lsn);
  // Works until the deadline. False: the file is finished.
  bool step(uint64_t deadline_ns);
  double fraction() const;  // of the file that has been read
  uint64_t applied() const { return applied_; }
  uint64_t skipped() const { return skipped_; }
  uint64_t failed() const { return failed_; }  // commands that replied with an error
  const std::string& first_failure() const { return first_failure_; }

 private:
  // Identifies a key by its database number at the time when the snapshot began.
  static std::string name_of(uint32_t database, std::string_view key) {
    return std::string(1, static_cast<char>(database)).append(key);
  }
  void apply(const LogRecord& record, Arguments arguments);
  bool is_in_snapshot(const LogRecord& record, Arguments arguments) const;
  void apply_database_effect(const LogRecord& record, Arguments arguments, DatabaseEffect kind);
  void run(uint32_t database, Arguments arguments);

  Engine& engine_;
  RunInPython run_in_python_;
  const uint64_t max_bytes_;
  std::unique_ptr<MappedFile> file_;
  std::unique_ptr<LogReader> reader_;
  Phase phase_ = Phase::log;
  uint64_t last_lsn_ = 0;
  // Keys that changed while the snapshot was written, and the LSN of their values in it; 0: it has none.
  std::unordered_map<std::string, uint64_t> snapshot_lsns_;
  std::vector<uint64_t>
      flushed_;  // the LSN at which each database was flushed while the snapshot was written
  std::vector<uint32_t> origin_;
  uint64_t applied_ = 0, skipped_ = 0, failed_ = 0;
  std::string out_, first_failure_;
};

}  // namespace verbena::kv
