// A copy of everything, or of some slots, as a stream of records that the receiver applies in order: images
// of values, taken between commands, among the log's records. Whatever those did to a key before its image
// was sent, the image puts right; what comes after finds it there. So the receiver needs to remember nothing.
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
  // With the engine's lock, all of it.
  BaseCopy(Engine& engine, Backlog& backlog, std::unique_ptr<SlotSet> slots);
  // Appends about `max_bytes` of whole records, or fewer, even none, when it has taken a millisecond: few
  // keys may be of these slots; false: there is nothing more to come from here, as the copy is whole or has
  // failed. The last record is the end (kEnd): its words are how many images there were, and the offset from
  // which reader() goes on.
  bool read(std::string& out, size_t max_bytes);
  // The same into a piece, until it is full, or has about `enough` bytes more, or the copy ends: a record
  // that does not fit goes on in the next piece, or, a long value's, begins it: then `piece.to` ends where
  // the piece does. `around`: without long values.
  void fill(CopyPiece& piece, size_t enough, bool around);
  bool is_complete() const { return complete_ && rest_.empty(); }
  const std::string& error() const { return error_; }  // empty: none
  uint64_t images() const { return images_; }
  double fraction() const;  // of the databases that have been walked, roughly
  // What goes on where the copy ends: it belongs to whoever takes it.
  std::unique_ptr<BacklogReader> take_reader() { return std::move(reader_); }
  const BacklogReader* reader() const { return reader_.get(); }

 private:
  struct Progress {
    uint64_t cursor = 0;
    bool scanned = false;
    std::deque<ValueCopy> objects;  // the program's values and long strings: seen, and not written yet
    bool done() const { return scanned && objects.empty(); }
  };
  class Sink;
  class PieceSink;
  bool copy_log(Sink& out, size_t max_bytes);
  void relay(Sink& out, std::string_view records);
  void follow_swap(std::string_view record);
  bool is_under_way(const LogRecordHeader& header, std::string_view record) const;
  bool read(Sink& out, size_t max_bytes);
  bool scan_some(Sink& out, uint32_t number, Progress& progress);
  void put(Sink& out, uint32_t database, uint8_t flags, Arguments words);
  void take_rest(CopyPiece& piece);
  bool wants(std::string_view key) const { return !slots_ || slots_->test(key_slot(key)); }

  Engine& engine_;
  Backlog& backlog_;
  const std::unique_ptr<SlotSet> slots_;
  std::unique_ptr<BacklogReader> reader_;
  std::vector<Progress> progress_;
  uint64_t images_ = 0, keys_ = 0, copied_ = 0;
  bool complete_ = false;
  std::string error_, log_;
  std::string rest_;      // of a record that did not fit into a piece,
  size_t rest_from_ = 0;  // from here on
};

}  // namespace verbena::kv
