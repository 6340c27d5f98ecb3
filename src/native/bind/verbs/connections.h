// Python's handles on listeners, connect requests and connections. They are created and destroyed with the
// GIL; closing a listener releases it.
// May depend on bind/, verbs/ and util/ only.
#pragma once

#include <nanobind/nanobind.h>

#include <cstdint>
#include <mutex>
#include <vector>

#include "bind/handle.h"
#include "bind/unlocked.h"
#include "util/fd.h"
#include "verbs/provider.h"

namespace verbena::bind {

struct ListenerHandle {
  explicit ListenerHandle(std::shared_ptr<Listener> object) : listener(std::move(object), "listener") {}
  ~ListenerHandle() { close(); }

  void close() {
    if (!listener.start_close()) return;
    const Unlocked unlocked;
    listener.core()->close();
  }

  Handle<Listener> listener;
};

struct RequestHandle {
  explicit RequestHandle(std::shared_ptr<ConnectRequest> object)
      : request(std::move(object), "connect request") {}

  Handle<ConnectRequest> request;
};

// The connections whose state has changed, for an event loop: one descriptor for all of them.
class ConnectionEvents {
 public:
  void push(uint64_t token) {
    const std::lock_guard lock(mutex_);
    if (changed_.empty()) event_.signal();
    changed_.push_back(token);
  }
  std::vector<uint64_t> take() {
    std::vector<uint64_t> taken;
    const std::lock_guard lock(mutex_);
    if (!changed_.empty()) event_.clear();
    taken.swap(changed_);
    return taken;
  }
  int fileno() const { return event_.get(); }

 private:
  std::mutex mutex_;
  std::vector<uint64_t> changed_;
  const EventFd event_;
};

struct ConnectionEventsHandle {
  std::shared_ptr<ConnectionEvents> events = std::make_shared<ConnectionEvents>();
};

struct ConnectionHandle {
  explicit ConnectionHandle(std::shared_ptr<Connection> object)
      : connection(std::move(object), "connection") {}

  Handle<Connection> connection;
};

}  // namespace verbena::bind
