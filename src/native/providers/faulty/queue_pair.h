// The wrapped queue pair: a queue of posted requests, of which the front part is on the inner wire and the
// rest is held back by a fault. Every request is signaled inside, on a completion queue of its own, so that
// injected completions are ordered among real ones. Completions that the caller did not request are dropped
// at the end.
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>

#include "providers/faulty/domain.h"
#include "providers/faulty/peers.h"
#include "providers/faulty/provider.h"
#include "providers/faulty/request.h"
#include "util/fd.h"

namespace verbena::faulty {

class FaultyCompletionQueue;

class FaultyQueuePair final : public QueuePair, public std::enable_shared_from_this<FaultyQueuePair> {
 public:
  FaultyQueuePair(std::shared_ptr<FaultyProtectionDomain> pd, std::shared_ptr<FaultPlan> plan,
                  std::shared_ptr<Peers> peers, std::shared_ptr<QueuePair> inner,
                  std::shared_ptr<CompletionQueue> inner_sends,
                  std::shared_ptr<FaultyCompletionQueue> send_cq,
                  std::shared_ptr<FaultyCompletionQueue> recv_cq, bool signal_all);
  ~FaultyQueuePair() override { close(); }
  void attach();  // joins its completion queues; called once, after construction

  PostResult post_send(std::span<const SendRequest> batch) override;
  PostResult post_recv(std::span<const RecvRequest> batch) override { return inner_->post_recv(batch); }
  uint32_t number() const override { return inner_->number(); }
  QpState state() const override { return inner_->state(); }
  QpLimits limits() const override { return limits_; }
  QpAttributes attributes() const override { return inner_->attributes(); }
  void modify(const QpAttributes& wanted) override;
  Capabilities capabilities() const override { return inner_->capabilities(); }
  void close() override;

  const std::shared_ptr<QueuePair>& inner() const { return inner_; }
  void set_connection(const std::shared_ptr<Connection>& connection);

  // Called by its completion queues. advance() takes what the inner wire has finished and continues held
  // requests.
  void advance();
  void arm();
  void acknowledge();
  void enter_error();

 private:
  PostError check(const SendRequest& request) const;
  PostError post_one(const SendRequest& request);
  void advance_locked();
  void reap();
  bool issue(PostedRequest& request);
  PostError hand_over(PostedRequest& request);
  void finish(PostedRequest& request);
  void break_link();
  void set_timer(uint64_t delay_ns);

  const std::shared_ptr<FaultyProtectionDomain> pd_;
  const std::shared_ptr<FaultPlan> plan_;
  const std::shared_ptr<Peers> peers_;
  const std::shared_ptr<QueuePair> inner_;
  const std::shared_ptr<CompletionQueue> inner_sends_;
  const std::shared_ptr<FaultyCompletionQueue> send_cq_, recv_cq_;
  const QpLimits limits_;
  const bool signal_all_;
  const UniqueFd timer_;  // wakes a thread that sleeps on a completion queue while a delay runs

  std::mutex mutex_;  // taken before the completion queues' own
  std::deque<PostedRequest> queue_;
  // A slot of the send queue is free again when its completion was polled, as in verbs.
  const std::shared_ptr<std::atomic<size_t>> unpolled_ = std::make_shared<std::atomic<size_t>>(0);
  size_t issued_ = 0;   // how many requests, from the front, are on the inner wire
  uint64_t first_ = 0;  // sequence number of the front
  bool timer_set_ = false;
  bool closed_ = false;
  std::weak_ptr<Connection> connection_;
};

}  // namespace verbena::faulty
