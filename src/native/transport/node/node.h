// A process's end of all its sessions: the ports, one lock over everything, and the threads that drive it
// (poll its completion queues). A caller that waits drives the node itself. Otherwise the node's thread does,
// or the event loop of Python, for which the thread takes over while the loop is busy.
// May depend on transport/, verbs/ and util/ only.
#pragma once

#include <atomic>
#include <iterator>
#include <memory>
#include <mutex>
#include <thread>
#include <unordered_map>
#include <vector>

#include "transport/capture/capture.h"
#include "transport/memory/regions.h"
#include "transport/memory/registration_cache.h"
#include "transport/node/driver_clock.h"
#include "transport/node/methods.h"
#include "transport/node/port.h"
#include "transport/session/operation.h"
#include "transport/session/session.h"
#include "util/error.h"
#include "util/fd.h"
#include "util/yielding_mutex.h"

namespace verbena::transport {

struct NodeOptions {
  uint32_t busy_poll_us = 100;  // how long to spin after the last work before sleeping
  bool loop_driven = false;     // an event loop drives: see fileno()
  uint64_t heartbeat_ns = 1'000'000'000;
  uint64_t silence_ns = 10'000'000'000;     // without a message for this long, the link is lost
  uint32_t poll_batch = 32;                 // completions per poll of a queue
  bool sleeps = true;                       // false: spins without ever sleeping
  size_t max_region_bytes = 1'000'000'000;  // limit of one registration, and of the cache in all
};

class Node {
 public:
  explicit Node(const NodeOptions& options);
  ~Node() { close(); }

  // Set-up.
  std::shared_ptr<Port> add_port(std::shared_ptr<Port> port);
  void add_queue(Port& port, std::shared_ptr<CompletionQueue> cq);  // for more links on a wire
  void retire(const Port& port);  // its device was removed: it is not polled from now on
  std::shared_ptr<Session> add_session(SessionOptions options, std::shared_ptr<EventQueue> control,
                                       std::shared_ptr<EventQueue> requests);
  void remove_session(Session& session);  // after its end()
  void handle(uint32_t method, std::shared_ptr<Handler> handler);
  void close();  // stops the thread; sessions end

  std::unique_lock<YieldingMutex> lock() { return std::unique_lock(mutex_); }
  std::unique_lock<YieldingMutex> try_lock() { return std::unique_lock(mutex_, std::try_to_lock); }
  // As lock(), for a thread that locks again and again: threads that wait go first.
  std::unique_lock<YieldingMutex> lock_in_turn();
  YieldingMutex::Reservation reserve_lock() { return YieldingMutex::Reservation(mutex_); }

  // With the lock:
  Handler* handler(uint32_t method) const {
    if (method < std::size(own_handlers_)) return own_handlers_[method];
    const auto found = handlers_.find(method);
    return found == handlers_.end() ? nullptr : found->second.get();
  }
  std::shared_ptr<Session> find_session(uint64_t id) const {  // empty: it has ended
    const auto found = sessions_.find(id);
    return found == sessions_.end() ? nullptr : found->second;
  }
  OperationTable& operations() { return operations_; }
  RegionTable& regions() { return regions_; }
  RegistrationCache& registrations() { return registrations_; }
  // Calls `function`, which registers memory. If that fails, drops the cached registrations and calls it
  // again.
  template <typename Function>
  decltype(auto) registering(Function function) {
    try {
      return function();
    } catch (const Error&) {
      if (!registrations_.make_room()) throw;
    }
    return function();
  }
  // Ends the region and every memory lease of it. The caller must call finish() without the lock.
  [[nodiscard]] RevokedRegion revoke(const ExposedRegion& region);
  // Ends what an audience lent to one of its sessions. A READ in progress may still return.
  void revoke(Audience& audience, uint64_t session);
  Capture* capture() const { return capture_.get(); }  // null: no capture is running
  void set_capture(std::shared_ptr<Capture> capture) { capture_ = std::move(capture); }
  const std::vector<std::shared_ptr<Port>>& ports() const { return ports_; }
  // Drives for a few microseconds, within which a peer on this host replies. True: the operation has ended
  // well. Skipped while the session's recent replies were late.
  bool spin_for_reply(Operation& operation);
  // drive() without spinning.
  bool drive_once();

  // Without it:
  // Drives until the operation has finished (true) or the deadline has passed; spins, then sleeps.
  bool wait(Operation& operation, uint64_t deadline_ns);
  void end(Operation& operation);
  // Drives for busy_poll_us; sleeps briefly if it finds nothing. For loops that check a condition of their
  // own.
  void drive_or_sleep();
  // For the event loop. Handles all completions; if there are none, spins for `spin_us`. If there are some
  // but fewer than `enough` events in the queue, waits a few microseconds for more, because one iteration of
  // the loop costs more. True: there was something.
  bool drive(uint32_t spin_us, const EventQueue& queue, size_t enough);
  // Before the loop sleeps on fileno(): arms the queues and polls once more. True: there was something.
  bool arm_and_poll();
  void acknowledge();                          // takes the events that made fileno() readable
  int fileno() const { return epoll_.get(); }  // readable when drive() would find something
  const NodeOptions& options() const { return options_; }

 private:
  bool drive_locked();
  // Another thread waits for the lock, or drives.
  bool is_contended() const { return mutex_.has_waiters() || callers_.load(std::memory_order_relaxed) > 0; }
  void handle_completion(Port& port, const Completion& completion);
  void arm();
  void watch(const CompletionQueue& cq);
  uint64_t spin_ns() const;
  void tick_if_due(uint64_t now);
  void run();
  void drive_for_loop();
  void sleep(int timeout_ms);

  static constexpr uint64_t kTickNs = 20'000'000;

  const NodeOptions options_;
  const UniqueFd epoll_;
  const EventFd stop_event_;
  YieldingMutex mutex_;
  std::vector<std::shared_ptr<Port>> ports_;
  std::vector<std::shared_ptr<Port>> retired_ports_;  // registrations refer to them
  std::unordered_map<uint64_t, std::shared_ptr<Session>> sessions_;
  std::unordered_map<uint32_t, std::shared_ptr<Handler>> handlers_;
  Handler* own_handlers_[16] = {};  // handlers of Verbena's own methods, by number
  OperationTable operations_;
  RegionTable regions_;
  RegistrationCache registrations_;
  std::shared_ptr<Capture> capture_;
  std::vector<Completion> polled_;
  uint64_t ticked_ns_ = 0;
  DriverClock clock_{5 * kTickNs};
  std::atomic<uint32_t> callers_{0};        // threads that spin for an operation of their own
  std::atomic<uint64_t> caller_rounds_{0};  // grows while callers drive
  std::atomic<uint64_t> loop_rounds_{0};    // grows while the event loop drives
  std::atomic<bool> stopping_{false};
  std::jthread thread_;
};

}  // namespace verbena::transport
