// One program's end of all its sessions: the ports, the lock over everything, and who drives it. Callers that
// wait drive it themselves; otherwise its own thread does, or the program's event loop with the thread as a
// stand-in while the loop is busy.
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
#include "transport/node/methods.h"
#include "transport/node/port.h"
#include "transport/session/call.h"
#include "transport/session/session.h"
#include "util/error.h"
#include "util/fd.h"
#include "util/polite_mutex.h"

namespace verbena::transport {

struct NodeOptions {
  uint32_t busy_poll_us = 100;  // how long to spin after the last work before sleeping
  bool by_loop = false;         // an event loop drives: see fileno()
  uint64_t heartbeat_ns = 1'000'000'000;
  uint64_t silence_ns = 10'000'000'000;     // nothing heard for so long: the link is lost
  uint32_t poll_batch = 32;                 // completions taken from a queue at a time
  bool sleeps = true;                       // false: spins without end
  size_t max_region_bytes = 1'000'000'000;  // registered in one piece, and kept registered in all
};

class Node {
 public:
  explicit Node(const NodeOptions& options);
  ~Node() { close(); }

  // Set-up.
  std::shared_ptr<Port> add_port(std::shared_ptr<Port> port);
  void add_queue(Port& port, std::shared_ptr<CompletionQueue> cq);  // for more links on a wire
  std::shared_ptr<Session> add_session(SessionOptions options, std::shared_ptr<EventQueue> control,
                                       std::shared_ptr<EventQueue> requests);
  void remove_session(Session& session);  // after its end()
  void handle(uint32_t method, std::shared_ptr<Handler> handler);
  void close();  // stops the thread; sessions end

  std::unique_lock<PoliteMutex> lock() { return std::unique_lock(mutex_); }
  std::unique_lock<PoliteMutex> try_lock() { return std::unique_lock(mutex_, std::try_to_lock); }
  PoliteMutex::Wish wish_for_lock() { return PoliteMutex::Wish(mutex_); }

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
  CallTable& calls() { return calls_; }
  RegionTable& regions() { return regions_; }
  RegistrationCache& registrations() { return registrations_; }
  // Runs what registers memory; if the wire cannot, once more without the registrations that are merely kept.
  template <typename Function>
  decltype(auto) registering(Function function) {
    try {
      return function();
    } catch (const Error&) {
      if (!registrations_.make_room()) throw;
    }
    return function();
  }
  Capture* capture() const { return capture_.get(); }  // null: nobody wants messages
  void set_capture(std::shared_ptr<Capture> capture) { capture_ = std::move(capture); }
  const std::vector<std::shared_ptr<Port>>& ports() const { return ports_; }
  // True when the call, or the operation, has ended well; drives for the microsecond or two that a peer on
  // this host takes, unless the session's others have lately taken longer.
  bool is_answered_at_once(Call& call);
  // drive() without spinning.
  bool drive_once();

  // Without it:
  // True when the call has finished; drives meanwhile: spins, then sleeps until the deadline (kNever).
  bool wait(Call& call, uint64_t deadline_ns);
  void end(Call& call);
  // Drives, or sleeps a little if others do or there is nothing: for loops that look for themselves.
  void linger();
  // For the loop: takes what there is; true: there was something. Else looks for `spin_us` more. When there
  // is something, but less than `enough` in the queue, waits a little for the rest, as a turn of a loop costs
  // more. rest() arms instead of spinning on.
  bool drive(uint32_t spin_us, const EventQueue& queue, size_t enough);
  bool rest();
  void acknowledge();                          // what fileno() told
  int fileno() const { return epoll_.get(); }  // readable when drive() would find something
  const NodeOptions& options() const { return options_; }

 private:
  bool drive_locked();
  // Somebody else would drive, or do something else with the lock.
  bool is_contended() const { return mutex_.is_wanted() || callers_.load(std::memory_order_relaxed) > 0; }
  void handle_completion(Port& port, const Completion& completion);
  void arm();
  void watch(const CompletionQueue& cq);
  uint64_t spin_ns() const;
  void tick_if_due(uint64_t now);
  void run();
  void stand_in();
  void sleep(int timeout_ms);

  static constexpr uint64_t kTickNs = 20'000'000;

  const NodeOptions options_;
  const UniqueFd epoll_;
  const EventFd stop_event_;
  PoliteMutex mutex_;
  std::vector<std::shared_ptr<Port>> ports_;
  std::unordered_map<uint64_t, std::shared_ptr<Session>> sessions_;
  std::unordered_map<uint32_t, std::shared_ptr<Handler>> handlers_;
  Handler* own_handlers_[16] = {};  // the same, by number: Verbena's own are few and called often
  CallTable calls_;
  RegionTable regions_;
  RegistrationCache registrations_;
  std::shared_ptr<Capture> capture_;
  std::vector<Completion> polled_;
  uint64_t ticked_ns_ = 0;
  std::atomic<uint32_t> callers_{0};        // threads that spin for a call of theirs
  std::atomic<uint64_t> caller_rounds_{0};  // grows while such threads drive
  std::atomic<uint64_t> loop_rounds_{0};    // grows while the loop drives
  std::atomic<bool> stopping_{false};
  std::jthread thread_;
};

}  // namespace verbena::transport
