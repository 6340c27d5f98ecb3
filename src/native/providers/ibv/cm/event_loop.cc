#include "providers/ibv/cm/event_loop.h"

#include <fcntl.h>
#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "providers/ibv/device/async_events.h"
#include "util/clock.h"
#include "util/error.h"
#include "util/fatal.h"
#include "util/processor/thread_name.h"

namespace verbena::ibv {
namespace {

void make_nonblocking(int fd) {
  const int flags = fcntl(fd, F_GETFL);
  if (flags < 0 || fcntl(fd, F_SETFL, flags | O_NONBLOCK) != 0)
    throw Error("no_device", "open device", "its event descriptor cannot be made non-blocking", errno);
}

CmEvent copy_of(const rdma_cm_event& event) {
  CmEvent copy{.type = event.event, .status = event.status};
  if (event.event == RDMA_CM_EVENT_CONNECT_REQUEST) copy.new_id = event.id;
  const rdma_conn_param& conn = event.param.conn;
  if (const auto* data = static_cast<const uint8_t*>(conn.private_data))
    copy.private_data.assign(data, data + conn.private_data_len);
  copy.responder_resources = conn.responder_resources;
  copy.initiator_depth = conn.initiator_depth;
  return copy;
}

}  // namespace

EventLoop::EventLoop(ibv_context* context, std::string device)
    : context_(context), device_(std::move(device)), epoll_(epoll_create1(EPOLL_CLOEXEC)) {
  if (!epoll_) throw Error("fd_limit", "open device", "epoll_create1() failed", errno);
  make_nonblocking(context_->async_fd);
  watch(context_->async_fd);
  watch(wake_.get());
}

EventLoop::~EventLoop() {
  if (holder_) library().rdma_destroy_id(holder_);
  if (!channel_) return;
  keep_in_child(channel_->fd);
  library().rdma_destroy_event_channel(channel_);
}

void EventLoop::start(std::weak_ptr<DeviceOwner> owner) {
  owner_ = std::move(owner);
  // The thread holds the loop: an event handler on this very thread may drop the context.
  thread_ = std::jthread([self = shared_from_this()](const std::stop_token& stop) {
    or_end_process("handling RDMA events", [&] { self->run(stop); });
  });
}

void EventLoop::stop() {
  if (!thread_.joinable()) return;
  thread_.request_stop();
  wake_.signal();  // also on this very thread, which may be about to sleep
  if (thread_.get_id() == std::this_thread::get_id()) {
    thread_.detach();
  } else {
    thread_.join();
  }
}

void EventLoop::watch(int fd) {
  epoll_event event{.events = EPOLLIN, .data = {.fd = fd}};
  if (epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, fd, &event) != 0)
    throw Error("fd_limit", "open device", "epoll_ctl() failed", errno);
}

rdma_cm_id* EventLoop::create_id(const std::shared_ptr<CmTarget>& target, const char* operation) {
  const std::lock_guard lock(mutex_);
  if (!channel_) {
    channel_ = library().rdma_create_event_channel();
    if (!channel_) {
      throw Error(
          "provider_missing", operation,
          "the RDMA connection manager cannot be opened: modprobe rdma_ucm, and give this user access "
          "to /dev/infiniband/rdma_cm",
          errno);
    }
    close_in_child(channel_->fd);
    make_nonblocking(channel_->fd);
    watch(channel_->fd);
  }
  rdma_cm_id* id = nullptr;
  if (library().rdma_create_id(channel_, &id, nullptr, RDMA_PS_TCP) != 0)
    throw Error("limit_exceeded", operation, "the connection manager cannot create another id", errno);
  targets_[id] = target;
  return id;
}

void EventLoop::adopt_id(rdma_cm_id* id, const std::shared_ptr<CmTarget>& target) {
  {
    const std::lock_guard lock(mutex_);
    targets_[id] = target;
  }
  deadlines_changed();
}

void EventLoop::destroy_id(rdma_cm_id* id) {
  {
    const std::lock_guard lock(mutex_);
    targets_.erase(id);
  }
  library().rdma_destroy_id(id);
}

void EventLoop::call_soon(std::function<void()> task) {
  {
    const std::lock_guard lock(mutex_);
    tasks_.push_back(std::move(task));
  }
  wake_.signal();
}

void EventLoop::run_tasks(const std::stop_token& stop) {
  std::vector<std::function<void()>> tasks;
  {
    const std::lock_guard lock(mutex_);
    tasks.swap(tasks_);
  }
  for (const auto& task : tasks)
    if (!stop.stop_requested()) task();
}

void EventLoop::run(const std::stop_token& stop) {
  name_thread("verbena-ibv");
  while (!stop.stop_requested()) {
    epoll_event ready[3];
    const int count = epoll_wait(epoll_.get(), ready, 3, milliseconds_left());
    for (int i = 0; i < count && !stop.stop_requested(); ++i) {
      if (ready[i].data.fd == wake_.get()) {
        wake_.clear();
      } else if (context_ && ready[i].data.fd == context_->async_fd) {
        take_async_events(stop);
      } else {
        take_cm_events(stop);
      }
    }
    run_tasks(stop);
    if (!stop.stop_requested()) pass_deadlines();
    if (!stop.stop_requested()) tick();
  }
}

void EventLoop::tick() {
  const uint64_t now = now_ns();
  if (now < next_tick_ns_) return;
  const auto owner = owner_.lock();
  const int next_ms = owner ? owner->on_tick() : -1;
  next_tick_ns_ = next_ms < 0 ? CmTarget::kNoDeadline : now + static_cast<uint64_t>(next_ms) * kMillisecond;
}

int EventLoop::milliseconds_left() {
  uint64_t next = next_tick_ns_;
  std::vector<std::shared_ptr<CmTarget>>
      held;  // destroyed without the lock: a target's destructor calls this object
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, target] : targets_) held.push_back(target.lock());
  }
  for (const auto& target : held)
    if (target) next = std::min(next, target->deadline_ns());
  if (next == CmTarget::kNoDeadline) return -1;
  const uint64_t now = now_ns();
  constexpr uint64_t kMaxMs = 60'000;
  return next <= now ? 0 : static_cast<int>(std::min((next - now) / kMillisecond + 1, kMaxMs));
}

void EventLoop::take_async_events(const std::stop_token& stop) {
  ibv_async_event event;
  while (!stop.stop_requested() && library().get_async_event(context_, &event) == 0) {
    const bool is_removal = event.event_type == IBV_EVENT_DEVICE_FATAL;
    handle_async_event(event);
    if (is_removal) device_removed();
  }
}

void EventLoop::take_cm_events(const std::stop_token& stop) {
  rdma_cm_event* event = nullptr;
  while (!stop.stop_requested() && library().rdma_get_cm_event(channel_, &event) == 0) {
    const CmEvent copy = copy_of(*event);
    const bool is_removal = copy.type == RDMA_CM_EVENT_DEVICE_REMOVAL && event->id->verbs &&
                            library().get_device_name(event->id->verbs->device) == device_;
    std::shared_ptr<CmTarget> target;
    {
      const std::lock_guard lock(mutex_);
      const auto found = targets_.find(copy.new_id ? event->listen_id : event->id);
      if (found != targets_.end()) target = found->second.lock();
    }
    library().rdma_ack_cm_event(event);
    if (is_removal) device_removed();
    if (target) {
      target->on_event(copy);
    } else if (copy.new_id) {
      destroy_id(copy.new_id);  // the listener is gone: the kernel rejects the request
    }
  }
}

void EventLoop::device_removed() {
  const auto owner = owner_.lock();
  if (!owner) return;
  owner->on_device_removed();
  next_tick_ns_ = 0;
}

void EventLoop::hold_device(const SocketAddress& address) {
  {
    const std::lock_guard lock(mutex_);
    if (holder_ || is_any(address)) return;
  }
  SocketAddress at = address;
  rdma_cm_id* id = create_id({}, "open device");
  if (library().rdma_bind_addr(id, at.get()) != 0 || !id->verbs ||
      library().get_device_name(id->verbs->device) != device_) {
    return destroy_id(id);
  }
  {
    const std::lock_guard lock(mutex_);
    if (!holder_) std::swap(holder_, id);
  }
  if (id) destroy_id(id);
}

void EventLoop::forget_device() {
  epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, context_->async_fd, nullptr);
  context_ = nullptr;
  thread_.request_stop();  // there will be no more events
  release_library();
}

void EventLoop::release_library() {
  rdma_cm_id* holder = nullptr;
  {
    const std::lock_guard lock(mutex_);
    std::swap(holder_, holder);
  }
  if (!holder) return;
  // The library offers no function for it: it keeps its handle, which leads to no device from now on.
  const UniqueFd nothing(::open("/dev/null", O_RDWR | O_CLOEXEC));
  for (const int fd : {holder->verbs->cmd_fd, holder->verbs->async_fd}) {
    if (nothing && fd >= 0) ::dup3(nothing.get(), fd, O_CLOEXEC);
  }
  destroy_id(holder);
}

void EventLoop::pass_deadlines() {
  std::vector<std::shared_ptr<CmTarget>> held;
  {
    const std::lock_guard lock(mutex_);
    for (const auto& [id, target] : targets_) held.push_back(target.lock());
  }
  const uint64_t now = now_ns();
  for (const auto& target : held)
    if (target && target->deadline_ns() <= now) target->on_deadline();
}

}  // namespace verbena::ibv
