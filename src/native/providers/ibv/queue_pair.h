// A reliable-connected queue pair of a device. Set-up is in queue_pair.cc, posting in queue_pair_datapath.cc.
#pragma once

#include <array>
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <span>

#include "providers/ibv/completion_queue.h"
#include "providers/ibv/domain.h"
#include "providers/ibv/shared_receive_queue.h"
#include "providers/ibv/slots.h"
#include "util/spinlock.h"
#include "verbs/provider.h"

namespace verbena::ibv {

class IbvConnection;

class IbvQueuePair final : public QueuePair,
                           public Removable,
                           public std::enable_shared_from_this<IbvQueuePair> {
 public:
  IbvQueuePair(std::shared_ptr<IbvDomain> domain, const QpOptions& options);
  ~IbvQueuePair() override { close(); }

  PostResult post_send(std::span<const SendRequest> batch) override;
  PostResult post_recv(std::span<const RecvRequest> batch) override;

  uint32_t number() const override { return number_; }
  QpState state() const override;
  // The state that the program set, without asking the device.
  QpState set_state() const { return state_.load(std::memory_order_acquire); }
  QpLimits limits() const override { return limits_; }
  QpAttributes attributes() const override;
  void modify(const QpAttributes& wanted) override;
  Capabilities capabilities() const override;
  void close() override;
  void on_removal() override;

  void start();  // joins its completion queues; called once, after construction
  // For the connection manager, which computes the attributes: applied unchanged.
  void apply(ibv_qp_attr& attr, int mask, const char* operation);
  // For iWARP, where the kernel moves it to RTS when the TCP connection is established.
  void note_connected() { state_.store(QpState::rts, std::memory_order_release); }
  // Moves to ERR, unless it is in RESET or closed.
  void move_to_err();
  bool has_srq() const { return srq_ != nullptr; }
  const IbvDomain& domain() const { return *domain_; }
  const IbvContext& context() const { return *domain_->context(); }

  // Windows of type 2 can be bound: the device has them, and this queue has slots for the requests.
  bool has_windows();
  soft::BoundWindows& windows() { return windows_; }
  // Posts the request that binds a window and returns its position; none in ERR, where it would be flushed.
  // Throws queue_full when too many binds wait behind other requests.
  std::optional<uint32_t> post_bind(ibv_mw* mw, uint32_t key, const ibv_mw_bind_info& info);
  // Returns when the bind at this position can no longer take effect. If the peer delays it by not
  // acknowledging requests in front of it, the queue pair goes to ERR.
  void await_bind(uint32_t position);
  void set_connection(const std::shared_ptr<IbvConnection>& connection);
  std::shared_ptr<IbvConnection> connection() const;

 private:
  static constexpr size_t kChunk = 32;
  static constexpr uint32_t kBindSlots = 32;

  // All under modify_mutex_.
  QpState device_state() const;
  void modify_device(ibv_qp_attr& attr, int mask, const char* operation);
  void await_drained() const;

  // All under the queue's post lock.
  PostError refuse(const SendRequest& request) const;
  size_t post_sends(std::span<const SendRequest> batch, PostError& error);
  size_t post_receives(std::span<const RecvRequest> batch, PostError& error);
  bool try_post_bind(ibv_send_wr& request, std::optional<uint32_t>& position);

  void resume_sends();

  const std::shared_ptr<IbvDomain> domain_;
  DeviceUse use_;
  const std::shared_ptr<IbvCompletionQueue> send_cq_, recv_cq_;
  const std::shared_ptr<IbvSharedReceiveQueue> srq_;
  const uint32_t send_queue_, recv_queue_;
  const bool signal_all_;
  QpLimits limits_;
  uint32_t bind_slots_ = 0;
  std::atomic<bool> cq_has_bind_room_{false};
  soft::BoundWindows windows_;
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
