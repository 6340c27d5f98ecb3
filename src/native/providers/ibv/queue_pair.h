// A reliable-connected queue pair of a device. Set-up is in queue_pair.cc, posting in queue_pair_datapath.cc.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <span>

#include "providers/ibv/completion_queue.h"
#include "providers/ibv/domain.h"
#include "providers/ibv/shared_receive_queue.h"
#include "providers/ibv/slots.h"
#include "util/spinlock.h"
#include "verbs/provider.h"

namespace verbena::ibv {

class IbvConnection;

class IbvQueuePair final : public QueuePair, public std::enable_shared_from_this<IbvQueuePair> {
 public:
  IbvQueuePair(std::shared_ptr<IbvDomain> domain, const QpOptions& options);
  ~IbvQueuePair() override { close(); }

  PostResult post_send(std::span<const SendRequest> batch) override;
  PostResult post_recv(std::span<const RecvRequest> batch) override;

  uint32_t number() const override { return number_; }
  QpState state() const override;
  QpLimits limits() const override { return limits_; }
  QpAttributes attributes() const override;
  void modify(const QpAttributes& wanted) override;
  Capabilities capabilities() const override;
  void close() override;

  void start();  // joins its completion queues; called once, after construction
  // For the connection manager, which computes the attributes: applied unchanged.
  void apply(ibv_qp_attr& attr, int mask, const char* operation);
  // For iWARP, where the kernel moves it to RTS when the TCP connection is established.
  void note_connected() { state_.store(QpState::rts, std::memory_order_release); }
  // Moves to ERR, unless it is in RESET or closed.
  void move_to_err();
  bool has_srq() const { return srq_ != nullptr; }
  const IbvContext& context() const { return *domain_->context(); }
  void set_connection(const std::shared_ptr<IbvConnection>& connection);
  std::shared_ptr<IbvConnection> connection() const;

 private:
  static constexpr size_t kChunk = 32;

  // All under modify_mutex_.
  QpState device_state() const;
  void modify_device(ibv_qp_attr& attr, int mask, const char* operation);
  void await_drained() const;

  // All under the queue's post lock.
  PostError refuse(const SendRequest& request) const;
  size_t post_sends(std::span<const SendRequest> batch, PostError& error);
  size_t post_receives(std::span<const RecvRequest> batch, PostError& error);

  void resume_sends();

  const std::shared_ptr<IbvDomain> domain_;
  const std::shared_ptr<IbvCompletionQueue> send_cq_, recv_cq_;
  const std::shared_ptr<IbvSharedReceiveQueue> srq_;
  const uint32_t send_queue_, recv_queue_;
  const bool signal_all_;
  QpLimits limits_;
  ibv_qp* qp_ = nullptr;
  uint32_t number_ = 0;

  mutable std::mutex modify_mutex_;
  QpAttributes attributes_;
  bool closed_ = false;
  // The state that the program set. The device may have gone to ERR since; posting need not check that,
  // because the device flushes new requests.
  std::atomic<QpState> state_{QpState::reset};

  Spinlock send_lock_;
  std::unique_ptr<SlotRing> sends_;
  std::array<ibv_send_wr, kChunk> send_scratch_{};
  Spinlock recv_lock_;
  std::unique_ptr<SlotRing> receives_;
  std::array<ibv_recv_wr, kChunk> recv_scratch_{};

  mutable Spinlock connection_lock_;
  std::weak_ptr<IbvConnection> connection_;
};

}  // namespace verbena::ibv
