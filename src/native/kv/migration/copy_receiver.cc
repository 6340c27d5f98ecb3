#include "kv/migration/copy_receiver.h"

#include <algorithm>
#include <cstring>
#include <new>

#include "util/bytes.h"
#include "util/error.h"
#include "util/fatal.h"
#include "util/processor/thread_name.h"

namespace verbena::kv {

namespace {

constexpr size_t kApplied = 1u << 20;  // applied at a time, so that commands run in between

void refuse(const transport::Request& request, const EnvelopeHeader& notice, std::string_view why) {
  request.session.reply(request.call, bytes_of(envelope::answer(notice, true, why)));
}

}  // namespace

CopyReceiver::CopyReceiver(Engine& engine, std::shared_ptr<transport::Node> node, const MemberId& source,
                           LogApplier& applier, Observer observer)
    : engine_(engine),
      node_(std::move(node)),
      source_(source),
      applier_(applier),
      observer_(std::move(observer)),
      thread_([this] { or_end_process("receiving a copy", [this] { run(); }); }) {}

void CopyReceiver::close() {
  std::vector<PendingNotice> left;
  {
    const std::lock_guard held(mutex_);
    closing_ = true;
    arrived_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  for (const Arrival& arrival : arrivals_) left.push_back(arrival.notice);
  for (const auto& [number, piece] : waiting_) {
    left.insert(left.end(), piece.notices.begin(), piece.notices.end());
  }
  arrivals_.clear();
  waiting_.clear();
  if (!left.empty()) answer(left, "this attempt has ended");
}

std::string CopyReceiver::failure() const {
  const std::lock_guard held(mutex_);
  return failure_;
}

void CopyReceiver::lend(uint64_t session, std::vector<Window> windows) {
  const std::lock_guard held(mutex_);
  // The receiver's thread relies on equal lengths: its buffers are as long as the first windows.
  const auto same_size = [](Window a, Window b) { return a.size() == b.size(); };
  if (!windows_.empty() && !std::ranges::equal(windows, windows_, same_size)) {
    throw Error("invalid_argument", "lend windows", "they differ in size or number from the first ones");
  }
  windows_ = std::move(windows);
  session_ = session;
}

void CopyReceiver::withdraw() {
  const std::lock_guard held(mutex_);
  session_ = 0;
}

bool CopyReceiver::take(const transport::Request& request, const EnvelopeHeader& header, PieceNotice piece) {
  const std::lock_guard held(mutex_);
  if (session_ == 0 || request.session.id() != session_) {
    refuse(request, header, "the windows of this move are not lent to this session");
    return false;
  }
  if (std::memcmp(header.source, source_.data(), source_.size()) != 0) {
    refuse(request, header, "the message names a source that is not the member of this session");
    return false;
  }
  if (piece.window >= windows_.size() || piece.bytes > windows_[piece.window].size()) {
    refuse(request, header,
           std::to_string(piece.bytes) + " bytes in window " + std::to_string(piece.window) +
               ": no such window");
  } else if (closing_) {
    refuse(request, header, "this attempt has ended");
  } else {
    arrivals_.push_back(
        {{request.session.id(), request.call, header}, piece, windows_[piece.window].first(piece.bytes)});
    arrived_.notify_one();
  }
  return true;
}

void CopyReceiver::run() {
  name_thread("verbena-copy");
  std::vector<Arrival> arrivals;
  while (true) {
    {
      std::unique_lock held(mutex_);
      arrived_.wait(held, [this] { return closing_ || !arrivals_.empty(); });
      if (closing_) return;
      arrivals.swap(arrivals_);
    }
    for (const Arrival& arrival : arrivals) {
      try {
        process(arrival);
      } catch (const std::exception& error) {
        fail(error);
        answer({&arrival.notice, 1}, failure_);
      }
    }
    arrivals.clear();
  }
}

// Applies pieces in order, however they arrive. The source does not overwrite a window before its notice is
// answered; a notice left over from a broken link is refused, because its piece may not have arrived.
void CopyReceiver::process(const Arrival& arrival) {
  const Window piece = arrival.piece;
  const EnvelopeHeader& notice = arrival.notice.header;
  if (observer_) {
    std::string whole(reinterpret_cast<const char*>(&notice), sizeof notice);
    observer_(whole.append(reinterpret_cast<const char*>(&arrival.payload), sizeof arrival.payload), piece);
  }
  EnvelopeHeader header{};
  std::string fault = envelope::read(piece, header);
  if (fault.empty() && (header.kind != EnvelopeKind::segment ||
                        std::memcmp(header.migration, notice.migration, sizeof header.migration) != 0)) {
    fault = "the window holds no piece of this move";
  }
  if (fault.empty() && header.segment != notice.segment) {
    fault = "the window holds segment " + std::to_string(header.segment) + ", not " +
            std::to_string(notice.segment);
  }
  if (fault.empty() && !is_next(header.segment) && waiting_.size() >= window_count() &&
      !waiting_.contains(header.segment)) {
    fault = "more pieces wait for earlier ones than there are windows";
  }
  if (!fault.empty()) return answer({&arrival.notice, 1}, fault);
  const std::string_view payload = text_of(piece.subspan(sizeof header));
  std::unique_ptr<char[]> bytes = take_buffer();
  // Long values of the next piece are copied to their final place while the piece is copied; in other pieces
  // the start of the first record is unknown.
  StagedValues staged(engine_);
  if (is_next(header.segment)) {
    const auto held = engine_.lock();
    applier_.stage(payload, staged);
  }
  const bool is_intact = staged.fill(envelope::header_crc(header), payload, bytes.get()) == header.checksum;
  if (!is_intact || header.segment < next_) {  // damaged, or a repeated piece
    buffers_.push_back(std::move(bytes));
    return answer({&arrival.notice, 1}, is_intact ? failure() : envelope::kWrongChecksum);
  }
  Piece& here = waiting_[header.segment];
  std::swap(here.bytes, bytes);
  if (bytes) buffers_.push_back(std::move(bytes));
  here.length = payload.size();
  here.notices.push_back(arrival.notice);
  while (!waiting_.empty() && waiting_.begin()->first == next_) {
    Piece next = std::move(waiting_.begin()->second);
    waiting_.erase(waiting_.begin());
    apply({next.bytes.get(), next.length}, &staged);
    buffers_.push_back(std::move(next.bytes));
    if (failure_.empty()) {
      ++next_;
      taken_.fetch_add(next.length, std::memory_order_relaxed);
    }
    answer(next.notices, failure_);
  }
}

std::unique_ptr<char[]> CopyReceiver::take_buffer() {
  if (buffers_.empty()) {
    return std::make_unique_for_overwrite<char[]>(longest_window());
  }
  auto buffer = std::move(buffers_.back());
  buffers_.pop_back();
  return buffer;
}

size_t CopyReceiver::window_count() const {
  const std::lock_guard held(mutex_);
  return windows_.size();
}

size_t CopyReceiver::longest_window() const {
  const std::lock_guard held(mutex_);
  size_t longest = 0;
  for (const Window window : windows_) longest = std::max(longest, window.size());
  return longest;
}

void CopyReceiver::apply(std::string_view left, StagedValues* staged) {
  std::string why;
  while (!left.empty() && failure_.empty() && why.empty()) {
    const auto held = engine_.lock();
    try {
      applier_.apply(left.substr(0, kApplied), true, staged);
      if (applier_.failed() != 0) why = applier_.first_failure();
    } catch (const std::exception& error) {
      return fail(error);
    }
    left.remove_prefix(std::min(left.size(), kApplied));
  }
  if (why.empty()) return;
  const std::lock_guard held(mutex_);
  failure_ = why;
}

// The move ends with this reason. Pieces that still wait are refused with it when close() runs.
void CopyReceiver::fail(const std::exception& error) {
  const auto* known = dynamic_cast<const Error*>(&error);
  const bool no_memory = dynamic_cast<const std::bad_alloc*>(&error) != nullptr;
  const std::lock_guard held(mutex_);
  if (failure_.empty()) failure_ = no_memory ? "not enough memory" : known ? known->detail() : error.what();
}

void CopyReceiver::answer(std::span<const PendingNotice> notices, const std::string& refusal) {
  const auto held = node_->lock();
  for (const PendingNotice& one : notices) {
    const auto session = node_->find_session(one.session);
    if (!session || session->is_over()) continue;
    session->reply(one.call, bytes_of(envelope::answer(one.header, !refusal.empty(), refusal)));
  }
}

std::shared_ptr<CopyReceivers> CopyReceivers::make(transport::Node& node) {
  auto receivers = std::make_shared<CopyReceivers>();
  node.handle(transport::method::of_name(envelope::kNoticeMethod), receivers);
  return receivers;
}

void CopyReceivers::handle(const transport::Request& request) {
  EnvelopeHeader header{};
  const std::string fault = envelope::read(request.payload, header);
  if (!fault.empty()) return request.session.fail(request.call, transport::Outcome::remote_failure, fault);
  const auto payload = request.payload.subspan(sizeof header);
  if (!envelope::has_valid_checksum(header, payload)) {
    return request.session.fail(request.call, transport::Outcome::remote_failure, envelope::kWrongChecksum);
  }
  PieceNotice piece;
  if (header.kind != EnvelopeKind::notice || payload.size() != sizeof piece) {
    return refuse(request, header, "the payload of a notice must have 8 bytes");
  }
  std::memcpy(&piece, payload.data(), sizeof piece);
  CopyReceiver::Migration migration;
  std::memcpy(migration.data(), header.migration, sizeof migration);
  const auto found = receivers_.find(migration);
  if (found == receivers_.end()) {
    refuse(request, header, "no such move on this node, or a newer attempt runs");
  } else if (!found->second->take(request, header, piece)) {
    refused_.fetch_add(1, std::memory_order_relaxed);
  }
}

void CopyReceivers::add(const CopyReceiver::Migration& migration, std::shared_ptr<CopyReceiver> receiver) {
  receivers_[migration] = std::move(receiver);
}

void CopyReceivers::remove(const CopyReceiver::Migration& migration, const CopyReceiver& receiver) {
  const auto found = receivers_.find(migration);
  if (found != receivers_.end() && found->second.get() == &receiver) receivers_.erase(found);
}

}  // namespace verbena::kv
