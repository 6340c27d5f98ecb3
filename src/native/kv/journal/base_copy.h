// A base copy: all keys, or those of some slots, as a stream of records that the receiver applies in order.
// Values are read between commands and interleaved with records of the log. A value replaces whatever earlier
// log records made of its key, and later log records find it in place, so the receiver keeps no state about
// the copy.
// Depends on the engine and on the backlog; not on sessions or on the program that sends it.
#pragma once

#include <deque>
#include <span>
#include <string>

#include "kv/engine/engine.h"
#include "kv/journal/backlog.h"
#include "kv/migration/copy_piece.h"
#include "kv/values/value_copy.h"

namespace verbena::kv {

class BaseCopy {
 public:
  // The caller holds the engine's lock for all functions, the constructor and the destructor.
  BaseCopy(Engine& engine, Backlog& backlog, std::unique_ptr<SlotSet> slots);
  // Appends whole records, about `max_bytes` in total. Stops earlier, perhaps without any record, when a
  // millisecond has passed: it may scan many keys outside of the selected slots. False: nothing more comes,
  // because the copy is complete or has failed. The last record (kEnd) holds the number of values and the log
  // offset at which take_reader() continues.
  bool read(std::string& out, size_t max_bytes);
  // Fills a piece until it is full, `enough` bytes have been added, or the copy ends. A record that does not
  // fit continues in the next piece; one with a long value may instead begin the next piece, and then
  // `piece.to` is shortened to what is used. `leave_holes`: long values are left out of the piece and stay in
  // the store.
  void fill(CopyPiece& piece, size_t enough, bool leave_holes);
  bool is_complete() const { return complete_ && overflow_.empty(); }
  const std::string& error() const { return error_; }  // empty: no error
  uint64_t values() const { return values_; }
  double fraction() const;  // of the keys that have been copied, approximately
  // The reader that continues where the copy ends; the caller owns it.
  std::unique_ptr<BacklogReader> take_reader() { return std::move(reader_); }
  const BacklogReader* reader() const { return reader_.get(); }

 private:
  struct Progress {
    uint64_t cursor = 0;
    bool scanned = false;
    std::deque<ValueCopy> long_values;  // Python values and long strings: scanned, not written yet
    bool done() const { return scanned && long_values.empty(); }
  };
  class Sink;
  class PieceSink;
  bool copy_log(Sink& out, size_t max_bytes);
  void forward_log(Sink& out, std::string_view records);
  void apply_swap(std::string_view record);
  bool is_being_copied(const LogRecordHeader& header, std::string_view record) const;
  bool read(Sink& out, size_t max_bytes);
  bool scan_step(Sink& out, uint32_t number, Progress& progress);
  void put(Sink& out, uint32_t database, uint8_t flags, Arguments arguments);
  void drain_overflow(CopyPiece& piece);
  bool is_selected(std::string_view key) const { return !slots_ || slots_->test(key_slot(key)); }

  Engine& engine_;
  Backlog& backlog_;
  const std::unique_ptr<SlotSet> slots_;
  std::unique_ptr<BacklogReader> reader_;
  std::vector<Progress> progress_;
  uint64_t values_ = 0, keys_ = 0, copied_ = 0;
  bool complete_ = false;
  std::string error_, log_;
  std::string overflow_;      // records that did not fit into the last piece
  size_t overflow_from_ = 0;  // the part of overflow_ before this is already in a piece
};

}  // namespace verbena::kv
