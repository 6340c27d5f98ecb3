// A replica's end: takes pieces of the primary's log, applies them on the engine's loop, and says how far it
// is. The ring is where the primary WRITEs to; a piece counts only when its message is here and its checksum
// is right.
#pragma once

#include <deque>
#include <mutex>

#include "kv/applier.h"
#include "kv/loop.h"
#include "kv/replication_layout.h"
#include "transport/node.h"

namespace verbena::kv {

struct ReceiverFigures {
  uint64_t lsn = 0, offset = 0;
  uint64_t pieces = 0, bytes = 0, written = 0, damaged = 0, heard_ns = 0;
  bool complete = false, begun = false;
  std::string error;
};

class Receiver : public std::enable_shared_from_this<Receiver> {
 public:
  // Takes the pieces of one session. `applier` must live until close().
  static std::shared_ptr<Receiver> make(Engine& engine, Loop& loop, std::shared_ptr<transport::Node> node,
                                        uint64_t session, std::span<std::byte> ring, Applier& applier);
  // The primary has said where it begins: with a copy of everything, so that what is here goes, or behind
  // `offset`. Pieces that came before this wait for it. With the engine's lock.
  void begin(bool full, uint64_t offset);
  void close();  // with the engine's lock
  ReceiverFigures figures() const;

 private:
  class Door;
  Receiver(Engine& engine, Loop& loop, std::shared_ptr<transport::Node> node, uint64_t session,
           std::span<std::byte> ring, Applier& applier)
      : engine_(engine),
        loop_(loop),
        node_(std::move(node)),
        session_(session),
        ring_(ring),
        applier_(&applier) {}
  struct Piece {
    LogPiece header;
    uint64_t call;
    std::string bytes;
  };
  void take(const transport::Request& request);  // on the node's thread
  void post();
  void work();                          // on the loop's, with the engine's lock
  bool take_piece(const Piece& piece);  // false: it was not the one that comes next, or is damaged
  LogReceipt receipt();
  void clear();

  Engine& engine_;
  Loop& loop_;
  const std::shared_ptr<transport::Node> node_;
  const uint64_t session_;
  const std::span<std::byte> ring_;
  Applier* applier_;
  static constexpr size_t kMostOwed = 32;
  uint64_t expected_ = 0;
  std::vector<uint64_t> owed_;                           // calls that have no receipt yet
  std::deque<std::pair<uint64_t, uint64_t>> undurable_;  // our log's LSN, the primary's offset
  uint64_t durable_offset_ = 0;
  bool closed_ = false;

  mutable std::mutex mutex_;
  std::vector<Piece> queue_;
  bool posted_ = false, begun_ = false;
  ReceiverFigures figures_;
};

}  // namespace verbena::kv
