#include "kv/migration/copy_receiver.h"

#include <algorithm>
#include <cstring>

#include "util/bytes.h"
#include "util/error.h"
#include "util/thread_name.h"

namespace verbena::kv {

namespace {

constexpr size_t kApplied = 1u << 20;  // applied at a time, so that commands run in between

void refuse(const transport::Request& request, const EnvelopeHeader& notice, std::string_view why) {
  request.session.reply(request.call, bytes_of(envelope::answer(notice, true, why)));
}

}  // namespace

CopyReceiver::CopyReceiver(Engine& engine, std::shared_ptr<transport::Node> node, std::vector<Window> windows,
                           LogApplier& applier, Observer observer)
    : engine_(engine),
      node_(std::move(node)),
      windows_(std::move(windows)),
      applier_(applier),
      observer_(std::move(observer)),
      thread_([this] { run(); }) {}

void CopyReceiver::close() {
  std::vector<PendingNotice> left;
  {
    const std::lock_guard held(mutex_);
    closing_ = true;
    arrived_.notify_one();
  }
  if (thread_.joinable()) thread_.join();
  for (const Arrival& arrival : arrivals_) left.push_back(arrival.notice_call);
  for (const auto& [number, piece] : waiting_) {
    left.insert(left.end(), piece.notice_call.begin(), piece.notice_call.end());
  }
  arrivals_.clear();
  waiting_.clear();
  if (!left.empty()) answer(left, "this attempt has ended");
}

std::string CopyReceiver::failure() const {
  const std::lock_guard held(mutex_);
  return failure_;
}

void CopyReceiver::take(const transport::Request& request, const EnvelopeHeader& header, PieceNotice piece) {
  if (piece.window >= windows_.size() || piece.bytes > windows_[piece.window].size()) {
    return refuse(request, header,
                  std::to_string(piece.bytes) + " bytes in window " + std::to_string(piece.window) +
                      ": no such window");
  }
  const std::lock_guard held(mutex_);
  if (closing_) return refuse(request, header, "this attempt has ended");
  arrivals_.push_back({{request.session.id(), request.call, header}, piece});
  arrived_.notify_one();
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
    for (const Arrival& arrival : arrivals) process(arrival);
    arrivals.clear();
  }
}

// Applies pieces in order, however they arrive. The source does not overwrite a window before its notice is
// answered; a notice left over from a broken link is refused, because its piece may not have arrived.
void CopyReceiver::process(const Arrival& arrival) {
  const Window piece = windows_[arrival.piece.window].first(arrival.piece.bytes);
  const EnvelopeHeader& notice = arrival.notice_call.notice;
  if (observer_) {
    std::string whole(reinterpret_cast<const char*>(&notice), sizeof notice);
    observer_(whole.append(reinterpret_cast<const char*>(&arrival.piece), sizeof arrival.piece), piece);
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
  const Window payload = fault.empty() ? piece.subspan(sizeof header) : Window();
  // Long values of the next piece are copied to their final place while the checksum is computed; in other
  // pieces the start of the first record is unknown.
  StagedValues staged(engine_);
  if (fault.empty() && is_next(header.segment)) {
    const auto held = engine_.lock();
    applier_.stage(text_of(payload), staged);
  }
  if (fault.empty() && staged.fill(envelope::header_crc(header), text_of(payload)) != header.checksum) {
    fault = envelope::kWrongChecksum;
  }
  if (!fault.empty()) return answer({&arrival.notice_call, 1}, fault);
  if (header.segment < next_) return answer({&arrival.notice_call, 1}, failure());  // a repeated piece
  Piece& here = waiting_[header.segment];
  here.payload = payload;
  here.notice_call.push_back(arrival.notice_call);
  while (!waiting_.empty() && waiting_.begin()->first == next_) {
    const Piece next = std::move(waiting_.begin()->second);
    waiting_.erase(waiting_.begin());
    apply(next.payload, &staged);
    if (failure_.empty()) {
      ++next_;
      taken_.fetch_add(next.payload.size(), std::memory_order_relaxed);
    }
    answer(next.notice_call, failure_);
  }
}

void CopyReceiver::apply(Window payload, StagedValues* staged) {
  std::string_view left = text_of(payload);
  std::string why;
  while (!left.empty() && failure_.empty() && why.empty()) {
    const auto held = engine_.lock();
    try {
      applier_.apply(left.substr(0, kApplied), true, staged);
      if (applier_.failed() != 0) why = applier_.first_failure();
    } catch (const Error& error) {
      why = error.detail();
    }
    left.remove_prefix(std::min(left.size(), kApplied));
  }
  if (why.empty()) return;
  const std::lock_guard held(mutex_);
  failure_ = why;
}

void CopyReceiver::answer(std::span<const PendingNotice> notice_call, const std::string& refusal) {
  const auto held = node_->lock();
  for (const PendingNotice& one : notice_call) {
    const auto session = node_->find_session(one.session);
    if (!session || session->is_over()) continue;
    session->reply(one.call, bytes_of(envelope::answer(one.notice, !refusal.empty(), refusal)));
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
  if (found == receivers_.end())
    return refuse(request, header, "no such move on this node, or a newer attempt runs");
  found->second->take(request, header, piece);
}

void CopyReceivers::add(const CopyReceiver::Migration& migration, std::shared_ptr<CopyReceiver> receiver) {
  receivers_[migration] = std::move(receiver);
}

void CopyReceivers::remove(const CopyReceiver::Migration& migration, const CopyReceiver& receiver) {
  const auto found = receivers_.find(migration);
  if (found != receivers_.end() && found->second.get() == &receiver) receivers_.erase(found);
}

}  // namespace verbena::kv
