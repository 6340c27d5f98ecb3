// The event loop of the store and its frontend for sockets (TCP, Unix, TLS): one thread with epoll, in which
// only the wait blocks. Other frontends use it for posted work, watched descriptors and ticks.
// Depends on the engine and on net; not on sessions, verbs or Python.h.
#pragma once

#include <sys/epoll.h>

#include <array>
#include <deque>
#include <functional>
#include <map>
#include <unordered_map>

#include "kv/engine/engine.h"
#include "kv/frontends/spin_policy.h"
#include "net/stream_socket.h"
#include "net/tls.h"
#include "util/fd.h"

namespace verbena::kv {

class EventLoop;

enum class SocketKind : uint8_t { tcp, tls, unix_domain };
inline constexpr size_t kSocketKinds = 3;

class SocketClient : public Client {
 public:
  SocketClient(EventLoop& owner, uint64_t number, UniqueFd fd, SocketKind socket_kind);
  void queue_write() override;
  int fileno() const override { return socket.socket(); }

  EventLoop& loop;
  const SocketKind kind;
  net::StreamSocket socket;
  bool in_tls_handshake = false;
  bool wants_write = false;  // the socket was full: epoll reports when it is writable
  bool wants_read = true;    // false: a stalled client has sent enough

  // Output that is written without the engine's lock, while other threads may add to `out`. Only the loop's
  // thread uses these members.
  std::string sending;
  size_t written = 0;  // bytes of `sending`
  bool closes_now = false, closes_when_sent = false, is_stalled = false;
  void take_output();  // moves `out` to `sending`; needs the engine's lock
};

class EventLoop {
 public:
  explicit EventLoop(Engine& engine);
  ~EventLoop();

  // Accepts clients on a listening socket, with TLS if `tls` is given. Throws if epoll refuses the socket.
  void listen(UniqueFd socket, std::shared_ptr<net::TlsContext> tls = nullptr);
  void stop_listening();
  void run();   // returns after stop(); a failure that concerns no single client ends the process
  void stop();  // may be called from any thread and from signal handlers
  void wake() const { wake_event_.signal(); }
  // Runs `work` on the loop's thread, with the engine's lock. May be called from any thread.
  void post(std::function<void()> work);
  // Calls `readable` on the loop's thread, with the engine's lock, while the descriptor is readable. Returns
  // what unwatch() takes; throws if epoll refuses the descriptor. Both need the lock.
  uint64_t watch(int fd, std::function<void()> readable);
  void unwatch(uint64_t watch, int fd);
  // Calls `work` at every tick, with the engine's lock.
  void on_tick(std::function<void(uint64_t)> work) { tick_hooks_.push_back(std::move(work)); }
  // Calls `work` in every turn, with the engine's lock: before the clients' requests are read (`before`), or
  // after their changes have been committed (`after`). It returns the time of now_ns() by which it must be
  // called again. The caller holds the lock.
  static constexpr uint64_t kNever = ~uint64_t{0};
  enum class Moment : uint8_t { before, after };
  using Hook = std::function<uint64_t(uint64_t now_ns)>;
  uint64_t add_hook(Moment moment, Hook work);
  void remove_hook(uint64_t number) { hooks_.erase(number); }  // must not be called from within a hook
  // Runs the loop's thread under SCHED_BATCH, so that its wake-ups do not preempt other processes. Ends with
  // the next command of a client. Needs the lock.
  void set_batch_scheduling(bool batch) { batch_wanted_ = batch; }
  uint64_t last_command_ns() const { return last_command_ns_; }  // when the last command was noticed
  // The number of socket clients of a kind. Needs the engine's lock.
  size_t clients(SocketKind kind) const { return clients_by_kind_[static_cast<size_t>(kind)]; }
  void set_timer(uint64_t unix_ms) { timer_ms_ = unix_ms; }  // when the handler's tick() is due; 0: no timer

  // How long the loop may sleep now. Needs the engine's lock.
  int timeout_ms() const;

  Engine& engine() { return engine_; }
  size_t max_clients = 10000;
  std::atomic<uint64_t> busy_poll_ns{50'000};  // how long the loop polls before it sleeps
  bool new_client_python_dispatch = false, new_client_unauthenticated = false, is_protected = false;
  size_t new_client_out_limit = 0;

  // The error reply for a new client that no frontend may accept now: too many clients, or protected mode and
  // an address of another machine. Empty: accept it. Counts the rejection. Needs the engine's lock.
  std::string_view rejection(std::string_view address);
  // Sets what every new client begins with, whatever its frontend. Needs the engine's lock.
  void prepare(Client& client) const;

 private:
  friend class SocketClient;
  struct ListeningSocket {
    UnsharedFd socket;
    std::shared_ptr<net::TlsContext> tls;
  };
  static constexpr size_t kReadBytes = 64u << 10;
  static constexpr uint64_t kTickNs = 10'000'000;
  static constexpr int kTickMs = 100;

  void run_turns();
  void handle_event(const epoll_event& event);
  void tick(uint64_t now);
  // Calls the function; an exception disconnects the client. Exceptions that concern no single client end the
  // process.
  template <typename Function>
  void for_client(SocketClient& client, Function function);
  void accept(ListeningSocket& listener);
  void add_client(UniqueFd socket, const std::shared_ptr<net::TlsContext>& tls);
  void read(SocketClient& client);
  // Writes as much of `sending` as the socket takes. True: the caller must close the client.
  bool write(SocketClient& client);
  void watch(SocketClient& client, bool writable, bool readable);
  void close(SocketClient& client);
  void close_silent_clients(uint64_t now);
  void resume_stalled();
  int wait(std::span<epoll_event> events, uint64_t timeout_ns);
  int poll_events(std::span<epoll_event> events, uint64_t timeout_ns);
  uint64_t run_hooks(Moment moment);  // returns when the next one is due
  void run_posted();
  void note_commands(uint64_t now);

  Engine& engine_;
  const UniqueFd epoll_;
  const EventFd wake_event_;
  std::atomic<bool> stopping_{false};
  std::vector<std::unique_ptr<ListeningSocket>> listeners_;
  std::unordered_map<uint64_t, std::unique_ptr<SocketClient>> clients_;
  std::array<size_t, kSocketKinds> clients_by_kind_{};
  std::vector<SocketClient*> woken_, writing_;  // each has room for all clients
  std::vector<uint64_t> drained_;               // stalled clients whose replies have been sent
  uint64_t last_watch_ = 0;
  std::unordered_map<uint64_t, std::shared_ptr<std::function<void()>>> watches_;
  std::vector<std::function<void(uint64_t)>> tick_hooks_;
  uint64_t last_hook_ = 0;
  std::map<uint64_t, std::pair<Moment, Hook>> hooks_;
  bool has_epoll_pwait2_ = true;  // until the kernel reports ENOSYS
  std::mutex posted_mutex_;
  // When clients that have not finished a TLS handshake, or not logged in, are closed.
  struct Deadline {
    uint64_t due_ns = 0, client = 0;
  };
  std::deque<Deadline> handshake_deadlines_, login_deadlines_;  // in order
  std::deque<std::function<void()>> posted_;
  SpinPolicy spin_policy_;
  bool is_batch_ = false, batch_wanted_ = false;
  uint64_t commands_ = 0, last_command_ns_ = 0;  // the engine's count of commands, and when it last changed
  uint64_t writes_ = 0;                          // made without the lock, not counted by the engine yet
  UniqueFd spare_fd_;               // closed to accept, and reject, a connection when no descriptor is left
  uint64_t next_hook_ns_ = kNever;  // when a hook is due next
  uint64_t timer_ms_ = 0, ticked_ns_ = 0, handler_ticked_ns_ = 0;
  std::unique_ptr<char[]> buffer_ = std::make_unique<char[]>(kReadBytes);
};

}  // namespace verbena::kv
