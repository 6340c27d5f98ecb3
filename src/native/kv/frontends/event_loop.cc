#include "kv/frontends/event_loop.h"

#include <fcntl.h>
#include <sched.h>
#include <sys/epoll.h>
#include <sys/resource.h>

#include <algorithm>
#include <new>

#include "kv/journal/backlog.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/fatal.h"
#include "util/waiter.h"

namespace verbena::kv {

namespace {

constexpr uint64_t kWakeEvent = 0, kListenerBit = uint64_t{1} << 63, kWatchBit = uint64_t{1} << 62;

}  // namespace

SocketClient::SocketClient(EventLoop& owner, uint64_t number, UniqueFd fd, SocketKind socket_kind)
    : Client(number), loop(owner), kind(socket_kind), socket(std::move(fd)) {}

void SocketClient::queue_write() { loop.woken_.push_back(this); }

void SocketClient::take_output() {
  write_scheduled = false;
  closes_now = close_now;
  closes_when_sent = close_after_reply;
  is_stalled = stalled;
  bytes_out += out.size();
  loop.engine_.counters.bytes_out += out.size();
  try {
    if (sending.empty()) {
      sending.swap(out);
    } else {
      sending.append(out);
      out.clear();
    }
  } catch (const std::bad_alloc&) {
    report("sending replies", "the client is disconnected");
    closes_now = true;
  }
  if (out.capacity() > 1u << 16) out = {};
  unsent_bytes.store(sending.size() - written, std::memory_order_relaxed);
}

EventLoop::EventLoop(Engine& engine)
    : engine_(engine),
      epoll_(epoll_create1(EPOLL_CLOEXEC)),
      spare_fd_(::open("/dev/null", O_RDONLY | O_CLOEXEC)) {
  if (!epoll_) throw Error("fd_limit", "serve", "epoll_create1() failed", errno);
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kWakeEvent}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_event_.get(), &event);
}

EventLoop::~EventLoop() {
  const auto held = engine_.lock();
  engine_.set_handler(nullptr);
  for (auto& [id, client] : clients_) engine_.remove(*client);
}

void EventLoop::listen(UniqueFd socket, std::shared_ptr<net::TlsContext> tls) {
  const auto held = engine_.lock();
  epoll_event event{.events = EPOLLIN, .data = {.u64 = kListenerBit | listeners_.size()}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, socket.get(), &event) != 0) {
    throw Error("invalid_argument", "listen", "epoll_ctl() failed", errno);
  }
  listeners_.push_back(std::make_unique<ListeningSocket>(ListeningSocket{std::move(socket), std::move(tls)}));
}

void EventLoop::stop_listening() {
  const auto held = engine_.lock();
  for (auto& listener : listeners_) listener->socket.reset();
}

void EventLoop::stop() {
  stopping_.store(true);
  wake_event_.signal();
}

void EventLoop::post(std::function<void()> work) {
  const std::lock_guard held(posted_mutex_);
  posted_.push_back(std::move(work));
  wake_event_.signal();
}

uint64_t EventLoop::watch(int fd, std::function<void()> readable) {
  const uint64_t id = kWatchBit | ++last_watch_;
  epoll_event event{.events = EPOLLIN, .data = {.u64 = id}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0) {
    throw Error("fd_limit", "watch", "epoll_ctl() failed", errno);
  }
  watches_.emplace(id, std::make_shared<std::function<void()>>(std::move(readable)));
  return id;
}

void EventLoop::unwatch(uint64_t watch, int fd) {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, fd, nullptr);
  watches_.erase(watch);
}

void EventLoop::run_posted() {
  std::deque<std::function<void()>> work;
  {
    const std::lock_guard held(posted_mutex_);
    work.swap(posted_);
  }
  for (auto& piece : work) piece();
}

int EventLoop::timeout_ms() const {
  int timeout = kTickMs;
  const bool lazy_free_pending = engine_.handler() && engine_.handler()->lazy_free_pending() > 0;
  if (lazy_free_pending || engine_.keyspace.has_retired()) timeout = static_cast<int>(kTickNs / 1'000'000);
  if (engine_.background) timeout = 1;
  if (timer_ms_ != 0) {
    const auto left = static_cast<int64_t>(timer_ms_ - engine_.keyspace.now_ms());
    timeout = static_cast<int>(std::clamp<int64_t>(left, 0, timeout));
  }
  return timeout;
}

int EventLoop::wait(std::span<epoll_event> events, uint64_t timeout_ns) {
  const uint64_t budget = busy_poll_ns.load(std::memory_order_relaxed);
  if (timeout_ns == 0 || budget == 0 || !spin_policy_.should_spin()) return poll_events(events, timeout_ns);
  int count = 0;
  Waiter waiter(std::min(budget, timeout_ns), kNever);
  // One poll per reading of the clock: epoll_wait() costs more than the clock.
  if (waiter.spin<1>([&] { return (count = poll_events(events, 0)) != 0; })) {
    spin_policy_.spin_succeeded();
    return count;
  }
  spin_policy_.spin_failed();
  return poll_events(events, timeout_ns);
}

int EventLoop::poll_events(std::span<epoll_event> events, uint64_t timeout_ns) {
  constexpr uint64_t kMs = 1'000'000, kSecond = 1'000'000'000;
  const auto room = static_cast<int>(events.size());
  if (timeout_ns % kMs != 0 && has_epoll_pwait2_) {
    const timespec timeout{.tv_sec = static_cast<time_t>(timeout_ns / kSecond),
                           .tv_nsec = static_cast<long>(timeout_ns % kSecond)};
    const int count = epoll_pwait2(epoll_.get(), events.data(), room, &timeout, nullptr);
    if (count >= 0 || errno != ENOSYS) return count;
    has_epoll_pwait2_ = false;
  }
  return epoll_wait(epoll_.get(), events.data(), room, static_cast<int>((timeout_ns + kMs - 1) / kMs));
}

uint64_t EventLoop::add_hook(Moment moment, Hook work) {
  hooks_.emplace(++last_hook_, std::pair(moment, std::move(work)));
  wake_event_.signal();
  return last_hook_;
}

uint64_t EventLoop::run_hooks(Moment moment) {
  uint64_t due = kNever;
  for (const auto& [number, hook] : hooks_) {
    if (hook.first == moment) due = std::min(due, hook.second(now_ns()));
  }
  return due;
}

void EventLoop::note_commands(uint64_t now) {
  if (engine_.counters.commands != commands_) {
    commands_ = engine_.counters.commands;
    last_command_ns_ = now;
    batch_wanted_ = false;
  }
  if (is_batch_ == batch_wanted_) return;
  is_batch_ = batch_wanted_;
  const int before = is_batch_ ? SCHED_OTHER : SCHED_BATCH;
  const sched_param plain{};
  // A scheduling policy that was set from outside is kept.
  if (sched_getscheduler(0) == before) sched_setscheduler(0, is_batch_ ? SCHED_BATCH : SCHED_OTHER, &plain);
}

void EventLoop::run() {
  or_end_process("serving clients", [this] { run_turns(); });
}

template <typename Function>
void EventLoop::for_client(SocketClient& client, Function function) {
  try {
    function();
  } catch (const std::exception&) {
    engine_.fail_client(client, "serving a client");
  }
}

void EventLoop::run_turns() {
  std::array<epoll_event, 256> events;
  uint64_t timeout = 0;
  while (!stopping_.load(std::memory_order_relaxed)) {
    const int count = wait(events, timeout);
    {
      const auto held = engine_.lock();
      engine_.refresh_time();
      engine_.counters.writes += std::exchange(writes_, 0);
      if (engine_.has_backlog()) engine_.backlog().set_served_by_loop(true);
      next_hook_ns_ = run_hooks(Moment::before);
      resume_stalled();
      for (int i = 0; i < count; ++i) handle_event(events[static_cast<size_t>(i)]);
      const uint64_t now = now_ns();
      note_commands(now);
      tick(now);
      engine_.commit();
      engine_.finish_batch();
      next_hook_ns_ = std::min(next_hook_ns_, run_hooks(Moment::after));
      if (engine_.has_backlog()) engine_.backlog().set_served_by_loop(false);
      timeout = static_cast<uint64_t>(timeout_ms()) * 1'000'000;
      if (next_hook_ns_ != kNever) {
        timeout = std::min(timeout, next_hook_ns_ > now ? next_hook_ns_ - now : 0);
      }
      writing_.clear();
      writing_.swap(woken_);
      for (SocketClient* client : writing_) client->take_output();
    }
    // Without the engine's lock, so that other threads can take it while the kernel copies the output.
    std::vector<SocketClient*> over;
    for (SocketClient* client : writing_) {
      if (write(*client)) {
        over.push_back(client);
      } else if (client->is_stalled &&
                 client->unsent_bytes.load(std::memory_order_relaxed) <= Engine::kMaxWaitingReplyBytes / 2) {
        drained_.push_back(client->id);
      }
    }
    if (!drained_.empty()) timeout = 0;
    if (over.empty()) continue;
    const auto held = engine_.lock();
    std::sort(over.begin(), over.end());
    over.erase(std::unique(over.begin(), over.end()), over.end());
    for (SocketClient* client : over) close(*client);
    std::erase_if(woken_, [&](SocketClient* client) {
      return std::find(over.begin(), over.end(), client) != over.end();
    });
    engine_.finish_batch();
    if (!woken_.empty()) timeout = 0;
  }
}

void EventLoop::handle_event(const epoll_event& event) {
  const uint64_t id = event.data.u64;
  if (id == kWakeEvent) {
    wake_event_.clear();
    run_posted();
    next_hook_ns_ = run_hooks(Moment::before);  // posted work may have changed when they are due
  } else if (id & kListenerBit) {
    accept(*listeners_[id & ~kListenerBit]);
  } else if (id & kWatchBit) {
    const auto watch = watches_.find(id);
    if (watch == watches_.end()) return;
    const auto kept = watch->second;  // the function may remove its own watch
    (*kept)();
  } else if (const auto found = clients_.find(id); found != clients_.end()) {
    SocketClient& client = *found->second;
    for_client(client, [&] {
      if (event.events & EPOLLOUT) engine_.schedule_write(client);
      const bool continues_handshake = client.in_tls_handshake && (event.events & EPOLLOUT);
      if (continues_handshake || event.events & (EPOLLIN | EPOLLHUP | EPOLLERR)) read(client);
    });
  }
}

void EventLoop::tick(uint64_t now) {
  if (now - ticked_ns_ >= kTickNs) {
    ticked_ns_ = now;
    rusage used{};
    getrusage(RUSAGE_THREAD, &used);
    spin_policy_.update_preemptions(static_cast<uint64_t>(used.ru_nivcsw), now);
    engine_.tick(now);
    close_silent_clients(now);
    for (const auto& work : tick_hooks_) work(now);
  }
  const bool due = timer_ms_ != 0 && timer_ms_ <= engine_.keyspace.now_ms();
  if (engine_.handler() && (due || now - handler_ticked_ns_ >= kTickMs * 1'000'000ull)) {
    handler_ticked_ns_ = now;
    if (due) timer_ms_ = 0;
    engine_.handler()->tick();
  }
}

void EventLoop::resume_stalled() {
  for (const uint64_t id : std::exchange(drained_, {})) {
    const auto found = clients_.find(id);
    if (found == clients_.end()) continue;
    SocketClient& client = *found->second;
    for_client(client, [&] {
      engine_.resume_stalled(client);
      if (!client.wants_read && client.in.size() < Engine::kMaxStalledInputBytes / 2) {
        watch(client, client.wants_write, true);
        if (client.socket.has_unread()) read(client);
      }
    });
  }
}

void EventLoop::read(SocketClient& client) {
  if (client.in_tls_handshake) {
    const auto step = client.socket.stream()->handshake();
    if (step == net::ByteStream::Step::failed) client.close_now = true;
    if (client.close_now) return engine_.schedule_write(client);
    watch(client, step == net::ByteStream::Step::wants_write, true);
    if (step != net::ByteStream::Step::done) return;
    client.in_tls_handshake = false;
  }
  do {
    // A long value is read directly into the client's input, everything else into a buffer that all clients
    // share.
    const size_t expected = client.reader.expected_bytes();
    if (expected > client.in.size() + kReadBytes && !client.blocked) {
      const size_t had = client.in.size(), room = std::min(expected - had, size_t{1} << 20);
      if (client.in.capacity() < had + room) {
        client.in.reserve(std::min(expected, std::max(had + room, 2 * client.in.capacity())));
      }
      client.in.resize(had + room);
      const iovec piece{client.in.data() + had, room};
      const ssize_t got = client.socket.read({&piece, 1});
      client.in.resize(had + static_cast<size_t>(std::max<ssize_t>(got, 0)));
      if (got > 0) {
        ++engine_.counters.reads;
        client.bytes_in += static_cast<size_t>(got);
        engine_.counters.bytes_in += static_cast<size_t>(got);
        engine_.feed(client, {});
        continue;
      }
      if (got == 0 || !net::would_block(errno)) client.close_now = true;
    } else {
      const iovec piece{buffer_.get(), kReadBytes};
      const ssize_t got = client.socket.read({&piece, 1});
      if (got > 0) {
        ++engine_.counters.reads;
        engine_.feed(client, {buffer_.get(), static_cast<size_t>(got)});
        continue;
      }
      if (got == 0 || !net::would_block(errno)) client.close_now = true;
    }
    break;
  } while (client.socket.has_unread() && !client.close_now &&
           client.in.size() < Engine::kMaxStalledInputBytes);
  if (client.stalled && client.in.size() >= Engine::kMaxStalledInputBytes) {
    watch(client, client.wants_write, false);
  }
  if (client.close_now) engine_.schedule_write(client);
}

bool EventLoop::write(SocketClient& client) {
  if (client.closes_now) return true;
  if (client.in_tls_handshake) return false;
  std::string& sending = client.sending;
  while (client.written < sending.size()) {
    const ssize_t sent =
        client.socket.write(sending.data() + client.written, sending.size() - client.written);
    if (sent <= 0) {
      if (sent < 0 && !net::would_block(errno)) return true;
      client.unsent_bytes.store(sending.size() - client.written, std::memory_order_relaxed);
      watch(client, true, client.wants_read);
      return false;
    }
    ++writes_;
    client.written += static_cast<size_t>(sent);
  }
  if (!client.socket.flush()) {
    if (!net::would_block(errno)) return true;
    watch(client, true, client.wants_read);
    return false;
  }
  client.written = 0;
  sending.clear();
  if (sending.capacity() > 1u << 16) sending = {};
  client.unsent_bytes.store(0, std::memory_order_relaxed);
  if (client.wants_write) watch(client, false, client.wants_read);
  return client.closes_when_sent;
}

void EventLoop::watch(SocketClient& client, bool writable, bool readable) {
  if (client.wants_write == writable && client.wants_read == readable) return;
  client.wants_write = writable;
  client.wants_read = readable;
  epoll_event event{.events = (readable ? EPOLLIN : 0u) | (writable ? EPOLLOUT : 0u),
                    .data = {.u64 = client.id}};
  epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, client.fileno(), &event);
}

void EventLoop::close(SocketClient& client) {
  if (client.socket.stream()) client.socket.shutdown_write();
  engine_.keyspace.unwatch(client.id);
  engine_.remove(client);
  --clients_by_kind_[static_cast<size_t>(client.kind)];
  clients_.erase(client.id);
}

}  // namespace verbena::kv
