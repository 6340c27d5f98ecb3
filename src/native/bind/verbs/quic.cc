// Binds the options of the QUIC wire, and opening a context with them.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "bind/bind.h"
#include "bind/unlocked.h"
#include "bind/verbs/providers.h"
#include "providers/quic/options.h"

namespace verbena::bind {
namespace {

// Binds an option that the QUIC wire shares with the iWARP wire.
template <auto Member>
void share(nb::class_<quic::Options>& options, const char* name) {
  using Value = std::remove_cvref_t<decltype(std::declval<iwarp::Options>().*Member)>;
  options.def_prop_rw(
      name, [](const quic::Options& self) { return self.stream.*Member; },
      [](quic::Options& self, const Value& value) { self.stream.*Member = value; });
}

}  // namespace

void bind_quic(nb::module_& m) {
  using quic::Options;
  nb::class_<Options> options(m, "QuicOptions", "As the environment has them, until they are set.");
  options.def("__init__", [](Options* self) { new (self) Options(quic::options_from_environment()); })
      .def_rw("revoked", &Options::revoked)
      .def_rw("datagram_bytes", &Options::datagram_bytes)
      .def_rw("max_streams", &Options::max_streams)
      .def_rw("window_bytes", &Options::window_bytes)
      .def_prop_rw(
          "tls", [](const Options& self) { return self.stream.tls; },
          [](Options& self, const std::optional<net::TlsOptions>& tls) { self.stream.tls = tls; },
          nb::arg("tls").none());
  share<&iwarp::Options::handshake_timeout_ms>(options, "handshake_timeout_ms");
  share<&iwarp::Options::stall_timeout_ms>(options, "stall_timeout_ms");
  share<&iwarp::Options::dead_peer_timeout_ms>(options, "dead_peer_timeout_ms");
  share<&iwarp::Options::max_handshakes>(options, "max_handshakes");
  m.def(
      "open_quic",
      [](const std::string& device, const Options& wanted) {
        std::shared_ptr<Context> context;
        {
          const Unlocked unlocked;
          context = quic::open(device, wanted);
        }
        return new ContextHandle(std::move(context));
      },
      nb::arg("device"), nb::arg("options"));
}

}  // namespace verbena::bind
