// From disk back into memory: whether files are whole, and the loading of a snapshot and of the log behind
// it.
#pragma once

#include <functional>
#include <string>
#include <unordered_map>
#include <vector>

#include "kv/engine/engine.h"
#include "kv/journal/log_record.h"

namespace verbena::kv {

// A file's bytes, mapped. Throws if it cannot be read.
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

// What a look at all of a file's records says.
struct FileReport {
  uint64_t file_bytes = 0, whole_bytes = 0;  // up to the end of the last whole command
  uint64_t records = 0, first_lsn = 0, next_lsn = 0;
  uint64_t last_lsn = 0;     // a snapshot's: at which it was complete
  uint64_t durable_lsn = 0;  // the highest that the part that can be read says to be on disk
  uint32_t version = 0, epoch = 0;
  uint64_t created_ms = 0;
  bool readable = false;  // the header is right
  // Where the damage begins, which LSN was expected there, and what it is; empty: there is none.
  uint64_t fault_offset = 0, fault_lsn = 0;
  std::string fault;
  // Behind it: whole records, and the highest LSN that one of them says to be on disk.
  uint64_t records_behind = 0, durable_behind = 0;
};
FileReport examine(std::string_view file, LogReader::Kind kind);

// Applies files to an engine whose `loading` is set. First survey() each log segment if there is a snapshot,
// then load that, then replay the segments. begin…(), then step() until it says that there is no more.
class Loader {
 public:
  // What native code does not know goes to `foreign` (database, words), within step().
  using Foreign = std::function<void(uint32_t, Arguments)>;
  Loader(Engine& engine, Foreign foreign);
  ~Loader();

  enum class Phase : uint8_t { survey, snapshot, log };
  // A file that examine() has found whole up to `bytes`. `last_lsn`: at which the snapshot was complete.
  void begin(Phase phase, const std::string& path, uint64_t bytes, uint64_t last_lsn);
  // Works until then; false: the file is through.
  bool step(uint64_t deadline_ns);
  double fraction() const;  // of the file
  uint64_t applied() const { return applied_; }
  uint64_t skipped() const { return skipped_; }
  uint64_t failed() const { return failed_; }  // commands that answered with an error
  const std::string& first_failure() const { return first_failure_; }

 private:
  // The name by which a key is remembered: its database as it was called when the snapshot began.
  static std::string name_of(uint32_t database, std::string_view key) {
    return std::string(1, static_cast<char>(database)).append(key);
  }
  void apply(const LogRecord& record, Arguments words);
  bool is_in_image(const LogRecord& record, Arguments words) const;
  void sweep(const LogRecord& record, Arguments words, Sweep kind);
  void run(uint32_t database, Arguments words);

  Engine& engine_;
  Foreign foreign_;
  const uint64_t max_bytes_;
  std::unique_ptr<MappedFile> file_;
  std::unique_ptr<LogReader> reader_;
  Phase phase_ = Phase::log;
  uint64_t last_lsn_ = 0;
  // Keys that changed while the snapshot was made, and the LSN of their images in it; 0: there is none.
  std::unordered_map<std::string, uint64_t> images_;
  std::vector<uint64_t> flushed_;  // the LSN at which each database was flushed meanwhile
  std::vector<uint32_t> origin_;
  uint64_t applied_ = 0, skipped_ = 0, failed_ = 0;
  std::string out_, first_failure_;
};

}  // namespace verbena::kv
