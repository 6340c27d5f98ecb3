// An open device: creates domains, completion queues, listeners and connections.
#pragma once

#include <atomic>
#include <memory>

#include "providers/ibv/cm/event_loop.h"
#include "providers/ibv/device/device.h"
#include "providers/ibv/device/removal.h"
#include "providers/ibv/options.h"
#include "verbs/provider.h"

namespace verbena::ibv {

class IbvContext final : public Context, public DeviceOwner, public std::enable_shared_from_this<IbvContext> {
 public:
  explicit IbvContext(DeviceHandle device, const Options& options = {});
  ~IbvContext() override;
  void start();  // called once, after construction

  DeviceAttributes query() const override;
  std::shared_ptr<ProtectionDomain> alloc_pd() override;
  std::shared_ptr<CompletionQueue> create_cq(uint32_t depth) override;
  std::shared_ptr<Memory> allocate(size_t bytes, const MemoryOptions& options) override;
  void quiesce() override {}  // the kernel waits for the device before it takes a key back
  std::shared_ptr<Listener> listen(const std::string& address, int backlog) override;
  std::shared_ptr<Connection> connect(std::shared_ptr<QueuePair> qp, const std::string& address,
                                      const ConnectParams& params) override;
  bool is_removed() const override { return removed_; }
  void close() override {}  // its objects may still be in use; the last holder closes it

  // On the loop's thread: the kernel removes the device. All objects give back their part of it, and it is
  // closed, while they and this context still exist.
  int on_tick() override;
  void on_device_removed() override { removed_ = true; }

  // Only during a use.
  ibv_context* get() const { return device_.get(); }
  // What an object or a call holds while it uses the device; a domain lives longer than what is in it. Both
  // throw no_device after the removal.
  DeviceUse use(const char* operation) const { return {uses_, name(), operation}; }
  DeviceUse use_for_domain() const { return {domains_, name(), "allocate protection domain"}; }
  // The object takes part in the removal.
  void track(RemovalRank rank, const std::shared_ptr<Removable>& object) const { uses_.track(rank, object); }
  const DeviceAttributes& limits() const {
    return limits_;
  }  // as they were when it was opened: ports may change
  const Options& options() const { return options_; }
  const std::string& name() const { return limits_.name; }
  bool is_iwarp() const { return is_iwarp_; }
  bool has_atomics() const { return has_atomics_; }
  bool has_windows() const { return has_windows_; }  // of type 2
  bool is_soft_roce() const { return limits_.software && limits_.transport == "RoCE"; }
  EventLoop& loop() const { return *loop_; }
  // A new number for a queue that completions refer to.
  uint32_t next_queue() { return next_queue_.fetch_add(1, std::memory_order_relaxed); }

 private:
  bool is_present() const;
  void hold_device(const char* operation);

  DeviceHandle device_;
  const DeviceAttributes limits_;
  const Options options_;
  const bool is_iwarp_, has_atomics_, has_windows_;
  const std::string folder_;  // of the device in sysfs
  const uint64_t identity_;   // of that folder; 0: unknown
  std::atomic<bool> removed_{false};
  mutable DeviceUses uses_, domains_;
  enum class Removal : uint8_t { none, disconnected, closed } removal_ = Removal::none;  // the loop's
  std::atomic<uint32_t> next_queue_{1};
  const std::shared_ptr<EventLoop> loop_;
};

std::shared_ptr<IbvContext> open_context(const std::string& device, const Options& options = {});

}  // namespace verbena::ibv
