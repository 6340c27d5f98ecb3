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

class EventLoop : public std::enable_shared_from_this<EventLoop> {
 public:
  explicit EventLoop(ibv_context* context);
  EventLoop(const EventLoop&) = delete;
  EventLoop& operator=(const EventLoop&) = delete;
  ~EventLoop();

  void start();
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

 private:
  void run(const std::stop_token& stop);
  void watch(int fd);
  int milliseconds_left();
  void take_async_events(const std::stop_token& stop);
  void take_cm_events(const std::stop_token& stop);
  void pass_deadlines();
  void run_tasks(const std::stop_token& stop);

  ibv_context* const context_;
  const UniqueFd epoll_;
  const EventFd wake_;
  std::mutex mutex_;  // innermost: nothing is called under it
  rdma_event_channel* channel_ = nullptr;
  std::map<rdma_cm_id*, std::weak_ptr<CmTarget>> targets_;
  std::vector<std::function<void()>> tasks_;
  std::jthread thread_;
};

}  // namespace verbena::ibv
