#include "bind/errors.h"

#include "bind/bind.h"
#include "util/error.h"

namespace verbena::bind {
namespace {

struct PostFailure {
  ErrorCode code;
  const char* detail;
};

// Indexed by PostError; `none` and `full` have rows too.
constexpr PostFailure kPostFailures[] = {
    {"invalid_argument", ""},
    {"queue_full", ""},
    {"bad_transition", "the queue does not take requests in this state"},
    {"limit_exceeded", "more scatter/gather elements than the queue was made for"},
    {"limit_exceeded", "more inline bytes than the queue pair was made for"},
    {"unsupported_opcode", ""},
    {"limit_exceeded", "the message is longer than the device carries"},
    {"invalid_argument", "the device refuses the request; an atomic needs 8 aligned bytes at both ends"},
};

nb::object errors_module() { return nb::module_::import_("verbena.errors"); }

nb::object text_or_none(const std::string& text) {
  return text.empty() ? nb::none() : nb::object(nb::str(text.c_str(), text.size()));
}

void translate(const std::exception_ptr& pointer, void*) {
  try {
    std::rethrow_exception(pointer);
  } catch (const Error& failure) {
    const nb::object error =
        setup_error(failure.code(), failure.operation(), failure.detail(), {}, failure.error_number());
    PyErr_SetObject(error.type().ptr(), error.ptr());
  }
}

}  // namespace

void raise(const nb::object& error) {
  PyErr_SetObject(error.type().ptr(), error.ptr());
  throw nb::python_error();
}

nb::object setup_error(ErrorCode code, const std::string& operation, const std::string& detail,
                       const std::string& peer, int error_number) {
  using namespace nb::literals;
  return errors_module().attr("setup_error")(code.c_str(), "operation"_a = nb::str(operation.c_str()),
                                             "peer"_a = text_or_none(peer), "detail"_a = text_or_none(detail),
                                             "errno"_a = error_number);
}

nb::object completion_error(Status status, const std::string& operation, const std::string& peer) {
  using namespace nb::literals;
  return errors_module().attr("completion_error")(
      static_cast<int>(status), "operation"_a = nb::str(operation.c_str()), "peer"_a = text_or_none(peer));
}

void raise_completion(Status status, const std::string& operation, const std::string& peer) {
  raise(completion_error(status, operation, peer));
}

void raise_post(PostError error, size_t accepted, const char* operation, const std::string& peer) {
  const PostFailure& failure = kPostFailures[static_cast<size_t>(error)];
  const nb::object exception = setup_error(failure.code, operation, failure.detail, peer);
  exception.attr("accepted") = accepted;
  raise(exception);
}

void raise_batch(nb::object error, size_t completed) {
  error.attr("completed") = completed;
  error.attr("index") = completed;
  raise(error);
}

void bind_errors(nb::module_&) { nb::register_exception_translator(translate); }

}  // namespace verbena::bind
