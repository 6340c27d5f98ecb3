#include "kv/client/reader.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <ctime>

#include "kv/store/index.h"
#include "util/clock.h"
#include "util/error.h"

namespace verbena::kv {

using transport::GatherPiece;
using transport::Operation;
using transport::Outcome;

namespace {

constexpr const char* kOperation = "read a value";

}  // namespace

OneSidedReader::OneSidedReader(std::shared_ptr<transport::Node> node,
                               std::shared_ptr<transport::Session> session, uint32_t database,
                               uint64_t timeout_ns, std::function<void()> on_slice)
    : node_(std::move(node)),
      session_(std::move(session)),
      database_(database),
      timeout_ns_(timeout_ns),
      on_slice_(std::move(on_slice)) {}

OneSidedReader::~OneSidedReader() {
  const auto held = node_->lock();
  items_.registration.close();
  directories_.registration.close();
}

bool OneSidedReader::load(std::string_view layout) {
  directory_ = {};
  denied_ = false;
  return map_.load(layout);
}

// Over shm both ends share one clock; otherwise the server decides about keys that expire.
uint64_t OneSidedReader::now_ms() const {
  const auto held = node_->lock();
  const transport::Link* link = session_->link();
  if (!link || link->port().name() != "shm") return 0;
  return unix_ms();
}

void OneSidedReader::begin_deadline() {
  deadline_ns_ = timeout_ns_ == kNever ? kNever : now_ns() + timeout_ns_;
}

// False: the deadline has passed.
bool OneSidedReader::wait(Operation& call) {
  while (!node_->wait(call, std::min(deadline_ns_, now_ns() + kSliceNs))) {
    if (now_ns() >= deadline_ns_) return false;
    on_slice_();
  }
  return true;
}

// Throws if the operation does not end in time, or if the wait throws; calls `give_up` before.
template <typename GiveUp>
void OneSidedReader::wait_or(Operation& call, GiveUp give_up) {
  bool done = false;
  try {
    done = wait(call);
  } catch (...) {
    give_up();
    throw;
  }
  if (done) return;
  give_up();
  throw Error("call_timeout", kOperation, "no answer in time");
}

bool OneSidedReader::read(std::span<const GatherPiece> pieces) {
  for (int attempt = 0; attempt < 3; ++attempt) {
    Operation* call;
    {
      const auto held = node_->lock();
      call = session_->gather(Opcode::read, pieces);
      // Over shm a read is complete when it is posted.
      if (call && node_->spin_for_reply(*call)) {
        ++reads_;
        node_->operations().end(*call);
        return true;
      }
    }
    if (!call) {
      if (!learn_regions(pieces)) return false;
      continue;
    }
    ++reads_;
    // A read cannot be cancelled while the wire may write: dropping the link ends it.
    const auto give_up = [&] {
      {
        const auto held = node_->lock();
        if (!call->finished.load()) session_->lose_link(Status::retry_exc_err, "a read was not answered");
      }
      node_->end(*call);
    };
    wait_or(*call, give_up);
    const bool ok = call->outcome == Outcome::ok;
    node_->end(*call);
    return ok;
  }
  return false;
}

// Called when gather() could not start, for example without a link or with an unknown region. A plain READ
// waits for the link and makes the session request the region from the peer.
bool OneSidedReader::learn_regions(std::span<const GatherPiece> pieces) {
  uint64_t known = 0;
  for (const GatherPiece& piece : pieces) {
    if (piece.region == known) continue;
    known = piece.region;
    Operation* call;
    {
      const auto held = node_->lock();
      call = session_->operate(Opcode::read, piece.region, piece.offset, nullptr, 1, nullptr);
    }
    if (!call) return false;
    const auto give_up = [&] {
      const auto held = node_->lock();
      if (call->finished.load()) {
        node_->operations().end(*call);
      } else {
        session_->cancel(*call);
      }
    };
    wait_or(*call, give_up);
    const bool ok = call->outcome == Outcome::ok;
    denied_ = call->outcome == Outcome::denied;
    node_->end(*call);
    if (!ok) return false;
  }
  return true;
}

bool OneSidedReader::read_at(Location location, uint64_t bytes, Scratch& scratch) {
  const StoreMap::Place place = map_.place(location);
  if (place.room < bytes || bytes > scratch.memory.size()) return false;
  const GatherPiece piece{place.region, place.offset, scratch.memory.data(), static_cast<uint32_t>(bytes),
                          &scratch.registration};
  return read({&piece, 1});
}

bool OneSidedReader::refresh() {
  IndexRoot root;
  if (!read_at(map_.root(database_), sizeof root, directories_)) return false;
  std::memcpy(&root, directories_.memory.data(), sizeof root);
  if (root.depth > kMaxDepth) return false;
  const uint64_t bytes = sizeof(Location) << root.depth;
  Directory fresh{root.depth, std::vector<Location>(size_t{1} << root.depth)};
  for (uint64_t done = 0; done < bytes;) {
    const uint64_t some = std::min<uint64_t>(bytes - done, kDirectoryBytes);
    if (!read_at(root.directory + done / kUnit, some, directories_)) return false;
    std::memcpy(reinterpret_cast<std::byte*>(fresh.segments.data()) + done, directories_.memory.data(), some);
    done += some;
  }
  directory_ = std::move(fresh);
  return true;
}

void OneSidedReader::note_size(uint64_t item_bytes) {
  // The next item is probably no longer than the recent ones: with a good guess, one READ suffices instead of
  // two.
  const uint64_t length = (item_bytes + kUnit - 1) / kUnit * kUnit;
  guess_ =
      static_cast<uint32_t>(std::min(kScratchBytes / 2, std::max<uint64_t>(length, guess_ - guess_ / 4)));
}

Step OneSidedReader::run_lookup(Lookup& lookup, std::span<std::byte> into,
                                transport::Registration* registration) {
  const uint64_t now = now_ms();
  Step step = Step::refresh;
  if (!directory_.segments.empty()) step = lookup.begin(directory_, map_, guess_, now);
  while (true) {
    if (step == Step::refresh) {
      if (!refresh()) return Step::ask_server;
      step = lookup.begin(directory_, map_, guess_, now);
    }
    if (step != Step::read) break;
    const size_t head = lookup.value_offset(), length = lookup.length();
    if (registration && head > 0 && length > head && length - head <= into.size() && length >= kLongBytes) {
      const StoreMap::Place place = map_.place(lookup.location());
      if (place.room < length) return Step::ask_server;
      const auto body = static_cast<uint32_t>(length - head);
      std::optional<uint32_t> crc;
      const GatherPiece pieces[] = {
          {place.region, place.offset, items_.memory.data(), static_cast<uint32_t>(head),
           &items_.registration},
          {place.region, place.offset + head, into.data(), body, registration, &crc}};
      if (!read(pieces)) return Step::ask_server;
      step = lookup.take({items_.memory.data(), head}, map_, into.first(body), crc);
      continue;
    }
    if (!read_at(lookup.location(), length, items_)) return Step::ask_server;
    step = lookup.take({items_.memory.data(), length}, map_);
  }
  if (step == Step::found) note_size(lookup.item_bytes());
  return step;
}

OneSidedReader::Answer OneSidedReader::get(std::string_view key) {
  begin_deadline();
  Lookup lookup(key, map_.hash_key(), database_);
  const Step step = run_lookup(lookup, {}, nullptr);
  return {step, lookup.value()};
}

void OneSidedReader::wave(std::span<Lookup> lookups, std::span<Answer> answers) {
  const uint64_t now = now_ms();
  std::array<Step, kWave> steps;
  const auto begin = [&] {
    for (size_t i = 0; i < lookups.size(); ++i) {
      if (steps[i] == Step::refresh) steps[i] = lookups[i].begin(directory_, map_, guess_, now);
    }
  };
  for (size_t i = 0; i < lookups.size(); ++i) steps[i] = Step::refresh;
  begin();
  uint64_t longest = 0;
  // Found values stay where they were read to. Items are packed closely: at large power-of-two distances they
  // would all map to the same few cache sets.
  size_t used = 0;
  std::array<size_t, kWave> lookup_of;
  while (true) {
    pieces_.clear();
    bool stale = false;
    for (size_t i = 0; i < lookups.size(); ++i) {
      stale |= steps[i] == Step::refresh;
      if (steps[i] != Step::read) continue;
      const StoreMap::Place place = map_.place(lookups[i].location());
      const uint32_t length = lookups[i].length();
      if (length > kScratchBytes - used || place.room < length) {
        steps[i] = Step::ask_server;  // too long to be read with the others
        continue;
      }
      lookup_of[pieces_.size()] = i;
      pieces_.push_back(
          {place.region, place.offset, items_.memory.data() + used, length, &items_.registration});
      used = std::min(kScratchBytes, (used + length + kLineBytes - 1) / kLineBytes * kLineBytes);
    }
    if (!pieces_.empty()) {
      if (!read(pieces_)) break;
      for (size_t j = 0; j < pieces_.size(); ++j) {
        const size_t i = lookup_of[j];
        steps[i] = lookups[i].take({pieces_[j].local, pieces_[j].length}, map_);
        if (steps[i] == Step::found) {
          answers[i] = {Step::found, lookups[i].value()};
          longest = std::max(longest, lookups[i].item_bytes());
        } else if (steps[i] == Step::absent) {
          answers[i] = {Step::absent, {}};
        }
      }
    } else if (stale) {
      if (!refresh()) break;
      begin();
    } else {
      break;
    }
  }
  if (longest > 0) note_size(longest);
}

OneSidedReader::Length OneSidedReader::get_into(std::string_view key, std::span<std::byte> into) {
  begin_deadline();
  transport::Registration registration(into.data(), into.size(), access::local_write);
  Lookup lookup(key, map_.hash_key(), database_);
  // The first READ gets the header with the length; the second goes to the destination.
  const uint32_t guess = std::exchange(guess_, 128);
  const auto restore = [&] {
    guess_ = guess;
    const auto held = node_->lock();
    registration.close();
  };
  Step step = Step::ask_server;
  try {
    step = run_lookup(lookup, into, &registration);
  } catch (...) {
    restore();
    throw;
  }
  restore();
  const std::string_view value = lookup.value();
  if (step == Step::found && value.size() <= into.size() &&
      value.data() != reinterpret_cast<const char*>(into.data())) {
    std::memcpy(into.data(), value.data(), value.size());
  }
  return {step, value.size()};
}

}  // namespace verbena::kv
