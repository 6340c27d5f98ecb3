// Binds the options of the iWARP wire, and opening a context with them.
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include "bind/bind.h"
#include "bind/unlocked.h"
#include "bind/verbs/providers.h"
#include "providers/iwarp/options.h"

namespace verbena::bind {

void bind_iwarp(nb::module_& m) {
  using iwarp::Options;
  using net::TlsOptions;
  nb::class_<TlsOptions>(m, "IwarpTlsOptions")
      .def(
          "__init__",
          [](TlsOptions* self, const std::string& certificate, const std::string& key,
             const std::string& authority, bool require_peer_certificate) {
            new (self) TlsOptions{certificate, key, authority, require_peer_certificate};
          },
          nb::arg("certificate"), nb::arg("key"), nb::arg("authority"), nb::arg("require_peer_certificate"))
      .def_ro("certificate", &TlsOptions::certificate)
      .def_ro("key", &TlsOptions::key)
      .def_ro("authority", &TlsOptions::authority)
      .def_ro("require_peer_certificate", &TlsOptions::require_peer_certificate);
  nb::class_<Options>(m, "IwarpOptions", "As the environment has them, until they are set.")
      .def("__init__", [](Options* self) { new (self) Options(iwarp::options_from_environment()); })
      .def_rw("crc", &Options::crc, nb::arg().none())
      .def_rw("markers", &Options::markers)
      .def_rw("acknowledged", &Options::acknowledged)
      .def_rw("mpa_revision", &Options::mpa_revision)
      .def_rw("tls", &Options::tls, nb::arg().none())
      .def_rw("handshake_timeout_ms", &Options::handshake_timeout_ms)
      .def_rw("stall_timeout_ms", &Options::stall_timeout_ms)
      .def_rw("dead_peer_timeout_ms", &Options::dead_peer_timeout_ms)
      .def_rw("max_handshakes", &Options::max_handshakes);
  m.def(
      "open_iwarp",
      [](const std::string& device, const Options& options) {
        std::shared_ptr<Context> context;
        {
          const Unlocked unlocked;
          context = iwarp::open(device, options);
        }
        return new ContextHandle(std::move(context));
      },
      nb::arg("device"), nb::arg("options"));
}

}  // namespace verbena::bind
