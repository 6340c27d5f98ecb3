// The order of a session's messages, whatever links carry them: what was sent, acknowledged, received. No I/O
// and no contents: the session keeps those until they are acknowledged.
// Depends on the standard library only.
#pragma once

#include <algorithm>
#include <cstdint>
#include <set>

namespace verbena::transport {

enum class Arrival : uint8_t {
  fresh,      // take it
  repeated,   // taken before: drop it
  resumed,    // taken before, but its payload is still to be pulled: begin again
  misplaced,  // neither: the link cannot be trusted
};

class Sequence {
 public:
  // The sending side.
  uint64_t next() { return ++sent_; }
  bool may_transmit(uint64_t sequence) const { return sequence <= acknowledged_ + window_; }
  // The peer has processed messages up to this one. False: it was never sent.
  bool acknowledge(uint64_t sequence) {
    if (sequence > sent_) return false;
    acknowledged_ = std::max(acknowledged_, sequence);
    return true;
  }
  uint64_t sent() const { return sent_; }
  uint64_t acknowledged() const { return acknowledged_; }
  void set_window(uint32_t window) { window_ = window; }
  uint32_t window() const { return window_; }

  // The receiving side.
  Arrival arrive(uint64_t sequence) {
    if (sequence <= received_) return unfinished_.contains(sequence) ? Arrival::resumed : Arrival::repeated;
    if (sequence != received_ + 1) return Arrival::misplaced;
    ++received_;
    return Arrival::fresh;
  }
  // The message's payload is still being pulled: it and later ones are not acknowledged before finish().
  void hold(uint64_t sequence) { unfinished_.insert(sequence); }
  void finish(uint64_t sequence) { unfinished_.erase(sequence); }
  // All messages up to this one have been processed.
  uint64_t done() const { return unfinished_.empty() ? received_ : *unfinished_.begin() - 1; }

 private:
  uint64_t sent_ = 0, acknowledged_ = 0, received_ = 0;
  uint32_t window_ = 0;
  std::set<uint64_t> unfinished_;
};

}  // namespace verbena::transport
