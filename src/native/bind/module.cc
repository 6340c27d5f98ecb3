// The Python module _native: calls the functions of bind.h, and defines crc32c(), which belongs to no class.
#include <optional>

#include "bind/bind.h"
#include "bind/buffer.h"
#include "bind/handle.h"
#include "bind/unlocked.h"
#include "util/crc32c/crc32c.h"

namespace verbena::bind {

NB_MODULE(_native, m) {
  m.doc() = "Verbena's native core. Private: the public API is verbena.verbs.";
#ifdef NDEBUG
  nb::set_leak_warnings(false);  // objects that are open at exit are closed by the end of the process
#endif
  watch_forks();
  nb::module_::import_("atexit").attr("register")(nb::cpp_function(end_unlocked));
  bind_errors(m);
  bind_values(m);
  bind_memory(m);
  bind_remote_memory(m);
  bind_requests(m);
  bind_completion_queue(m);
  bind_queue_pair(m);
  bind_operations(m);
  bind_connections(m);
  bind_providers(m);
  bind_iwarp(m);
  bind_quic(m);
  bind_faults(m);
  bind_bench(m);
  bind_transport(m);
  bind_kv(m);
  constexpr size_t kLong = 64u << 10;  // longer buffers are summed without the GIL
  m.def(
      "crc32c",
      [](const nb::handle& data, uint32_t seed) {
        const BufferView view(data, PyBUF_SIMPLE);
        std::optional<Unlocked> unlocked;
        if (view.size() > kLong) unlocked.emplace();
        return crc32c(seed, view.data(), view.size());
      },
      nb::arg("data"), nb::arg("seed") = 0, "CRC32C of a buffer, continuing from `seed`.");
}

}  // namespace verbena::bind
