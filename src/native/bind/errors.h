// Converts native failures to exceptions of verbena.errors. Every function needs the GIL.
// Depends on nanobind, verbs/types.h and util/.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "util/error_code.h"
#include "verbs/types.h"

namespace verbena::bind {

[[noreturn]] void raise(const nanobind::object& error);
[[noreturn]] void raise_completion(Status status, const std::string& operation, const std::string& peer);

// `accepted` is the number of accepted requests; it becomes an attribute of the exception.
[[noreturn]] void raise_post(PostError error, size_t accepted, const char* operation,
                             const std::string& peer);

// Raises `error` for a failed batch, with `completed` as the attributes `completed` and `index`.
[[noreturn]] void raise_batch(nanobind::object error, size_t completed);
nanobind::object completion_error(Status status, const std::string& operation, const std::string& peer);
nanobind::object setup_error(ErrorCode code, const std::string& operation, const std::string& detail,
                             const std::string& peer = {}, int error_number = 0);

}  // namespace verbena::bind
