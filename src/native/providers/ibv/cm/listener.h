// The passive side of the connection manager: a listener and its pending connect requests.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <string>

#include "providers/ibv/cm/event_loop.h"
#include "providers/ibv/context.h"
#include "util/fd.h"
#include "verbs/provider.h"

namespace verbena::ibv {

// The id of a connect request until it is answered. The only event that it can get is that the initiator has
// gone.
class PendingRequest final : public CmTarget, public Removable {
 public:
  PendingRequest(std::shared_ptr<IbvContext> context, const CmEvent& request);
  ~PendingRequest() override;

  void on_event(const CmEvent& event) override;
  void on_removal() override;
  bool is_gone() const;
  const std::string& peer() const { return peer_; }
  const std::vector<uint8_t>& private_data() const { return private_data_; }
  uint8_t responder_resources() const { return responder_resources_; }
  uint8_t initiator_depth() const { return initiator_depth_; }
  const std::shared_ptr<IbvContext>& context() const { return context_; }

  // The id, to be answered; empty when it was taken before.
  rdma_cm_id* take_id();
  void reject(std::span<const uint8_t> private_data);

 private:
  const std::shared_ptr<IbvContext> context_;
  const std::vector<uint8_t> private_data_;
  const uint8_t responder_resources_, initiator_depth_;
  const std::string peer_;
  mutable std::mutex mutex_;
  rdma_cm_id* id_;
  bool gone_ = false;
};

class IbvListener final : public Listener,
                          public CmTarget,
                          public Removable,
                          public std::enable_shared_from_this<IbvListener> {
 public:
  IbvListener(std::shared_ptr<IbvContext> context, int backlog);
  ~IbvListener() override { close(); }

  void start(const std::string& address);  // throws unreachable, address_in_use
  std::string address() const override { return address_; }
  int fileno() const override { return event_.get(); }
  std::shared_ptr<ConnectRequest> next() override;
  void close() override;
  void on_removal() override;
  void on_event(const CmEvent& event) override;

 private:
  const std::shared_ptr<IbvContext> context_;
  const size_t backlog_;
  const EventFd event_;
  std::string address_;
  std::mutex mutex_;
  rdma_cm_id* id_ = nullptr;
  bool is_removed_ = false;
  std::deque<std::shared_ptr<PendingRequest>> waiting_;
};

}  // namespace verbena::ibv
