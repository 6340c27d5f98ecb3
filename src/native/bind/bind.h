// The functions that add each part of the Python module _native. Only bind/ may use Python or nanobind.
// Depends on nanobind only; the parts depend on the layers that they bind.
#pragma once

#include <nanobind/nanobind.h>

namespace nb = nanobind;

namespace verbena::bind {

void bind_errors(nb::module_& m);
void bind_values(nb::module_& m);
void bind_memory(nb::module_& m);
void bind_remote_memory(nb::module_& m);
void bind_requests(nb::module_& m);
void bind_completion_queue(nb::module_& m);
void bind_queue_pair(nb::module_& m);
void bind_windows(nb::module_& m);
void bind_operations(nb::module_& m);
void bind_connections(nb::module_& m);
void bind_providers(nb::module_& m);
void bind_iwarp(nb::module_& m);
void bind_quic(nb::module_& m);
void bind_faults(nb::module_& m);
void bind_bench(nb::module_& m);
void bind_transport(nb::module_& m);
void bind_session(nb::module_& m);
void bind_far(nb::module_& m);
void bind_kv(nb::module_& m);

}  // namespace verbena::bind
