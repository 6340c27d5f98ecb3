#include "providers/ibv/completion_queue.h"

#include <arpa/inet.h>
#include <fcntl.h>

#include <algorithm>
#include <bit>
#include <cerrno>

#include "providers/ibv/queue_pair.h"
#include "util/error.h"
#include "util/fd.h"

namespace verbena::ibv {
namespace {

constexpr size_t kBatch = 32;

// The values in types.h are those of libibverbs.
static_assert(static_cast<int>(Status::rnr_retry_exc_err) == IBV_WC_RNR_RETRY_EXC_ERR &&
              static_cast<int>(Status::general_err) == IBV_WC_GENERAL_ERR &&
              static_cast<int>(WcOpcode::recv_rdma_with_imm) == IBV_WC_RECV_RDMA_WITH_IMM);

Completion translate(const ibv_wc& wc) {
  Completion out{
      .status = static_cast<Status>(wc.status), .qp_num = wc.qp_num, .vendor_error = wc.vendor_err};
  out.opcode = WcOpcode::recv;
  // For a failed request verbs reports neither opcode nor length.
  if (wc.status != IBV_WC_SUCCESS) return out;
  out.byte_count = wc.byte_len;
  if (wc.opcode == IBV_WC_RECV_RDMA_WITH_IMM) out.opcode = WcOpcode::recv_rdma_with_imm;
  if (wc.wc_flags & IBV_WC_WITH_IMM) {
    out.has_immediate = true;
    out.immediate = ntohl(wc.imm_data);
  }
  return out;
}

}  // namespace

IbvCompletionQueue::IbvCompletionQueue(std::shared_ptr<IbvContext> context, uint32_t depth)
    : context_(std::move(context)),
      use_(context_->use("create completion queue")),
      channel_(library().create_comp_channel(context_->get())) {
  if (!channel_)
    throw Error("fd_limit", "create completion queue", "the device cannot create a completion channel",
                errno);
  fd_ = channel_->fd;
  fcntl(fd_, F_SETFL, fcntl(fd_, F_GETFL) | O_NONBLOCK);
  cq_ = library().create_cq(context_->get(), static_cast<int>(depth), this, channel_, 0);
  if (!cq_) {
    const int failure = errno;
    library().destroy_comp_channel(channel_);
    throw Error("limit_exceeded", "create completion queue", "the device refused " + std::to_string(depth),
                failure);
  }
  capacity_ = static_cast<uint32_t>(cq_->cqe);
}

IbvCompletionQueue::~IbvCompletionQueue() {
  if (!cq_) {
    ::close(fd_);
    return;
  }
  acknowledge();
  library().destroy_cq(cq_);
  library().destroy_comp_channel(channel_);
}

void IbvCompletionQueue::on_removal() {
  collect();
  acknowledge();
  const std::lock_guard events(events_mutex_);
  const std::lock_guard lock(poll_lock_);
  if (!cq_ || library().destroy_cq(cq_) != 0) return;
  cq_ = nullptr;
  // Closes the channel, but keeps its number, by which the program knows this queue.
  const EventFd nothing;
  ::dup3(nothing.get(), fd_, O_CLOEXEC);
  channel_->fd = -1;
  library().destroy_comp_channel(channel_);
  channel_ = nullptr;
  use_.end();
}

size_t IbvCompletionQueue::poll(std::span<Completion> out) {
  const std::lock_guard lock(poll_lock_);
  size_t filled = 0;
  for (; !collected_.empty() && filled < out.size(); ++filled) {
    out[filled] = collected_.front();
    collected_.pop_front();
  }
  return filled + poll_device(out.subspan(filled));
}

void IbvCompletionQueue::collect() {
  Completion found[kBatch];
  const std::lock_guard lock(poll_lock_);
  while (const size_t count = poll_device(found)) collected_.insert(collected_.end(), found, found + count);
}

void IbvCompletionQueue::add(std::span<const Completion> completions) {
  const std::lock_guard lock(poll_lock_);
  collected_.insert(collected_.end(), completions.begin(), completions.end());
}

size_t IbvCompletionQueue::poll_device(std::span<Completion> out) {
  ibv_wc found[kBatch];
  size_t filled = 0;
  while (cq_ && filled < out.size()) {
    const size_t wanted = std::min(kBatch, out.size() - filled);
    const int count = ibv_poll_cq(cq_, static_cast<int>(wanted), found);
    for (int i = 0; i < count; ++i) {
      PostedRequests* requests = find(queue_of(found[i].wr_id));
      out[filled] = translate(found[i]);
      if (requests && requests->finish(index_of(found[i].wr_id), out[filled])) ++filled;
    }
    if (count < static_cast<int>(wanted)) break;
  }
  return filled;
}

bool IbvCompletionQueue::add_room(uint32_t completions) {
  const std::lock_guard lock(poll_lock_);
  const uint32_t wanted = capacity_ + room_ + completions;
  if (!cq_) return false;
  if (wanted > static_cast<uint32_t>(cq_->cqe)) {
    // For more queue pairs than this one: to resize is a system call.
    const uint32_t generous = std::min(wanted + room_ + 7 * completions, context_->limits().max_cqe);
    if (generous < wanted || library().resize_cq(cq_, static_cast<int>(generous)) != 0) return false;
  }
  room_ += completions;
  return true;
}

void IbvCompletionQueue::give_back_room(uint32_t completions) {
  const std::lock_guard lock(poll_lock_);
  room_ -= completions;
}

void IbvCompletionQueue::arm(bool solicited_only) {
  const std::lock_guard lock(poll_lock_);
  if (cq_) ibv_req_notify_cq(cq_, solicited_only ? 1 : 0);
}

void IbvCompletionQueue::acknowledge() {
  const std::lock_guard lock(events_mutex_);
  if (!channel_) return;
  ibv_cq* cq = nullptr;
  void* owner = nullptr;
  unsigned int count = 0;
  while (library().get_cq_event(channel_, &cq, &owner) == 0) ++count;
  if (count > 0) library().ack_cq_events(cq_, count);
}

PostedRequests* IbvCompletionQueue::find(uint32_t queue) const {
  if (table_.empty()) return nullptr;
  const size_t mask = table_.size() - 1;
  for (size_t place = queue & mask; table_[place].queue != 0; place = (place + 1) & mask)
    if (table_[place].queue == queue) return table_[place].requests;
  return nullptr;
}

std::vector<IbvCompletionQueue::Entry> IbvCompletionQueue::entries() const {
  std::vector<Entry> used;
  std::ranges::copy_if(table_, std::back_inserter(used), [](const Entry& entry) { return entry.queue != 0; });
  return used;
}

void IbvCompletionQueue::rebuild(std::vector<Entry> entries) {
  table_.assign(std::bit_ceil(2 * entries.size() + 1), {});
  const size_t mask = table_.size() - 1;
  for (const Entry& entry : entries) {
    size_t place = entry.queue & mask;
    while (table_[place].queue != 0) place = (place + 1) & mask;
    table_[place] = entry;
  }
}

void IbvCompletionQueue::attach(uint32_t queue, PostedRequests& requests) {
  const std::lock_guard lock(poll_lock_);
  auto used = entries();
  if (find(queue)) return;
  used.push_back({queue, &requests});
  rebuild(std::move(used));
}

void IbvCompletionQueue::detach(uint32_t queue) {
  const std::lock_guard lock(poll_lock_);
  auto used = entries();
  std::erase_if(used, [queue](const Entry& entry) { return entry.queue == queue; });
  rebuild(std::move(used));
}

void IbvCompletionQueue::attach(IbvQueuePair& qp) {
  const std::lock_guard lock(members_mutex_);
  members_.push_back(&qp);
}

void IbvCompletionQueue::detach(IbvQueuePair& qp) {
  const std::lock_guard lock(members_mutex_);
  std::erase(members_, &qp);
}

std::vector<std::shared_ptr<IbvQueuePair>> IbvCompletionQueue::on_overrun() {
  overrun_.store(true, std::memory_order_relaxed);
  std::vector<std::shared_ptr<IbvQueuePair>> broken;
  const std::lock_guard lock(members_mutex_);
  for (IbvQueuePair* qp : members_)
    if (auto held = qp->weak_from_this().lock()) broken.push_back(std::move(held));
  return broken;
}

}  // namespace verbena::ibv
