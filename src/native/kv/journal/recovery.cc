#include "kv/journal/recovery.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>

#include <algorithm>

#include "util/clock.h"
#include "util/error.h"
#include "util/fd.h"

namespace verbena::kv {

MappedFile::MappedFile(const std::string& path) {
  const UniqueFd file(::open(path.c_str(), O_RDONLY | O_CLOEXEC));
  struct stat status;
  if (!file || ::fstat(file.get(), &status) != 0) throw Error("log_failed", "read", path, errno);
  size_ = static_cast<size_t>(status.st_size);
  if (size_ == 0) return;
  void* data = ::mmap(nullptr, size_, PROT_READ, MAP_PRIVATE, file.get(), 0);
  if (data == MAP_FAILED) throw Error("log_failed", "read", path, errno);
  ::madvise(data, size_, MADV_SEQUENTIAL);
  data_ = static_cast<const char*>(data);
}

MappedFile::~MappedFile() {
  if (data_) ::munmap(const_cast<char*>(data_), size_);
}

FileReport examine(std::string_view file, LogReader::Kind kind) {
  FileReport report;
  report.file_bytes = file.size();
  report.fault = header_fault(file, kind == LogReader::Kind::log ? kLogMagic : kSnapshotMagic);
  if (!report.fault.empty()) return report;
  LogReader reader(file, kind);
  const LogFileHeader& header = reader.header();
  report.readable = true;
  report.version = header.version;
  report.epoch = header.epoch;
  report.created_ms = header.created_ms;
  report.first_lsn = report.next_lsn = header.first_lsn;
  report.durable_lsn = header.durable_lsn;
  report.whole_bytes = sizeof header;
  while (reader.next()) {
    const LogRecord& record = reader.record();
    if (record.is_mark()) report.durable_lsn = std::max(report.durable_lsn, record.lsn);
    if (record.is_end()) report.last_lsn = record.lsn;
    if (record.more()) continue;
    report.whole_bytes = reader.position();
    report.next_lsn = reader.expected_lsn();
    report.records = reader.records();
  }
  report.fault = reader.fault();
  if (report.fault.empty()) {
    if (report.whole_bytes < file.size()) report.fault = "the file ends within the records of a command";
    report.fault_offset = file.size();
    report.fault_lsn = reader.expected_lsn();
    return report;
  }
  report.fault_offset = reader.position();
  report.fault_lsn = reader.expected_lsn();
  for (size_t from = reader.position() + kAlignment; reader.resync(from);) {
    while (reader.next()) {
      const LogRecord& record = reader.record();
      if (record.is_mark()) {
        report.durable_behind = std::max(report.durable_behind, record.lsn);
      } else {
        ++report.records_behind;
      }
    }
    from = reader.position() + kAlignment;
    if (reader.fault().empty()) break;
  }
  return report;
}

Loader::Loader(Engine& engine, RunInPython run_in_python)
    : engine_(engine),
      run_in_python_(std::move(run_in_python)),
      max_bytes_(engine.keyspace.max_bytes),
      flushed_(engine.keyspace.databases(), 0) {
  // Loading must not refuse or evict a stored key for lack of memory: the next command makes room.
  engine_.keyspace.max_bytes = 0;
  engine_.loading = true;
  engine_.refresh_time();
  for (uint32_t i = 0; i < engine.keyspace.databases(); ++i) origin_.push_back(i);
}

Loader::~Loader() {
  engine_.keyspace.max_bytes = max_bytes_;
  engine_.keyspace.counters = {};
  engine_.loading = false;
  engine_.refresh_time();
}

void Loader::begin(Phase phase, const std::string& path, uint64_t bytes, uint64_t last_lsn) {
  file_ = std::make_unique<MappedFile>(path);
  const auto kind = phase == Phase::snapshot ? LogReader::Kind::snapshot : LogReader::Kind::log;
  const std::string fault =
      header_fault(file_->bytes(), phase == Phase::snapshot ? kSnapshotMagic : kLogMagic);
  if (!fault.empty()) throw Error("log_failed", "read", path + ": " + fault);
  reader_ = std::make_unique<LogReader>(file_->bytes().substr(0, bytes), kind);
  phase_ = phase;
  last_lsn_ = last_lsn;
}

double Loader::fraction() const {
  if (!file_ || file_->bytes().empty()) return 1;
  return static_cast<double>(reader_->position()) / static_cast<double>(file_->bytes().size());
}

bool Loader::step(uint64_t deadline_ns) {
  for (uint32_t n = 1; reader_->next(); ++n) {
    const LogRecord& record = reader_->record();
    const Arguments arguments = reader_->arguments();
    if (record.is_mark() || record.is_end()) continue;
    if (phase_ == Phase::survey) {
      if (record.lsn > last_lsn_) return false;
      if (const DatabaseEffect kind = database_effect(arguments[0]); kind == DatabaseEffect::swap) {
        apply_database_effect(record, arguments, kind);
      } else if (kind == DatabaseEffect::none && arguments.size() > 1 && record.database < origin_.size()) {
        snapshot_lsns_.try_emplace(name_of(origin_[record.database], arguments[1]), 0);
      }
    } else {
      apply(record, arguments);
    }
    if (n % 64 == 0 && now_ns() >= deadline_ns) return true;
  }
  if (phase_ == Phase::snapshot) {
    for (uint32_t i = 0; i < origin_.size(); ++i) origin_[i] = i;
  }
  if (!reader_->fault().empty()) throw Error("log_failed", "load the log", reader_->fault());
  return false;
}

// Whether the snapshot contains the result of this record.
bool Loader::is_in_snapshot(const LogRecord& record, Arguments arguments) const {
  if (record.lsn > last_lsn_) return false;
  const uint32_t origin = origin_[record.database];
  if (record.lsn <= flushed_[origin]) return true;
  if (arguments.size() < 2) return false;
  const auto found = snapshot_lsns_.find(name_of(origin, arguments[1]));
  return found != snapshot_lsns_.end() && record.lsn <= found->second;
}

void Loader::apply(const LogRecord& record, Arguments arguments) {
  if (record.database >= origin_.size()) {
    throw Error("log_failed", "load the log",
                "LSN " + std::to_string(record.lsn) + " belongs to database " +
                    std::to_string(record.database) + ", but the number of databases is " +
                    std::to_string(origin_.size()));
  }
  if (const DatabaseEffect kind = database_effect(arguments[0]); kind != DatabaseEffect::none)
    return apply_database_effect(record, arguments, kind);
  if (phase_ == Phase::snapshot) {
    if (!snapshot_lsns_.empty() && arguments.size() > 1) {
      const auto found = snapshot_lsns_.find(name_of(record.database, arguments[1]));
      if (found != snapshot_lsns_.end()) found->second = record.lsn;
    }
  } else if (is_in_snapshot(record, arguments)) {
    ++skipped_;
    return;
  }
  run(record.database, arguments);
}

void Loader::apply_database_effect(const LogRecord& record, Arguments arguments, DatabaseEffect kind) {
  Keyspace& keyspace = engine_.keyspace;
  if (kind == DatabaseEffect::swap) {
    const auto one = arguments.size() > 2 ? parse_integer(arguments[1]) : std::nullopt;
    const auto other = arguments.size() > 2 ? parse_integer(arguments[2]) : std::nullopt;
    const auto count = static_cast<int64_t>(origin_.size());
    if (!one || !other || *one < 0 || *other < 0 || *one >= count || *other >= count) {
      throw Error("log_failed", "load the log", "SWAPDB with invalid database numbers");
    }
    const auto a = static_cast<uint32_t>(*one), b = static_cast<uint32_t>(*other);
    if (phase_ != Phase::survey) {
      keyspace.swap(a, b);
      ++applied_;
    }
    std::swap(origin_[a], origin_[b]);
    return;
  }
  const bool in_snapshot = phase_ == Phase::snapshot;
  if (!in_snapshot && record.lsn <= last_lsn_) {  // the snapshot contains its result
    ++skipped_;
    return;
  }
  for (uint32_t i = 0; i < origin_.size(); ++i) {
    if (kind == DatabaseEffect::flush && i != record.database) continue;
    if (keyspace.exists(i)) keyspace.database(i).clear();
    if (in_snapshot) flushed_[i] = record.lsn;
  }
  ++applied_;
}

void Loader::run(uint32_t number, Arguments arguments) {
  ++applied_;
  Database& database = engine_.keyspace.database(number);
  if (arguments.size() == 3 && arguments[0] == "SET") {
    database.set(database.find(arguments[1], false), arguments[1], arguments[2], 0);
    return;
  }
  const NativeCommand* command = engine_.commands.find(arguments[0]);
  if (!command) return run_in_python_(number, arguments);
  out_.clear();
  CommandCall call{engine_.keyspace, database, arguments, ReplyWriter(out_, 2)};
  command->run_logged(call);
  if (!call.failed) return;
  ++failed_;
  if (first_failure_.empty()) first_failure_ = std::string(arguments[0]) + ": " + out_;
}

}  // namespace verbena::kv
