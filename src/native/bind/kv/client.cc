// _native.kv.Client: a client of the engine for the Python handlers: its state, its flags and its replies.
// Refers to the client by its id, so the client may be gone at each call.
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <set>

#include "bind/kv/replies.h"
#include "bind/kv/store.h"

namespace verbena::bind {
namespace {

// Calls `function` with the client, under the engine's lock. If the client is gone, returns a default value.
template <typename Function>
auto with_client(ClientHandle& self, Function function) {
  const auto held = self.engine->lock();
  kv::Client* client = self.engine->engine->find(self.id);
  using Result = decltype(function(*client));
  if constexpr (std::is_void_v<Result>) {
    if (client) function(*client);
  } else {
    return client ? function(*client) : Result{};
  }
}

template <auto Member>
auto client_getter() {
  return
      [](ClientHandle& self) { return with_client(self, [](kv::Client& client) { return client.*Member; }); };
}
template <auto Member, typename Value>
auto client_setter() {
  return [](ClientHandle& self, Value value) {
    with_client(self, [&](kv::Client& client) { client.*Member = std::move(value); });
  };
}

// An exception leaves `out` as it was.
void reply(ClientHandle& self, nb::handle value) {
  with_client(self, [&](kv::Client& client) {
    const size_t before = client.out.size();
    kv::ReplyWriter writer(client.out, client.version);
    try {
      write_reply(writer, value);
    } catch (...) {
      client.out.resize(before);
      throw;
    }
    if (client.out.size() != before) self.engine->engine->schedule_write(client);
  });
}

bool run_native(ClientHandle& self, nb::handle argv) {
  const auto arguments = arguments_of(argv);
  if (arguments.empty()) return false;
  return with_client(self, [&](kv::Client& client) {
    const bool done = self.engine->engine->run_native(client, arguments);
    // Needed if no request of the client is running now: the command was held and its time has come.
    if (!client.out.empty()) self.engine->engine->schedule_write(client);
    return done;
  });
}

// Resumes on the loop: the requests that arrived meanwhile must not run within the command that runs now.
void resume(ClientHandle& self) {
  auto* handle = self.engine;
  handle->loop->post([handle, id = self.id] {
    kv::Client* waiting = handle->engine->find(id);
    if (waiting && !waiting->blocked) handle->engine->resume(*waiting);
  });
}

void unblock(ClientHandle& self) {
  with_client(self, [&](kv::Client& client) {
    if (!client.blocked) return;
    client.blocked = false;
    resume(self);
  });
}

void set_reads_all_keys(ClientHandle& self, bool may) {
  with_client(self, [&](kv::Client& client) {
    if (client.reads_all_keys == may) return;
    const Unlocked unlocked;  // it waits for the node's lock, whose holder may wait for the GIL
    client.set_reads_all_keys(may);
  });
}

// Returns a copy of the name that is never freed. There is at most one copy per command.
const char* kept(const std::string& name) {
  static std::set<std::string> names;
  return names.insert(name).first->c_str();
}

}  // namespace

void bind_kv_client(nb::module_& m) {
  nb::class_<ClientHandle>(m, "Client",
                           "A client by its number. Calls for a client that has disconnected have no effect.")
      .def_ro("id", &ClientHandle::id)
      .def_prop_ro("here",
                   [](ClientHandle& self) { return with_client(self, [](kv::Client&) { return true; }); })
      .def_prop_ro("address", client_getter<&kv::Client::address>())
      .def_prop_ro("local_address", client_getter<&kv::Client::local_address>())
      .def_prop_ro(
          "session_stream",
          [](ClientHandle& self) {
            return with_client(self, [](kv::Client& client) { return client.session_stream(); });
          },
          "The session and the number of a stream. (0, 0): the client is no stream.")
      .def_prop_ro("fileno",
                   [](ClientHandle& self) {
                     return with_client(self, [](kv::Client& client) { return client.fileno(); });
                   })
      .def_prop_rw("name", client_getter<&kv::Client::name>(),
                   client_setter<&kv::Client::name, std::string>())
      .def_prop_rw("database", client_getter<&kv::Client::database>(),
                   client_setter<&kv::Client::database, uint32_t>())
      .def_prop_rw("version", client_getter<&kv::Client::version>(),
                   client_setter<&kv::Client::version, int>())
      .def_prop_rw("python_dispatch", client_getter<&kv::Client::python_dispatch>(),
                   client_setter<&kv::Client::python_dispatch, bool>())
      .def_prop_rw("unauthenticated", client_getter<&kv::Client::unauthenticated>(),
                   client_setter<&kv::Client::unauthenticated, bool>())
      .def_prop_rw("reads_all_keys", client_getter<&kv::Client::reads_all_keys>(), set_reads_all_keys)
      .def_prop_rw("blocked", client_getter<&kv::Client::blocked>(),
                   client_setter<&kv::Client::blocked, bool>())
      .def_prop_rw("out_limit", client_getter<&kv::Client::out_limit>(),
                   client_setter<&kv::Client::out_limit, size_t>())
      .def_prop_ro("created_ms", client_getter<&kv::Client::created_ms>())
      .def_prop_ro("last_ms", client_getter<&kv::Client::last_ms>())
      .def_prop_ro("commands", client_getter<&kv::Client::commands>())
      .def_prop_ro("bytes_in", client_getter<&kv::Client::bytes_in>())
      .def_prop_ro("bytes_out", client_getter<&kv::Client::bytes_out>())
      .def_prop_rw("asking", client_getter<&kv::Client::asking>(), client_setter<&kv::Client::asking, bool>())
      .def_prop_rw("reads_replica", client_getter<&kv::Client::reads_replica>(),
                   client_setter<&kv::Client::reads_replica, bool>())
      .def_prop_rw("no_touch", client_getter<&kv::Client::no_touch>(),
                   client_setter<&kv::Client::no_touch, bool>())
      .def_prop_rw(
          "last_command",
          [](ClientHandle& self) {
            return with_client(self, [](kv::Client& client) { return std::string(client.last_command); });
          },
          [](ClientHandle& self, const std::string& name) {
            with_client(self, [&](kv::Client& client) { client.last_command = kept(name); });
          })
      .def_prop_ro("pending_in",
                   [](ClientHandle& self) {
                     return with_client(self, [](kv::Client& client) { return client.in.size(); });
                   })
      .def_prop_ro("pending_out",
                   [](ClientHandle& self) {
                     return with_client(self, [](kv::Client& client) { return client.pending_out(); });
                   })
      .def("reply", reply, nb::arg("value").none(),
           "Sends a reply or a push message in the client's version of RESP.")
      .def(
          "write",
          [](ClientHandle& self, const nb::bytes& raw) {
            with_client(self, [&](kv::Client& client) {
              client.out.append(view_of(raw));
              self.engine->engine->schedule_write(client);
            });
          },
          nb::arg("raw"), "Sends bytes that are RESP already.")
      .def(
          "take_out",
          [](ClientHandle& self, size_t from) {
            return with_client(self, [&](kv::Client& client) {
              const size_t gone = client.pending_out() - client.out.size();
              std::string taken = client.out.substr(std::min(from - std::min(from, gone), client.out.size()));
              client.out.resize(client.out.size() - taken.size());
              return nb::object(to_bytes(taken));
            });
          },
          nb::arg("start"), "Removes and returns the output after this position.")
      .def("run_native", run_native, nb::arg("argv"),
           "Runs a native command. False: the command is not native.")
      .def(
          "watch",
          [](ClientHandle& self, uint32_t database, const nb::bytes& key) {
            const auto held = self.engine->lock();
            self.engine->engine->keyspace.watch(database, view_of(key), self.id);
          },
          nb::arg("database"), nb::arg("key"))
      .def("resume", resume, "Resumes a client that was blocked.")
      .def("unblock", unblock, "Unblocks the client and runs the requests that arrived meanwhile.")
      .def(
          "close",
          [](ClientHandle& self, bool at_once) {
            set_reads_all_keys(self, false);
            with_client(self, [&](kv::Client& client) {
              (at_once ? client.close_now : client.close_after_reply) = true;
              self.engine->engine->schedule_write(client);
            });
          },
          nb::kw_only(), nb::arg("at_once") = false,
          "Disconnects the client after its pending output has been sent, or at once.");
}

}  // namespace verbena::bind
