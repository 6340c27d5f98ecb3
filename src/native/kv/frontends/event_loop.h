// Serves the engine's clients on sockets: one thread, epoll, and nothing that blocks but the wait itself.
#pragma once

#include <sys/epoll.h>

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

class SocketClient : public Client {
 public:
  SocketClient(EventLoop& owner, uint64_t number, UniqueFd fd);
  void queue_write() override;
  int fileno() const override { return socket.socket(); }

  EventLoop& loop;
  net::StreamSocket socket;
  bool in_tls_handshake = false;  // TLS
  bool wants_write = false;       // it could not take all: epoll tells when it can

  // What is written without the engine's lock, while others may say more: only the loop touches it.
  std::string sending;
  size_t written = 0;  // of it
  bool closes_now = false, closes_when_sent = false;
  void take_output();  // with the lock
};

class EventLoop {
 public:
  explicit EventLoop(Engine& engine);
  ~EventLoop();

  // Listening sockets; `tls`: with certificates.
  void listen(UniqueFd socket, std::shared_ptr<net::TlsContext> tls = nullptr);
  void stop_listening();
  void run();   // until stop()
  void stop();  // from any thread, and from signal handlers
  void wake() const { wake_event_.signal(); }
  // Runs this on the loop's thread, with the engine's lock.
  void post(std::function<void()> work);
  // Calls this on the loop's thread, with the engine's lock, while the descriptor is readable. With the lock.
  uint64_t watch(int fd, std::function<void()> readable);
  void unwatch(uint64_t watch, int fd);
  // Called at every tick, with the engine's lock.
  void on_tick(std::function<void(uint64_t)> work) { tick_hooks_.push_back(std::move(work)); }
  // Called in every turn with the engine's lock: before clients are heard, or when all that they did can be
  // seen. Says when it is to be called again (now_ns()) at the latest. With the lock.
  static constexpr uint64_t kNever = ~uint64_t{0};
  enum class Moment : uint8_t { before, after };
  using Hook = std::function<uint64_t(uint64_t now_ns)>;
  uint64_t add_hook(Moment moment, Hook work);
  void remove_hook(uint64_t number) { hooks_.erase(number); }  // not from within one
  // Who is polite does not push other programs off a processor when it wakes, but waits until one is
  // free or theirs is due (SCHED_BATCH). It lasts until the next command of a client's. With the lock.
  void set_batch_scheduling(bool batch) { batch_wanted_ = batch; }
  uint64_t last_command_ns() const { return last_command_ns_; }  // when there was a command last
  void set_timer(uint64_t unix_ms) { timer_ms_ = unix_ms; }      // the program's tick() is due then; 0: no

  // How long it may sleep as things are. With the engine's lock.
  int timeout_ms() const;

  Engine& engine() { return engine_; }
  size_t max_clients = 10000;
  std::atomic<uint64_t> busy_poll_ns{50'000};  // how long it looks for more before it sleeps
  bool new_client_python_dispatch = false, new_client_unauthenticated = false, is_protected = false;
  size_t new_client_out_limit = 0;

 private:
  friend class SocketClient;
  struct ListeningSocket {
    UniqueFd socket;
    std::shared_ptr<net::TlsContext> tls;
  };
  static constexpr size_t kReadBytes = 64u << 10;
  static constexpr uint64_t kTickNs = 10'000'000;
  static constexpr int kTickMs = 100;

  void accept(ListeningSocket& listener);
  void add_client(UniqueFd socket, const std::shared_ptr<net::TlsContext>& tls);
  void read(SocketClient& client);
  // Writes what it can of what was taken; true: the client is done for.
  bool write(SocketClient& client);
  void watch(SocketClient& client, bool writable);
  void close(SocketClient& client);
  int wait(std::span<epoll_event> events, uint64_t timeout_ns);
  int poll_events(std::span<epoll_event> events, uint64_t timeout_ns);
  uint64_t run_hooks(Moment moment);  // when the next is due
  void run_posted();
  void note_commands(uint64_t now);

  Engine& engine_;
  const UniqueFd epoll_;
  const EventFd wake_event_;
  std::atomic<bool> stopping_{false};
  std::vector<std::unique_ptr<ListeningSocket>> listeners_;
  std::unordered_map<uint64_t, std::unique_ptr<SocketClient>> clients_;
  std::vector<SocketClient*> woken_;
  uint64_t last_watch_ = 0;
  std::unordered_map<uint64_t, std::shared_ptr<std::function<void()>>> watches_;
  std::vector<std::function<void(uint64_t)>> tick_hooks_;
  uint64_t last_hook_ = 0;
  std::map<uint64_t, std::pair<Moment, Hook>> hooks_;
  bool has_epoll_pwait2_ = true;  // the kernel can
  std::mutex posted_mutex_;
  std::deque<std::function<void()>> posted_;
  SpinPolicy spin_policy_;
  bool is_batch_ = false, batch_wanted_ = false;
  uint64_t commands_ = 0, last_command_ns_ = 0;  // that clients have given so far, and when the last was seen
  uint64_t writes_ = 0;                          // since the lock was last held
  uint64_t timer_ms_ = 0, ticked_ns_ = 0, handler_ticked_ns_ = 0;
  std::unique_ptr<char[]> buffer_ = std::make_unique<char[]>(kReadBytes);
};

}  // namespace verbena::kv
