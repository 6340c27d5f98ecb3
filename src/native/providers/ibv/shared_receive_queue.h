// A device's shared receive queue. It outlives the queue pairs that take from it.
#pragma once

#include <array>
#include <memory>
#include <mutex>
#include <vector>

#include "providers/ibv/completion_queue.h"
#include "providers/ibv/domain.h"
#include "providers/ibv/slots.h"
#include "util/spinlock.h"
#include "verbs/provider.h"

namespace verbena::ibv {

class IbvSharedReceiveQueue final : public SharedReceiveQueue, public Removable {
 public:
  IbvSharedReceiveQueue(std::shared_ptr<IbvDomain> domain, uint32_t max_recv, uint32_t max_sge);
  ~IbvSharedReceiveQueue() override;

  PostResult post(std::span<const RecvRequest> batch) override;
  void close() override;
  void on_removal() override;

  ibv_srq* get() const { return srq_; }
  const IbvDomain& domain() const { return *domain_; }
  // Its receives may complete on this queue from now on.
  void report_to(const std::shared_ptr<IbvCompletionQueue>& cq);

 private:
  static constexpr size_t kChunk = 32;

  size_t post_chunk(std::span<const RecvRequest> batch, PostError& error);

  const std::shared_ptr<IbvDomain> domain_;
  DeviceUse use_;
  const uint32_t queue_;
  uint32_t max_sge_ = 0;
  ibv_srq* srq_ = nullptr;  // null after the removal
  std::unique_ptr<SlotPool> slots_;
  Spinlock post_lock_;
  bool closed_ = false;
  std::array<ibv_recv_wr, kChunk> scratch_{};
  std::mutex cqs_mutex_;
  std::vector<std::weak_ptr<IbvCompletionQueue>> cqs_;
};

}  // namespace verbena::ibv
