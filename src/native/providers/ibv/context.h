// An open device: creates domains, completion queues, listeners and connections.
#pragma once

#include <atomic>
#include <memory>

#include "providers/ibv/cm/event_loop.h"
#include "providers/ibv/device/device.h"
#include "providers/ibv/options.h"
#include "verbs/provider.h"

namespace verbena::ibv {

class IbvContext final : public Context, public std::enable_shared_from_this<IbvContext> {
 public:
  explicit IbvContext(DeviceHandle device, const Options& options = {});
  ~IbvContext() override;

  DeviceAttributes query() const override { return describe(device_.get()); }
  std::shared_ptr<ProtectionDomain> alloc_pd() override;
  std::shared_ptr<CompletionQueue> create_cq(uint32_t depth) override;
  std::shared_ptr<Memory> allocate(size_t bytes, bool huge_pages) override;
  std::shared_ptr<Listener> listen(const std::string& address, int backlog) override;
  std::shared_ptr<Connection> connect(std::shared_ptr<QueuePair> qp, const std::string& address,
                                      const ConnectParams& params) override;
  void close() override {}  // its objects may still be in use; the last holder closes it

  ibv_context* get() const { return device_.get(); }
  const DeviceAttributes& limits() const {
    return limits_;
  }  // as they were when it was opened: ports may change
  const Options& options() const { return options_; }
  bool has_atomics() const { return has_atomics_; }
  bool is_soft_roce() const { return limits_.software && limits_.transport == "RoCE"; }
  EventLoop& loop() const { return *loop_; }
  // A new number for a queue that completions refer to.
  uint32_t next_queue() { return next_queue_.fetch_add(1, std::memory_order_relaxed); }

 private:
  const DeviceHandle device_;
  const DeviceAttributes limits_;
  const Options options_;
  const bool has_atomics_;
  std::atomic<uint32_t> next_queue_{1};
  const std::shared_ptr<EventLoop> loop_;
};

std::shared_ptr<IbvContext> open_context(const std::string& device, const Options& options = {});

}  // namespace verbena::ibv
