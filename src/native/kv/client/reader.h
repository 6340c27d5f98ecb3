// Reads a store's strings one-sided, by a session: what Lookup asks for, in as few round trips as it takes.
// One thread at a time.
#pragma once

#include <memory>

#include "kv/client/lookup.h"
#include "transport/node/node.h"

namespace verbena::kv {

class OneSidedReader {
 public:
  OneSidedReader(std::shared_ptr<transport::Node> node, std::shared_ptr<transport::Session> session,
                 uint32_t database);
  ~OneSidedReader();

  // The server's answer to kv.layout; false: it is none.
  bool load(std::string_view layout);

  // What became of a key. `value` is valid until the next call.
  struct Answer {
    Step step = Step::ask;
    std::string_view value;
  };
  Answer get(std::string_view key);
  // Several, in waves; `told` gets those of each with the number of the first.
  template <typename Told>
  void get_many(std::span<const std::string_view> keys, Told told);
  // Straight into memory that is long enough; its length, or why not.
  struct Length {
    Step step = Step::ask;
    uint64_t bytes = 0;
  };
  Length get_into(std::string_view key, std::span<std::byte> into);

  uint64_t reads() const { return reads_; }

 private:
  static constexpr size_t kScratchBytes = 4u << 20, kDirectoryBytes = 64u << 10;
  static constexpr size_t kLongBytes = 16u << 10;  // from here on a value goes straight to where it is wanted
  static constexpr size_t kLineBytes = 64;         // of a cache
  static constexpr size_t kWave = transport::Session::kMostGathered;
  static constexpr uint64_t kPatienceNs = 1'000'000'000;

  // Registered memory to read into.
  struct Scratch {
    explicit Scratch(size_t bytes) : memory(bytes), registration(memory.data(), bytes, access::local_write) {}
    std::vector<std::byte> memory;
    transport::Registration registration;
  };

  bool read(std::span<const transport::GatherPiece> pieces);
  bool learn_regions(std::span<const transport::GatherPiece> pieces);
  bool refresh();
  bool read_at(Location location, uint64_t bytes, Scratch& scratch);
  // Takes a lookup to its end; a value longer than `into` wants goes to the scratch.
  Step follow(Lookup& lookup, std::span<std::byte> into, transport::Registration* registration);
  uint64_t now_ms() const;
  void note_size(uint64_t item_bytes);
  void wave(std::span<Lookup> lookups, std::span<Answer> answers);

  const std::shared_ptr<transport::Node> node_;
  const std::shared_ptr<transport::Session> session_;
  const uint32_t database_;
  StoreMap map_;
  Directory directory_;
  uint32_t guess_ = 256;
  uint64_t reads_ = 0;
  std::vector<transport::GatherPiece> pieces_;  // a wave's own, kept for their memory
  Scratch items_{kScratchBytes}, directories_{kDirectoryBytes};
};

template <typename Told>
void OneSidedReader::get_many(std::span<const std::string_view> keys, Told told) {
  // Each with two looks at its bucket, and whole lines.
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
    told(start, std::span<const Answer>(answers));
  }
}

}  // namespace verbena::kv
