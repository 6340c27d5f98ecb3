#include "transport/node/port.h"

#include <algorithm>

#include "transport/node/ids.h"
#include "transport/session/link.h"

namespace verbena::transport {

Port::Port(std::shared_ptr<Context> context, std::shared_ptr<ProtectionDomain> pd,
           std::shared_ptr<CompletionQueue> cq, std::shared_ptr<SharedReceiveQueue> srq, PortOptions options)
    : context_(std::move(context)),
      pd_(std::move(pd)),
      queues_{std::move(cq)},
      srq_(std::move(srq)),
      options_(std::move(options)),
      sends_(context_, pd_, options_.buffer_bytes, options_.pool_buffers, options_.huge_pages, options_.pin),
      receives_(context_, pd_, options_.buffer_bytes, options_.pool_buffers, options_.huge_pages,
                options_.pin) {
  to_repost_.reserve(kRepostBatch);
}

void Port::add(Link& link) {
  links_[link.number()] = &link;
  post_more_receives();
}

void Port::remove(const Link& link) {
  links_.erase(link.number());
  last_found_ = nullptr;
}

Link* Port::find(uint32_t qp_num) const {
  if (last_found_ && last_number_ == qp_num) return last_found_;
  const auto found = links_.find(qp_num);
  if (found == links_.end()) return nullptr;
  last_number_ = qp_num;
  return last_found_ = found->second;
}

void Port::repost(MessageBuffer* buffer) {
  to_repost_.push_back(buffer);
  if (to_repost_.size() == kRepostBatch) flush_receives();
}

void Port::flush_receives() {
  if (to_repost_.empty()) return;
  Sge pieces[kRepostBatch];
  RecvRequest batch[kRepostBatch];
  const size_t count = to_repost_.size();
  for (size_t i = 0; i < count; ++i) {
    const MessageBuffer& buffer = *to_repost_[i];
    pieces[i] = {reinterpret_cast<uint64_t>(buffer.data), options_.buffer_bytes, buffer.lkey};
    batch[i] = {.id = request_id(RequestTag::receive, buffer.index), .local = {&pieces[i], 1}};
  }
  const PostResult posted = srq_->post({batch, count});
  // The rest stays for the next batch. That is rare: the queue is as long as the pool.
  to_repost_.erase(to_repost_.begin(), to_repost_.begin() + static_cast<ptrdiff_t>(posted.accepted));
}

void Port::post_more_receives() {
  const uint64_t wanted =
      std::min<uint64_t>(options_.pool_buffers, (uint64_t{options_.window} + kSpareReceives) * links_.size());
  for (; posted_ < wanted; ++posted_) {
    MessageBuffer* buffer = receives_.take();
    if (!buffer) break;
    repost(buffer);
  }
  flush_receives();
}

}  // namespace verbena::transport
