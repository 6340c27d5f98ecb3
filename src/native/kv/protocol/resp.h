// RESP, the protocol of Redis and Valkey, without I/O: requests out of bytes, replies into bytes.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace verbena::kv {

struct RequestLimits {
  size_t arguments = 1024 * 1024;
  size_t argument_bytes = 512u << 20;
  size_t inline_bytes = 64u << 10;
};
constexpr RequestLimits kUnauthenticatedLimits{.arguments = 10,
                                               .argument_bytes = 16u << 10};  // who has not said who he is

// Takes a request that is there as a whole, in the plainest form, off the start of the input: its length, and
// its words at the start of `words`, `count` of them. 0: a RequestReader has to look closer, or there is no
// room.
size_t parse_whole_request(std::string_view input, const RequestLimits& limits,
                           std::span<std::string_view> arguments, size_t& count);

// Reads one request after the other from a growing buffer. It remembers how far it got with one that is not
// whole yet, so that nothing is looked at twice.
class RequestReader {
 public:
  enum class Result : uint8_t { ready, more, bad };

  // `input` begins where the request begins, also when it is called again with more of it.
  Result read(std::string_view input, const RequestLimits& limits);
  // After `ready`: the words, within `input`, and how many bytes the request took. No words: an empty line.
  std::span<const std::string_view> arguments() const { return arguments_; }
  size_t consumed() const { return position_; }
  // After `bad`: what is wrong, for the reply; the connection is of no use any more.
  const std::string& fault() const { return fault_; }
  // The request whose words were used is done with.
  void next();
  // Nothing of a request has been read yet.
  bool is_fresh() const { return missing_ < 0; }
  // How long the request will be at least: what the buffer should have room for.
  size_t expected_bytes() const { return expected_; }

 private:
  struct Piece {
    size_t start, length;
  };
  Result read_inline(std::string_view input, const RequestLimits& limits);
  Result bad(std::string why);
  // The number on the line that starts behind position_; false: it is not whole yet, or wrong (fault_).
  bool read_number(std::string_view input, const char* what, int64_t& number);

  size_t position_ = 0;
  int64_t missing_ = -1;         // words of the request; -1: not known yet
  int64_t argument_bytes_ = -1;  // of the one being read; -1: not known yet
  size_t expected_ = 0;
  std::vector<Piece> pieces_;
  std::vector<std::string_view> arguments_;
  std::string inline_text_;  // words with escapes
  std::string fault_;
};

// Writes replies in the version that the client speaks.
class ReplyWriter {
 public:
  ReplyWriter(std::string& out, int version) : out_(out), version_(version) {}

  int version() const { return version_; }
  void simple(std::string_view text);  // no line ends in it
  void ok() { out_.append("+OK\r\n", 5); }
  void error(std::string_view text);  // with its code: "ERR …"
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

// A double with all digits that say it exactly, as Redis 7.0 writes it: "3", "0.10000000000000001", "inf".
std::string format_double(double value);

}  // namespace verbena::kv
