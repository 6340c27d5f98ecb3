// Reads strings of a store over a session by one-sided reads: executes the steps of Lookup in as few round
// trips as possible. One thread at a time.
// Depends on the transport and on Lookup; never sends commands.
#pragma once

#include <functional>
#include <memory>

#include "kv/client/lookup.h"
#include "transport/node/node.h"

namespace verbena::kv {

class OneSidedReader {
 public:
  // A read that takes longer than `timeout_ns` (kNever: no limit) ends with Error call_timeout. `on_slice` is
  // called from time to time while a read waits; it may throw to end it.
  OneSidedReader(std::shared_ptr<transport::Node> node, std::shared_ptr<transport::Session> session,
                 uint32_t database, uint64_t timeout_ns, std::function<void()> on_slice);
  ~OneSidedReader();

  // Sets the server's reply to kv.layout; false: it is invalid.
  bool load(std::string_view layout);

  // The result for a key. `value` is valid until the next call.
  struct Answer {
    Step step = Step::ask_server;
    std::string_view value;
  };
  Answer get(std::string_view key);
  // Reads several keys in waves; `on_answers` gets the index of each wave's first key and its answers.
  template <typename Callback>
  void get_many(std::span<const std::string_view> keys, Callback on_answers);
  // Reads a value directly into `into`. Returns the length of the value, or why it was not read. A value that
  // is longer than `into` is not stored.
  struct Length {
    Step step = Step::ask_server;
    uint64_t bytes = 0;
  };
  Length get_into(std::string_view key, std::span<std::byte> into);

  // The server has not lent its memory, or not any longer.
  bool is_denied() const { return denied_; }
  uint64_t reads() const { return reads_; }

 private:
  static constexpr size_t kScratchBytes = 4u << 20, kDirectoryBytes = 64u << 10;
  static constexpr size_t kLongBytes =
      16u << 10;  // values from this length on are read directly to their destination
  static constexpr size_t kLineBytes = 64;  // of a cache line
  static constexpr size_t kWave = transport::Session::kMaxGathered;
  static constexpr uint64_t kSliceNs = 50'000'000;

  // Registered memory to read into.
  struct Scratch {
    explicit Scratch(size_t bytes) : memory(bytes), registration(memory.data(), bytes, access::local_write) {}
    std::vector<std::byte> memory;
    transport::Registration registration;
  };

  void begin_deadline();
  bool wait(transport::Operation& call);
  template <typename GiveUp>
  void wait_or(transport::Operation& call, GiveUp give_up);
  bool read(std::span<const transport::GatherPiece> pieces);
  bool learn_regions(std::span<const transport::GatherPiece> pieces);
  bool refresh();
  bool read_at(Location location, uint64_t bytes, Scratch& scratch);
  // Runs a lookup to its end; a value that does not fit into `into` is read into the scratch memory.
  Step run_lookup(Lookup& lookup, std::span<std::byte> into, transport::Registration* registration);
  uint64_t now_ms() const;
  void note_size(uint64_t item_bytes);
  void wave(std::span<Lookup> lookups, std::span<Answer> answers);

  const std::shared_ptr<transport::Node> node_;
  const std::shared_ptr<transport::Session> session_;
  const uint32_t database_;
  const uint64_t timeout_ns_;
  const std::function<void()> on_slice_;
  uint64_t deadline_ns_ = 0;  // of the call that runs
  StoreMap map_;
  Directory directory_;
  uint32_t guess_ = 256;
  uint64_t reads_ = 0;
  bool denied_ = false;
  std::vector<transport::GatherPiece> pieces_;  // of the current wave; a member so that its memory is reused
  Scratch items_{kScratchBytes}, directories_{kDirectoryBytes};
};

template <typename Callback>
void OneSidedReader::get_many(std::span<const std::string_view> keys, Callback on_answers) {
  begin_deadline();
  // Per key: two reads of its bucket, the item, and rounding to cache lines.
  const size_t room =
      std::clamp<size_t>(kScratchBytes / (guess_ + 2 * sizeof(Bucket) + kLineBytes), 1, kWave);
  std::vector<Lookup> lookups;
  std::vector<Answer> answers;
  for (size_t start = 0; start < keys.size(); start += room) {
    const auto some = keys.subspan(start, std::min(room, keys.size() - start));
    lookups.clear();
    for (const std::string_view key : some) lookups.emplace_back(key, map_.hash_key(), database_);
    answers.assign(some.size(), {});
    wave(lookups, answers);
    on_answers(start, std::span<const Answer>(answers));
  }
}

}  // namespace verbena::kv
