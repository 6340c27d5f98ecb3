// The one native thread of a context: asynchronous events of the device, events of the connection manager,
// and deadlines of connections. It creates the connection manager's ids, which use its event channel.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "providers/ibv/cm/address.h"
#include "providers/ibv/device/library.h"
#include "util/fd.h"
#include "verbs/types.h"

namespace verbena::ibv {

// A copy of a connection manager's event. The original is acknowledged before the event is handled, because
// destroying an id waits until all its events were acknowledged.
struct CmEvent {
  rdma_cm_event_type type;
  int status = 0;
  rdma_cm_id* new_id = nullptr;  // of a connect request; the receiver of the event owns it
  std::vector<uint8_t> private_data;
  uint8_t responder_resources = 0, initiator_depth = 0;
};

// The receiver of an id's events. Both functions run on the loop's thread.
class CmTarget {
 public:
  static constexpr uint64_t kNoDeadline = UINT64_MAX;

  virtual ~CmTarget() = default;
  virtual void on_event(const CmEvent& event) = 0;
  virtual uint64_t deadline_ns() const { return kNoDeadline; }
  virtual void on_deadline() {}
};

// The owner of the loop's device. Called on the loop's thread.
class DeviceOwner {
 public:
  virtual ~DeviceOwner() = default;
  virtual void on_device_removed() = 0;
  virtual int on_tick() = 0;  // returns after how many milliseconds it must be called again; -1: never
};

class EventLoop : public std::enable_shared_from_this<EventLoop> {
 public:
  EventLoop(ibv_context* context, std::string device);
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;
  ~EventLoop();

  void start(std::weak_ptr<DeviceOwner> owner);
  // Returns when the thread has ended; called on that thread, it ends the thread after the caller has
  // returned.
  void stop();

  // Opens the connection manager on first use; throws provider_missing when the kernel has none.
  rdma_cm_id* create_id(const std::shared_ptr<CmTarget>& target, const char* operation);
  // The id's events go to this target from now on.
  void adopt_id(rdma_cm_id* id, const std::shared_ptr<CmTarget>& target);
  void destroy_id(rdma_cm_id* id);
  void deadlines_changed() const { wake_.signal(); }
  // Runs `task` on the loop's thread. librdmacm still writes to an id after the kernel has its command, so a
  // command that an event answers must not come from another thread.
  void call_soon(std::function<void()> task);

  // Before the first use of the connection manager, whose library opens the device once more and keeps it
  // open until the process ends. An id of this address holds the library's handle of the device, so that
  // release_library() can close what it has open after the removal of the device.
  void hold_device(const SocketAddress& address);
  void release_library();
  bool holds_device() {
    const std::lock_guard lock(mutex_);
    return holder_ != nullptr;
  }
  // On the loop's thread, when all other ids were destroyed: the device is not used from now on.
  void forget_device();

 private:
  void run(const std::stop_token& stop);
  void watch(int fd);
  int milliseconds_left();
  void take_async_events(const std::stop_token& stop);
  void take_cm_events(const std::stop_token& stop);
  void pass_deadlines();
  void run_tasks(const std::stop_token& stop);
  void tick();
  void device_removed();

  ibv_context* context_;  // the loop's thread only; null after forget_device()
  const std::string device_;
  std::weak_ptr<DeviceOwner> owner_;
  uint64_t next_tick_ns_ = 0;
  const UniqueFd epoll_;
  const EventFd wake_;
  std::mutex mutex_;  // innermost: nothing is called under it
  rdma_event_channel* channel_ = nullptr;
  std::map<rdma_cm_id*, std::weak_ptr<CmTarget>> targets_;
  std::vector<std::function<void()>> tasks_;
  rdma_cm_id* holder_ = nullptr;
  std::jthread thread_;
};

}  // namespace verbena::ibv
