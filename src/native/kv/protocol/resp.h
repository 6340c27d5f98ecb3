// RESP, the protocol of Redis and Valkey: parses requests and writes replies.
// No I/O; depends on nothing else of the project.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "kv/protocol/arguments.h"

namespace verbena::kv {

struct RequestLimits {
  size_t arguments = 1024 * 1024;
  size_t argument_bytes = 512u << 20;
  size_t inline_bytes = 64u << 10;
};
constexpr RequestLimits kUnauthenticatedLimits{.arguments = 10,
                                               .argument_bytes = 16u << 10};  // before authentication

// Parses a complete request in the plain form at the start of the input. Returns its length; the first
// `count` elements of `arguments` are its arguments. 0: the request is incomplete or has another form, so
// that a RequestReader must parse it, or `arguments` is too small.
size_t parse_whole_request(std::string_view input, const RequestLimits& limits,
                           std::span<std::string_view> arguments, size_t& count);

// Parses one request after the other from a growing buffer. It remembers its position in an incomplete
// request, so that no byte is parsed twice.
class RequestReader {
 public:
  enum class Result : uint8_t { ready, more, bad };

  // Parses a request at the start of `input`. `more`: call again when the input has grown; it must still
  // begin with the same request. `ready`: use arguments() and consumed(), then call next(). `bad`: reply with
  // fault() and close the connection.
  Result read(std::string_view input, const RequestLimits& limits);
  // After `ready`: the arguments, as views of `input` or of an inline request's own text, and the length of
  // the request. No arguments: an empty line.
  Arguments arguments() const { return arguments_; }
  size_t consumed() const { return position_; }
  // After `bad`: the error reply. The connection must be closed.
  const std::string& fault() const { return fault_; }
  // Forgets the request, whose arguments become invalid.
  void next();
  // Takes over a request of `bytes` bytes that parse_whole_request() parsed: the next read() of an input that
  // begins with it returns its arguments without parsing it again.
  void adopt(std::string_view input, size_t bytes, Arguments arguments);
  // True: no part of a request has been parsed.
  bool is_fresh() const { return missing_ < 0; }
  // The minimum length of the request, for which the buffer should have room.
  size_t expected_bytes() const { return expected_; }

 private:
  struct Piece {
    size_t start, length;
  };
  Result read_inline(std::string_view input, const RequestLimits& limits);
  Result bad(std::string why);
  // Takes the number on the line whose type byte is at position_. False: it is incomplete, or wrong (fault_
  // is set).
  bool read_number(std::string_view input, const char* what, int64_t& number);

  size_t position_ = 0;
  int64_t missing_ = -1;         // arguments that are still to come; -1: not known yet
  int64_t argument_bytes_ = -1;  // length of the argument being parsed; -1: not known yet
  size_t expected_ = 0;
  std::vector<Piece> pieces_;
  std::vector<std::string_view> arguments_;
  std::string inline_text_;  // the unescaped arguments of an inline request
  std::string fault_;
};

// Appends replies to `out`, in the version of RESP that the client uses.
class ReplyWriter {
 public:
  ReplyWriter(std::string& out, int version) : out_(out), version_(version) {}

  int version() const { return version_; }
  void simple(std::string_view text);  // must not contain line ends
  void ok() { out_.append("+OK\r\n", 5); }
  void error(std::string_view text);  // begins with its code: "ERR …"
  void integer(int64_t number);
  void bulk(std::string_view bytes);
  void null() { version_ == 2 ? out_.append("$-1\r\n", 5) : out_.append("_\r\n", 3); }
  void null_array() { version_ == 2 ? out_.append("*-1\r\n", 5) : out_.append("_\r\n", 3); }
  void boolean(bool yes);
  void number(double value);
  void big_number(std::string_view digits);
  void verbatim(std::string_view text);
  void array(size_t items) { header('*', items); }
  void map(size_t pairs) { version_ == 2 ? header('*', pairs * 2) : header('%', pairs); }
  void set(size_t items) { header(version_ == 2 ? '*' : '~', items); }
  void push(size_t items) { header(version_ == 2 ? '*' : '>', items); }
  void raw(std::string_view bytes) { out_.append(bytes); }

 private:
  void header(char kind, size_t number);

  std::string& out_;
  const int version_;
};

// Append to a request: put_count(out, '*', arguments), then each argument.
void put_count(std::string& out, char kind, size_t count);
void put_argument(std::string& out, std::string_view argument);

// Formats a double with 17 digits, as Redis 7.0 does: "3", "0.10000000000000001", "inf".
std::string format_double(double value);

}  // namespace verbena::kv
