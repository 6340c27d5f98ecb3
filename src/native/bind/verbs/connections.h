// Python's handles on listeners, connect requests and connections. They are created and destroyed with the
// GIL; closing a listener releases it.
// May depend on bind/, verbs/ and util/ only.
#pragma once

#include <nanobind/nanobind.h>

#include "bind/handle.h"
#include "bind/unlocked.h"
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

struct ConnectionHandle {
  explicit ConnectionHandle(std::shared_ptr<Connection> object)
      : connection(std::move(object), "connection") {}

  Handle<Connection> connection;
};

}  // namespace verbena::bind
